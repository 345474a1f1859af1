/* oip_parse.h: an infer body through the reader and the request parser, and expectations about what they say.
 */
#ifndef DK_TESTS_OIP_PARSE_H
#define DK_TESTS_OIP_PARSE_H

#include "tests/unit/proto/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/oip.h"

/* {"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32",<rest>}]<tail>} */
#define OIP_X    "\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\""
#define OIP_DATA "\"data\":[1,2,3,4]"
#define OIP_GOOD "{\"inputs\":[{" OIP_X "," OIP_DATA "}]}"

static inline dk_status oip_parse_bytes(const char *body, size_t length, struct dk_oip_request *request,
                                        struct dk_error *error)
{
    struct dk_json_reader *reader;
    assert_int_equal(dk_json_reader_new(dk_oip_paths, DK_OIP_PATH_COUNT, NULL, &reader), DK_OK);
    (void)dk_json_reader_feed(reader, body, length, error); /* the error sticks */
    dk_status status = dk_oip_request_parse(reader, request, error);
    dk_json_reader_free(reader);
    return status;
}

static inline dk_status oip_parse(const char *body, struct dk_oip_request *request, struct dk_error *error)
{
    return oip_parse_bytes(body, strlen(body), request, error);
}

static inline void oip_accept(const char *body, struct dk_oip_request *request)
{
    struct dk_error error = {0};
    if (oip_parse(body, request, &error) != DK_OK) {
        fail_msg("refused: %s\n%s", body, error.message);
    }
}

/* `text` must be part of the message; the result must be untouched. */
static inline void oip_refuse(const char *body, dk_status expected, const char *text)
{
    struct dk_oip_request request;
    struct dk_oip_request untouched;
    struct dk_error error = {0};
    memset(&request, 0x55, sizeof request);
    memset(&untouched, 0x55, sizeof untouched);
    dk_status status = oip_parse(body, &request, &error);
    if (status != expected || strstr(error.message, text) == NULL) {
        fail_msg("%s\n%s, expected %s with \"%s\": %s", body, dk_status_name(status),
                 dk_status_name(expected), text, error.message);
    }
    assert_int_equal(error.status, status);
    assert_memory_equal(&request, &untouched, sizeof request);
}

#endif

/* status.h: every outcome a caller can see, in one table: name, HTTP status, text. */
#ifndef DK_PROTO_STATUS_H
#define DK_PROTO_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DK_API
#define DK_API __attribute__((visibility("default")))
#endif

/* X(name, http_status, text). The order is ABI: append only. PROTOCOL.md holds the same table and a test
 * compares. */
#define DK_STATUS_MAP(X)                                                                                     \
    X(OK, 200, "ok")                                                                                         \
    X(BAD_REQUEST, 400, "the request is malformed")                                                          \
    X(BAD_JSON, 400, "the body is not strict JSON")                                                          \
    X(BAD_SHAPE, 400, "a shape does not fit")                                                                \
    X(BAD_DTYPE, 400, "a data type is unknown or not allowed here")                                          \
    X(BAD_VALUE, 400, "a value is out of range")                                                             \
    X(UNAUTHORIZED, 401, "a valid API key is required")                                                      \
    X(FORBIDDEN, 403, "this operation is switched off")                                                      \
    X(NOT_FOUND, 404, "no such route, model or region")                                                      \
    X(METHOD_NOT_ALLOWED, 405, "the method is not allowed on this route")                                    \
    X(TIMEOUT, 408, "the client or the job took too long")                                                   \
    X(TOO_LARGE, 413, "the request is larger than a limit")                                                  \
    X(UNSUPPORTED_MEDIA, 415, "the content type or coding is not supported")                                 \
    X(EXPECTATION_FAILED, 417, "the expectation is not supported")                                           \
    X(CANCELLED, 400, "the job was cancelled")                                                               \
    X(NO_MEMORY, 500, "out of memory")                                                                       \
    X(INTERNAL, 500, "internal error")                                                                       \
    X(DEVICE_FAILED, 500, "the compute device failed")                                                       \
    X(UNSUPPORTED, 501, "not supported by this build or backend")                                            \
    X(BUSY, 503, "a bounded resource is used up; try again")                                                 \
    X(UNAVAILABLE, 503, "not serving")                                                                       \
    X(IO_ERROR, 500, "an input or output operation failed")                                                  \
    X(BAD_FILE, 400, "a file is malformed")

enum dk_status {
#define DK_STATUS_ENUM(name, http, text) DK_##name,
    DK_STATUS_MAP(DK_STATUS_ENUM)
#undef DK_STATUS_ENUM
        DK_STATUS_COUNT
};
typedef enum dk_status dk_status;

/* All three accept any value; an unknown one is named "INTERNAL". Static strings, never freed. Thread: any.
 */
DK_API const char *dk_status_name(dk_status status);
DK_API const char *dk_status_text(dk_status status);
DK_API int dk_status_http(dk_status status);

/* The message that travels beside a status: what was expected and what was found, with the offending value.
 * Written by the function that returns a status other than DK_OK; untouched on success. */
enum { DK_MESSAGE_BYTES = 384 };
struct dk_error {
    dk_status status;
    char message[DK_MESSAGE_BYTES]; /* UTF-8, truncated at a character border, always terminated */
};

/* Format `error->message`, set and return `status`. `error` may be NULL. Locale-free for %s %d %u %zu %llu.
 * Bytes of %s that are control characters or invalid UTF-8 are replaced by '?', so that the text can go to a
 * log. */
DK_API dk_status dk_fail(struct dk_error *error, dk_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif
#endif

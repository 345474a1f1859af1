/* oip_coding.c: Content-Encoding and Accept-Encoding. */
#include "proto/oip_coding.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { VALUE_SHOWN = 80, FULL_QUALITY = 1000 };

static const char *const names[DK_CODING_COUNT] = {
    [DK_CODING_IDENTITY] = "identity", [DK_CODING_GZIP] = "gzip", [DK_CODING_DEFLATE] = "deflate"};

const char *dk_coding_name(enum dk_coding coding)
{
    assert(coding < DK_CODING_COUNT);
    return names[coding];
}

/* Case of ASCII letters does not matter; whatever the locale. `text` is in lower case. */
static bool is_text(const char *at, size_t length, const char *text)
{
    bool is_same = length == strlen(text);
    for (size_t i = 0; i < length && is_same; i++) {
        char c = at[i] >= 'A' && at[i] <= 'Z' ? (char)(at[i] - 'A' + 'a') : at[i];
        is_same = c == text[i];
    }
    return is_same;
}

static bool find_coding(const char *at, size_t length, enum dk_coding *out)
{
    if (is_text(at, length, "x-gzip")) {
        *out = DK_CODING_GZIP;
        return true;
    }
    for (int i = 0; i < DK_CODING_COUNT; i++) {
        if (is_text(at, length, names[i])) {
            *out = (enum dk_coding)i;
            return true;
        }
    }
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without the white space at both ends. */
static void trim(const char **at, size_t *length)
{
    while (*length > 0 && is_blank(**at)) {
        ++*at;
        --*length;
    }
    while (*length > 0 && is_blank((*at)[*length - 1])) {
        --*length;
    }
}

dk_status dk_coding_parse(const char *value, enum dk_coding *out, struct dk_error *error)
{
    const char *at = value == NULL ? "" : value;
    size_t length = strlen(at);
    trim(&at, &length);
    if (length == 0) {
        *out = DK_CODING_IDENTITY;
        return DK_OK;
    }
    if (!find_coding(at, length, out)) {
        return dk_fail(error, DK_UNSUPPORTED_MEDIA,
                       "Content-Encoding: expected gzip, deflate or identity, found \"%.*s\"",
                       (int)VALUE_SHOWN, value);
    }
    return DK_OK;
}

/* "1", "0.5", "0.125": thousandths; -1 when malformed. */
static int parse_quality(const char *at, size_t length)
{
    if (length == 0 || (at[0] != '0' && at[0] != '1') || length > 5 || (length > 1 && at[1] != '.')) {
        return -1;
    }
    int quality = (at[0] - '0') * FULL_QUALITY;
    int weight = FULL_QUALITY / 10;
    for (size_t i = 2; i < length; i++) {
        if (at[i] < '0' || at[i] > '9') {
            return -1;
        }
        quality += (at[i] - '0') * weight;
        weight /= 10;
    }
    return quality <= FULL_QUALITY ? quality : -1;
}

/* One element, "gzip;q=0.5". False when it is malformed or of no coding we know. */
static bool parse_element(const char *at, size_t length, enum dk_coding *coding, int *quality)
{
    const char *semicolon = memchr(at, ';', length);
    size_t name_length = semicolon == NULL ? length : (size_t)(semicolon - at);
    const char *name = at;
    trim(&name, &name_length);
    if (!find_coding(name, name_length, coding)) {
        return false;
    }
    *quality = FULL_QUALITY;
    if (semicolon == NULL) {
        return true;
    }
    const char *parameter = semicolon + 1;
    size_t parameter_length = (size_t)(at + length - parameter);
    trim(&parameter, &parameter_length);
    if (parameter_length < 2 || (parameter[0] != 'q' && parameter[0] != 'Q') || parameter[1] != '=') {
        return false;
    }
    *quality = parse_quality(parameter + 2, parameter_length - 2);
    return *quality >= 0;
}

enum dk_coding dk_coding_choose(const char *value)
{
    int qualities[DK_CODING_COUNT] = {0};
    for (const char *at = value; at != NULL;) {
        const char *comma = strchr(at, ',');
        size_t length = comma == NULL ? strlen(at) : (size_t)(comma - at);
        enum dk_coding coding;
        int quality;
        if (parse_element(at, length, &coding, &quality)) {
            qualities[coding] = quality;
        }
        at = comma == NULL ? NULL : comma + 1;
    }
    enum dk_coding best =
        qualities[DK_CODING_GZIP] >= qualities[DK_CODING_DEFLATE] ? DK_CODING_GZIP : DK_CODING_DEFLATE;
    return qualities[best] > 0 && qualities[best] >= qualities[DK_CODING_IDENTITY] ? best
                                                                                   : DK_CODING_IDENTITY;
}

/* exposition_reader.c: the strict reader: families in one piece, cumulative buckets, no duplicate series. */
#include "tests/unit/server/exposition_reader.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct family {
    char name[96], type[16];
    bool has_help;
};
struct reader {
    bool is_openmetrics;
    struct family families[128];
    size_t family_count;
    char (*series)[384]; /* every name{labels} seen */
    size_t series_count, series_room;
    /* the histogram being read */
    char bucket_labels[200];
    double bucket_le, bucket_last, sum_seen;
    bool is_open, has_inf;
};

static const char *read_name(const char *at, char *out, size_t size)
{
    size_t length = 0;
    assert_true(isalpha((unsigned char)*at) || *at == '_');
    while (isalnum((unsigned char)*at) || *at == '_') {
        assert_true(length + 1 < size);
        out[length++] = *at++;
    }
    out[length] = '\0';
    return at;
}

/* `{a="b",le="c"}`: labels without le to `out`, le to `le` ("" when absent). */
static const char *read_labels(const char *at, char *out, size_t size, char *le, size_t le_size)
{
    size_t length = 0;
    out[0] = le[0] = '\0';
    if (*at != '{')
        return at;
    at++;
    while (*at != '}') {
        char name[64], value[200];
        size_t value_length = 0;
        at = read_name(at, name, sizeof name);
        assert_memory_equal(at, "=\"", 2);
        for (at += 2; *at != '"'; at++) {
            assert_true(*at != '\n' && *at != '\0' && value_length + 2 < sizeof value);
            if (*at == '\\') {
                assert_non_null(strchr("\\\"n", at[1]));
                value[value_length++] = *at++;
            }
            value[value_length++] = *at;
        }
        value[value_length] = '\0';
        at++;
        if (strcmp(name, "le") == 0)
            snprintf(le, le_size, "%.31s", value);
        else
            length += (size_t)snprintf(out + length, size - length, "%s=\"%s\",", name, value);
        assert_true(*at == ',' || *at == '}');
        at += *at == ',';
    }
    return at + 1;
}

static void remember_series(struct reader *reader, const char *name, const char *labels, const char *le)
{
    if (reader->series_count == reader->series_room) {
        reader->series_room = reader->series_room * 2 + 1024;
        reader->series = realloc(reader->series, reader->series_room * sizeof reader->series[0]);
        assert_non_null(reader->series);
    }
    snprintf(reader->series[reader->series_count++], sizeof reader->series[0], "%s{%s}%s", name, labels, le);
}

static void read_histogram_line(struct reader *reader, const char *suffix, const char *labels, const char *le,
                                double value)
{
    if (strcmp(suffix, "_bucket") == 0) {
        double bound = strcmp(le, "+Inf") == 0 ? (double)INFINITY : strtod(le, NULL);
        assert_true(le[0] != '\0');
        if (!reader->is_open) {
            snprintf(reader->bucket_labels, sizeof reader->bucket_labels, "%s", labels);
            reader->bucket_le = -1.0;
            reader->bucket_last = 0.0;
            reader->is_open = true;
        }
        assert_string_equal(labels, reader->bucket_labels);
        assert_true(bound > reader->bucket_le);
        assert_true(value >= reader->bucket_last); /* cumulative */
        reader->bucket_le = bound;
        reader->bucket_last = value;
        reader->has_inf = isinf(bound);
        return;
    }
    assert_true(reader->is_open && reader->has_inf);
    assert_string_equal(labels, reader->bucket_labels);
    if (strcmp(suffix, "_count") == 0) {
        assert_true(value == reader->bucket_last); /* of the same scrape */
        reader->is_open = false;
    } else {
        assert_string_equal(suffix, "_sum");
    }
}

static void read_sample(struct reader *reader, const char *line)
{
    char name[96], labels[200], le[32], *end = NULL;
    const char *at = read_labels(read_name(line, name, sizeof name), labels, sizeof labels, le, sizeof le);
    assert_int_equal(*at, ' ');
    assert_true(isdigit((unsigned char)at[1]) || at[1] == '-');
    double value = strtod(at + 1, &end);
    assert_int_equal(*end, '\n');
    assert_true(reader->family_count > 0);
    const struct family *family = &reader->families[reader->family_count - 1];
    size_t length = strlen(family->name);
    assert_true(strncmp(name, family->name, length) == 0); /* lines of a family stand together */
    const char *suffix = name + length;
    if (strcmp(family->type, "histogram") == 0) {
        read_histogram_line(reader, suffix, labels, le, value);
    } else if (strcmp(family->type, "counter") == 0) {
        assert_string_equal(suffix, reader->is_openmetrics ? "_total" : "");
        assert_string_equal(name + strlen(name) - 6, "_total");
        assert_true(value >= 0.0);
    } else {
        assert_string_equal(family->type, "gauge");
        assert_string_equal(suffix, "");
    }
    remember_series(reader, name, labels, le);
}

static void read_comment(struct reader *reader, const char *line)
{
    char name[96];
    bool is_help = strncmp(line, "# HELP ", 7) == 0;
    assert_true(is_help || strncmp(line, "# TYPE ", 7) == 0);
    const char *rest = read_name(line + 7, name, sizeof name);
    assert_int_equal(*rest, ' ');
    assert_false(reader->is_open);
    if (is_help) {
        for (size_t i = 0; i < reader->family_count; i++)
            assert_string_not_equal(reader->families[i].name, name); /* one HELP, families in one piece */
        struct family *family = &reader->families[reader->family_count++];
        assert_true(reader->family_count < 128);
        snprintf(family->name, sizeof family->name, "%s", name);
        family->has_help = true;
        family->type[0] = '\0';
        assert_true(rest[1] != '\n');
        return;
    }
    struct family *family = &reader->families[reader->family_count - 1];
    assert_string_equal(family->name, name);
    assert_string_equal(family->type, "");
    assert_int_equal(sscanf(rest, " %15s", family->type), 1);
}

static int compare_series(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Line by line in a buffer of its own: string functions on the whole page would walk to its end each time. */
struct lines {
    const char *at, *end;
    char line[1024]; /* with its newline */
};

static bool next_line(struct lines *lines)
{
    if (lines->at == lines->end)
        return false;
    const char *newline = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
    assert_non_null(newline);
    size_t length = (size_t)(newline - lines->at) + 1;
    assert_true(length < sizeof lines->line);
    memcpy(lines->line, lines->at, length);
    lines->line[length] = '\0';
    lines->at += length;
    return true;
}

size_t read_strictly(const char *text, bool is_openmetrics)
{
    static struct reader reader;
    memset(&reader, 0, sizeof reader);
    reader.is_openmetrics = is_openmetrics;
    bool has_eof = false;
    for (struct lines lines = {.at = text, .end = text + strlen(text)}; next_line(&lines);) {
        assert_false(has_eof);
        if (is_openmetrics && strcmp(lines.line, "# EOF\n") == 0)
            has_eof = true;
        else if (*lines.line == '#')
            read_comment(&reader, lines.line);
        else
            read_sample(&reader, lines.line);
    }
    assert_int_equal(has_eof, is_openmetrics);
    assert_false(reader.is_open);
    qsort(reader.series, reader.series_count, sizeof reader.series[0], compare_series);
    for (size_t i = 1; i < reader.series_count; i++)
        assert_string_not_equal(reader.series[i - 1], reader.series[i]);
    size_t count = reader.series_count;
    free(reader.series);
    return count;
}

double value_of(const char *text, const char *series)
{
    size_t length = strlen(series);
    for (struct lines lines = {.at = text, .end = text + strlen(text)}; next_line(&lines);) {
        if (strncmp(lines.line, series, length) == 0 && lines.line[length] == ' ')
            return strtod(lines.line + length, NULL);
    }
    return (double)NAN;
}

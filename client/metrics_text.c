/* metrics_text.c: a reader of exposition text. */
#include "client/metrics_text.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/json_reader.h"

void dk_metrics_cursor_init(struct dk_metrics_cursor *cursor, const char *text, size_t length)
{
    *cursor = (struct dk_metrics_cursor){text, text + length, 1};
}

/* One line while it is read; `at` never passes `end`. */
struct line {
    const char *at, *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(struct line *line)
{
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
}

static bool take(struct line *line, char c)
{
    if (line->at == line->end || *line->at != c)
        return false;
    line->at++;
    return true;
}

static bool is_name_char(char c, bool is_first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
           (!is_first && c >= '0' && c <= '9');
}

static bool read_name(struct line *line, char out[DK_METRIC_NAME_BYTES])
{
    size_t length = 0;
    while (line->at < line->end && is_name_char(*line->at, length == 0)) {
        if (length == DK_METRIC_NAME_BYTES - 1)
            return false;
        out[length++] = *line->at++;
    }
    out[length] = '\0';
    return length > 0;
}

/* A quoted value. What does not fit is left out, from the border of a code point on. */
static bool read_text(struct line *line, char out[DK_METRIC_LABEL_BYTES])
{
    size_t length = 0;
    bool is_full = false;
    if (!take(line, '"'))
        return false;
    while (line->at < line->end && *line->at != '"') {
        char c = *line->at++;
        if (c == '\\') {
            if (line->at == line->end)
                return false;
            c = *line->at++;
            if (c != '\\' && c != '"' && c != 'n')
                return false;
            c = c == 'n' ? '\n' : c;
        }
        if (length == DK_METRIC_LABEL_BYTES - 1 && !is_full) {
            is_full = true;
            while (((unsigned char)c & 0xC0) == 0x80 && length > 0)
                c = out[--length]; /* c belongs to a code point that has begun: leave all of it out */
        }
        if (!is_full)
            out[length++] = c;
    }
    out[length] = '\0';
    return take(line, '"');
}

/* After the opening brace, to the closing one; a comma may stand before it. */
static bool read_labels(struct line *line, struct dk_metric_sample *sample)
{
    for (;;) {
        skip_blanks(line);
        if (take(line, '}'))
            return true;
        if (sample->label_count == DK_METRIC_MAX_LABELS ||
            !read_name(line, sample->labels[sample->label_count].name))
            return false;
        skip_blanks(line);
        if (!take(line, '='))
            return false;
        skip_blanks(line);
        if (!read_text(line, sample->labels[sample->label_count++].value))
            return false;
        skip_blanks(line);
        if (!take(line, ',') && (line->at == line->end || *line->at != '}'))
            return false;
    }
}

static bool read_value(const char *text, size_t length, double *out)
{
    bool is_negative = length > 0 && *text == '-';
    if (length > 0 && (*text == '-' || *text == '+')) {
        text++;
        length--;
    }
    double value;
    if (length == 3 && memcmp(text, "NaN", 3) == 0)
        value = NAN;
    else if (length == 3 && memcmp(text, "Inf", 3) == 0)
        value = INFINITY;
    else if (length == 0 || *text == '-' || !dk_json_parse_number(text, length, &value))
        return false;
    *out = is_negative ? -value : value;
    return true;
}

/* The value, and perhaps a timestamp. */
static bool read_tail(struct line *line, double *out)
{
    skip_blanks(line);
    const char *value = line->at;
    while (line->at < line->end && !is_blank(*line->at))
        line->at++;
    if (!read_value(value, (size_t)(line->at - value), out))
        return false;
    skip_blanks(line);
    (void)take(line, '-');
    while (line->at < line->end && *line->at >= '0' && *line->at <= '9')
        line->at++;
    skip_blanks(line);
    return line->at == line->end;
}

static bool read_sample(struct line *line, struct dk_metric_sample *sample)
{
    sample->label_count = 0;
    if (!read_name(line, sample->name))
        return false;
    bool has_blank = line->at < line->end && is_blank(*line->at);
    skip_blanks(line);
    if (take(line, '{'))
        return read_labels(line, sample) && read_tail(line, &sample->value);
    return has_blank && read_tail(line, &sample->value);
}

enum dk_metrics_step dk_metrics_text_next(struct dk_metrics_cursor *cursor, struct dk_metric_sample *out,
                                          struct dk_error *error)
{
    while (cursor->at < cursor->end) {
        const char *stop = memchr(cursor->at, '\n', (size_t)(cursor->end - cursor->at));
        struct line line = {cursor->at, stop ? stop : cursor->end};
        skip_blanks(&line);
        bool is_sample = line.at < line.end && *line.at != '#';
        if (is_sample && !read_sample(&line, out)) {
            dk_fail(error, DK_BAD_REQUEST, "line %llu is no sample of the exposition format: %.*s",
                    (unsigned long long)cursor->line,
                    (int)(line.end - cursor->at < 80 ? line.end - cursor->at : 80), cursor->at);
            return DK_METRICS_BAD;
        }
        cursor->line++;
        cursor->at = stop ? stop + 1 : cursor->end;
        if (is_sample)
            return DK_METRICS_SAMPLE;
    }
    return DK_METRICS_END;
}

const char *dk_metric_label(const struct dk_metric_sample *sample, const char *name)
{
    for (uint32_t i = 0; i < sample->label_count; i++)
        if (strcmp(sample->labels[i].name, name) == 0)
            return sample->labels[i].value;
    return NULL;
}

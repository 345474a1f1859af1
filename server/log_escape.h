/* log_escape.h: one log line under construction: pairs with every value escaped (private to log.c). */
#ifndef DK_SERVER_LOG_ESCAPE_H
#define DK_SERVER_LOG_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>

enum { DK_LOG_LINE_BYTES = 4096 }; /* PIPE_BUF of Linux: a write of this size is not interleaved */

struct dk_log_line {
    size_t length;
    bool is_json, is_truncated;
    char text[DK_LOG_LINE_BYTES];
};

void dk_log_line_init(struct dk_log_line *line, bool is_json);
/* Appends ` key=value` or `,"key":value`. A value that does not fit is left out whole. `is_number` writes it
 * bare in JSON. */
void dk_log_line_pair(struct dk_log_line *line, const char *key, size_t key_length, const char *value,
                      size_t value_length, bool is_number);
/* Closes the line, newline included. */
void dk_log_line_finish(struct dk_log_line *line);

#endif

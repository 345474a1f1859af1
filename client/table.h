/* table.h: aligned columns of text on a terminal. */
#ifndef DK_CLIENT_TABLE_H
#define DK_CLIENT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { DK_TABLE_MAX_COLUMNS = 16 };

struct dk_table_column {
    const char *title;
    bool is_number; /* right-aligned */
};

/* Owns its cells; zero-initialise with the columns, free with dk_table_deinit. After a failed allocation
 * `failed` is set and rows are dropped. */
struct dk_table {
    const struct dk_table_column *columns; /* borrowed */
    size_t column_count;
    char **cells; /* row-major */
    size_t row_count, row_capacity;
    bool failed;
};

/* Copies column_count cells; a NULL cell is shown as "-". Control characters are replaced by '?', so that a
 * name from a file or a server cannot steer the terminal. */
void dk_table_add(struct dk_table *table, const char *const *cells);
/* Title line and rows; widths count code points. False when a row was lost or the stream failed. */
bool dk_table_print(const struct dk_table *table, FILE *stream);
void dk_table_deinit(struct dk_table *table);

#endif

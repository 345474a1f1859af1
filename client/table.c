/* table.c: aligned columns. */
#include "client/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static char *clean_copy(const char *text)
{
    char *copy = strdup(text ? text : "-");
    for (char *at = copy; at && *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    return copy;
}

void dk_table_add(struct dk_table *table, const char *const *cells)
{
    assert(table->column_count > 0 && table->column_count <= DK_TABLE_MAX_COLUMNS);
    if (table->row_count == table->row_capacity) {
        size_t capacity = table->row_capacity ? table->row_capacity * 2 : 16;
        char **moved = reallocarray(table->cells, capacity, table->column_count * sizeof *moved);
        if (!moved) {
            table->failed = true;
            return;
        }
        table->cells = moved;
        table->row_capacity = capacity;
    }
    char **row = table->cells + table->row_count * table->column_count;
    for (size_t i = 0; i < table->column_count; i++) {
        row[i] = clean_copy(cells[i]);
        if (!row[i]) {
            while (i > 0)
                free(row[--i]);
            table->failed = true;
            return;
        }
    }
    table->row_count++;
}

static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80; /* continuation bytes take no column */
    return width;
}

static void print_cell(const struct dk_table *table, size_t column, const char *text, size_t width,
                       FILE *stream)
{
    int padding = (int)(width - width_of(text));
    bool is_last = column + 1 == table->column_count;
    if (table->columns[column].is_number)
        fprintf(stream, "%*s%s%s", padding, "", text, is_last ? "\n" : "  ");
    else if (is_last)
        fprintf(stream, "%s\n", text);
    else
        fprintf(stream, "%s%*s  ", text, padding, "");
}

bool dk_table_print(const struct dk_table *table, FILE *stream)
{
    size_t widths[DK_TABLE_MAX_COLUMNS];
    for (size_t c = 0; c < table->column_count; c++) {
        widths[c] = width_of(table->columns[c].title);
        for (size_t r = 0; r < table->row_count; r++) {
            size_t width = width_of(table->cells[r * table->column_count + c]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; c < table->column_count; c++)
        print_cell(table, c, table->columns[c].title, widths[c], stream);
    for (size_t r = 0; r < table->row_count; r++)
        for (size_t c = 0; c < table->column_count; c++)
            print_cell(table, c, table->cells[r * table->column_count + c], widths[c], stream);
    return !table->failed && !ferror(stream);
}

void dk_table_deinit(struct dk_table *table)
{
    for (size_t i = 0; i < table->row_count * table->column_count; i++)
        free(table->cells[i]);
    free(table->cells);
    table->cells = NULL;
    table->row_count = table->row_capacity = 0;
}

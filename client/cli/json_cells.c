/* json_cells.c: JSON members as table cells. */
#include "client/cli/json_cells.h"

#include <stdio.h>
#include <string.h>

#include "proto/json_writer.h"

static void number_cell(double value, char out[DK_CELL_BYTES])
{
    struct dk_json_text text = {0};
    if (value >= 0 && value < 0x1p53 && value == (double)(uint64_t)value)
        dk_json_text_u64(&text, (uint64_t)value);
    else
        dk_json_text_double(&text, value);
    snprintf(out, DK_CELL_BYTES, "%s", text.failed ? "?" : text.data);
    dk_json_text_free(&text);
}

void dk_json_cell(const cJSON *object, const char *name, char out[DK_CELL_BYTES])
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsString(item) && item->valuestring[0])
        snprintf(out, DK_CELL_BYTES, "%s", item->valuestring);
    else if (cJSON_IsBool(item))
        strcpy(out, cJSON_IsTrue(item) ? "yes" : "no");
    else if (cJSON_IsNumber(item))
        number_cell(item->valuedouble, out);
    else
        strcpy(out, "-");
}

void dk_json_rows(struct dk_table *table, const cJSON *list, const char *const *members)
{
    char cells[DK_TABLE_MAX_COLUMNS][DK_CELL_BYTES];
    const char *row[DK_TABLE_MAX_COLUMNS];
    const cJSON *object;
    cJSON_ArrayForEach(object, list)
    {
        for (size_t i = 0; i < table->column_count; i++) {
            dk_json_cell(object, members[i], cells[i]);
            row[i] = cells[i];
        }
        dk_table_add(table, row);
    }
}

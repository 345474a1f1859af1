/* json_cells.h: members of a JSON object as table cells; what is absent or of another kind is "-". */
#ifndef DK_CLIENT_CLI_JSON_CELLS_H
#define DK_CLIENT_CLI_JSON_CELLS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/table.h"

enum { DK_CELL_BYTES = 256 };

/* Text of member `name`: strings as they are (cut at the size), booleans yes/no, whole numbers below 2^53
 * without exponent, other numbers in shortest form. */
void dk_json_cell(const cJSON *object, const char *name, char out[DK_CELL_BYTES]);

/* Add one row per object of `list`; column i shows member `members[i]`. */
void dk_json_rows(struct dk_table *table, const cJSON *list, const char *const *members);

#endif

/* cmd_plans.c: `decomposek plans`: the engine, and its plan for each model and bucket. */
#include <stdio.h>

#include "client/cli/json_cells.h"
#include "client/cli/listing.h"

static bool print_engine(const cJSON *engine)
{
    static const struct dk_table_column columns[] = {{"BACKEND", false},   {"DEVICE", false},
                                                     {"ISA", false},       {"THREADS", true},
                                                     {"MAX_TOKENS", true}, {"REASON", false}};
    static const char *const members[] = {"backend", "device", "isa", "threads", "max_tokens", "reason"};
    struct dk_table table = {.columns = columns, .column_count = sizeof columns / sizeof columns[0]};
    char cells[DK_TABLE_MAX_COLUMNS][DK_CELL_BYTES];
    const char *row[DK_TABLE_MAX_COLUMNS];
    for (size_t i = 0; i < table.column_count; i++) {
        dk_json_cell(engine, members[i], cells[i]);
        row[i] = cells[i];
    }
    dk_table_add(&table, row);
    bool is_good = dk_table_print(&table, stdout);
    dk_table_deinit(&table);
    return is_good;
}

static bool print_plans(const cJSON *answer)
{
    static const struct dk_table_column columns[] = {
        {"MODEL", false},  {"BUCKET", true}, {"VARIANT", false}, {"SPLIT_K", true},
        {"CHUNK_K", true}, {"TILE_M", true}, {"TILE_N", true},   {"WORKSPACE_BYTES", true}};
    static const char *const members[] = {"model",   "bucket", "variant", "split_k",
                                          "chunk_k", "tile_m", "tile_n",  "workspace_bytes"};
    if (!print_engine(cJSON_GetObjectItemCaseSensitive(answer, "engine")))
        return false;
    putchar('\n');
    struct dk_table table = {.columns = columns, .column_count = sizeof columns / sizeof columns[0]};
    dk_json_rows(&table, cJSON_GetObjectItemCaseSensitive(answer, "plans"), members);
    bool is_good = dk_table_print(&table, stdout);
    dk_table_deinit(&table);
    return is_good;
}

int dk_cmd_plans(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    return dk_cli_list(self, cli, argc, argv, "/v1/plans", print_plans);
}

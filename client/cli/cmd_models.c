/* cmd_models.c: `decomposek models`: what the daemon serves. */
#include <stdio.h>

#include "client/cli/json_cells.h"
#include "client/cli/listing.h"

static bool print_models(const cJSON *answer)
{
    static const struct dk_table_column columns[] = {
        {"NAME", false},   {"K", true},         {"N", true},      {"DTYPE", false},
        {"LAYOUT", false}, {"EPILOGUE", false}, {"BIAS", false},  {"VERSION", true},
        {"BYTES", true},   {"TENSOR", false},   {"SOURCE", false}};
    static const char *const members[] = {"name",          "k",        "n",        "dtype",
                                          "layout",        "epilogue", "has_bias", "version",
                                          "weights_bytes", "tensor",   "source"};
    struct dk_table table = {.columns = columns, .column_count = sizeof columns / sizeof columns[0]};
    dk_json_rows(&table, cJSON_GetObjectItemCaseSensitive(answer, "models"), members);
    bool is_good = dk_table_print(&table, stdout);
    dk_table_deinit(&table);
    return is_good;
}

int dk_cmd_models(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    return dk_cli_list(self, cli, argc, argv, "/v1/models", print_models);
}

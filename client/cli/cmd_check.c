/* cmd_check.c: `decomposek check`: is this safetensors file sound, and what is in it? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/checkpoint_file.h"
#include "client/cli/command.h"
#include "client/json_add.h"
#include "client/table.h"

/* What was learnt of one file, before it is printed in either form. */
struct finding {
    const char *path;
    struct dk_checkpoint_file file;
    struct dk_value_counts *counts; /* per tensor; NULL without --deep */
};

static dk_status examine(const char *path, bool is_deep, struct finding *out, struct dk_error *error)
{
    struct finding finding = {.path = path};
    dk_status status = dk_checkpoint_file_open(path, &finding.file, error);
    if (status != DK_OK)
        return status;
    const struct dk_st_index *index = &finding.file.index;
    if (is_deep) {
        finding.counts = calloc(index->tensor_count + 1, sizeof *finding.counts);
        if (!finding.counts)
            status = dk_fail(error, DK_NO_MEMORY, "no memory to scan '%s'", path);
        for (size_t i = 0; status == DK_OK && i < index->tensor_count; i++)
            status = dk_checkpoint_file_scan(&finding.file, &index->tensors[i], &finding.counts[i], error);
    }
    if (status != DK_OK) {
        free(finding.counts);
        dk_checkpoint_file_close(&finding.file);
        return status;
    }
    *out = finding;
    return DK_OK;
}

static void forget(struct finding *finding)
{
    free(finding->counts);
    dk_checkpoint_file_close(&finding->file);
}

/* --- text ---------------------------------------------------------------------------------------------- */

static void format_shape(const struct dk_st_tensor *tensor, char *out, size_t size)
{
    size_t length = (size_t)snprintf(out, size, "[");
    for (uint32_t i = 0; i < tensor->rank && length < size; i++)
        length += (size_t)snprintf(out + length, size - length, "%s%llu", i ? ", " : "",
                                   (unsigned long long)tensor->shape[i]);
    if (length < size)
        snprintf(out + length, size - length, "]");
}

static bool print_tensors(const struct finding *finding)
{
    static const struct dk_table_column columns[] = {{"TENSOR", false}, {"DTYPE", false}, {"SHAPE", false},
                                                     {"BYTES", true},   {"NAN", true},    {"INF", true}};
    const struct dk_st_index *index = &finding->file.index;
    struct dk_table table = {.columns = columns, .column_count = finding->counts ? 6 : 4};
    for (size_t i = 0; i < index->tensor_count; i++) {
        const struct dk_st_tensor *tensor = &index->tensors[i];
        char shape[DK_ST_MAX_RANK * 22 + 3], bytes[24], nan_count[24], infinite_count[24];
        format_shape(tensor, shape, sizeof shape);
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)(tensor->end - tensor->begin));
        bool is_scanned = finding->counts && finding->counts[i].is_scanned;
        if (is_scanned) {
            snprintf(nan_count, sizeof nan_count, "%llu", (unsigned long long)finding->counts[i].nan_count);
            snprintf(infinite_count, sizeof infinite_count, "%llu",
                     (unsigned long long)finding->counts[i].infinite_count);
        }
        dk_table_add(&table, (const char *const[]){tensor->name, tensor->dtype_name, shape, bytes,
                                                   is_scanned ? nan_count : NULL,
                                                   is_scanned ? infinite_count : NULL});
    }
    bool is_good = index->tensor_count == 0 || dk_table_print(&table, stdout);
    dk_table_deinit(&table);
    return is_good && !table.failed;
}

static bool print_text(const struct finding *finding)
{
    const struct dk_st_index *index = &finding->file.index;
    if (!print_tensors(finding))
        return false;
    uint64_t nan_count = 0, infinite_count = 0;
    for (size_t i = 0; finding->counts && i < index->tensor_count; i++) {
        nan_count += finding->counts[i].nan_count;
        infinite_count += finding->counts[i].infinite_count;
    }
    if (nan_count + infinite_count > 0)
        printf("%s: warning: %llu NaN and %llu infinite values\n", finding->path,
               (unsigned long long)nan_count, (unsigned long long)infinite_count);
    printf("%s: ok (%zu tensors, %llu bytes of data)\n", finding->path, index->tensor_count,
           (unsigned long long)index->data_bytes);
    return true;
}

/* --- JSON ---------------------------------------------------------------------------------------------- */

static void add_tensor(struct dk_json_text *text, const struct dk_st_tensor *tensor,
                       const struct dk_value_counts *counts)
{
    dk_json_add_text(text, "{\"name\":", tensor->name);
    dk_json_add_text(text, ",\"dtype\":", tensor->dtype_name);
    dk_json_text_raw(text, ",\"shape\":[");
    for (uint32_t i = 0; i < tensor->rank; i++)
        dk_json_add_u64(text, i ? "," : "", tensor->shape[i]);
    dk_json_add_u64(text, "],\"bytes\":", tensor->end - tensor->begin);
    if (counts && counts->is_scanned) {
        dk_json_add_u64(text, ",\"nan\":", counts->nan_count);
        dk_json_add_u64(text, ",\"inf\":", counts->infinite_count);
    }
    dk_json_text_raw(text, "}");
}

static void add_finding(struct dk_json_text *text, const struct finding *finding)
{
    const struct dk_st_index *index = &finding->file.index;
    dk_json_add_text(text, "{\"file\":", finding->path);
    dk_json_add_u64(text, ",\"ok\":true,\"header_bytes\":", index->header_bytes);
    dk_json_add_u64(text, ",\"data_bytes\":", index->data_bytes);
    dk_json_text_raw(text, ",\"tensors\":[");
    for (size_t i = 0; i < index->tensor_count; i++) {
        dk_json_text_raw(text, i ? "," : "");
        add_tensor(text, &index->tensors[i], finding->counts ? &finding->counts[i] : NULL);
    }
    dk_json_text_raw(text, "]}");
}

static void add_failure(struct dk_json_text *text, const char *path, const struct dk_error *error)
{
    dk_json_add_text(text, "{\"file\":", path);
    dk_json_add_text(text, ",\"ok\":false,\"status\":", dk_status_name(error->status));
    dk_json_add_text(text, ",\"error\":", error->message);
    dk_json_text_raw(text, "}");
}

/* --- the command --------------------------------------------------------------------------------------- */

/* One file, in the form asked for. True when it is sound and was printed. */
static bool check_one(const struct dk_command *self, const char *path, bool is_deep,
                      struct dk_json_text *json)
{
    struct finding finding;
    struct dk_error error;
    if (examine(path, is_deep, &finding, &error) != DK_OK) {
        if (json)
            add_failure(json, path, &error);
        fprintf(stderr, "decomposek %s: %s\n", self->name, error.message);
        return false;
    }
    bool is_printed = true;
    if (json)
        add_finding(json, &finding);
    else
        is_printed = print_text(&finding);
    if (!is_printed)
        fprintf(stderr, "decomposek %s: cannot print the tensors of '%s'\n", self->name, path);
    forget(&finding);
    return is_printed;
}

int dk_cmd_check(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    bool is_deep = false;
    const struct dk_option own[] = {{"deep", DK_OPTION_FLAG, &is_deep, NULL, NULL,
                                     "read all values and count NaN and infinities (a warning)", 0, 0}};
    const struct dk_usage usage = {
        .arguments = "FILE...", .own = own, .own_count = 1, .min_positionals = 1, .max_positionals = 1 << 20};
    int count, exit_code;
    if (!dk_cli_begin(self, cli, &usage, argc, argv, &count, &exit_code))
        return exit_code;
    struct dk_json_text json = {0};
    bool are_all_good = true;
    dk_json_text_raw(&json, "{\"files\":[");
    for (int i = 0; i < count; i++) {
        dk_json_text_raw(&json, i ? "," : "");
        are_all_good &= check_one(self, argv[i], is_deep, cli->is_json ? &json : NULL);
    }
    dk_json_text_raw(&json, "]}");
    if (cli->is_json && !json.failed)
        printf("%s\n", json.data);
    if (json.failed) {
        fprintf(stderr, "decomposek %s: no memory for the JSON report\n", self->name);
        are_all_good = false;
    }
    dk_json_text_free(&json);
    return are_all_good ? DK_EXIT_OK : DK_EXIT_FAILURE;
}

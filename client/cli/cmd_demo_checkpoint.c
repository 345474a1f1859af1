/* cmd_demo_checkpoint.c: `decomposek demo-checkpoint`: a folder to serve when no checkpoint is at hand. */
#include <stdio.h>
#include <string.h>

#include "client/cli/command.h"
#include "client/demo_checkpoint.h"
#include "client/file.h"
#include "client/json_add.h"

struct written {
    bool is_json;
    struct dk_json_text json; /* list of files */
};

static void on_written(void *context, const char *path, uint64_t bytes)
{
    struct written *written = context;
    if (!written->is_json) {
        printf("wrote %s (%llu bytes)\n", path, (unsigned long long)bytes);
        return;
    }
    dk_json_add_text(&written->json, written->json.length ? ",{\"file\":" : "{\"file\":", path);
    dk_json_add_u64(&written->json, ",\"bytes\":", bytes);
    dk_json_text_raw(&written->json, "}");
}

static dk_status prepare_folder(const char *folder, bool is_forced, struct dk_error *error)
{
    bool is_empty = false;
    dk_status status = dk_folder_make(folder, error);
    if (status == DK_OK)
        status = dk_folder_is_empty(folder, &is_empty, error);
    if (status == DK_OK && !is_empty && !is_forced)
        return dk_fail(error, DK_IO_ERROR, "folder '%s' is not empty; --force writes into it all the same",
                       folder);
    return status;
}

static bool print_result(const struct dk_demo_checkpoint *demo, struct written *written)
{
    char shard[DK_DEMO_NAME_BYTES], tensor[DK_DEMO_NAME_BYTES], model[4096 + 256];
    dk_demo_shard_name(shard, 1, dk_demo_shard_count(demo->layer_count));
    dk_demo_weight_name(tensor, DK_DEMO_FIRST_MOE);
    int length = snprintf(model, sizeof model, "gate=%s/%s,tensor=%s", demo->folder, shard, tensor);
    if (length < 0 || (size_t)length >= sizeof model)
        return false;
    if (!written->is_json) {
        printf("layers %d to %d, seed %llu. To serve the first one:\n  decomposekd --model %s\n",
               DK_DEMO_FIRST_MOE, DK_DEMO_FIRST_MOE + (int)demo->layer_count - 1,
               (unsigned long long)demo->seed, model);
        return true;
    }
    struct dk_json_text tail = {0};
    dk_json_add_text(&tail, "],\"model\":", model);
    bool is_good = !tail.failed && !written->json.failed;
    if (is_good)
        printf("{\"files\":[%s%s}\n", written->json.data, tail.data);
    dk_json_text_free(&tail);
    return is_good;
}

int dk_cmd_demo_checkpoint(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    uint64_t layers = 2, seed = 1;
    bool is_forced = false;
    const struct dk_option own[] = {
        {"layers", DK_OPTION_U64, &layers, NULL, "N", "MoE layers, from layer 3 on (2; all: 58)", 1,
         DK_DEMO_MOE_LAYERS},
        {"seed", DK_OPTION_U64, &seed, NULL, "S", "equal seeds give equal bytes (1)", 0, UINT64_MAX},
        {"force", DK_OPTION_FLAG, &is_forced, NULL, NULL, "write into a folder that is not empty", 0, 0},
    };
    const struct dk_usage usage = {.arguments = "DIR",
                                   .details = "A layer takes 3.7 MB. Other files in DIR are left alone.\n",
                                   .own = own,
                                   .own_count = sizeof own / sizeof own[0],
                                   .min_positionals = 1,
                                   .max_positionals = 1};
    int count, exit_code;
    if (!dk_cli_begin(self, cli, &usage, argc, argv, &count, &exit_code))
        return exit_code;
    const struct dk_demo_checkpoint demo = {.folder = argv[0], .layer_count = (uint32_t)layers, .seed = seed};
    struct written written = {.is_json = cli->is_json};
    struct dk_error error;
    dk_status status = prepare_folder(demo.folder, is_forced, &error);
    if (status == DK_OK)
        status = dk_demo_checkpoint_write(&demo, on_written, &written, &error);
    if (status == DK_OK && !print_result(&demo, &written))
        status = dk_fail(&error, DK_NO_MEMORY, "no memory for the report");
    dk_json_text_free(&written.json);
    return status == DK_OK ? DK_EXIT_OK : dk_cli_fail(self, cli, &error);
}

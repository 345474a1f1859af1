/* cmd_infer.c: `decomposek infer`: rows in, a model's product out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/command.h"
#include "client/cli/infer_input.h"
#include "client/cli/infer_report.h"
#include "client/remote.h"

struct infer {
    const char *model, *file, *output;
    uint64_t random_rows, seed, repeat;
    bool has_random, has_seed, has_dtype, has_epilogue, is_raw, is_json_body;
    dk_dtype dtype, out_dtype;
    dk_epilogue epilogue;
};

static const char details[] =
    "FILE is an .npy array [T, K] or [K] (f2, f4 or f8; rounded to --dtype), or bare values of --dtype; '-' "
    "is\n"
    "standard input (.npy unless --raw). With --output the answer is also written: FILE.npy (bf16 as f4), "
    "any\n"
    "other name for bare values, '-' for standard output; the report then goes to standard error.\n";

/* Returns false after a usage error or --help; *exit_code is set then. */
static bool parse(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv,
                  struct infer *infer, int *exit_code)
{
    const struct dk_option own[] = {
        {"model", DK_OPTION_TEXT, &infer->model, NULL, "NAME", "the model (required)", 0, 0},
        {"random", DK_OPTION_U64, &infer->random_rows, &infer->has_random, "T",
         "T rows of normal values, no FILE", 0, DK_INFER_MAX_ROWS},
        {"seed", DK_OPTION_U64, &infer->seed, &infer->has_seed, "S", "of --random (1)", 0, UINT64_MAX},
        {"repeat", DK_OPTION_U64, &infer->repeat, NULL, "N",
         "send N times, print quantiles of the round trip", 1, 1000000},
        {"dtype", DK_OPTION_DTYPE, &infer->dtype, &infer->has_dtype, "TYPE", "of x as sent (the model's)", 0,
         0},
        {"out-dtype", DK_OPTION_DTYPE, &infer->out_dtype, NULL, "TYPE", "of the answer (fp32)", 0, 0},
        {"epilogue", DK_OPTION_EPILOGUE, &infer->epilogue, &infer->has_epilogue, "NAME",
         "none, relu or sigmoid (the model's)", 0, 0},
        {"output", DK_OPTION_TEXT, &infer->output, NULL, "FILE", "write the answer", 0, 0},
        {"raw", DK_OPTION_FLAG, &infer->is_raw, NULL, NULL, "files are bare values, whatever their names", 0,
         0},
        {"json-body", DK_OPTION_FLAG, &infer->is_json_body, NULL, NULL,
         "talk JSON to the daemon, not raw values", 0, 0},
    };
    const struct dk_usage usage = {.arguments = "--model NAME [FILE | - | --random T]",
                                   .details = details,
                                   .own = own,
                                   .own_count = sizeof own / sizeof own[0],
                                   .uses_connection = true,
                                   .min_positionals = 0,
                                   .max_positionals = 1};
    int count;
    if (!dk_cli_begin(self, cli, &usage, argc, argv, &count, exit_code))
        return false;
    infer->file = count > 0 ? argv[0] : NULL;
    const char *message = NULL;
    if (!infer->model)
        message = "--model is missing";
    else if (!dk_model_name_is_valid(infer->model, strlen(infer->model)))
        message = "--model is not [A-Za-z0-9._-]{1,64}";
    else if (!infer->file && !infer->has_random)
        message = "expected FILE, '-' or --random T";
    else if (infer->file && infer->has_random)
        message = "FILE and --random exclude each other";
    else if (infer->has_seed && !infer->has_random)
        message = "--seed needs --random";
    if (!message)
        return true;
    *exit_code = dk_cli_usage_error(self, message);
    return false;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The first exchange is measured like the rest: the look-up of the model has already opened the connection.
 */
static dk_status exchange(struct dk_http_client *client, const struct dk_remote_call *call, uint64_t repeat,
                          double *round_trips_us, struct dk_remote_reply *out, struct dk_error *error)
{
    for (uint64_t i = 0; i < repeat; i++) {
        struct dk_remote_reply reply;
        dk_status status = dk_remote_matmul(client, call, &reply, error);
        if (status != DK_OK) {
            if (i > 0)
                dk_remote_reply_deinit(out);
            return status;
        }
        if (i > 0)
            dk_remote_reply_deinit(out);
        *out = reply;
        round_trips_us[i] = reply.timing.round_trip_us;
    }
    return DK_OK;
}

static dk_status report(const struct dk_cli *cli, const struct infer *infer,
                        const struct dk_infer_report *what, struct dk_error *error)
{
    dk_status status =
        infer->output ? dk_infer_write_output(what->reply, infer->output, infer->is_raw, error) : DK_OK;
    if (status != DK_OK)
        return status;
    FILE *stream = infer->output && strcmp(infer->output, "-") == 0 ? stderr : stdout;
    if (!cli->is_json)
        dk_infer_report_text(what, stream);
    else if (!dk_infer_report_json(what, stream))
        return dk_fail(error, DK_NO_MEMORY, "no memory for the report");
    return DK_OK;
}

static dk_status infer_rows(const struct dk_cli *cli, const struct infer *infer,
                            struct dk_http_client *client, const struct dk_remote_model *model,
                            const struct dk_infer_input *input, struct dk_error *error)
{
    const struct dk_remote_request request = {.model = model,
                                              .rows = input->rows,
                                              .x = input->x,
                                              .dtype = infer->dtype,
                                              .out_dtype = infer->out_dtype,
                                              .has_epilogue = infer->has_epilogue,
                                              .epilogue = infer->epilogue,
                                              .is_json = infer->is_json_body};
    struct dk_remote_call call;
    dk_status status = dk_remote_call_init(&request, &call, error);
    if (status != DK_OK)
        return status;
    uint64_t repeat = infer->repeat > 0 ? infer->repeat : 1;
    double *round_trips_us = calloc(repeat, sizeof *round_trips_us);
    if (!round_trips_us) {
        status = dk_fail(error, DK_NO_MEMORY, "no memory for %llu times", (unsigned long long)repeat);
        goto deinit_call;
    }
    struct dk_remote_reply reply;
    status = exchange(client, &call, repeat, round_trips_us, &reply, error);
    if (status != DK_OK)
        goto free_times;
    qsort(round_trips_us, repeat, sizeof *round_trips_us, compare_doubles);
    const struct dk_infer_report what = {.request = &request,
                                         .reply = &reply,
                                         .round_trips_us = infer->repeat > 0 ? round_trips_us : NULL,
                                         .round_trip_count = repeat,
                                         .output = infer->output};
    status = report(cli, infer, &what, error);
    dk_remote_reply_deinit(&reply);
free_times:
    free(round_trips_us);
deinit_call:
    dk_remote_call_deinit(&call);
    return status;
}

int dk_cmd_infer(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    struct infer infer = {.seed = 1, .out_dtype = DK_FP32};
    int exit_code;
    if (!parse(self, cli, argc, argv, &infer, &exit_code))
        return exit_code;
    struct dk_error error;
    struct dk_http_client *client;
    if ((exit_code = dk_cli_connect(self, cli, &client)) != DK_EXIT_OK)
        return exit_code;
    struct dk_remote_model model;
    struct dk_infer_input input = {0};
    dk_status status = dk_remote_find_model(client, infer.model, &model, &error);
    if (status == DK_OK) {
        infer.dtype = infer.has_dtype ? infer.dtype : model.dtype;
        status =
            infer.has_random
                ? dk_infer_input_random(infer.seed, infer.random_rows, infer.dtype, model.k, &input, &error)
                : dk_infer_input_load(infer.file, infer.is_raw, infer.dtype, model.k, &input, &error);
    }
    if (status == DK_OK)
        status = infer_rows(cli, &infer, client, &model, &input, &error);
    free(input.x);
    dk_http_client_free(client);
    return status == DK_OK ? DK_EXIT_OK : dk_cli_fail(self, cli, &error);
}

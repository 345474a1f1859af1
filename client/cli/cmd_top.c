/* cmd_top.c: `decomposek top`: what a daemon computes right now, by shape. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/cli/command.h"
#include "client/cli/top_screen.h"
#include "client/load.h"
#include "client/remote.h"
#include "client/top_view.h"

enum { MAX_METRICS_BYTES = 64 * 1024 * 1024 };

static const char details[] =
    "Rates and times are of the interval before, from the daemon's /metrics; QUEUE is the wait for the\n"
    "executor, KERNEL the mean time inside the kernels; microseconds, quantiles as exact as the histograms'\n"
    "bounds. On a terminal the table is redrawn in place and q or Ctrl-C ends it; elsewhere tables follow "
    "each other. A\n"
    "daemon that is restarted is waited for.\n";

struct top {
    const struct dk_command *self;
    struct dk_cli *cli;
    struct dk_http_client *client;
    struct dk_top_snapshot before; /* empty until has_before */
    bool has_before, by_bucket;
    char *text; /* what is shown, for redrawing */
};

static dk_status scrape(struct top *top, struct dk_top_snapshot *out, struct dk_error *error)
{
    const struct dk_http_request request = {
        .method = "GET", .path = "/metrics", .accept = "text/plain", .max_answer_bytes = MAX_METRICS_BYTES};
    struct dk_http_response response;
    dk_status status = dk_http_client_send(top->client, &request, &response, error);
    if (status != DK_OK)
        return status;
    status = dk_top_snapshot_read(response.body, response.body_bytes, out, error);
    out->taken_ns = dk_load_now_ns();
    dk_http_response_deinit(&response);
    return status;
}

/* The view as text or JSON; *out is allocated. */
static dk_status render(const struct top *top, const struct dk_top_view *view, char **out,
                        struct dk_error *error)
{
    size_t length;
    if (top->cli->is_json) {
        struct dk_json_text text = {0};
        dk_top_view_json(view, &text);
        if (text.failed)
            return dk_fail(error, DK_NO_MEMORY, "no memory for the report");
        *out = text.data;
        return DK_OK;
    }
    FILE *stream = open_memstream(out, &length);
    bool is_good = stream && dk_top_view_text(view, top->by_bucket, stream);
    if (stream && fclose(stream) == 0 && is_good)
        return DK_OK;
    if (stream)
        free(*out);
    return dk_fail(error, DK_NO_MEMORY, "no memory for the table");
}

/* Scrape, and replace top->text by what changed since the scrape before (if there was one). */
static dk_status update(struct top *top, struct dk_error *error)
{
    struct dk_top_snapshot now;
    struct dk_top_view view;
    cJSON *models = NULL;
    char *text = NULL;
    dk_status status = scrape(top, &now, error);
    if (status != DK_OK)
        return status;
    status = dk_remote_get(top->client, "/v1/models", &models, error);
    if (status == DK_OK && top->has_before) {
        status = dk_top_view_make(&top->before, &now, models, top->by_bucket, &view, error);
        if (status == DK_OK) {
            status = render(top, &view, &text, error);
            dk_top_view_deinit(&view);
        }
    }
    cJSON_Delete(models);
    if (status != DK_OK) {
        dk_top_snapshot_deinit(&now);
        return status;
    }
    dk_top_snapshot_deinit(&top->before);
    top->before = now;
    top->has_before = true;
    free(top->text);
    top->text = text;
    return DK_OK;
}

/* A failure in the middle of watching: shown, and tried again. */
static void show_failure(struct top *top, const struct dk_top_screen *screen, const struct dk_error *error)
{
    free(top->text);
    top->text = NULL;
    if (!screen->is_terminal)
        fprintf(stderr, "decomposek %s: %s\n", top->self->name, error->message);
    else if (asprintf(&top->text, "%s\ntrying again; q ends this\n", error->message) < 0)
        top->text = NULL;
}

/* One table, of the interval that begins now. */
static int show_once(struct top *top, double interval_s)
{
    struct dk_error error;
    const struct timespec interval = {(time_t)interval_s,
                                      (long)((interval_s - (double)(time_t)interval_s) * 1e9)};
    dk_status status = update(top, &error);
    if (status == DK_OK) {
        (void)nanosleep(&interval, NULL); /* rates are of the time that passed, whatever that was */
        status = update(top, &error);
    }
    if (status != DK_OK)
        return dk_cli_fail(top->self, top->cli, &error);
    printf("%s%s", top->text, top->cli->is_json ? "\n" : "");
    return DK_EXIT_OK;
}

/* False when standard output failed: nobody watches any more. */
static bool show_next(struct top *top, const struct dk_top_screen *screen)
{
    struct dk_error error;
    if (update(top, &error) != DK_OK)
        show_failure(top, screen, &error);
    return !top->text || dk_top_screen_show(screen, top->text);
}

static int watch(struct top *top, double interval_s)
{
    struct dk_top_screen screen;
    struct dk_error error;
    /* The first answer decides whether there is something to watch at all. */
    dk_status status = update(top, &error);
    if (status == DK_OK)
        status = dk_top_screen_init(&screen, top->cli->is_json, &error);
    if (status != DK_OK)
        return dk_cli_fail(top->self, top->cli, &error);
    bool is_shown = true;
    enum dk_top_event event = DK_TOP_TIME;
    for (uint64_t next_ns = 0; is_shown && event != DK_TOP_QUIT;) {
        if (event == DK_TOP_TIME) /* not from the time before: a slow daemon is not asked the faster for it */
            next_ns = dk_load_now_ns() + (uint64_t)(interval_s * 1e9);
        event = dk_top_screen_wait(&screen, next_ns);
        if (event == DK_TOP_TIME)
            is_shown = show_next(top, &screen);
        else if (event == DK_TOP_RESIZE && top->text)
            is_shown = dk_top_screen_show(&screen, top->text);
    }
    dk_top_screen_deinit(&screen);
    return DK_EXIT_OK; /* main sees a standard output that failed */
}

int dk_cmd_top(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    struct top top = {.self = self, .cli = cli};
    bool is_once = false;
    double interval_s = 1;
    const struct dk_option own[] = {
        {"interval", DK_OPTION_SECONDS, &interval_s, NULL, "SECONDS", "between two looks (1)", 0, 0},
        {"once", DK_OPTION_FLAG, &is_once, NULL, NULL, "show one interval and exit", 0, 0},
        {"buckets", DK_OPTION_FLAG, &top.by_bucket, NULL, NULL, "a line for each T bucket that had requests",
         0, 0},
    };
    const struct dk_usage usage = {.arguments = "",
                                   .details = details,
                                   .own = own,
                                   .own_count = sizeof own / sizeof own[0],
                                   .uses_connection = true};
    int count, exit_code;
    if (!dk_cli_begin(self, cli, &usage, argc, argv, &count, &exit_code))
        return exit_code;
    if ((exit_code = dk_cli_connect(self, cli, &top.client)) != DK_EXIT_OK)
        return exit_code;
    exit_code = is_once ? show_once(&top, interval_s) : watch(&top, interval_s);
    dk_top_snapshot_deinit(&top.before);
    free(top.text);
    dk_http_client_free(top.client);
    return exit_code;
}

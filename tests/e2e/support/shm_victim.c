/* shm_victim.c: clients of the ring that are killed in the middle of whatever they do, again and again.
 * Usage: shm_victim ADDRESS MODEL COUNT SEED PARALLEL [--live]
 * COUNT children are started, PARALLEL at a time, and each is killed with SIGKILL after a random time (with
 * --live it runs 300 requests and ends by itself). Prints how far they got. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "decomposek_client.h"

enum { MAX_PARALLEL = 32, MAX_ROWS = 40, IN_FLIGHT = 8, LIVE_REQUESTS = 300, LONGEST_US = 6000 };

/* Shared by the children: what they reached before they were killed. */
struct progress {
    _Atomic unsigned long started, opened, completed, failed;
};
static struct progress *progress;

struct victim {
    struct dk_client *client;
    struct dk_client_model *model;
    uint64_t k, n;
    float *a, *c; /* [IN_FLIGHT][MAX_ROWS * k], [IN_FLIGHT][MAX_ROWS * n] */
    void *buffer;
    unsigned random;
};

static unsigned draw(unsigned *state, unsigned limit)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % limit;
}

static void note(dk_status status, const struct dk_error *error, bool is_live)
{
    if (status == DK_OK || status == DK_BUSY)
        return;
    progress->failed++;
    if (is_live)
        fprintf(stderr, "shm_victim: %s: %s\n", dk_status_name(status), error->message);
}

static dk_status open_all(struct victim *victim, const char *address, const char *name,
                          struct dk_error *error)
{
    const struct dk_client_options options = {.ring_entries = IN_FLIGHT,
                                              .data_bytes = 1u << (17 + draw(&victim->random, 4)),
                                              .spin_us = draw(&victim->random, 2) ? DK_CLIENT_NO_SPIN : 20};
    dk_status status = dk_client_open(address, &options, &victim->client, error);
    if (status == DK_OK)
        status = dk_client_model_open(victim->client, name, &victim->model, error);
    if (status != DK_OK)
        return status;
    const struct dk_client_model_info *info = dk_client_model_get_info(victim->model);
    victim->k = info->k;
    victim->n = info->n;
    victim->a = calloc(IN_FLIGHT * MAX_ROWS * info->k, sizeof(float));
    victim->c = calloc(IN_FLIGHT * MAX_ROWS * info->n, sizeof(float));
    progress->opened++;
    return victim->a && victim->c ? DK_OK : DK_NO_MEMORY;
}

/* A few requests in flight, left alone or waited for. */
static dk_status pipeline(struct victim *victim, struct dk_error *error)
{
    struct dk_client_completion done[IN_FLIGHT];
    dk_status status = DK_OK;
    for (unsigned i = 0; status == DK_OK && i < 1 + draw(&victim->random, IN_FLIGHT); i++) {
        const struct dk_client_request request = {.rows = draw(&victim->random, MAX_ROWS),
                                                  .a = victim->a + i * MAX_ROWS * victim->k,
                                                  .c = victim->c + i * MAX_ROWS * victim->n};
        status = dk_client_submit(victim->model, &request, error);
    }
    if (status != DK_OK && status != DK_BUSY)
        return status;
    struct dk_client_info info;
    for (dk_client_get_info(victim->client, &info); info.in_flight > 0;
         dk_client_get_info(victim->client, &info)) {
        size_t count;
        status = dk_client_wait(victim->client, 0, done, IN_FLIGHT, &count, error);
        if (status != DK_OK)
            return status;
        progress->completed += count;
    }
    return DK_OK;
}

static dk_status step(struct victim *victim, struct dk_error *error)
{
    const struct dk_client_request request = {
        .rows = draw(&victim->random, MAX_ROWS), .a = victim->a, .c = victim->c};
    dk_status status;
    switch (draw(&victim->random, 8)) {
    case 0: {
        dk_client_buffer_release(victim->client, victim->buffer);
        victim->buffer = NULL;
        return dk_client_buffer_acquire(victim->client, 1 + draw(&victim->random, 9000), &victim->buffer,
                                        error);
    }
    case 1: {
        struct dk_client_model_info infos[4];
        size_t count;
        return dk_client_list_models(victim->client, infos, 4, &count, error);
    }
    case 2:
    case 3:
        return pipeline(victim, error);
    default:
        status = dk_client_infer(victim->model, &request, NULL, error);
        progress->completed += status == DK_OK;
        return status;
    }
}

static int live(const char *address, const char *name, unsigned seed, bool is_live)
{
    struct victim victim = {.random = seed};
    struct dk_error error = {0};
    progress->started++;
    dk_status status = open_all(&victim, address, name, &error);
    note(status, &error, is_live);
    for (int i = 0; status == DK_OK && (!is_live || i < LIVE_REQUESTS); i++) {
        status = step(&victim, &error);
        note(status, &error, is_live);
        if (status == DK_BUSY)
            status = DK_OK;
    }
    dk_client_close(victim.client);
    free(victim.a);
    free(victim.c);
    return status == DK_OK ? 0 : 1;
}

static pid_t start(char **argv, unsigned seed, bool is_live)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(live(argv[1], argv[2], seed, is_live));
    }
    return pid;
}

/* Kill one after a time that covers its start, its handshake and its work. */
static void end(pid_t pid, unsigned *random, bool is_live, unsigned long *bad)
{
    int status;
    if (!is_live) {
        unsigned us = draw(random, 4) == 0 ? draw(random, 600) : draw(random, LONGEST_US);
        const struct timespec time = {.tv_nsec = (long)us * 1000};
        nanosleep(&time, NULL);
        kill(pid, SIGKILL);
    }
    if (waitpid(pid, &status, 0) != pid)
        exit(3);
    if (is_live ? !WIFEXITED(status) || WEXITSTATUS(status) != 0
                : !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) && !WIFEXITED(status))
        ++*bad;
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc > 7) {
        fprintf(stderr, "usage: shm_victim ADDRESS MODEL COUNT SEED PARALLEL [--live]\n");
        return 2;
    }
    unsigned long count = strtoul(argv[3], NULL, 10), parallel = strtoul(argv[5], NULL, 10), bad = 0;
    unsigned random = (unsigned)strtoul(argv[4], NULL, 10);
    bool is_live = argc == 7 && strcmp(argv[6], "--live") == 0;
    pid_t pids[MAX_PARALLEL];
    if (parallel < 1 || parallel > MAX_PARALLEL)
        return 2;
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED)
        return 3;
    unsigned long started = 0, running = 0;
    while (started < count || running > 0) {
        while (started < count && running < parallel)
            pids[running++] = start(argv, (unsigned)started++ * 7919u + random, is_live);
        /* Any of them: the youngest as well, in its handshake. */
        unsigned chosen = draw(&random, (unsigned)running);
        end(pids[chosen], &random, is_live, &bad);
        pids[chosen] = pids[--running];
    }
    printf("started %lu opened %lu completed %lu failed %lu bad %lu\n", progress->started, progress->opened,
           progress->completed, progress->failed, bad);
    return bad == 0 ? 0 : 1;
}

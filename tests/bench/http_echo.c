/* http_echo.c: the least a libmicrohttpd server does for a request: take a body, answer so many bytes. The
 * peer of bench_http.py, set up like the daemon's HTTP threads.
 * Usage: http_echo PORT THREADS ANSWER_BYTES [handover]. With "handover" each request is suspended and
 * resumed by one other thread, as in any server that computes elsewhere. Ends with its standard input. */
#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BODY_MAX = 16 << 20, CONNECTION_MEMORY_BYTES = 256 * 1024 };

static struct MHD_Response *answer;
static bool has_handover;

/* The other thread: a short queue under a mutex. */
enum { QUEUE_MAX = 1024 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static struct MHD_Connection *queue[QUEUE_MAX];
static size_t queue_head, queue_tail;

static void *resume_all(void *context)
{
    (void)context;
    for (;;) {
        (void)pthread_mutex_lock(&mutex);
        while (queue_head == queue_tail) {
            (void)pthread_cond_wait(&filled, &mutex);
        }
        struct MHD_Connection *connection = queue[queue_head++ % QUEUE_MAX];
        (void)pthread_mutex_unlock(&mutex);
        if (connection == NULL) {
            return NULL;
        }
        MHD_resume_connection(connection);
    }
}

static void hand_over(struct MHD_Connection *connection)
{
    if (connection != NULL) {
        MHD_suspend_connection(connection);
    }
    (void)pthread_mutex_lock(&mutex);
    queue[queue_tail++ % QUEUE_MAX] = connection;
    (void)pthread_cond_signal(&filled);
    (void)pthread_mutex_unlock(&mutex);
}

struct request {
    size_t used;
    bool was_handed_over;
};

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes, size_t *length,
                                  void **slot)
{
    (void)context;
    (void)url;
    (void)method;
    (void)version;
    /* One for each thread, used again: what a request costs, not what fresh memory costs. */
    static _Thread_local char body[BODY_MAX];
    struct request *request = *slot;
    if (request == NULL) {
        *slot = request = calloc(1, sizeof *request);
        return request != NULL ? MHD_YES : MHD_NO;
    }
    if (*length == 0 && has_handover && !request->was_handed_over) {
        request->was_handed_over = true;
        hand_over(connection);
        return MHD_YES;
    }
    if (*length == 0) {
        return MHD_queue_response(connection, MHD_HTTP_OK, answer);
    }
    if (*length > BODY_MAX - request->used) {
        return MHD_NO;
    }
    memcpy(body + request->used, bytes, *length);
    request->used += *length;
    *length = 0;
    return MHD_YES;
}

static void on_end(void *context, struct MHD_Connection *connection, void **slot,
                   enum MHD_RequestTerminationCode reason)
{
    (void)context;
    (void)connection;
    (void)reason;
    free(*slot);
    *slot = NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4 && (argc != 5 || strcmp(argv[4], "handover") != 0)) {
        fprintf(stderr, "usage: http_echo PORT THREADS ANSWER_BYTES [handover]\n");
        return 2;
    }
    has_handover = argc == 5;
    unsigned long port = strtoul(argv[1], NULL, 10), threads = strtoul(argv[2], NULL, 10);
    size_t answer_bytes = strtoull(argv[3], NULL, 10);
    char *bytes = calloc(1, answer_bytes + 1);
    answer =
        bytes != NULL ? MHD_create_response_from_buffer(answer_bytes, bytes, MHD_RESPMEM_MUST_FREE) : NULL;
    struct MHD_Daemon *daemon =
        answer == NULL
            ? NULL
            : MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, (uint16_t)port, NULL,
                               NULL, on_request, NULL, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)threads,
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
                               MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL, MHD_OPTION_END);
    if (daemon == NULL) {
        fprintf(stderr, "http_echo: cannot listen on port %lu\n", port);
        return 1;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, resume_all, NULL) != 0) {
        return 1;
    }
    printf("ready\n");
    (void)fflush(stdout);
    char scratch[64];
    while (read(STDIN_FILENO, scratch, sizeof scratch) > 0) {
    }
    hand_over(NULL);
    (void)pthread_join(thread, NULL);
    MHD_stop_daemon(daemon);
    MHD_destroy_response(answer);
    return 0;
}

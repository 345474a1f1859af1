/* wake_pingpong.c: the cost of waking another process, bare: two processes on given processors that wake each
 * other in turn. The peer of the ring's sleeping round trip.
 * Usage: wake_pingpong futex|eventfd|mixed|spin COUNT CPU CPU
 *   futex    FUTEX_WAKE there and back
 *   eventfd  write, and epoll_wait + read, there and back
 *   mixed    eventfd and epoll there (nothing read, edge-triggered), a futex back: what the ring does
 *   spin     a flag there and back, nobody sleeps
 * Prints one JSON object, microseconds of a round trip: {"kind", "count", "p50", "p90", "p99", "min", "max"}.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 500, THERE = 0, BACK = 1 };

/* One direction: a count that the sender raises, and how the receiver waits for it. */
struct way {
    _Alignas(64) _Atomic uint32_t count;
    int event_fd, epoll_fd; /* -1: not by eventfd */
    bool is_futex;          /* neither: spin */
};

/* Shared by the two processes. */
struct table {
    struct way ways[2];
};

static double now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        fprintf(stderr, "wake_pingpong: processor %d: %s\n", cpu, strerrordesc_np(errno));
        exit(1);
    }
}

static bool open_eventfd(struct way *way)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    way->event_fd = eventfd(0, EFD_NONBLOCK);
    way->epoll_fd = epoll_create1(0);
    return way->event_fd >= 0 && way->epoll_fd >= 0 &&
           epoll_ctl(way->epoll_fd, EPOLL_CTL_ADD, way->event_fd, &event) == 0;
}

static void send_one(struct way *way)
{
    uint64_t one = 1;
    atomic_fetch_add(&way->count, 1);
    if (way->event_fd >= 0) {
        if (write(way->event_fd, &one, sizeof one) != (ssize_t)sizeof one)
            exit(1); /* cannot fill in so few rounds */
    } else if (way->is_futex) {
        (void)syscall(SYS_futex, &way->count, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

static void receive_one(struct way *way, uint32_t number)
{
    uint32_t seen;
    while ((seen = atomic_load(&way->count)) < number) {
        struct epoll_event event;
        if (way->event_fd >= 0)
            (void)epoll_wait(way->epoll_fd, &event, 1, -1);
        else if (way->is_futex)
            (void)syscall(SYS_futex, &way->count, FUTEX_WAIT, seen, NULL, NULL, 0);
    }
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static int measure(struct table *table, const char *kind, size_t count)
{
    double *times = malloc(count * sizeof *times);
    if (!times)
        return 1;
    for (size_t i = 0; i < WARM_UP + count; i++) {
        double began = now_us();
        send_one(&table->ways[THERE]);
        receive_one(&table->ways[BACK], (uint32_t)i + 1);
        if (i >= WARM_UP)
            times[i - WARM_UP] = now_us() - began;
    }
    qsort(times, count, sizeof *times, compare);
    printf("{\"kind\": \"%s\", \"count\": %zu, \"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"min\": %.2f, "
           "\"max\": %.2f}\n",
           kind, count, times[count / 2], times[count * 9 / 10], times[count * 99 / 100], times[0],
           times[count - 1]);
    free(times);
    return 0;
}

static bool set_up(struct table *table, const char *kind)
{
    for (int i = THERE; i <= BACK; i++)
        table->ways[i] = (struct way){.event_fd = -1, .epoll_fd = -1};
    if (strcmp(kind, "eventfd") == 0)
        return open_eventfd(&table->ways[THERE]) && open_eventfd(&table->ways[BACK]);
    if (strcmp(kind, "mixed") == 0) {
        table->ways[BACK].is_futex = true;
        return open_eventfd(&table->ways[THERE]);
    }
    table->ways[THERE].is_futex = table->ways[BACK].is_futex = strcmp(kind, "futex") == 0;
    return table->ways[THERE].is_futex || strcmp(kind, "spin") == 0;
}

int main(int argc, char **argv)
{
    unsigned long count = argc == 5 ? strtoul(argv[2], NULL, 10) : 0;
    if (count < 1 || count > 10000000) {
        fprintf(stderr, "usage: wake_pingpong futex|eventfd|mixed|spin COUNT CPU CPU\n");
        return 2;
    }
    struct table *table =
        mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED || !set_up(table, argv[1])) {
        fprintf(stderr, "wake_pingpong: cannot set up '%s'\n", argv[1]);
        return 1;
    }
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(atoi(argv[4]));
        for (uint32_t i = 1; i <= WARM_UP + count; i++) {
            receive_one(&table->ways[THERE], i);
            send_one(&table->ways[BACK]);
        }
        _exit(0);
    }
    pin(atoi(argv[3]));
    int exit_code = measure(table, argv[1], count);
    (void)waitpid(child, NULL, 0);
    return exit_code;
}

/* http_pingpong.c: round trips of one keep-alive connection with blocking calls: what a lean client sees.
 * Usage: http_pingpong PORT COUNT PATH CONTENT_TYPE ACCEPT ["NAME: VALUE"] < body
 * Prints one JSON object, microseconds: {"count", "p50", "p90", "p99", "min", "max", "status",
 * "answer_bytes"}. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 200, MAX_HEAD_BYTES = 8192 };

static double now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* All of standard input; NULL when memory is out. */
static char *read_body(size_t *out_bytes)
{
    size_t used = 0, capacity = 1 << 16;
    char *body = malloc(capacity);
    for (size_t got; body && (got = fread(body + used, 1, capacity - used, stdin)) > 0;) {
        used += got;
        if (used == capacity) {
            capacity *= 2;
            char *grown = realloc(body, capacity);
            if (!grown)
                free(body);
            body = grown;
        }
    }
    *out_bytes = used;
    return body;
}

static bool send_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

struct answer {
    int status;
    size_t body_bytes;
    double kernel_us; /* 0 when the answer does not say */
};

static double find_kernel_us(const char *text, const char *key)
{
    const char *found = strstr(text, key);
    return found ? strtod(found + strlen(key), NULL) : 0;
}

/* One response with a Content-Length that fits the buffer. */
static bool receive(int fd, struct answer *out)
{
    static char buffer[1 << 20];
    size_t used = 0;
    const char *end = NULL;
    while (!end) {
        ssize_t got = recv(fd, buffer + used, MAX_HEAD_BYTES - used, 0);
        if (got <= 0)
            return false;
        used += (size_t)got;
        buffer[used] = '\0';
        end = strstr(buffer, "\r\n\r\n");
        if (!end && used == MAX_HEAD_BYTES)
            return false;
    }
    const char *length = strcasestr(buffer, "\r\nContent-Length:");
    if (!length || length > end || strncmp(buffer, "HTTP/1.1 ", 9) != 0)
        return false;
    out->status = (int)strtol(buffer + 9, NULL, 10);
    out->body_bytes = (size_t)strtoull(length + 17, NULL, 10);
    size_t whole = (size_t)(end + 4 - buffer) + out->body_bytes;
    if (whole >= sizeof buffer)
        return false;
    while (used < whole) {
        ssize_t got = recv(fd, buffer + used, whole - used, 0);
        if (got <= 0)
            return false;
        used += (size_t)got;
    }
    buffer[used] = '\0';
    out->kernel_us = find_kernel_us(buffer, " kernel=");
    if (out->kernel_us <= 0)
        out->kernel_us = find_kernel_us(end, "\"kernel\":");
    return used == whole;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_quantiles(const char *prefix, double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    printf("\"%sp50\": %.2f, \"%sp90\": %.2f, \"%sp99\": %.2f, \"%smin\": %.2f, \"%smax\": %.2f, ", prefix,
           values[count / 2], prefix, values[count * 9 / 10], prefix, values[count * 99 / 100], prefix,
           values[0], prefix, values[count - 1]);
}

static int measure(int fd, const char *request, size_t request_bytes, size_t count)
{
    double *times = malloc(count * 2 * sizeof *times);
    struct answer answer = {0};
    if (!times)
        return 1;
    double *above = times + count;
    for (size_t i = 0; i < WARM_UP + count; i++) {
        double began = now_us();
        if (!send_all(fd, request, request_bytes) || !receive(fd, &answer)) {
            fprintf(stderr, "http_pingpong: the exchange failed at request %zu\n", i);
            free(times);
            return 1;
        }
        if (i >= WARM_UP) {
            times[i - WARM_UP] = now_us() - began;
            above[i - WARM_UP] = times[i - WARM_UP] - answer.kernel_us;
        }
    }
    putchar('{');
    print_quantiles("", times, count);
    print_quantiles("above_kernel_", above, count);
    printf("\"count\": %zu, \"status\": %d, \"answer_bytes\": %zu}\n", count, answer.status,
           answer.body_bytes);
    free(times);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7) {
        fprintf(stderr,
                "usage: http_pingpong PORT COUNT PATH CONTENT_TYPE ACCEPT [\"NAME: VALUE\"] < body\n");
        return 2;
    }
    unsigned long port = strtoul(argv[1], NULL, 10), count = strtoul(argv[2], NULL, 10);
    if (port < 1 || port > 65535 || count < 1 || count > 10000000) {
        fprintf(stderr, "http_pingpong: PORT or COUNT is out of range: %s %s\n", argv[1], argv[2]);
        return 2;
    }
    int status = 1;
    size_t body_bytes = 0;
    char *body = read_body(&body_bytes);
    char *request = body ? malloc(MAX_HEAD_BYTES + body_bytes) : NULL;
    if (!request)
        goto free_body;
    int head =
        snprintf(request, MAX_HEAD_BYTES,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nAccept: %s\r\n"
                 "%s%sContent-Length: %zu\r\n\r\n",
                 argv[3], argv[4], argv[5], argc == 7 ? argv[6] : "", argc == 7 ? "\r\n" : "", body_bytes);
    if (head < 0 || head >= MAX_HEAD_BYTES)
        goto free_request;
    memcpy(request + head, body, body_bytes);
    int fd = connect_to((uint16_t)port);
    if (fd < 0) {
        perror("http_pingpong: connect");
        goto free_request;
    }
    status = measure(fd, request, (size_t)head + body_bytes, count);
    close(fd);
free_request:
    free(request);
free_body:
    free(body);
    return status;
}

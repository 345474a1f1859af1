/* stub_server.h: a child process that answers HTTP requests on 127.0.0.1 with canned bytes, in order. */
#ifndef DK_TESTS_CLIENT_STUB_SERVER_H
#define DK_TESTS_CLIENT_STUB_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/unit/client/check.h"

/* One canned answer: head lines without Content-Length (added), then the body. */
struct stub_answer {
    const char *head; /* "200 OK\r\nContent-Type: application/json" */
    const void *body;
    size_t body_bytes;
    bool is_silent;      /* read the request, never answer */
    const char *expects; /* must be part of the request, else the child exits with 1 */
};

struct stub_server {
    pid_t pid;
    char url[64];
};

/* Read one request (head and Content-Length body); returns its length, 0 at the end of the connection. */
static size_t stub_read_request(int fd, char *out, size_t size)
{
    size_t length = 0, wanted = 0;
    while (!wanted || length < wanted) {
        ssize_t got = read(fd, out + length, size - 1 - length);
        if (got <= 0)
            return 0;
        length += (size_t)got;
        out[length] = 0;
        char *end = strstr(out, "\r\n\r\n"), *field = strcasestr(out, "\r\nContent-Length:");
        if (end && !wanted)
            wanted = (size_t)(end + 4 - out) +
                     (field && field < end ? strtoul(field + sizeof "\r\nContent-Length:" - 1, NULL, 10) : 0);
    }
    return length;
}

static inline void stub_serve(int listen_fd, const struct stub_answer *answers, size_t count)
{
    static char request[1 << 20];
    size_t next = 0;
    while (next < count) {
        int fd = accept(listen_fd, NULL, NULL);
        if (fd < 0)
            _exit(2);
        size_t length;
        while (next < count && (length = stub_read_request(fd, request, sizeof request)) > 0) {
            const struct stub_answer *answer = &answers[next++];
            if (answer->expects && !memmem(request, length, answer->expects, strlen(answer->expects))) {
                fprintf(stderr, "expected '%s' in the request: %s\n", answer->expects, request);
                _exit(1);
            }
            if (answer->is_silent)
                pause();
            dprintf(fd, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", answer->head, answer->body_bytes);
            for (size_t done = 0; done < answer->body_bytes;) {
                ssize_t put =
                    send(fd, (const char *)answer->body + done, answer->body_bytes - done, MSG_NOSIGNAL);
                if (put <= 0)
                    break; /* the client may refuse a long answer */
                done += (size_t)put;
            }
        }
        close(fd);
    }
    _exit(0);
}

static inline struct stub_server stub_start_on(int listen_fd, const struct stub_answer *answers, size_t count)
{
    struct stub_server server = {.pid = fork()};
    assert_true(server.pid >= 0);
    if (server.pid == 0) {
        /* A failed assertion skips stub_finish: without this the child would keep the output pipe open, and
         * the run would hang instead of reporting. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        stub_serve(listen_fd, answers, count);
    }
    close(listen_fd);
    return server;
}

static inline struct stub_server stub_start(const struct stub_answer *answers, size_t count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    struct stub_server server = stub_start_on(fd, answers, count);
    snprintf(server.url, sizeof server.url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    return server;
}

/* All answers were taken, and every request was as expected. */
static inline void stub_finish(const struct stub_server *server)
{
    int status;
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static inline void stub_kill(const struct stub_server *server)
{
    kill(server->pid, SIGKILL);
    assert_int_equal(waitpid(server->pid, NULL, 0), server->pid);
}

#endif

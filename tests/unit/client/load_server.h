/* load_server.h: a forked HTTP server that answers every request of every connection with the same bytes. */
#ifndef DK_TESTS_CLIENT_LOAD_SERVER_H
#define DK_TESTS_CLIENT_LOAD_SERVER_H

#include <errno.h>
#include <poll.h>

#include "tests/unit/client/stub_server.h"

struct load_answer {
    const char *bytes; /* head and body as they go out */
    size_t length;
    size_t piece_bytes;   /* sent in pieces of so many bytes; 0: at once */
    uint32_t close_after; /* answers per connection, then it is closed; 0: never */
    bool is_early;        /* answer before the body has come, and close */
    const char *expects;  /* must be part of each request; else the server answers 400 */
};

static void load_send(int fd, const char *bytes, size_t length, size_t piece_bytes)
{
    while (length > 0) {
        size_t part = piece_bytes > 0 && piece_bytes < length ? piece_bytes : length;
        ssize_t put = send(fd, bytes, part, MSG_NOSIGNAL);
        if (put <= 0)
            return; /* the client may have gone */
        bytes += put;
        length -= (size_t)put;
        if (piece_bytes > 0)
            usleep(1000);
    }
}

static void load_serve_connection(int fd, const struct load_answer *answer)
{
    static const char refusal[] = "HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\n{}";
    static char request[1 << 20];
    uint32_t count = 0;
    for (;;) {
        size_t length = answer->is_early ? (size_t)(read(fd, request, 100) > 0)
                                         : stub_read_request(fd, request, sizeof request);
        if (length == 0)
            break;
        if (answer->expects && !memmem(request, length, answer->expects, strlen(answer->expects))) {
            fprintf(stderr, "expected '%s' in the request: %.400s\n", answer->expects, request);
            load_send(fd, refusal, sizeof refusal - 1, 0);
        } else {
            load_send(fd, answer->bytes, answer->length, answer->piece_bytes);
        }
        if (answer->is_early || ++count == answer->close_after)
            break;
    }
    shutdown(fd, SHUT_WR);
    while (read(fd, request, sizeof request) > 0) /* a close with unread bytes would reset the answer away */
        continue;
    _exit(0);
}

static inline struct stub_server load_server_start(const struct load_answer *answer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    struct stub_server server = {.pid = fork()};
    assert_true(server.pid >= 0);
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        for (;;) {
            int connection = accept(fd, NULL, NULL);
            if (connection < 0)
                _exit(2);
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(fd);
                load_serve_connection(connection, answer);
            }
            close(connection);
        }
    }
    close(fd);
    snprintf(server.url, sizeof server.url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    return server;
}

#endif

/* listen.c: TCP listening sockets. */
#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 }; /* the kernel cuts it to net.core.somaxconn */

/* "127.0.0.1:8000" or "[::1]:8000". */
static void describe(const struct sockaddr *address, socklen_t length, const char *host, uint16_t port,
                     char *out, size_t size)
{
    char numeric[NI_MAXHOST];
    if (getnameinfo(address, length, numeric, sizeof numeric, NULL, 0, NI_NUMERICHOST) != 0)
        (void)snprintf(out, size, "%.200s:%u", host, port);
    else
        (void)snprintf(out, size, address->sa_family == AF_INET6 ? "[%.200s]:%u" : "%.200s:%u", numeric,
                       port);
}

static bool is_any_ipv6(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)address)->sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
}

/* A listening descriptor, or -1 with errno. */
static int open_address(const struct addrinfo *address)
{
    const int yes = 1, no = 0;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0)
        return -1;
    bool is_open =
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        (!is_any_ipv6(address->ai_addr) || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) &&
        bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
    if (is_open)
        return fd;
    int saved = errno;
    (void)close(fd);
    errno = saved;
    return -1;
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* "[::1]" -> "::1". */
static void strip_brackets(const char *host, char *out, size_t size)
{
    size_t length = strlen(host);
    bool has_brackets = length > 2 && host[0] == '[' && host[length - 1] == ']';
    (void)snprintf(out, size, "%.*s", (int)(has_brackets ? length - 2 : length), host + has_brackets);
}

static dk_status resolve(const char *host, uint16_t port, struct addrinfo **out, struct dk_error *error)
{
    char name[NI_MAXHOST], service[8];
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    if (*host == '\0' || strlen(host) >= sizeof name)
        return dk_fail(error, DK_BAD_VALUE, "host '%.100s' is not an address or a name", host);
    strip_brackets(host, name, sizeof name);
    (void)snprintf(service, sizeof service, "%u", port);
    int code = getaddrinfo(name, service, &hints, out);
    if (code == 0)
        return DK_OK;
    return dk_fail(error, DK_UNAVAILABLE, "cannot listen on %s:%u: %s", host, port,
                   code == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(code));
}

/* Only an address this machine does not have leads on to the next. One in use ends the search: "localhost"
 * taken on 127.0.0.1 must not start a second instance on ::1. */
static bool is_absent(int code)
{
    return code == EAFNOSUPPORT || code == EADDRNOTAVAIL || code == EPROTONOSUPPORT;
}

dk_status dk_listen_tcp(const char *host, uint16_t *port_inout, int *out_fd, struct dk_error *error)
{
    struct addrinfo *addresses = NULL;
    char place[NI_MAXHOST] = "";
    int fd = -1, code = EADDRNOTAVAIL;
    dk_status status = resolve(host, *port_inout, &addresses, error);
    if (status != DK_OK)
        return status;
    for (const struct addrinfo *address = addresses; address != NULL && fd < 0 && is_absent(code);
         address = address->ai_next) {
        fd = open_address(address);
        code = errno;
        describe(address->ai_addr, address->ai_addrlen, host, *port_inout, place, sizeof place);
    }
    freeaddrinfo(addresses);
    if (fd < 0)
        return dk_fail(error, DK_UNAVAILABLE, "cannot listen on %s: %s (%s)", place, strerrordesc_np(code),
                       strerrorname_np(code));
    *port_inout = bound_port(fd);
    *out_fd = fd;
    return DK_OK;
}

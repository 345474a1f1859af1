/* doors.c: which sockets are taken over and which are opened. */
#include "server/doors.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/activation.h"
#include "server/config.h"
#include "server/listen.h"
#include "server/log.h"

/* "http://HOST:PORT"; a host with colons gets brackets. */
static void make_url(char *out, size_t size, const char *host, uint16_t port)
{
    const char *bare = *host == '[' ? "" : host; /* written with its brackets already */
    int is_ipv6 = strchr(bare, ':') != NULL;
    (void)snprintf(out, size, "http://%s%s%s:%u", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", port);
}

static void describe_tcp(int fd, char *out, size_t size)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[NI_MAXHOST] = "?";
    (void)getsockname(fd, (struct sockaddr *)&address, &length);
    (void)getnameinfo((struct sockaddr *)&address, length, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    make_url(out, size, host,
             ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                 : ((struct sockaddr_in *)&address)->sin_port));
}

static void describe_unix(int fd, char *out, size_t size)
{
    struct sockaddr_un address = {0};
    socklen_t length = sizeof address;
    (void)getsockname(fd, (struct sockaddr *)&address, &length);
    (void)snprintf(out, size, "%.*s", (int)sizeof address.sun_path, address.sun_path);
}

static dk_status open_http(const struct dk_config *config, struct dk_doors *doors, struct dk_error *error)
{
    if (doors->tcp >= 0) {
        describe_tcp(doors->tcp, doors->url, sizeof doors->url);
        dk_log(DK_LOG_INFO, "socket_passed", "name=http url=%s", doors->url);
        return DK_OK;
    }
    uint16_t port = config->port;
    dk_status status = dk_listen_tcp(config->host, &port, &doors->tcp, error);
    make_url(doors->url, sizeof doors->url, config->host, port);
    return status;
}

static dk_status open_http_unix(const struct dk_config *config, struct dk_doors *doors,
                                struct dk_error *error)
{
    if (doors->http_unix >= 0) {
        describe_unix(doors->http_unix, doors->http_unix_path, sizeof doors->http_unix_path);
        dk_log(DK_LOG_INFO, "socket_passed", "name=http-unix path=%s", doors->http_unix_path);
        return DK_OK;
    }
    if (config->http_socket == NULL) {
        return DK_OK;
    }
    (void)snprintf(doors->http_unix_path, sizeof doors->http_unix_path, "%s", config->http_socket);
    return dk_listen_unix(config->http_socket, config->http_socket_mode, &doors->http_unix,
                          &doors->http_unix_lock, error);
}

static dk_status open_shm(const struct dk_config *config, struct dk_doors *doors, struct dk_error *error)
{
    if (doors->shm >= 0) {
        describe_unix(doors->shm, doors->shm_path, sizeof doors->shm_path);
        dk_log(DK_LOG_INFO, "socket_passed", "name=shm path=%s", doors->shm_path);
        return DK_OK;
    }
    if (config->shm_socket == NULL) {
        return DK_OK;
    }
    (void)snprintf(doors->shm_path, sizeof doors->shm_path, "%s", config->shm_socket);
    return dk_listen_unix_packets(config->shm_socket, config->shm_socket_mode, &doors->shm, &doors->shm_lock,
                                  error);
}

dk_status dk_doors_open(const struct dk_config *config, struct dk_doors *out, struct dk_error *error)
{
    struct dk_activation passed;
    *out = (struct dk_doors){.tcp = -1,
                             .http_unix = -1,
                             .http_unix_lock = -1,
                             .shm = -1,
                             .shm_lock = -1,
                             .http_unix_path = "none",
                             .shm_path = "none"};
    dk_status status = dk_activation_take(&passed, error);
    if (status == DK_OK) {
        out->tcp = passed.http;
        out->http_unix = passed.http_unix;
        out->shm = passed.shm;
        status = open_http(config, out, error);
    }
    if (status == DK_OK) {
        status = open_http_unix(config, out, error);
    }
    if (status == DK_OK) {
        status = open_shm(config, out, error);
    }
    return status;
}

/* Without a lock the file is not ours: dk_listen_unix_close then only closes. */
void dk_doors_close(const struct dk_config *config, const struct dk_doors *doors)
{
    if (doors->http_unix >= 0) {
        dk_listen_unix_close(config->http_socket, doors->http_unix, doors->http_unix_lock);
    }
    if (doors->shm >= 0) {
        dk_listen_unix_close(config->shm_socket, doors->shm, doors->shm_lock);
    }
    if (doors->tcp >= 0) {
        (void)close(doors->tcp);
    }
}

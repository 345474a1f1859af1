/* load_http_target.c: from a URL or a socket's path to an address that accepts connections. */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/load_http.h"

static dk_status set_unix_address(const char *path, struct dk_load_http_target *out, struct dk_error *error)
{
    struct sockaddr_un *address = (struct sockaddr_un *)&out->address;
    if (strlen(path) >= sizeof address->sun_path)
        return dk_fail(error, DK_BAD_VALUE, "the socket's path '%s' is longer than %zu bytes", path,
                       sizeof address->sun_path - 1);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, strlen(path) + 1);
    out->address_bytes = sizeof *address;
    return DK_OK;
}

/* The first address of the host that accepts: "localhost" is ::1 and 127.0.0.1, and a daemon may listen on
 * one of them only. */
static dk_status set_tcp_address(const char *host, const char *port, struct dk_load_http_target *out,
                                 struct dk_error *error)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int code = getaddrinfo(host, port, &hints, &list), reason = 0;
    if (code != 0)
        return dk_fail(error, DK_UNAVAILABLE, "host '%s' port %s: %s", host, port, gai_strerror(code));
    dk_status status = DK_UNAVAILABLE;
    for (const struct addrinfo *at = list; at && status != DK_OK; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0) {
            memcpy(&out->address, at->ai_addr, at->ai_addrlen);
            out->address_bytes = at->ai_addrlen;
            status = DK_OK;
        } else {
            reason = errno;
        }
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    if (status != DK_OK)
        dk_fail(error, status, "cannot connect to %s port %s: %s (is decomposekd running?)", host, port,
                strerrordesc_np(reason));
    return status;
}

static dk_status take_parts(CURLU *parts, const struct dk_http_options *options,
                            struct dk_load_http_target *out, struct dk_error *error)
{
    char *host = NULL, *port = NULL, *path = NULL;
    dk_status status;
    if (curl_url_set(parts, CURLUPART_URL, options->url, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_PATH, &path, 0) != CURLUE_OK) {
        status = dk_fail(error, DK_BAD_VALUE, "URL '%s' is not of the form http://host:port", options->url);
        goto free_parts;
    }
    size_t path_length = strlen(path), host_length = strlen(host);
    while (path_length > 0 && path[path_length - 1] == '/')
        path_length--;
    if (path_length >= sizeof out->prefix || host_length + 1 + strlen(port) >= sizeof out->host) {
        status = dk_fail(error, DK_BAD_VALUE, "URL '%s' is too long", options->url);
        goto free_parts;
    }
    memcpy(out->prefix, path, path_length);
    out->prefix[path_length] = '\0';
    (void)snprintf(out->host, sizeof out->host, "%s:%s", host, port);
    if (options->unix_socket) {
        status = set_unix_address(options->unix_socket, out, error);
    } else {
        if (host[0] == '[') { /* getaddrinfo wants IPv6 addresses bare */
            host[host_length - 1] = '\0';
            memmove(host, host + 1, host_length - 1);
        }
        status = set_tcp_address(host, port, out, error);
    }
free_parts:
    curl_free(host);
    curl_free(port);
    curl_free(path);
    return status;
}

dk_status dk_load_http_resolve(const struct dk_http_options *options, struct dk_load_http_target *out,
                               struct dk_error *error)
{
    CURLU *parts = curl_url();
    if (!parts)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the URL");
    memset(out, 0, sizeof *out);
    out->api_key = options->api_key;
    dk_status status = take_parts(parts, options, out, error);
    curl_url_cleanup(parts);
    return status;
}

/* activation.c: LISTEN_FDS with names, through libsystemd. */
#include "server/activation.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef DK_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

static dk_status take(struct dk_activation *activation, int fd, const char *name, struct dk_error *error)
{
    const struct {
        const char *name, *kind;
        int *slot, family, type;
    } doors[] = {
        {"http", "a listening TCP socket", &activation->http, AF_UNSPEC, SOCK_STREAM},
        {"http-unix", "a listening UNIX stream socket", &activation->http_unix, AF_UNIX, SOCK_STREAM},
        {"shm", "a listening UNIX seqpacket socket", &activation->shm, AF_UNIX, SOCK_SEQPACKET},
    };
    for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) {
        if (strcmp(doors[i].name, name) != 0) {
            continue;
        }
        if (*doors[i].slot >= 0) {
            return dk_fail(error, DK_BAD_VALUE, "two sockets named '%s' were passed; one is allowed", name);
        }
        int is_right = doors[i].family == AF_UNIX
                           ? sd_is_socket_unix(fd, doors[i].type, 1, NULL, 0)
                           : sd_is_socket_inet(fd, doors[i].family, doors[i].type, 1, 0);
        int flags = fcntl(fd, F_GETFL);
        if (is_right <= 0) {
            return dk_fail(error, DK_BAD_VALUE, "the socket passed as '%s' is not %s", name, doors[i].kind);
        }
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
            return dk_fail(error, DK_UNAVAILABLE, "the socket passed as '%s' cannot be made non-blocking",
                           name);
        }
        *doors[i].slot = fd;
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_VALUE,
                   "a socket named '%.60s' was passed; FileDescriptorName= is one of http, http-unix, shm",
                   name);
}

dk_status dk_activation_take(struct dk_activation *out, struct dk_error *error)
{
    struct dk_activation activation = {-1, -1, -1};
    char **names = NULL;
    int count = sd_listen_fds_with_names(1, &names);
    dk_status status = DK_OK;
    if (count < 0) {
        return dk_fail(error, DK_UNAVAILABLE, "cannot take the sockets that were passed: %s",
                       strerrordesc_np(-count));
    }
    for (int i = 0; i < count; i++) {
        if (status == DK_OK) {
            status = take(&activation, SD_LISTEN_FDS_START + i, names[i], error);
        }
        free(names[i]);
    }
    free(names);
    if (status == DK_OK) {
        *out = activation;
    }
    return status;
}

#else

dk_status dk_activation_take(struct dk_activation *out, struct dk_error *error)
{
    const char *pid = getenv("LISTEN_PID");
    if (pid != NULL && strtol(pid, NULL, 10) == (long)getpid()) {
        return dk_fail(error, DK_UNAVAILABLE,
                       "sockets were passed (LISTEN_FDS), but this build has no libsystemd to take them");
    }
    *out = (struct dk_activation){-1, -1, -1};
    return DK_OK;
}

#endif

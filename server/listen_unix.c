/* listen_unix.c: a listening UNIX socket: stale files replaced, everything else left alone. */
#include "server/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096, LOCK_PATH_BYTES = sizeof((struct sockaddr_un *)0)->sun_path + sizeof ".lock" };

/* What the lock file holds: who serves, and which socket file is theirs. */
struct ownership {
    unsigned long long pid, device, inode;
};

static void lock_path(const char *path, char out[LOCK_PATH_BYTES])
{
    (void)snprintf(out, LOCK_PATH_BYTES, "%s.lock", path);
}

static bool read_ownership(int lock_fd, struct ownership *out)
{
    char text[80];
    ssize_t length = pread(lock_fd, text, sizeof text - 1, 0);
    if (length <= 0)
        return false;
    text[length] = '\0';
    unsigned long long *const numbers[] = {&out->pid, &out->device, &out->inode};
    char *at = text;
    for (size_t i = 0; i < 3; i++) {
        char *end = NULL;
        *numbers[i] = strtoull(at, &end, 10);
        if (end == at)
            return false;
        at = end;
    }
    return true;
}

static bool write_ownership(int lock_fd, const struct stat *socket_file)
{
    char text[80];
    int length = snprintf(text, sizeof text, "%llu %llu %llu\n", (unsigned long long)getpid(),
                          (unsigned long long)socket_file->st_dev, (unsigned long long)socket_file->st_ino);
    return ftruncate(lock_fd, 0) == 0 && pwrite(lock_fd, text, (size_t)length, 0) == length;
}

static dk_status fail_errno(struct dk_error *error, const char *what, const char *path)
{
    int code = errno;
    return dk_fail(error, DK_UNAVAILABLE, "socket %s: cannot %s: %s (%s)", path, what, strerrordesc_np(code),
                   strerrorname_np(code));
}

static dk_status refuse_locked(int lock_fd, const char *path, struct dk_error *error)
{
    struct ownership owner;
    if (errno != EWOULDBLOCK)
        return fail_errno(error, "lock", path);
    if (read_ownership(lock_fd, &owner))
        return dk_fail(error, DK_UNAVAILABLE, "socket %s: another instance (process %llu) holds %s.lock",
                       path, owner.pid, path);
    return dk_fail(error, DK_UNAVAILABLE, "socket %s: another instance holds %s.lock", path, path);
}

/* True when `fd` is still the file at `path`: its last holder may have removed it between open and flock. */
static bool is_same_file(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

static dk_status take_lock(const char *path, int *out_fd, struct dk_error *error)
{
    char name[LOCK_PATH_BYTES];
    lock_path(path, name);
    for (;;) {
        struct stat info;
        /* NONBLOCK: a FIFO of this name must not stop the start */
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0)
            return fail_errno(error, "open the lock file", name);
        if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
            (void)close(fd);
            return dk_fail(error, DK_UNAVAILABLE, "socket %s: the lock file %s is not a regular file", path,
                           name);
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            dk_status status = refuse_locked(fd, path, error);
            (void)close(fd);
            return status;
        }
        if (is_same_file(fd, name)) {
            *out_fd = fd;
            return DK_OK;
        }
        (void)close(fd);
    }
}

static void release_lock(const char *path, int lock_fd)
{
    char name[LOCK_PATH_BYTES];
    lock_path(path, name);
    if (is_same_file(lock_fd, name)) /* removed while held, so that nobody locks a file without a name */
        (void)unlink(name);
    (void)close(lock_fd);
}

static const char *file_kind(mode_t mode)
{
    return S_ISREG(mode)    ? "regular file"
           : S_ISDIR(mode)  ? "directory"
           : S_ISLNK(mode)  ? "symbolic link"
           : S_ISFIFO(mode) ? "FIFO"
                            : "device";
}

/* True when a connect is refused: the file is there but nobody listens. */
static bool is_stale(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool is_refused =
        connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return is_refused;
}

/* Removes a stale socket file; anything else at the path is an error. Under the lock. */
static dk_status clear_path(const char *path, const struct sockaddr_un *address, struct dk_error *error)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? DK_OK : fail_errno(error, "look at it", path);
    if (!S_ISSOCK(info.st_mode))
        return dk_fail(error, DK_UNAVAILABLE, "socket %s: a %s is there; it is left alone", path,
                       file_kind(info.st_mode));
    if (!is_stale(address))
        return dk_fail(error, DK_UNAVAILABLE, "socket %s: another process serves it", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return fail_errno(error, "remove the stale file", path);
    return DK_OK;
}

/* The file is bound; make it complete, or remove it again. */
static dk_status finish_file(int fd, const char *path, mode_t mode, int lock_fd, struct dk_error *error)
{
    struct stat info;
    dk_status status = DK_OK;
    if (chmod(path, mode) != 0)
        status = fail_errno(error, "set the mode of", path);
    else if (lstat(path, &info) != 0 || !write_ownership(lock_fd, &info))
        status = fail_errno(error, "write the lock file of", path);
    else if (listen(fd, BACKLOG) != 0)
        status = fail_errno(error, "listen on", path);
    if (status != DK_OK)
        (void)unlink(path);
    return status;
}

/* fchmod before bind gives the new file this mode less the umask, so it is never open to more than `mode`;
 * chmod then adds what the umask took. umask itself belongs to the whole process. */
static dk_status serve_path(const struct sockaddr_un *address, int type, uint32_t mode, int lock_fd,
                            int *out_fd, struct dk_error *error)
{
    const char *path = address->sun_path;
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail_errno(error, "create", path);
    dk_status status = DK_OK;
    if (fchmod(fd, (mode_t)mode) != 0 || bind(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        status = fail_errno(error, "bind", path);
    else
        status = finish_file(fd, path, (mode_t)mode, lock_fd, error);
    if (status == DK_OK)
        *out_fd = fd;
    else
        (void)close(fd);
    return status;
}

static dk_status listen_unix(const char *path, int type, uint32_t mode, int *out_fd, int *out_lock_fd,
                             struct dk_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    int lock_fd = -1;
    if (length == 0 || length >= sizeof address.sun_path)
        return dk_fail(error, DK_BAD_VALUE, "socket '%.120s': a path of 1 to %zu bytes is allowed, found %zu",
                       path, sizeof address.sun_path - 1, length);
    memcpy(address.sun_path, path, length + 1);
    dk_status status = take_lock(path, &lock_fd, error);
    if (status != DK_OK)
        return status;
    status = clear_path(path, &address, error);
    if (status == DK_OK)
        status = serve_path(&address, type, mode, lock_fd, out_fd, error);
    if (status == DK_OK)
        *out_lock_fd = lock_fd;
    else
        release_lock(path, lock_fd);
    return status;
}

dk_status dk_listen_unix(const char *path, uint32_t mode, int *out_fd, int *out_lock_fd,
                         struct dk_error *error)
{
    return listen_unix(path, SOCK_STREAM, mode, out_fd, out_lock_fd, error);
}

dk_status dk_listen_unix_packets(const char *path, uint32_t mode, int *out_fd, int *out_lock_fd,
                                 struct dk_error *error)
{
    return listen_unix(path, SOCK_SEQPACKET, mode, out_fd, out_lock_fd, error);
}

void dk_listen_unix_close(const char *path, int fd, int lock_fd)
{
    struct ownership owner;
    struct stat info;
    bool is_ours = lock_fd >= 0 && read_ownership(lock_fd, &owner) && lstat(path, &info) == 0 &&
                   S_ISSOCK(info.st_mode) && owner.device == (unsigned long long)info.st_dev &&
                   owner.inode == (unsigned long long)info.st_ino;
    if (is_ours)
        (void)unlink(path);
    if (fd >= 0)
        (void)close(fd);
    if (lock_fd >= 0)
        release_lock(path, lock_fd);
}

/* test_listen.c: addresses in use, stale and live UNIX sockets, simultaneous starters. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/listen.h"

static char folder[64], path[108], lock_name[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dk_listen_XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/http.sock", folder);
    snprintf(lock_name, sizeof lock_name, "%s.lock", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    rmdir(path);
    unlink(lock_name);
    return rmdir(folder);
}

static bool exists(const char *name)
{
    struct stat info;
    return lstat(name, &info) == 0;
}

static bool can_connect_unix(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool is_connected = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is_connected;
}

static bool can_connect_tcp(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool is_connected = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is_connected;
}

static void test_port_zero_reports_the_port_taken(void **state)
{
    (void)state;
    uint16_t port = 0;
    int fd = -1;
    struct dk_error error = {0};
    assert_int_equal(dk_listen_tcp("127.0.0.1", &port, &fd, &error), DK_OK);
    assert_true(port > 0 && fd >= 0);
    assert_true(can_connect_tcp(port));
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    int reuse_port = 1;
    socklen_t size = sizeof reuse_port;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &reuse_port, &size), 0);
    assert_int_equal(reuse_port, 0);
    close(fd);
}

static void test_c70_second_on_the_port_fails_naming_address_and_errno(void **state)
{
    (void)state;
    const char *hosts[] = {"127.0.0.1", "0.0.0.0", "localhost"};
    for (size_t i = 0; i < 3; i++) {
        uint16_t port = 0;
        int fd = -1, second_fd = -7;
        struct dk_error error = {0};
        assert_int_equal(dk_listen_tcp(hosts[i], &port, &fd, &error), DK_OK);
        uint16_t second_port = port;
        assert_int_equal(dk_listen_tcp(hosts[i], &second_port, &second_fd, &error), DK_UNAVAILABLE);
        assert_int_equal(second_fd, -7);
        char wanted[32];
        snprintf(wanted, sizeof wanted, ":%u: ", port);
        assert_non_null(strstr(error.message, wanted));
        assert_non_null(strstr(error.message, i == 1 ? "0.0.0.0" : i == 0 ? "127.0.0.1" : "1"));
        assert_non_null(strstr(error.message, "EADDRINUSE"));
        close(fd);
    }
}

static void test_c70_restart_after_a_connection_was_open_works(void **state)
{
    (void)state;
    uint16_t port = 0;
    int fd = -1;
    struct dk_error error = {0};
    assert_int_equal(dk_listen_tcp("127.0.0.1", &port, &fd, &error), DK_OK);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    int server = accept(fd, NULL, NULL);
    assert_true(server >= 0);
    close(server); /* the server's side closes first: TIME_WAIT stays on its port */
    close(client);
    close(fd);
    assert_int_equal(dk_listen_tcp("127.0.0.1", &port, &fd, &error), DK_OK);
    close(fd);
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool is_bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return is_bound;
}

static void test_c70_ipv6_is_reported_in_brackets_and_any_takes_ipv4_too(void **state)
{
    (void)state;
    if (!has_ipv6())
        skip();
    uint16_t port = 0;
    int fd = -1, second_fd = -1;
    struct dk_error error = {0};
    assert_int_equal(dk_listen_tcp("[::1]", &port, &fd, &error), DK_OK);
    assert_int_equal(dk_listen_tcp("::1", &port, &second_fd, &error), DK_UNAVAILABLE);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "[::1]:%u", port);
    assert_non_null(strstr(error.message, wanted));
    close(fd);
    port = 0;
    assert_int_equal(dk_listen_tcp("::", &port, &fd, &error), DK_OK);
    assert_true(can_connect_tcp(port));
    assert_int_equal(dk_listen_tcp("0.0.0.0", &port, &second_fd, &error), DK_UNAVAILABLE);
    close(fd);
}

static void test_unknown_hosts_are_refused(void **state)
{
    (void)state;
    const char *hosts[] = {"", "999.1.1.1", "no-such-host.invalid", "192.0.2.1"};
    for (size_t i = 0; i < 4; i++) {
        uint16_t port = 0;
        int fd = -7;
        struct dk_error error = {0};
        assert_int_not_equal(dk_listen_tcp(hosts[i], &port, &fd, &error), DK_OK);
        assert_true(error.message[0] != '\0');
        assert_int_equal(fd, -7);
    }
}

static void test_unix_socket_serves_with_the_mode_asked_for_and_is_removed(void **state)
{
    (void)state;
    const uint32_t modes[] = {0660, 0600, 0666};
    for (size_t i = 0; i < 3; i++) {
        int fd = -1, lock_fd = -1;
        struct dk_error error = {0};
        struct stat info;
        mode_t before = umask(0077);
        assert_int_equal(dk_listen_unix(path, modes[i], &fd, &lock_fd, &error), DK_OK);
        umask(before);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, modes[i]);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(lock_fd, F_GETFD) & FD_CLOEXEC);
        assert_true(can_connect_unix());
        dk_listen_unix_close(path, fd, lock_fd);
        assert_false(exists(path));
        assert_false(exists(lock_name));
    }
}

/* A process that listened and died at once: the file stays, nobody answers. */
static void leave_stale_socket(void)
{
    pid_t child = fork();
    if (child == 0) {
        int fd, lock_fd;
        _exit(dk_listen_unix(path, 0660, &fd, &lock_fd, NULL) == DK_OK ? 0 : 1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_true(exists(path));
    assert_false(can_connect_unix());
}

static void test_c69_stale_socket_is_replaced(void **state)
{
    (void)state;
    int fd = -1, lock_fd = -1;
    struct dk_error error = {0};
    leave_stale_socket();
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_OK);
    assert_true(can_connect_unix());
    dk_listen_unix_close(path, fd, lock_fd);
}

static void test_c69_stale_socket_without_its_lock_file_is_replaced(void **state)
{
    (void)state;
    int fd = -1, lock_fd = -1;
    struct dk_error error = {0};
    leave_stale_socket();
    unlink(lock_name);
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_OK);
    dk_listen_unix_close(path, fd, lock_fd);
}

static void test_c69_live_instance_is_never_touched(void **state)
{
    (void)state;
    int fd = -1, lock_fd = -1, second_fd = -7, second_lock = -7;
    struct dk_error error = {0};
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_OK);
    assert_int_equal(dk_listen_unix(path, 0660, &second_fd, &second_lock, &error), DK_UNAVAILABLE);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "another instance (process %d)", getpid());
    assert_non_null(strstr(error.message, wanted));
    assert_non_null(strstr(error.message, path));
    assert_int_equal(second_fd, -7);
    assert_int_equal(second_lock, -7);
    assert_true(can_connect_unix());
    dk_listen_unix_close(path, fd, lock_fd);
}

static void test_c69_live_socket_of_another_program_is_refused(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int other = socket(AF_UNIX, SOCK_STREAM, 0), fd = -1, lock_fd = -1;
    assert_int_equal(bind(other, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(other, 1), 0);
    struct dk_error error = {0};
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_UNAVAILABLE);
    assert_true(can_connect_unix());
    assert_false(exists(lock_name));
    close(other);
}

static void check_left_alone(const char *kind)
{
    struct stat before, after;
    int fd = -1, lock_fd = -1;
    struct dk_error error = {0};
    assert_int_equal(lstat(path, &before), 0);
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_UNAVAILABLE);
    assert_non_null(strstr(error.message, kind));
    assert_int_equal(lstat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_mode == after.st_mode);
    assert_false(exists(lock_name));
}

static void test_c69_regular_file_symlink_directory_and_fifo_stay(void **state)
{
    (void)state;
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(file, "keep", 4), 4);
    close(file);
    check_left_alone("regular file");
    unlink(path);
    assert_int_equal(symlink("elsewhere", path), 0);
    check_left_alone("symbolic link");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    check_left_alone("directory");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_left_alone("FIFO");
    unlink(path);
}

static void test_lock_file_that_is_a_symlink_or_fifo_is_refused(void **state)
{
    (void)state;
    int fd = -1, lock_fd = -1;
    struct dk_error error = {0};
    char victim[128];
    snprintf(victim, sizeof victim, "%s/victim", folder);
    assert_int_equal(symlink(victim, lock_name), 0);
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_UNAVAILABLE);
    assert_false(exists(victim));
    unlink(lock_name);
    assert_int_equal(mkfifo(lock_name, 0600), 0);
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_UNAVAILABLE);
    assert_non_null(strstr(error.message, "not a regular file"));
    unlink(lock_name);
}

/* One starter: waits for the gun, tries, reports, and a winner serves until the race is judged. */
static void run_starter(int gun, int result, int judged)
{
    char byte;
    int fd, lock_fd;
    if (read(gun, &byte, 1) < 0) /* end of file: all start */
        _exit(2);
    bool has_won = dk_listen_unix(path, 0660, &fd, &lock_fd, NULL) == DK_OK;
    if (write(result, has_won ? "w" : "l", 1) != 1)
        _exit(2);
    if (has_won && read(judged, &byte, 1) == 0)
        dk_listen_unix_close(path, fd, lock_fd);
    _exit(0);
}

static void race(void)
{
    enum { STARTERS = 10 };
    int gun[2], result[2], judged[2], wins = 0;
    assert_int_equal(pipe(gun) | pipe(result) | pipe(judged), 0);
    for (int i = 0; i < STARTERS; i++) {
        if (fork() == 0) {
            close(gun[1]);
            close(judged[1]);
            run_starter(gun[0], result[1], judged[0]);
        }
    }
    close(gun[1]);
    for (int i = 0; i < STARTERS; i++) {
        char byte = '?';
        assert_int_equal(read(result[0], &byte, 1), 1);
        wins += byte == 'w';
    }
    assert_int_equal(wins, 1);
    assert_true(can_connect_unix());
    close(judged[1]);
    for (int i = 0; i < STARTERS; i++) {
        int code = -1;
        assert_true(wait(&code) > 0);
        assert_int_equal(code, 0);
    }
    close(gun[0]);
    close(result[0]);
    close(result[1]);
    close(judged[0]);
    assert_false(exists(path));
    assert_false(exists(lock_name));
}

static void test_c69_of_ten_starters_exactly_one_wins(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        if (round % 2 == 1)
            leave_stale_socket();
        race();
    }
}

static void test_close_leaves_a_file_that_is_no_longer_ours(void **state)
{
    (void)state;
    int fd = -1, lock_fd = -1;
    struct dk_error error = {0};
    assert_int_equal(dk_listen_unix(path, 0660, &fd, &lock_fd, &error), DK_OK);
    unlink(path);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int other = socket(AF_UNIX, SOCK_STREAM, 0), spare = open("/dev/null", O_RDONLY);
    assert_int_equal(bind(other, (struct sockaddr *)&address, sizeof address), 0);
    dk_listen_unix_close(path, fd, lock_fd);
    assert_true(exists(path));
    close(other);
    close(spare);
}

static void test_paths_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    char longest[120];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *bad[] = {"", longest};
    for (size_t i = 0; i < 2; i++) {
        int fd = -1, lock_fd = -1;
        struct dk_error error = {0};
        assert_int_equal(dk_listen_unix(bad[i], 0660, &fd, &lock_fd, &error), DK_BAD_VALUE);
        assert_non_null(strstr(error.message, "107"));
    }
}

static void test_missing_folder_is_named(void **state)
{
    (void)state;
    int fd = -1, lock_fd = -1;
    struct dk_error error = {0};
    assert_int_equal(dk_listen_unix("/nonexistent/x.sock", 0660, &fd, &lock_fd, &error), DK_UNAVAILABLE);
    assert_non_null(strstr(error.message, "/nonexistent/x.sock"));
    assert_non_null(strstr(error.message, "ENOENT"));
}

#define UNIX_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port_zero_reports_the_port_taken),
        cmocka_unit_test(test_c70_second_on_the_port_fails_naming_address_and_errno),
        cmocka_unit_test(test_c70_restart_after_a_connection_was_open_works),
        cmocka_unit_test(test_c70_ipv6_is_reported_in_brackets_and_any_takes_ipv4_too),
        cmocka_unit_test(test_unknown_hosts_are_refused),
        UNIX_TEST(test_unix_socket_serves_with_the_mode_asked_for_and_is_removed),
        UNIX_TEST(test_c69_stale_socket_is_replaced),
        UNIX_TEST(test_c69_stale_socket_without_its_lock_file_is_replaced),
        UNIX_TEST(test_c69_live_instance_is_never_touched),
        UNIX_TEST(test_c69_live_socket_of_another_program_is_refused),
        UNIX_TEST(test_c69_regular_file_symlink_directory_and_fifo_stay),
        UNIX_TEST(test_lock_file_that_is_a_symlink_or_fifo_is_refused),
        UNIX_TEST(test_c69_of_ten_starters_exactly_one_wins),
        UNIX_TEST(test_close_leaves_a_file_that_is_no_longer_ours),
        cmocka_unit_test(test_paths_that_do_not_fit_are_refused),
        cmocka_unit_test(test_missing_folder_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

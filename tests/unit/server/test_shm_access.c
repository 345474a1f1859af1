/* test_shm_access.c: who may share memory, and the lists that say so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/config_options.h"
#include "server/shm_access.h"

static const struct dk_id_list none, one = {.count = 2, .ids = {7, 1001}}, any = {.is_any = true};

static dk_status check(uid_t uid, gid_t gid, const struct dk_id_list *uids, const struct dk_id_list *gids,
                       struct dk_error *error)
{
    const struct dk_shm_peer_ids peer = {.pid = 99, .uid = uid, .gid = gid};
    const gid_t groups[] = {30, 31};
    return dk_shm_access_check(&peer, groups, 2, 500, uids, gids, error);
}

static void test_root_and_own_user_may_always(void **state)
{
    (void)state;
    assert_int_equal(check(0, 0, &none, &none, NULL), DK_OK);
    assert_int_equal(check(500, 9, &none, &none, NULL), DK_OK);
}

static void test_strangers_are_named_and_refused(void **state)
{
    (void)state;
    struct dk_error error;
    assert_int_equal(check(1002, 1002, &one, &one, &error), DK_FORBIDDEN);
    assert_non_null(strstr(error.message, "user 1002, group 1002 (process 99)"));
    assert_int_equal(check(501, 500, &none, &none, &error), DK_FORBIDDEN); /* a group is no user */
}

static void test_listed_users_and_groups_may(void **state)
{
    (void)state;
    const struct dk_id_list supplementary = {.count = 1, .ids = {31}};
    assert_int_equal(check(1001, 5, &one, &none, NULL), DK_OK);
    assert_int_equal(check(1002, 7, &none, &one, NULL), DK_OK);
    assert_int_equal(check(1002, 1002, &none, &supplementary, NULL), DK_OK);
    assert_int_equal(check(1002, 1002, &any, &none, NULL), DK_OK);
    assert_int_equal(check(1002, 1002, &none, &any, NULL), DK_OK);
}

static void test_kernel_says_who_is_there(void **state)
{
    (void)state;
    int fds[2];
    struct dk_shm_peer_ids ids;
    struct dk_config config = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    assert_int_equal(dk_shm_access(fds[0], &config, &ids, NULL), DK_OK); /* ourselves */
    assert_int_equal(ids.pid, getpid());
    assert_int_equal(ids.uid, geteuid());
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
    assert_int_equal(dk_shm_access(fds[0], &config, &ids, NULL), DK_IO_ERROR);
}

static void test_lists_of_ids_are_parsed_strictly(void **state)
{
    (void)state;
    struct dk_id_list list = {0};
    assert_true(dk_config_parse_ids("0,1000,4294967294", &list));
    assert_int_equal(list.count, 3);
    assert_int_equal(list.ids[2], 4294967294u);
    assert_true(dk_config_parse_ids("any", &list));
    assert_true(list.is_any);
    static const char *const bad[] = {"",
                                      ",",
                                      "1,",
                                      ",1",
                                      "1,,2",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1;2",
                                      "x",
                                      "anyone",
                                      "0x10",
                                      "4294967295",
                                      "99999999999999999999",
                                      "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dk_id_list untouched = {.count = 5};
        if (dk_config_parse_ids(bad[i], &untouched)) {
            fail_msg("'%s' was taken", bad[i]);
        }
        assert_int_equal(untouched.count, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root_and_own_user_may_always),
        cmocka_unit_test(test_strangers_are_named_and_refused),
        cmocka_unit_test(test_listed_users_and_groups_may),
        cmocka_unit_test(test_kernel_says_who_is_there),
        cmocka_unit_test(test_lists_of_ids_are_parsed_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

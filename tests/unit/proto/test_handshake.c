/* test_handshake.c: which packets are taken, and why the others are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "proto/handshake.h"

static dk_status check(const union dk_shm_packet *packet, size_t length, enum dk_shm_sender sender,
                       const char *text)
{
    struct dk_error error = {.message = ""};
    dk_status status = dk_shm_check(packet, length, sender, &error);
    if (status == DK_OK) {
        assert_string_equal(text, "");
    } else if (strstr(error.message, text) == NULL) {
        fail_msg("'%s' does not say '%s'", error.message, text);
    }
    return status;
}

static void test_every_kind_passes_as_it_is_made_and_from_its_sender_only(void **state)
{
    (void)state;
    for (uint32_t kind = 1; kind < DK_SHM_KIND_COUNT; kind++) {
        union dk_shm_packet packet;
        size_t length = dk_shm_begin(&packet, (enum dk_shm_kind)kind);
        enum dk_shm_sender sender = kind < DK_SHM_WELCOME ? DK_SHM_CLIENT : DK_SHM_SERVER;
        enum dk_shm_sender other = sender == DK_SHM_CLIENT ? DK_SHM_SERVER : DK_SHM_CLIENT;
        assert_int_equal(check(&packet, length, sender, ""), DK_OK);
        assert_int_equal(check(&packet, length, other, "does not send"), DK_BAD_REQUEST);
    }
}

static void test_lengths_must_be_exact(void **state)
{
    (void)state;
    union dk_shm_packet packet;
    size_t length = dk_shm_begin(&packet, DK_SHM_OPEN_MODEL);
    for (size_t wrong = 0; wrong <= sizeof packet + 1; wrong++) {
        if (wrong != length) {
            const char *text = wrong < sizeof(struct dk_shm_message) ? "at least 16" : "OPEN_MODEL of";
            assert_int_equal(check(&packet, wrong, DK_SHM_CLIENT, text), DK_BAD_REQUEST);
        }
    }
    packet.message.bytes--;
    assert_int_equal(check(&packet, length, DK_SHM_CLIENT, "that says 87, expected 88"), DK_BAD_REQUEST);
}

static void test_bad_starts_are_named(void **state)
{
    (void)state;
    union dk_shm_packet packet;
    size_t length = dk_shm_begin(&packet, DK_SHM_CLOSE);
    packet.message.magic ^= 1;
    assert_int_equal(check(&packet, length, DK_SHM_CLIENT, "expected 48534b44"), DK_BAD_REQUEST);
    length = dk_shm_begin(&packet, DK_SHM_CLOSE);
    packet.message.version = 2;
    assert_int_equal(check(&packet, length, DK_SHM_CLIENT, "version 2, expected version 1"), DK_UNSUPPORTED);
    length = dk_shm_begin(&packet, DK_SHM_CLOSE);
    packet.message.reserved = 9;
    assert_int_equal(check(&packet, length, DK_SHM_CLIENT, "reserved word is 9"), DK_BAD_REQUEST);
    static const uint16_t kinds[] = {DK_SHM_KIND_NONE, DK_SHM_KIND_COUNT, UINT16_MAX};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        length = dk_shm_begin(&packet, DK_SHM_CLOSE);
        packet.message.kind = kinds[i];
        assert_int_equal(check(&packet, length, DK_SHM_CLIENT, "does not send"), DK_BAD_REQUEST);
    }
}

static void test_names_and_texts_must_end_and_be_clean_behind(void **state)
{
    (void)state;
    union dk_shm_packet packet;
    size_t length = dk_shm_begin(&packet, DK_SHM_OPEN_MODEL);
    memset(packet.open_model.name, 'a', sizeof packet.open_model.name);
    assert_int_equal(check(&packet, length, DK_SHM_CLIENT, "name is not terminated within 72 bytes"),
                     DK_BAD_REQUEST);
    packet.open_model.name[64] = '\0';
    assert_int_equal(check(&packet, length, DK_SHM_CLIENT, "name has bytes behind its end"), DK_BAD_REQUEST);
    length = dk_shm_begin(&packet, DK_SHM_GOODBYE);
    memset(packet.failure.text, 'a', sizeof packet.failure.text);
    assert_int_equal(check(&packet, length, DK_SHM_SERVER, "text is not terminated"), DK_BAD_REQUEST);
}

static struct dk_shm_hello good_hello(void)
{
    return (struct dk_shm_hello){.ring_version = DK_RING_VERSION,
                                 .header_bytes = sizeof(struct dk_ring_header),
                                 .submission_bytes = sizeof(struct dk_ring_submission),
                                 .completion_bytes = sizeof(struct dk_ring_completion),
                                 .entry_count = 64,
                                 .data_bytes = 1 << 20};
}

static void test_hello_of_another_abi_is_unsupported(void **state)
{
    (void)state;
    struct dk_ring_layout layout;
    struct dk_error error;
    struct dk_shm_hello hello = good_hello();
    assert_int_equal(dk_shm_hello_layout(&hello, &layout, &error), DK_OK);
    assert_int_equal(layout.data_bytes, 1 << 20);
    hello.ring_version = 2;
    assert_int_equal(dk_shm_hello_layout(&hello, &layout, &error), DK_UNSUPPORTED);
    assert_string_equal(error.message, "a ring of version 2, expected version 1");
    uint32_t *const sizes[] = {&hello.header_bytes, &hello.submission_bytes, &hello.completion_bytes};
    for (size_t i = 0; i < 3; i++) {
        hello = good_hello();
        *sizes[i] += 64;
        assert_int_equal(dk_shm_hello_layout(&hello, &layout, &error), DK_UNSUPPORTED);
        assert_non_null(strstr(error.message, "another ABI"));
    }
    hello = good_hello();
    hello.entry_count = 48;
    assert_int_equal(dk_shm_hello_layout(&hello, &layout, &error), DK_BAD_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_passes_as_it_is_made_and_from_its_sender_only),
        cmocka_unit_test(test_lengths_must_be_exact),
        cmocka_unit_test(test_bad_starts_are_named),
        cmocka_unit_test(test_names_and_texts_must_end_and_be_clean_behind),
        cmocka_unit_test(test_hello_of_another_abi_is_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

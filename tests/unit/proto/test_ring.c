/* test_ring.c: the layout of the ring, its header, its texts, and PROTOCOL.md's tables against them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proto/handshake.h"

static void test_layout_keeps_everything_apart(void **state)
{
    (void)state;
    for (uint32_t entries = 1; entries <= DK_RING_MAX_ENTRIES; entries *= 2) {
        struct dk_ring_layout layout;
        assert_int_equal(dk_ring_layout_make(entries, 1, &layout, NULL), DK_OK);
        assert_int_equal(layout.entry_count, entries);
        assert_true(layout.submission_offset >= sizeof(struct dk_ring_header));
        assert_int_equal(layout.completion_offset, layout.submission_offset + entries * 64u);
        assert_true(layout.data_offset >= layout.completion_offset + entries * 64u);
        assert_int_equal(layout.data_offset % 4096, 0);
        assert_int_equal(layout.data_bytes, 4096);
        assert_int_equal(layout.mapping_bytes, layout.data_offset + layout.data_bytes);
    }
}

static void test_impossible_sizes_are_refused(void **state)
{
    (void)state;
    static const uint32_t entries[] = {
        0, 3, 12, DK_RING_MAX_ENTRIES + 1, DK_RING_MAX_ENTRIES * 2, UINT32_MAX, 1u << 31};
    struct dk_ring_layout layout = {.entry_count = 77};
    struct dk_error error;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        assert_int_equal(dk_ring_layout_make(entries[i], 4096, &layout, &error), DK_BAD_VALUE);
    }
    static const uint64_t bytes[] = {0, UINT64_MAX, UINT64_MAX - 4094, (uint64_t)INT64_MAX,
                                     (uint64_t)INT64_MAX - 4096};
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        assert_int_equal(dk_ring_layout_make(16, bytes[i], &layout, &error), DK_BAD_VALUE);
    }
    assert_int_equal(layout.entry_count, 77);
}

static void test_header_says_what_the_layout_says(void **state)
{
    (void)state;
    _Alignas(64) unsigned char page[DK_RING_HEADER_BYTES] = {0};
    struct dk_ring_layout layout, other;
    struct dk_error error;
    assert_int_equal(dk_ring_layout_make(8, 5000, &layout, NULL), DK_OK);
    dk_ring_format(page, &layout);
    assert_int_equal(dk_ring_check(page, &layout, &error), DK_OK);
    other = layout;
    other.data_bytes++;
    assert_int_equal(dk_ring_check(page, &other, &error), DK_UNSUPPORTED);
    assert_string_equal(error.message, "the ring's data_bytes: expected 8193, found 8192");
    ((struct dk_ring_header *)page)->version = 2;
    assert_int_equal(dk_ring_check(page, &layout, &error), DK_UNSUPPORTED);
    assert_string_equal(error.message, "the ring's version: expected 1, found 2");
}

static void test_every_detail_has_a_status_and_a_text(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < DK_RING_DETAIL_COUNT; i++) {
        assert_int_not_equal(dk_ring_detail_status(i), DK_OK);
        assert_true(strlen(dk_ring_detail_text(i)) > 5);
    }
    assert_int_equal(dk_ring_detail_status(DK_RING_DETAIL_COUNT), DK_INTERNAL);
    assert_string_equal(dk_ring_detail_text(UINT32_MAX), "an unknown reason");
}

struct row {
    const char *name, *word;
    unsigned offset, bytes;
};
#define ROW(type, short_name, member)                                                                        \
    {                                                                                                        \
        short_name, #member, offsetof(struct type, member), sizeof(((struct type *)0)->member)               \
    }
#define HEADER(member)     ROW(dk_ring_header, "header", member)
#define SUBMISSION(member) ROW(dk_ring_submission, "submission", member)
#define COMPLETION(member) ROW(dk_ring_completion, "completion", member)
static const struct row rows[] = {
    HEADER(magic),
    HEADER(version),
    HEADER(entry_count),
    HEADER(submission_offset),
    HEADER(completion_offset),
    HEADER(data_offset),
    HEADER(data_bytes),
    HEADER(mapping_bytes),
    HEADER(submission_bytes),
    HEADER(completion_bytes),
    HEADER(submission_tail),
    HEADER(completion_head),
    HEADER(client_waits),
    HEADER(needs_wakeup),
    HEADER(completion_tail),
    HEADER(server_state),
    SUBMISSION(user_data),
    SUBMISSION(a_offset),
    SUBMISSION(c_offset),
    SUBMISSION(model_id),
    SUBMISSION(rows),
    SUBMISSION(submitted_ns),
    SUBMISSION(timeout_us),
    SUBMISSION(a_dtype),
    SUBMISSION(c_dtype),
    SUBMISSION(epilogue),
    SUBMISSION(flags),
    SUBMISSION(reserved),
    COMPLETION(user_data),
    COMPLETION(status),
    COMPLETION(detail),
    COMPLETION(queue_ns),
    COMPLETION(kernel_ns),
    COMPLETION(piece_count),
    COMPLETION(bucket_rows),
    COMPLETION(split_k),
    COMPLETION(model_version),
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static const char *const detail_names[] = {
#define NAME(name, status, text) #name,
    DK_RING_DETAIL_MAP(NAME)
#undef NAME
};

static void cut_blanks(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') {
        text[--length] = '\0';
    }
}

static void test_protocol_document_has_the_same_tables(void **state)
{
    (void)state;
    FILE *file = fopen(DK_PROTOCOL_MD, "r");
    assert_non_null(file);
    unsigned row_count = 0, detail_count = 0, kind_count = 0;
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        char first[64], second[64], text[256];
        unsigned offset, bytes;
        if (sscanf(line, "| %63[a-z] | %63[a-z_] | %u | %u |", first, second, &offset, &bytes) == 4) {
            assert_in_range(row_count, 0, ROW_COUNT - 1);
            assert_string_equal(first, rows[row_count].name);
            assert_string_equal(second, rows[row_count].word);
            assert_int_equal(offset, rows[row_count].offset);
            assert_int_equal(bytes, rows[row_count].bytes);
            row_count++;
        } else if (sscanf(line, "| `%63[A-Z_]` | `%63[A-Z_]` | %255[^|\n]|", first, second, text) == 3) {
            cut_blanks(text);
            assert_in_range(detail_count, 0, DK_RING_DETAIL_COUNT - 1);
            assert_string_equal(first, detail_names[detail_count]);
            assert_string_equal(second, dk_status_name(dk_ring_detail_status(detail_count)));
            assert_string_equal(text, dk_ring_detail_text(detail_count));
            detail_count++;
        } else if (sscanf(line, "| %u | `%63[A-Z_]` | %u | %63[a-z] |", &offset, first, &bytes, second) ==
                   4) {
            union dk_shm_packet packet;
            kind_count++;
            assert_int_equal(offset, kind_count);
            assert_string_equal(first, dk_shm_kind_name(offset));
            assert_int_equal(bytes, dk_shm_begin(&packet, (enum dk_shm_kind)offset));
            bool is_client = strcmp(second, "client") == 0;
            assert_int_equal(dk_shm_check(&packet, bytes, is_client ? DK_SHM_CLIENT : DK_SHM_SERVER, NULL),
                             DK_OK);
        }
    }
    fclose(file);
    assert_int_equal(row_count, ROW_COUNT);
    assert_int_equal(detail_count, DK_RING_DETAIL_COUNT);
    assert_int_equal(kind_count, DK_SHM_KIND_COUNT - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_keeps_everything_apart),
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_header_says_what_the_layout_says),
        cmocka_unit_test(test_every_detail_has_a_status_and_a_text),
        cmocka_unit_test(test_protocol_document_has_the_same_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

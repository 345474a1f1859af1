/* test_http_inflate.c: compressed bodies in any split, bounded output, and what is no such body. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "server/http_gzip.h"
#include "server/http_inflate.h"

enum { TEXT_BYTES = 100000 };

static const enum dk_coding codings[] = {DK_CODING_GZIP, DK_CODING_DEFLATE};

/* Something between noise and zeros. */
static void fill(char *out, size_t length)
{
    uint32_t state = 7;
    for (size_t i = 0; i < length; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = (char)(state >> 24 & 15);
    }
}

static struct dk_json_text compressed(const char *bytes, size_t length, enum dk_coding coding)
{
    struct dk_json_text text = {.data = malloc(length + 1), .length = length, .capacity = length + 1};
    assert_non_null(text.data);
    memcpy(text.data, bytes, length);
    assert_true(dk_compress_text(&text, coding));
    return text;
}

/* Feeds in pieces of `step` with blocks of `block` bytes; the total written, or SIZE_MAX after an error. */
static size_t inflate_all(enum dk_coding coding, const char *bytes, size_t length, size_t step, size_t block,
                          char *out, bool *is_complete, struct dk_error *error)
{
    struct dk_inflater *inflater;
    size_t total = 0;
    assert_int_equal(dk_inflater_new(coding, &inflater, NULL), DK_OK);
    for (size_t offset = 0; offset < length && total != SIZE_MAX;) {
        size_t piece = length - offset < step ? length - offset : step, consumed, written;
        do {
            if (dk_inflater_next(inflater, bytes + offset, piece, &consumed, out + total, block, &written,
                                 error) != DK_OK) {
                total = SIZE_MAX;
                break;
            }
            assert_true(written <= block && consumed <= piece);
            offset += consumed;
            piece -= consumed;
            total += written;
        } while (written == block || piece > 0);
    }
    *is_complete = dk_inflater_is_complete(inflater);
    dk_inflater_free(inflater);
    return total;
}

static void test_any_split_gives_the_same_bytes(void **state)
{
    (void)state;
    static char text[TEXT_BYTES], out[TEXT_BYTES + 70000];
    static const size_t steps[] = {1, 2, 7, 1000, TEXT_BYTES * 2}, blocks[] = {1, 100, 16384, 65536};
    fill(text, sizeof text);
    for (size_t c = 0; c < 2; c++) {
        struct dk_json_text body = compressed(text, sizeof text, codings[c]);
        for (size_t s = 0; s < 5; s++) {
            for (size_t b = 0; b < 4; b++) {
                bool is_complete = false;
                memset(out, 0x7f, sizeof out);
                assert_int_equal(inflate_all(codings[c], body.data, body.length, steps[s], blocks[b], out,
                                             &is_complete, NULL),
                                 TEXT_BYTES);
                assert_true(is_complete);
                assert_memory_equal(out, text, TEXT_BYTES);
            }
        }
        dk_json_text_free(&body);
    }
}

static void test_zip_bomb_is_written_a_block_at_a_time(void **state)
{
    (void)state;
    enum { BOMB_BYTES = 64 << 20, BLOCK = 16384 };
    char *zeros = calloc(1, BOMB_BYTES), block[BLOCK + 1];
    assert_non_null(zeros);
    struct dk_json_text body = compressed(zeros, BOMB_BYTES, DK_CODING_GZIP);
    free(zeros);
    assert_true(body.length < BOMB_BYTES / 100);
    struct dk_inflater *inflater;
    assert_int_equal(dk_inflater_new(DK_CODING_GZIP, &inflater, NULL), DK_OK);
    size_t consumed, written, total = 0, offset = 0;
    do {
        block[BLOCK] = 'g';
        assert_int_equal(dk_inflater_next(inflater, body.data + offset, body.length - offset, &consumed,
                                          block, BLOCK, &written, NULL),
                         DK_OK);
        assert_int_equal(block[BLOCK], 'g');
        offset += consumed;
        total += written;
    } while (written == BLOCK);
    assert_int_equal(total, BOMB_BYTES);
    assert_true(dk_inflater_is_complete(inflater));
    dk_inflater_free(inflater);
    dk_json_text_free(&body);
}

static void test_gzip_members_follow_each_other_but_deflate_ends(void **state)
{
    (void)state;
    for (size_t c = 0; c < 2; c++) {
        struct dk_json_text one = compressed("one", 3, codings[c]), two = compressed("two", 3, codings[c]);
        char both[200], out[200];
        bool is_complete;
        memcpy(both, one.data, one.length);
        memcpy(both + one.length, two.data, two.length);
        struct dk_error error;
        size_t total =
            inflate_all(codings[c], both, one.length + two.length, 1, 50, out, &is_complete, &error);
        if (codings[c] == DK_CODING_GZIP) {
            assert_int_equal(total, 6);
            assert_memory_equal(out, "onetwo", 6);
            assert_true(is_complete);
        } else {
            assert_int_equal(total, SIZE_MAX);
            assert_int_equal(error.status, DK_BAD_REQUEST);
        }
        dk_json_text_free(&one);
        dk_json_text_free(&two);
    }
}

static void test_broken_streams_are_refused_or_incomplete(void **state)
{
    (void)state;
    static char text[5000], out[200000];
    fill(text, sizeof text);
    for (size_t c = 0; c < 2; c++) {
        struct dk_json_text body = compressed(text, sizeof text, codings[c]);
        bool is_complete;
        struct dk_error error;
        for (size_t length = 0; length < body.length; length += 97) { /* cut short */
            assert_int_not_equal(
                inflate_all(codings[c], body.data, length, 1000, 1000, out, &is_complete, NULL), SIZE_MAX);
            assert_false(is_complete);
        }
        body.data[body.length - 2] =
            (char)(body.data[body.length - 2] + 1); /* length or checksum at the end */
        assert_int_equal(
            inflate_all(codings[c], body.data, body.length, 1000, 1000, out, &is_complete, &error), SIZE_MAX);
        assert_int_equal(error.status, DK_BAD_REQUEST);
        assert_non_null(strstr(error.message, dk_coding_name(codings[c])));
        assert_int_equal(inflate_all(codings[c], "{\"inputs\":[]}", 13, 13, 100, out, &is_complete, NULL),
                         SIZE_MAX);
        assert_int_equal(
            inflate_all(codings[1 - c], body.data, body.length, 1000, 1000, out, &is_complete, NULL),
            SIZE_MAX); /* the one is not the other */
        dk_json_text_free(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_split_gives_the_same_bytes),
        cmocka_unit_test(test_zip_bomb_is_written_a_block_at_a_time),
        cmocka_unit_test(test_gzip_members_follow_each_other_but_deflate_ends),
        cmocka_unit_test(test_broken_streams_are_refused_or_incomplete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

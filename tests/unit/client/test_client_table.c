/* test_client_table.c: columns line up, and foreign text cannot steer the terminal. */
#include "tests/unit/client/check.h"

#include "client/table.h"

static void check_table(const char *const (*rows)[2], size_t count, const char *expected)
{
    static const struct dk_table_column columns[] = {{"NAME", false}, {"N", true}};
    struct dk_table table = {.columns = columns, .column_count = 2};
    for (size_t i = 0; i < count; i++)
        dk_table_add(&table, rows[i]);
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    assert_true(dk_table_print(&table, stream));
    fclose(stream);
    assert_string_equal(text, expected);
    free(text);
    dk_table_deinit(&table);
}

static void test_numbers_are_right_aligned_and_absent_cells_are_dashes(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"gate", "256"}, {"longer", "7"}, {NULL, NULL}};
    check_table(rows, 3, "NAME      N\ngate    256\nlonger    7\n-         -\n");
}

static void test_empty_table_is_its_title_line(void **state)
{
    (void)state;
    check_table(NULL, 0, "NAME  N\n");
}

static void test_control_characters_are_replaced_and_code_points_counted(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"a\x1b[2Jb\n", "1"}, {"\xc3\xa9\xc3\xa9", "2"}};
    check_table(rows, 2, "NAME     N\na?[2Jb?  1\n\xc3\xa9\xc3\xa9       2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_right_aligned_and_absent_cells_are_dashes),
        cmocka_unit_test(test_empty_table_is_its_title_line),
        cmocka_unit_test(test_control_characters_are_replaced_and_code_points_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_oip_coding.c: Content-Encoding and Accept-Encoding values. */
#include "tests/unit/proto/oip_parse.h"

static void test_content_encodings(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        enum dk_coding coding;
    } good[] = {
        {NULL, DK_CODING_IDENTITY},       {"", DK_CODING_IDENTITY},         {" \t", DK_CODING_IDENTITY},
        {"identity", DK_CODING_IDENTITY}, {"gzip", DK_CODING_GZIP},         {"GZip", DK_CODING_GZIP},
        {"x-gzip", DK_CODING_GZIP},       {" deflate ", DK_CODING_DEFLATE}, {"DEFLATE", DK_CODING_DEFLATE}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        enum dk_coding coding = DK_CODING_COUNT;
        assert_int_equal(dk_coding_parse(good[i].value, &coding, NULL), DK_OK);
        assert_int_equal(coding, good[i].coding);
    }
    static const char *const bad[] = {"br",  "gzip, gzip", "gzip,deflate", "gzipp",
                                      "zip", "gzip;q=1",   "g zip",        ","};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enum dk_coding coding = DK_CODING_COUNT;
        struct dk_error error;
        assert_int_equal(dk_coding_parse(bad[i], &coding, &error), DK_UNSUPPORTED_MEDIA);
        assert_non_null(strstr(error.message, bad[i]));
        assert_int_equal(coding, DK_CODING_COUNT);
    }
}

static void test_accepted_encodings(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        enum dk_coding coding;
    } cases[] = {
        {NULL, DK_CODING_IDENTITY},
        {"", DK_CODING_IDENTITY},
        {"gzip", DK_CODING_GZIP},
        {"deflate", DK_CODING_DEFLATE},
        {"gzip, deflate", DK_CODING_GZIP},
        {"deflate,gzip", DK_CODING_GZIP},
        {"deflate, gzip;q=0.9", DK_CODING_DEFLATE},
        {"br;q=1.0, gzip ; q=0.5 , *;q=0", DK_CODING_GZIP},
        {"gzip;q=0", DK_CODING_IDENTITY},
        {"gzip;q=0.000, deflate;q=0.001", DK_CODING_DEFLATE},
        {"identity, gzip;q=0.5", DK_CODING_IDENTITY},
        {"identity;q=0.5, gzip", DK_CODING_GZIP},
        {"identity", DK_CODING_IDENTITY},
        {"*", DK_CODING_IDENTITY},
        {"br", DK_CODING_IDENTITY},
        {"gzip;q=2", DK_CODING_IDENTITY},
        {"gzip;q=1.1", DK_CODING_IDENTITY},
        {"gzip;q=0.1234", DK_CODING_IDENTITY},
        {"gzip;q=", DK_CODING_IDENTITY},
        {"gzip;level=9", DK_CODING_IDENTITY},
        {";;,,;q=1,gzip;Q=0.3", DK_CODING_GZIP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (dk_coding_choose(cases[i].value) != cases[i].coding) {
            fail_msg("%s: %s", cases[i].value, dk_coding_name(dk_coding_choose(cases[i].value)));
        }
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < DK_CODING_COUNT; i++) {
        enum dk_coding coding = DK_CODING_COUNT;
        assert_int_equal(dk_coding_parse(dk_coding_name((enum dk_coding)i), &coding, NULL), DK_OK);
        assert_int_equal(coding, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content_encodings),
        cmocka_unit_test(test_accepted_encodings),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

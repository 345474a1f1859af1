/* test_config.c: sources and their order, bounds, messages, models, the file, --help. */
#include <fcntl.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/config.h"
#include "server/config_options.h"

static struct dk_error error;
static char file_path[64];

enum { MAX_ARGUMENTS = 600 };

/* Flags and variables are NULL-terminated lists. */
static dk_status parse(char *const *flags, char **environment, const struct dk_config **out)
{
    char *argv[MAX_ARGUMENTS] = {"decomposekd"};
    enum dk_config_action action = DK_CONFIG_PRINTED;
    int argc = 1;
    memset(&error, 0, sizeof error);
    for (; flags != NULL && flags[argc - 1] != NULL; argc++)
        argv[argc] = flags[argc - 1];
    dk_status status = dk_config_parse(argc, argv, environment, out, &action, &error);
    if (status == DK_OK)
        assert_int_equal(action, DK_CONFIG_RUN);
    return status;
}

#define FLAGS(...)                                                                                           \
    (char *[])                                                                                               \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

static const struct dk_config *accept_all(char *const *flags, char **environment)
{
    const struct dk_config *config = NULL;
    if (parse(flags, environment, &config) != DK_OK)
        fail_msg("refused: %s", error.message);
    return config;
}

/* Refused with DK_BAD_VALUE, nothing stored, and each of the texts in the message. */
static void refuse(char *const *flags, char **environment, const char *const *texts)
{
    const struct dk_config *config = NULL;
    assert_int_equal(parse(flags, environment, &config), DK_BAD_VALUE);
    assert_null(config);
    for (; *texts != NULL; texts++) {
        if (strstr(error.message, *texts) == NULL)
            fail_msg("'%s' is not in '%s'", *texts, error.message);
    }
}
#define REFUSE(flags, environment, ...) refuse(flags, environment, (const char *[]){__VA_ARGS__, NULL})

static void write_file(const char *text)
{
    int fd = open(file_path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int make_file(void **state)
{
    (void)state;
    snprintf(file_path, sizeof file_path, "/tmp/dk_config_XXXXXX");
    int fd = mkstemp(file_path);
    close(fd);
    return fd < 0 ? -1 : 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(file_path);
}

static void test_defaults_are_those_of_the_header(void **state)
{
    (void)state;
    const struct dk_config *c = accept_all(NULL, NULL);
    assert_string_equal(c->host, "127.0.0.1");
    assert_int_equal(c->port, 8000);
    assert_null(c->http_socket);
    assert_int_equal(c->http_socket_mode, 0660);
    assert_int_equal(c->http_threads, 0);
    assert_int_equal(c->max_connections, 4096);
    assert_int_equal(c->max_in_flight, 1024);
    assert_int_equal(c->header_timeout_ms, 10000);
    assert_int_equal(c->body_timeout_ms, 60000);
    assert_int_equal(c->idle_timeout_ms, 75000);
    assert_int_equal(c->max_body_bytes, 0);
    assert_int_equal(c->queue_depth, 1024);
    assert_int_equal(c->small_slab_count, 64);
    assert_int_equal(c->small_slab_rows, 64);
    assert_int_equal(c->large_slab_count, 4);
    assert_int_equal(c->adhoc_max_bytes, 64 << 20);
    assert_int_equal(c->backend, DK_BACKEND_AUTO);
    assert_int_equal(c->device_index, 0);
    assert_int_equal(c->threads, 0);
    assert_int_equal(c->max_tokens, 4096);
    assert_int_equal(c->spin_us, 0);
    assert_false(c->use_blas);
    assert_null(c->cpu_isa);
    assert_null(c->plugin_path);
    assert_int_equal(c->drain_grace_ms, 1000);
    assert_int_equal(c->drain_limit_ms, 30000);
    assert_int_equal(c->log_level, DK_LOG_INFO);
    assert_int_equal(c->log_format, DK_LOG_FORMAT_KV);
    assert_int_equal(c->model_count, 0);
    assert_false(c->check_only);
    dk_config_free(c);
    dk_config_free(NULL);
}

static void test_both_spellings_of_flags_and_every_type(void **state)
{
    (void)state;
    const struct dk_config *c =
        accept_all(FLAGS("--host", "::", "--port=0", "--http-socket-mode", "0600", "--max-body-bytes=4G",
                         "--device", "3", "--cpu-blas", "--check-config=false", "--cpu-isa=avx2", "--backend",
                         "cpu", "--log-level=debug", "--log-format", "json", "--adhoc-max-bytes", "16kiB",
                         "--cuda-plugin=/x/y.so"),
                   NULL);
    assert_string_equal(c->host, "::");
    assert_int_equal(c->port, 0);
    assert_int_equal(c->http_socket_mode, 0600);
    assert_true(c->max_body_bytes == UINT64_C(4) << 30);
    assert_int_equal(c->device_index, 3);
    assert_true(c->use_blas);
    assert_false(c->check_only);
    assert_string_equal(c->cpu_isa, "avx2");
    assert_int_equal(c->backend, DK_BACKEND_CPU);
    assert_int_equal(c->log_level, DK_LOG_DEBUG);
    assert_int_equal(c->log_format, DK_LOG_FORMAT_JSON);
    assert_int_equal(c->adhoc_max_bytes, 16384);
    assert_string_equal(c->plugin_path, "/x/y.so");
    dk_config_free(c);
}

static void test_the_last_of_equal_flags_wins_and_auto_is_null(void **state)
{
    (void)state;
    const struct dk_config *c =
        accept_all(FLAGS("--port", "1", "--port", "2", "--cpu-isa=avx2", "--cpu-isa=auto"), NULL);
    assert_int_equal(c->port, 2);
    assert_null(c->cpu_isa);
    dk_config_free(c);
}

static void test_flags_beat_environment_beats_file(void **state)
{
    (void)state;
    write_file("port = 1001\nqueue-depth = 11\nspin-us = 21\n");
    char *environment[] = {"PATH=/bin", "DECOMPOSEK_PORT=1002", "DECOMPOSEK_QUEUE_DEPTH=12", NULL};
    const struct dk_config *c = accept_all(FLAGS("--config", file_path, "--port=1003"), environment);
    assert_int_equal(c->port, 1003);
    assert_int_equal(c->queue_depth, 12);
    assert_int_equal(c->spin_us, 21);
    dk_config_free(c);
}

static void test_the_variable_names_the_file_unless_the_flag_does(void **state)
{
    (void)state;
    char variable[128];
    write_file("port = 1001\n");
    snprintf(variable, sizeof variable, "DECOMPOSEK_CONFIG=%s", file_path);
    char *environment[] = {variable, NULL};
    const struct dk_config *c = accept_all(NULL, environment);
    assert_int_equal(c->port, 1001);
    dk_config_free(c);
    char *wrong[] = {"DECOMPOSEK_CONFIG=/nonexistent", NULL};
    c = accept_all(FLAGS("--config", file_path), wrong);
    assert_int_equal(c->port, 1001);
    dk_config_free(c);
    assert_int_equal(parse(NULL, wrong, &c), DK_IO_ERROR);
    assert_non_null(strstr(error.message, "/nonexistent"));
    assert_int_equal(parse(FLAGS("--config=/tmp"), NULL, &c), DK_IO_ERROR);
    assert_non_null(strstr(error.message, "/tmp"));
}

static void test_messages_quote_source_value_and_what_is_allowed(void **state)
{
    (void)state;
    REFUSE(FLAGS("--port", "65536"), NULL, "flag --port", "'65536'", "0..65535");
    REFUSE(FLAGS("--port=-1"), NULL, "'-1'", "0..65535");
    REFUSE(FLAGS("--port="), NULL, "''", "0..65535");
    REFUSE(FLAGS("--max-tokens=0"), NULL, "'0'", "1..65536");
    REFUSE(FLAGS("--backend=gpu"), NULL, "'gpu'", "auto, cpu or cuda");
    REFUSE(FLAGS("--cpu-isa=sse"), NULL, "'sse'", "auto, avx512, avx2 or portable");
    REFUSE(FLAGS("--cpu-blas=maybe"), NULL, "'maybe'", "true or false");
    REFUSE(FLAGS("--http-socket-mode=0888"), NULL, "'0888'", "octal 0..777");
    REFUSE(FLAGS("--host="), NULL, "flag --host", "not empty");
    char *environment[] = {"DECOMPOSEK_MAX_TOKENS=70000", NULL};
    REFUSE(NULL, environment, "variable DECOMPOSEK_MAX_TOKENS", "'70000'", "1..65536");
    write_file("# comment\n\nlog-level = loud\n");
    char wanted[128];
    snprintf(wanted, sizeof wanted, "file %s:3", file_path);
    REFUSE(FLAGS("--config", file_path), NULL, wanted, "'loud'", "error, warn, info or debug");
}

static void test_numbers_are_digits_and_nothing_else(void **state)
{
    (void)state;
    const char *bad[] = {"80 ",
                         " 80",
                         "+80",
                         "8e3",
                         "0x50",
                         "80.0",
                         "8,0",
                         "eight",
                         "1K",
                         "80\n",
                         "18446744073709551616",
                         "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        REFUSE(FLAGS("--port", (char *)bad[i]), NULL, bad[i][0] == '8' && bad[i][2] == '\n' ? "80" : bad[i]);
}

static void test_sizes_take_binary_suffixes_within_bounds(void **state)
{
    (void)state;
    const struct {
        char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"1023", 1023},
                {"1K", 1024},
                {"3KiB", 3072},
                {"2m", 2 << 20},
                {"2MiB", 2 << 20},
                {"5Gi", UINT64_C(5) << 30},
                {"1T", UINT64_C(1) << 40},
                {"1TiB", UINT64_C(1) << 40}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const struct dk_config *c = accept_all(FLAGS("--max-body-bytes", good[i].text), NULL);
        assert_true(c->max_body_bytes == good[i].value);
        dk_config_free(c);
    }
    char *bad[] = {"K", "1KB", "1 K", "1P", "1.5G", "-1K", "2T", "18446744073709551615T", "1KiBB", "1B"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        REFUSE(FLAGS("--max-body-bytes", bad[i]), NULL, bad[i], "K, M, G");
}

static void test_typing_mistakes_get_the_nearest_name(void **state)
{
    (void)state;
    REFUSE(FLAGS("--prot", "1"), NULL, "flag --prot is unknown", "did you mean --port?");
    REFUSE(FLAGS("--max-token=7"), NULL, "flag --max-token ", "--max-tokens?");
    REFUSE(FLAGS("--models=x"), NULL, "--model?");
    REFUSE(FLAGS("--xyzzy"), NULL, "flag --xyzzy is unknown", "--help");
    write_file("ports = 1\n");
    REFUSE(FLAGS("--config", file_path), NULL, ":1: option 'ports' is unknown", "'port'");
    char *environment[] = {"DECOMPOSEK_MODELS=a=b", NULL};
    REFUSE(NULL, environment, "DECOMPOSEK_MODELS is unknown", "DECOMPOSEK_MODEL?");
}

static void test_words_that_are_no_flags_are_refused(void **state)
{
    (void)state;
    REFUSE(FLAGS("serve"), NULL, "'serve'");
    REFUSE(FLAGS("-p"), NULL, "'-p'");
    REFUSE(FLAGS("--"), NULL, "'--'");
    REFUSE(FLAGS("--port"), NULL, "--port needs a value", "--port PORT");
    REFUSE(FLAGS("--host", "--port=1"), NULL, "--host needs a value");
    REFUSE(FLAGS("--help=yes"), NULL, "--help takes no value");
    REFUSE(FLAGS("--cpu-blas", "false"), NULL, "'false'"); /* a boolean takes its value behind '=' only */
}

static void test_variables_of_others_and_of_kubernetes_are_left_alone(void **state)
{
    (void)state;
    char *environment[] = {"DECOMPOSEK_URL=http://x",
                           "DECOMPOSEK_PORT=tcp://10.0.0.1:8000",
                           "DECOMPOSEK_PORT_8000_TCP=tcp://10.0.0.1:8000",
                           "DECOMPOSEK_PORT_8000_TCP_ADDR=10.0.0.1",
                           "DECOMPOSEK_SERVICE_HOST=10.0.0.1",
                           "DECOMPOSEK_SERVICE_PORT=8000",
                           "DECOMPOSEK_QUEUE_DEPTH=",
                           "DECOMPOSEK_",
                           "DECOMPOSEK_VERSION=1",
                           "NO_EQUALS_SIGN",
                           NULL};
    const struct dk_config *c = NULL;
    char *version[] = {environment[8], NULL};
    assert_int_equal(parse(NULL, version, &c), DK_OK); /* --version is a flag only */
    dk_config_free(c);
    c = accept_all(NULL, environment);
    assert_int_equal(c->port, 8000);
    assert_int_equal(c->queue_depth, 1024);
    dk_config_free(c);
}

static void test_models_take_options_in_any_order(void **state)
{
    (void)state;
    const struct dk_config *c = accept_all(
        FLAGS("--model", "gate=/m/g.safetensors", "--model",
              "g.2-x_Y=/m/"
              "a\\,b\\\\c.st,bias=b,epilogue=sigmoid,layout=kn,tensor=model.layers.3.mlp.gate.weight"),
        NULL);
    assert_int_equal(c->model_count, 2);
    assert_string_equal(c->models[0].name, "gate");
    assert_string_equal(c->models[0].path, "/m/g.safetensors");
    assert_null(c->models[0].tensor);
    assert_null(c->models[0].bias);
    assert_int_equal(c->models[0].layout, DK_LAYOUT_NK);
    assert_int_equal(c->models[0].epilogue, DK_EPILOGUE_NONE);
    assert_string_equal(c->models[1].name, "g.2-x_Y");
    assert_string_equal(c->models[1].path, "/m/a,b\\c.st");
    assert_string_equal(c->models[1].tensor, "model.layers.3.mlp.gate.weight");
    assert_string_equal(c->models[1].bias, "b");
    assert_int_equal(c->models[1].layout, DK_LAYOUT_KN);
    assert_int_equal(c->models[1].epilogue, DK_EPILOGUE_SIGMOID);
    dk_config_free(c);
}

static void test_faulty_models_are_refused_with_the_fault(void **state)
{
    (void)state;
    REFUSE(FLAGS("--model=gate"), NULL, "flag --model", "'gate'", "NAME=FILE");
    REFUSE(FLAGS("--model=gate="), NULL, "'gate='");
    REFUSE(FLAGS("--model=gate=,tensor=x"), NULL, "'gate=,tensor=x'");
    REFUSE(FLAGS("--model==x"), NULL, "'=x'");
    REFUSE(FLAGS("--model=a b=x"), NULL, "'a b'", "A-Z a-z 0-9");
    REFUSE(FLAGS("--model=..=x"), NULL, "'..'");
    REFUSE(FLAGS("--model=a=x,layout=mn"), NULL, "model 'a'", "'layout=mn'", "nk|kn");
    REFUSE(FLAGS("--model=a=x,epilogue=gelu"), NULL, "'epilogue=gelu'");
    REFUSE(FLAGS("--model=a=x,tenser=t"), NULL, "'tenser=t'");
    REFUSE(FLAGS("--model=a=x,tensor="), NULL, "'tensor='");
    REFUSE(FLAGS("--model=a=x,"), NULL, "''");
    REFUSE(FLAGS("--model=a=x\\n"), NULL, "backslash");
    REFUSE(FLAGS("--model=a=x\\"), NULL, "backslash");
    REFUSE(FLAGS("--model=a=x", "--model=a=y"), NULL, "model 'a' is given twice");
}

static void test_models_of_all_sources_add_up_and_the_stronger_replaces(void **state)
{
    (void)state;
    write_file("model = a=/file/a\nmodel = b=/file/b\n");
    char *environment[] = {"DECOMPOSEK_MODEL=b=/env/b,tensor=t;c=/env/c  d=/env/d", NULL};
    const struct dk_config *c =
        accept_all(FLAGS("--config", file_path, "--model", "c=/flag/c", "--model", "e=/flag/e"), environment);
    const char *const wanted[5][2] = {
        {"a", "/file/a"}, {"b", "/env/b"}, {"c", "/flag/c"}, {"d", "/env/d"}, {"e", "/flag/e"}};
    assert_int_equal(c->model_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(c->models[i].name, wanted[i][0]);
        assert_string_equal(c->models[i].path, wanted[i][1]);
    }
    assert_string_equal(c->models[1].tensor, "t");
    dk_config_free(c);
}

static void test_more_models_than_allowed_are_refused(void **state)
{
    (void)state;
    static char texts[DK_MAX_MODELS + 1][32];
    char *flags[DK_MAX_MODELS + 2] = {NULL};
    for (int i = 0; i <= DK_MAX_MODELS; i++) {
        snprintf(texts[i], sizeof texts[i], "--model=m%d=x", i);
        flags[i] = texts[i];
    }
    REFUSE(flags, NULL, "model 'm256'", "at most 256");
    flags[DK_MAX_MODELS] = NULL;
    const struct dk_config *c = accept_all(flags, NULL);
    assert_int_equal(c->model_count, DK_MAX_MODELS);
    dk_config_free(c);
}

static void test_file_syntax(void **state)
{
    (void)state;
    write_file("# all of it\r\n"
               "\t port=1234   # behind\r\n"
               "  # indented comment = 1\n"
               "host = \"::1\"\n"
               "http-socket = \"/run/a # \\\"b\\\" \\\\ c\"  # comment\n"
               "cuda-plugin = /x#y\n"
               "cpu-blas = on\n"
               "model = gate = odd"); /* no line end; the value has a blank */
    const struct dk_config *config = NULL;
    REFUSE(FLAGS("--config", file_path), NULL, ":8", "'gate '");
    write_file("# all of it\r\n"
               "\t port=1234   # behind\r\n"
               "  # indented comment = 1\n"
               "host = \"::1\"\n"
               "http-socket = \"/run/a # \\\"b\\\" \\\\ c\"  # comment\n"
               "cuda-plugin = /x#y\n"
               "cpu-blas = on\n"
               "model = gate=/a b/c.st,tensor=t");
    config = accept_all(FLAGS("--config", file_path), NULL);
    assert_int_equal(config->port, 1234);
    assert_string_equal(config->host, "::1");
    assert_string_equal(config->http_socket, "/run/a # \"b\" \\ c");
    assert_string_equal(config->plugin_path, "/x#y");
    assert_true(config->use_blas);
    assert_string_equal(config->models[0].path, "/a b/c.st");
    assert_string_equal(config->models[0].tensor, "t");
    dk_config_free(config);
}

static void test_faulty_files_are_refused_with_the_line(void **state)
{
    (void)state;
    const struct {
        const char *text, *wanted;
    } bad[] = {{"port 80\n", ":1: 'port 80'"},
               {"port =\n", ":1: ''"},
               {"\nhost = \"open\n", ":2: the quoted value of 'host'"},
               {"host = \"a\" b\n", ":1: the quoted value of 'host'"},
               {"config = x\n", ":1: option 'config' is not allowed in a file"},
               {"help = true\n", ":1: option 'help' is not allowed in a file"},
               {"Port = 1\n", ":1: option 'Port' is unknown"},
               {"--port = 1\n", ":1: option '--port' is unknown"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file(bad[i].text);
        REFUSE(FLAGS("--config", file_path), NULL, bad[i].wanted);
    }
    int fd = open(file_path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, "port = 1\nho\0st = x\n", 19), 19);
    close(fd);
    REFUSE(FLAGS("--config", file_path), NULL, ":2: the line holds a zero byte");
    static char huge[70000];
    memset(huge, 'a', sizeof huge - 1);
    write_file(huge);
    REFUSE(FLAGS("--config", file_path), NULL, ":1: the line has 69999 bytes");
}

/* Runs dk_config_parse with stdout in memory; returns its text. */
static char *printed(char *flag, dk_status wanted)
{
    static char text[1 << 16];
    char *argv[] = {"decomposekd", "--port=1", flag, NULL};
    const struct dk_config *config = NULL;
    enum dk_config_action action = DK_CONFIG_RUN;
    fflush(stdout);
    int saved = dup(STDOUT_FILENO), fd = memfd_create("help", MFD_CLOEXEC);
    dup2(fd, STDOUT_FILENO);
    dk_status status = dk_config_parse(3, argv, NULL, &config, &action, &error);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    close(saved);
    close(fd);
    assert_int_equal(status, wanted);
    assert_int_equal(action, DK_CONFIG_PRINTED);
    assert_null(config);
    assert_true(length > 0);
    text[length] = '\0';
    return text;
}

static void test_help_shows_every_option_with_default_bounds_and_variable(void **state)
{
    (void)state;
    char *text = printed("--help", DK_OK);
    for (size_t i = 0; i < dk_option_count; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "  --%s", dk_options[i].name);
        assert_non_null(strstr(text, wanted));
        if (dk_options[i].kind <= DK_OPTION_CONFIG) {
            dk_option_variable(&dk_options[i], wanted, sizeof wanted);
            assert_non_null(strstr(text, wanted));
        }
    }
    assert_non_null(strstr(text, "Allowed: 0..65535. Default: 8000."));
    assert_non_null(strstr(text, "Exit codes"));
    assert_non_null(strstr(text, "name = value"));
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        assert_true(strcspn(line, "\n") <= 110);
    assert_string_equal(printed("-h", DK_OK), text);
}

static void test_version_is_one_line(void **state)
{
    (void)state;
    assert_string_equal(printed("--version", DK_OK), "decomposekd " DK_VERSION "\n");
}

static void test_c42_numbers_are_read_the_same_under_a_comma_locale(void **state)
{
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL)
        skip();
    const struct dk_config *c = accept_all(FLAGS("--adhoc-max-bytes=1MiB", "--port", "1234"), NULL);
    REFUSE(FLAGS("--port", "1.234"), NULL, "'1.234'");
    setlocale(LC_ALL, "C");
    assert_int_equal(c->adhoc_max_bytes, 1 << 20);
    assert_int_equal(c->port, 1234);
    dk_config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_those_of_the_header),
        cmocka_unit_test(test_both_spellings_of_flags_and_every_type),
        cmocka_unit_test(test_the_last_of_equal_flags_wins_and_auto_is_null),
        cmocka_unit_test_setup_teardown(test_flags_beat_environment_beats_file, make_file, remove_file),
        cmocka_unit_test_setup_teardown(test_the_variable_names_the_file_unless_the_flag_does, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(test_messages_quote_source_value_and_what_is_allowed, make_file,
                                        remove_file),
        cmocka_unit_test(test_numbers_are_digits_and_nothing_else),
        cmocka_unit_test(test_sizes_take_binary_suffixes_within_bounds),
        cmocka_unit_test_setup_teardown(test_typing_mistakes_get_the_nearest_name, make_file, remove_file),
        cmocka_unit_test(test_words_that_are_no_flags_are_refused),
        cmocka_unit_test(test_variables_of_others_and_of_kubernetes_are_left_alone),
        cmocka_unit_test(test_models_take_options_in_any_order),
        cmocka_unit_test(test_faulty_models_are_refused_with_the_fault),
        cmocka_unit_test_setup_teardown(test_models_of_all_sources_add_up_and_the_stronger_replaces,
                                        make_file, remove_file),
        cmocka_unit_test(test_more_models_than_allowed_are_refused),
        cmocka_unit_test_setup_teardown(test_file_syntax, make_file, remove_file),
        cmocka_unit_test_setup_teardown(test_faulty_files_are_refused_with_the_line, make_file, remove_file),
        cmocka_unit_test(test_help_shows_every_option_with_default_bounds_and_variable),
        cmocka_unit_test(test_version_is_one_line),
        cmocka_unit_test(test_c42_numbers_are_read_the_same_under_a_comma_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

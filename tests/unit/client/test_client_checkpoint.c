/* test_client_checkpoint.c: what the writer and the demo checkpoint make, read back by the format's reader.
 */
#include "tests/unit/client/check.h"

#include <cjson/cJSON.h>
#include <math.h>

#include "client/checkpoint_file.h"
#include "client/demo_checkpoint.h"
#include "client/file.h"
#include "client/safetensors_writer.h"

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    make_temporary_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static const char *in_folder(const char *name)
{
    static char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void test_written_header_reads_back(void **state)
{
    (void)state;
    const struct dk_st_entry entries[] = {{"a \"quoted\" name", DK_FP32, 1, {3, 0}},
                                          {"empty", DK_BF16, 2, {0, 7168}},
                                          {"b", DK_FP16, 2, {2, 5}},
                                          {"scalar", DK_INT32, 0, {0, 0}}};
    struct dk_json_text head = {0};
    dk_st_header_write(&head, entries, 4);
    assert_false(head.failed);
    assert_int_equal(head.length % 8, 0);
    struct dk_st_index index;
    struct dk_error error = {0};
    if (dk_st_index_parse(head.data, head.length, head.length + 12 + 20 + 4, &index, &error) != DK_OK)
        fail_msg("%s", error.message);
    assert_int_equal(index.tensor_count, 4);
    assert_int_equal(index.header_bytes, head.length - 8);
    const struct dk_st_tensor *b = dk_st_index_find(&index, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, DK_FP16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 5);
    assert_int_equal(b->begin, 12);
    assert_int_equal(b->end, 32);
    assert_non_null(dk_st_index_find(&index, "a \"quoted\" name"));
    assert_non_null(dk_st_index_find(&index, "empty"));
    dk_st_index_deinit(&index);
    dk_json_text_free(&head);
}

static void test_aborted_file_does_not_appear(void **state)
{
    (void)state;
    const struct dk_st_entry entry = {"a", DK_FP32, 1, {3, 0}};
    struct dk_st_writer writer;
    assert_int_equal(dk_st_writer_open(in_folder("a.safetensors"), &entry, 1, &writer, NULL), DK_OK);
    assert_int_equal(dk_st_writer_append(&writer, "1234", 4, NULL), DK_OK);
    dk_st_writer_abort(&writer);
    bool is_empty = false;
    assert_int_equal(dk_folder_is_empty(folder, &is_empty, NULL), DK_OK);
    assert_true(is_empty);
}

static void test_scan_counts_nan_and_infinity_by_type(void **state)
{
    (void)state;
    const struct dk_st_entry entries[] = {{"f32", DK_FP32, 1, {4, 0}},
                                          {"bf16", DK_BF16, 1, {4, 0}},
                                          {"f16", DK_FP16, 1, {4, 0}},
                                          {"i32", DK_INT32, 1, {1, 0}}};
    const float f32[4] = {NAN, -INFINITY, 1, 0};
    const uint16_t bf16[4] = {0x7f80, 0xffc0, 0x7f81, 0x7c00}, f16[4] = {0x7c00, 0xfc00, 0x7c01, 0x7bff};
    const uint32_t i32[1] = {0x7f800000};
    struct dk_st_writer writer;
    assert_int_equal(dk_st_writer_open(in_folder("a"), entries, 4, &writer, NULL), DK_OK);
    assert_int_equal(dk_st_writer_append(&writer, f32, sizeof f32, NULL), DK_OK);
    assert_int_equal(dk_st_writer_append(&writer, bf16, sizeof bf16, NULL), DK_OK);
    assert_int_equal(dk_st_writer_append(&writer, f16, sizeof f16, NULL), DK_OK);
    assert_int_equal(dk_st_writer_append(&writer, i32, sizeof i32, NULL), DK_OK);
    assert_int_equal(dk_st_writer_commit(&writer, NULL), DK_OK);
    struct dk_checkpoint_file file;
    assert_int_equal(dk_checkpoint_file_open(in_folder("a"), &file, NULL), DK_OK);
    static const struct {
        const char *name;
        uint64_t nan_count, infinite_count;
        bool is_scanned;
    } expected[] = {{"f32", 1, 1, true}, {"bf16", 2, 1, true}, {"f16", 1, 2, true}, {"i32", 0, 0, false}};
    for (size_t i = 0; i < 4; i++) {
        struct dk_value_counts counts;
        const struct dk_st_tensor *tensor = dk_st_index_find(&file.index, expected[i].name);
        assert_non_null(tensor);
        assert_int_equal(dk_checkpoint_file_scan(&file, tensor, &counts, NULL), DK_OK);
        assert_int_equal(counts.nan_count, expected[i].nan_count);
        assert_int_equal(counts.infinite_count, expected[i].infinite_count);
        assert_int_equal(counts.is_scanned, expected[i].is_scanned);
    }
    dk_checkpoint_file_close(&file);
}

static cJSON *read_json(const char *path)
{
    void *bytes;
    size_t length;
    assert_int_equal(dk_file_read(path, 1 << 20, &bytes, &length, NULL), DK_OK);
    cJSON *tree = cJSON_ParseWithLength(bytes, length);
    assert_non_null(tree);
    free(bytes);
    return tree;
}

static double member(const cJSON *tree, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tree, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

/* FNV-1a of the tensor's bytes: a fixed number here means fixed bytes on every machine. */
static uint64_t hash_tensor(const struct dk_checkpoint_file *file, const char *name, uint64_t *out_bytes)
{
    const struct dk_st_tensor *tensor = dk_st_index_find(&file->index, name);
    assert_non_null(tensor);
    size_t length = (size_t)(tensor->end - tensor->begin);
    unsigned char *bytes = malloc(length);
    assert_non_null(bytes);
    assert_int_equal(dk_file_pread(file->fd, file->path, bytes, length, tensor->file_offset, NULL), DK_OK);
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3U;
    free(bytes);
    *out_bytes = length;
    return hash;
}

/* Every tensor of the index is in the shard it names, and total_size is the sum of their bytes. */
static uint64_t check_folder(uint32_t layer_count)
{
    cJSON *index = read_json(in_folder("model.safetensors.index.json"));
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *entry;
    assert_int_equal(cJSON_GetArraySize(map), layer_count * 2);
    uint64_t total = 0, first_hash = 0;
    cJSON_ArrayForEach(entry, map)
    {
        struct dk_checkpoint_file file;
        struct dk_error error = {0};
        char path[192];
        snprintf(path, sizeof path, "%s/%s", folder, entry->valuestring);
        if (dk_checkpoint_file_open(path, &file, &error) != DK_OK)
            fail_msg("%s", error.message);
        uint64_t bytes;
        uint64_t hash = hash_tensor(&file, entry->string, &bytes);
        if (strcmp(entry->string, "model.layers.3.mlp.gate.weight") == 0) {
            const struct dk_st_tensor *tensor = dk_st_index_find(&file.index, entry->string);
            assert_int_equal(tensor->dtype, DK_BF16);
            assert_int_equal(tensor->shape[0], 256);
            assert_int_equal(tensor->shape[1], 7168);
            first_hash = hash;
        }
        total += bytes;
        dk_checkpoint_file_close(&file);
    }
    assert_true(member(cJSON_GetObjectItemCaseSensitive(index, "metadata"), "total_size") == (double)total);
    cJSON_Delete(index);
    return first_hash;
}

static void test_demo_folder_is_consistent_and_its_bytes_are_fixed(void **state)
{
    (void)state;
    struct dk_demo_checkpoint demo = {.folder = folder, .layer_count = 2, .seed = 1};
    struct dk_error error = {0};
    if (dk_demo_checkpoint_write(&demo, NULL, NULL, &error) != DK_OK)
        fail_msg("%s", error.message);
    assert_int_equal(access(in_folder("model-00001-of-00002.safetensors"), R_OK), 0);
    assert_int_equal(access(in_folder("model-00002-of-00002.safetensors"), R_OK), 0);
    uint64_t two_layers = check_folder(2);
    assert_int_equal(two_layers, 0xf1d983bb97198acfU); /* of bytes that a second program made too */
    cJSON *config = read_json(in_folder("config.json"));
    assert_true(member(config, "hidden_size") == 7168 && member(config, "n_routed_experts") == 256);
    assert_true(member(config, "routed_scaling_factor") == 2.5 && member(config, "n_group") == 8);
    assert_true(member(config, "first_k_dense_replace") == DK_DEMO_FIRST_MOE);
    assert_true(member(config, "num_hidden_layers") == DK_DEMO_FIRST_MOE + DK_DEMO_MOE_LAYERS);
    cJSON_Delete(config);

    demo.layer_count = 1; /* the same layer, whatever else is written */
    assert_int_equal(dk_demo_checkpoint_write(&demo, NULL, NULL, NULL), DK_OK);
    assert_int_equal(check_folder(1), two_layers);
    demo.seed = 2;
    assert_int_equal(dk_demo_checkpoint_write(&demo, NULL, NULL, NULL), DK_OK);
    assert_true(check_folder(1) != two_layers);
}

static void test_layers_are_spread_over_shards_without_gap(void **state)
{
    (void)state;
    for (uint32_t layers = 1; layers <= DK_DEMO_MOE_LAYERS; layers++) {
        uint32_t count = dk_demo_shard_count(layers), previous = 1, in_shard = 0;
        assert_true(layers == 1 ? count == 1 : count >= 2);
        for (uint32_t layer = DK_DEMO_FIRST_MOE; layer < DK_DEMO_FIRST_MOE + layers; layer++) {
            uint32_t shard = dk_demo_shard_of(layers, layer);
            assert_in_range(shard, previous, previous + 1);
            in_shard = shard == previous ? in_shard + 1 : 1;
            assert_true(in_shard <= 8);
            previous = shard;
        }
        assert_int_equal(previous, count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_written_header_reads_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_aborted_file_does_not_appear, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_scan_counts_nan_and_infinity_by_type, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_demo_folder_is_consistent_and_its_bytes_are_fixed, set_up,
                                        tear_down),
        cmocka_unit_test(test_layers_are_spread_over_shards_without_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* demo_checkpoint.h: a seeded folder in Hugging Face form with the router tensors of DeepSeek-V3:
 * config.json, shards, and the index that maps tensors to shards. */
#ifndef DK_CLIENT_DEMO_CHECKPOINT_H
#define DK_CLIENT_DEMO_CHECKPOINT_H

#include <stdint.h>

#include "proto/status.h"

enum {
    DK_DEMO_HIDDEN = 7168,  /* hidden_size: K */
    DK_DEMO_EXPERTS = 256,  /* n_routed_experts: N */
    DK_DEMO_FIRST_MOE = 3,  /* first_k_dense_replace */
    DK_DEMO_MOE_LAYERS = 58 /* num_hidden_layers - first_k_dense_replace */
};

struct dk_demo_checkpoint {
    const char *folder;   /* kept */
    uint32_t layer_count; /* 1 to DK_DEMO_MOE_LAYERS, from layer DK_DEMO_FIRST_MOE on */
    uint64_t seed;        /* equal seeds give equal bytes; a layer's values do not depend on layer_count */
};

/* How many shards there are, and in which (from 1) a layer lies. Two at least when there are two layers. */
uint32_t dk_demo_shard_count(uint32_t layer_count);
uint32_t dk_demo_shard_of(uint32_t layer_count, uint32_t layer);

/* File name of shard `shard` of `count`: model-00001-of-00002.safetensors. */
enum { DK_DEMO_NAME_BYTES = 64 };
void dk_demo_shard_name(char out[DK_DEMO_NAME_BYTES], uint32_t shard, uint32_t count);
void dk_demo_weight_name(char out[DK_DEMO_NAME_BYTES], uint32_t layer);
void dk_demo_bias_name(char out[DK_DEMO_NAME_BYTES], uint32_t layer);

/* Writes all files into the existing folder, each atomically, the index last: a reader that finds the index
 * finds everything. `progress` (may be NULL) is called with each finished file's path and size. DK_IO_ERROR,
 * DK_NO_MEMORY. */
dk_status dk_demo_checkpoint_write(const struct dk_demo_checkpoint *demo,
                                   void (*progress)(void *context, const char *path, uint64_t bytes),
                                   void *context, struct dk_error *error);

#endif

/* ring_fixture.h: a tiny engine, one pushed model with known answers, and a ring in ordinary memory. */
#ifndef DK_TESTS_RING_FIXTURE_H
#define DK_TESTS_RING_FIXTURE_H

#include "decomposek.h"
#include "proto/ring.h"
#include "server/launch.h"
#include "server/models.h"
#include "server/shm_session.h"

enum { RING_N = 3, RING_K = 4, RING_MAX_TOKENS = 4, RING_ENTRIES = 4, RING_DATA_BYTES = 1 << 16 };

struct ring_fixture {
    struct dk_engine *engine;
    struct dk_launcher launcher;
    struct dk_ring_layout layout;
    void *mapping;
    struct dk_shm_session session;
    uint32_t model_id;
    uint64_t now_ns;
    uint32_t tail, head; /* the client's */
};

/* False when anything could not be made (the caller's assert says where). */
bool ring_fixture_init(struct ring_fixture *f);
void ring_fixture_deinit(struct ring_fixture *f);
/* A model that maps x[4] to (sum x, sum 2x, sum 3x) times `factor`; reference 1. */
struct dk_model *ring_model_new(struct dk_engine *engine, const char *name, float factor);
/* A good request: 1 row at 0, result at 4096. */
struct dk_ring_submission ring_request(const struct ring_fixture *f, uint64_t user_data);
/* As a client: write an entry, without publishing it. */
void ring_put(struct ring_fixture *f, const struct dk_ring_submission *submission);
void ring_publish(struct ring_fixture *f);
/* The next completion; false when there is none. Released at once. */
bool ring_take(struct ring_fixture *f, struct dk_ring_completion *out);
float *ring_floats(struct ring_fixture *f, uint64_t offset);

#endif

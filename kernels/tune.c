/* tune.c: measure the candidates of each bucket on the device at hand, and keep the fastest. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bucket.h"
#include "kernels/engine_private.h"
#include "kernels/tuned.h"

enum {
    REPEATS = 20,
    SCREEN_REPEATS = 5, /* first look at every candidate */
    FINALISTS = 4,
    PEERS_MAX = 64,
    PEERS_MIN = 2,
    HOST_BUDGET_MS = 60 /* run_host timings stop there: a large product on a CPU takes as long by itself */
};
/* Three times the L2 of an H200 and the last-level cache of most servers. */
#define PEER_BYTES (192u << 20)
/* A faster plan must be this much faster than the one in use: noise must not make plans flip between starts.
 */
#define GAIN 0.99

struct tuning {
    struct dk_weights *weights;
    const struct dk_tune_options *options;
    struct dk_weights peers[PEERS_MAX]; /* other Bs of the same shape, never seen outside */
    uint32_t peer_count;
    bool has_measured;
};

struct bucket {
    struct dk_plan *candidates;
    double *times_ns;
    uint32_t count, rows, before, best;
};

/* Numbers of mixed sign around zero, the same in each run. */
static void fill_random(void *out, dk_dtype dtype, size_t count)
{
    float block[1024];
    uint32_t state = 2463534242u;
    for (size_t done = 0; done < count;) {
        size_t some = count - done < 1024 ? count - done : 1024;
        for (size_t i = 0; i < some; i++) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            block[i] = (float)(int32_t)state * 0x1p-31f;
        }
        dk_convert_from_float(block, (char *)out + done * dk_dtype_bytes(dtype), dtype, some);
        done += some;
    }
}

static uint32_t peer_count_for(size_t bytes)
{
    size_t count = PEER_BYTES / bytes + 1;
    return count < PEERS_MIN ? PEERS_MIN : count > PEERS_MAX ? PEERS_MAX : (uint32_t)count;
}

static dk_status make_peers(struct tuning *tuning, struct dk_error *error)
{
    struct dk_engine *engine = tuning->weights->engine;
    const struct dk_backend_weights *b = tuning->weights->backend_weights;
    size_t bytes = (size_t)(b->n * b->k) * dk_dtype_bytes(b->dtype);
    void *data = malloc(bytes);
    dk_status status =
        data ? DK_OK : dk_fail(error, DK_NO_MEMORY, "no memory for %zu bytes of random weights", bytes);
    if (data)
        fill_random(data, b->dtype, (size_t)(b->n * b->k));
    struct dk_weights_desc desc = {b->n, b->k, b->dtype, tuning->weights->layout, data, NULL};
    for (uint32_t i = 0; i < peer_count_for(bytes) && status == DK_OK; i++) {
        struct dk_weights *peer = &tuning->peers[i];
        *peer = (struct dk_weights){.engine = engine, .layout = desc.layout};
        status = engine->backend->weights_new(engine->device, &desc, 0, &peer->backend_weights, error);
        tuning->peer_count += status == DK_OK;
    }
    free(data);
    return status;
}

static void free_peers(struct tuning *tuning)
{
    struct dk_engine *engine = tuning->weights->engine;
    for (uint32_t i = 0; i < tuning->peer_count; i++)
        engine->backend->weights_free(engine->device, tuning->peers[i].backend_weights);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times of run_host, one call each. */
static dk_status time_run_host(const struct dk_measure *measure, const struct dk_plan *plan,
                               const struct dk_call *call, double *out_ns, struct dk_error *error)
{
    const struct dk_engine *engine = measure->weights[0]->engine;
    double times[64], total = 0.0;
    uint32_t count = 0;
    while (count < measure->repeat_count && count < 64 && total < HOST_BUDGET_MS * 1e6) {
        uint64_t ns = 0;
        const struct dk_weights *weights = measure->weights[count % measure->weight_count];
        dk_status status =
            engine->backend->run_host(engine->device, weights->backend_weights, plan, call, &ns, error);
        if (status != DK_OK)
            return status;
        times[count++] = (double)ns;
        total += (double)ns;
    }
    qsort(times, count, sizeof times[0], compare_doubles);
    *out_ns = times[count / 2];
    return DK_OK;
}

static dk_status measure_on_host(const struct dk_measure *measure, const struct dk_plan *plan, double *out_ns,
                                 struct dk_error *error)
{
    struct dk_engine *engine = measure->weights[0]->engine;
    const struct dk_backend_weights *b = measure->weights[0]->backend_weights;
    struct dk_call call = {
        .m = measure->m,
        .a_row_elements = b->k,
        .a_dtype = measure->a_dtype,
        .c_row_elements = b->n,
        .c_dtype = measure->c_dtype,
        .epilogue = measure->epilogue,
    };
    void *a = malloc((size_t)(call.m * b->k) * dk_dtype_bytes(call.a_dtype));
    void *c = malloc((size_t)(call.m * b->n) * dk_dtype_bytes(call.c_dtype));
    dk_status status =
        a && c ? DK_OK : dk_fail(error, DK_NO_MEMORY, "no memory to time %" PRIu64 " rows", call.m);
    if (status == DK_OK)
        status = dk_workspace_new(engine, plan->workspace_bytes, &call.workspace, error);
    if (status == DK_OK) {
        fill_random(a, call.a_dtype, (size_t)(call.m * b->k));
        call.a = a;
        call.c = c;
        status = time_run_host(measure, plan, &call, out_ns, error);
        dk_workspace_free(engine, call.workspace);
    }
    free(a);
    free(c);
    return status;
}

static dk_status measure_on_device(const struct dk_measure *measure, const struct dk_plan *plan,
                                   double *out_ns, struct dk_error *error)
{
    struct dk_engine *engine = measure->weights[0]->engine;
    const struct dk_backend_weights **weights = calloc(
        measure->weight_count, sizeof(*weights)); /* NOLINT(bugprone-sizeof-expression): pointers are meant */
    if (!weights)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u weights", measure->weight_count);
    for (uint32_t i = 0; i < measure->weight_count; i++)
        weights[i] = measure->weights[i]->backend_weights;
    dk_status status = engine->backend->measure(engine->device, weights, measure, plan, out_ns, error);
    free(weights);
    return status;
}

dk_status dk_plan_measure(const struct dk_measure *measure, const struct dk_plan *plan, double *out_ns,
                          struct dk_error *error)
{
    struct dk_measure full = *measure;
    if (measure->weight_count == 0 || measure->weights[0]->backend_weights->n == 0)
        return dk_fail(error, DK_BAD_VALUE, "nothing to time: no weights");
    if (measure->m == 0 || measure->m > plan->bucket_rows)
        return dk_fail(error, DK_BAD_SHAPE, "m=%" PRIu64 " is not in 1..%" PRIu32 ", the rows of the plan",
                       measure->m, plan->bucket_rows);
    full.chain_count = full.chain_count > 0 ? full.chain_count : full.weight_count;
    full.repeat_count = full.repeat_count > 0 ? full.repeat_count : REPEATS;
    return full.weights[0]->engine->backend->measure ? measure_on_device(&full, plan, out_ns, error)
                                                     : measure_on_host(&full, plan, out_ns, error);
}

/* Leaves 0 where the plan cannot serve. */
static dk_status time_candidate(const struct tuning *tuning, struct bucket *bucket, uint32_t index,
                                uint32_t repeats, struct dk_error *error)
{
    const struct dk_weights *peers[PEERS_MAX] = {tuning->weights};
    for (uint32_t i = 0; i < tuning->peer_count; i++)
        peers[i] = &tuning->peers[i];
    struct dk_measure measure = {
        .weights = peers,
        .weight_count = tuning->peer_count > 0 ? tuning->peer_count : 1,
        .m = bucket->rows,
        .a_dtype = tuning->weights->backend_weights->dtype,
        .c_dtype = DK_FP32,
        .repeat_count = repeats,
    };
    double ns = 0.0;
    dk_status status = dk_plan_measure(&measure, &bucket->candidates[index], &ns, error);
    if (status == DK_OK || status == DK_UNSUPPORTED)
        bucket->times_ns[index] = status == DK_OK ? ns : 0.0;
    return status == DK_UNSUPPORTED ? DK_OK : status;
}

static uint32_t fastest(const struct bucket *bucket, const bool *is_done)
{
    uint32_t best = bucket->count;
    for (uint32_t i = 0; i < bucket->count; i++) {
        if (bucket->times_ns[i] > 0.0 && !is_done[i] &&
            (best == bucket->count || bucket->times_ns[i] < bucket->times_ns[best]))
            best = i;
    }
    return best;
}

/* The few fastest once more, with the plan in use among them; then the choice. */
static dk_status run_final(const struct tuning *tuning, struct bucket *bucket, struct dk_error *error)
{
    uint32_t repeats = tuning->options->repeat_count > 0 ? tuning->options->repeat_count : REPEATS;
    bool *is_done = calloc(bucket->count, sizeof *is_done);
    if (!is_done)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u candidates", bucket->count);
    dk_status status = DK_OK;
    uint32_t best = bucket->count;
    for (uint32_t round = 0; round <= FINALISTS && status == DK_OK; round++) {
        uint32_t index = round == 0 ? bucket->before : fastest(bucket, is_done);
        if (index == bucket->count || is_done[index])
            continue;
        status = time_candidate(tuning, bucket, index, repeats, error);
        is_done[index] = true;
        double ns = bucket->times_ns[index];
        double limit = best == bucket->count    ? 0.0
                       : best == bucket->before ? bucket->times_ns[best] * GAIN
                                                : bucket->times_ns[best];
        if (ns > 0.0 && (best == bucket->count || ns < limit))
            best = index;
    }
    free(is_done);
    if (status == DK_OK && best == bucket->count)
        return dk_fail(error, DK_INTERNAL, "no plan serves %" PRIu32 " rows", bucket->rows);
    bucket->best = best;
    return status;
}

static dk_status measure_bucket(const struct tuning *tuning, struct bucket *bucket, struct dk_error *error)
{
    dk_status status = DK_OK;
    for (uint32_t i = 0; i < bucket->count && bucket->count > 1 && status == DK_OK; i++)
        status = time_candidate(tuning, bucket, i, SCREEN_REPEATS, error);
    return status == DK_OK ? run_final(tuning, bucket, error) : status;
}

static dk_status open_bucket(const struct tuning *tuning, uint32_t index, struct bucket *bucket,
                             struct dk_error *error)
{
    const struct dk_weights *weights = tuning->weights;
    const struct dk_plan *current = &weights->backend_weights->plans[index];
    bucket->rows = dk_bucket_rows(index);
    bucket->count = dk_plan_candidates(weights, bucket->rows, NULL, 0);
    bucket->candidates = calloc(bucket->count + 1, sizeof *bucket->candidates);
    bucket->times_ns = calloc(bucket->count + 1, sizeof *bucket->times_ns);
    if (!bucket->candidates || !bucket->times_ns)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u candidates", bucket->count);
    (void)dk_plan_candidates(weights, bucket->rows, bucket->candidates, bucket->count);
    for (bucket->before = 0; bucket->before < bucket->count; bucket->before++) {
        const struct dk_plan *plan = &bucket->candidates[bucket->before];
        if (strcmp(plan->variant, current->variant) == 0 && plan->split_k == current->split_k &&
            plan->chunk_k == current->chunk_k && plan->tile_m == current->tile_m &&
            plan->tile_n == current->tile_n && plan->is_dependent == current->is_dependent)
            return DK_OK;
    }
    return dk_fail(error, DK_INTERNAL, "plan %s in use for %" PRIu32 " rows is no candidate",
                   current->variant, bucket->rows);
}

static dk_status tune_bucket(struct tuning *tuning, uint32_t index, struct dk_error *error)
{
    struct dk_weights *weights = tuning->weights;
    struct dk_tuned *tuned = weights->engine->tuned;
    struct bucket bucket = {0};
    struct dk_plan_key key;
    uint32_t known;
    dk_status status = open_bucket(tuning, index, &bucket, error);
    if (status != DK_OK)
        goto free_bucket;
    dk_tuned_key(tuned, weights, bucket.rows, &key);
    if (!tuning->options->is_forced && dk_tuned_find(tuned, &key, bucket.candidates, bucket.count, &known))
        goto free_bucket;
    if (tuning->peer_count == 0 &&
        bucket.count > 1) /* with one plan the time is for people: not worth the memory */
        status = make_peers(tuning, error);
    if (status == DK_OK)
        status = measure_bucket(tuning, &bucket, error);
    if (status != DK_OK)
        goto free_bucket;
    tuning->has_measured = true;
    dk_tuned_put(tuned, &key, &bucket.candidates[bucket.best], bucket.times_ns[bucket.best]);
    if (!tuning->options->is_only_remembered) {
        weights->backend_weights->plans[index] = bucket.candidates[bucket.best];
        weights->tuned_mask |= UINT32_C(1) << index;
        weights->unknown_mask &= ~(UINT32_C(1) << index);
    }
    if (tuning->options->on_bucket) {
        struct dk_tune_result result = {bucket.rows,     bucket.count,  bucket.candidates,
                                        bucket.times_ns, bucket.before, bucket.best};
        if (!tuning->options->on_bucket(tuning->options->context, &result))
            status = dk_fail(error, DK_CANCELLED, "tuning was ended after %" PRIu32 " rows", bucket.rows);
    }
free_bucket:
    free(bucket.candidates);
    free(bucket.times_ns);
    return status;
}

dk_status dk_weights_tune(struct dk_weights *weights, const struct dk_tune_options *options,
                          struct dk_error *error)
{
    const struct dk_engine_info *info = &weights->engine->device->info;
    if (weights->is_scratch)
        return dk_fail(error, DK_BAD_VALUE, "scratch weights cannot be tuned");
    if (!dk_tuned_is_on(weights->engine->tuned))
        return dk_fail(error, DK_BAD_VALUE, "a variant is forced: there is nothing to tune");
    struct tuning *tuning = calloc(1, sizeof *tuning);
    if (!tuning)
        return dk_fail(error, DK_NO_MEMORY, "no memory for tuning");
    tuning->weights = weights;
    tuning->options = options;
    dk_status status = DK_OK;
    for (uint32_t i = 0; i < info->bucket_count && status == DK_OK; i++) {
        if (options->max_rows == 0 || dk_bucket_rows(i) <= options->max_rows)
            status = tune_bucket(tuning, i, error);
    }
    bool has_measured = tuning->has_measured;
    free_peers(tuning);
    free(tuning);
    /* What was measured before a failure is good all the same. */
    struct dk_error save_error;
    dk_status saved = has_measured ? dk_tuned_save(weights->engine->tuned, &save_error) : DK_OK;
    if (status == DK_OK && saved != DK_OK)
        return dk_fail(error, saved, "%s", save_error.message);
    return status;
}

struct dk_plan_origin dk_plan_get_origin(const struct dk_weights *weights)
{
    return (struct dk_plan_origin){(uint32_t)__builtin_popcount(weights->tuned_mask),
                                   (uint32_t)__builtin_popcount(weights->unknown_mask)};
}

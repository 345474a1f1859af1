/* test_ring_interleavings.c: every interleaving of the ring's wake-up protocol: a client, the executor and a
 * thread that pushes jobs, with stores that wait in a buffer (total store order, as x86 has it; a
 * sequentially consistent store empties it). The steps are those of proto/ring.h and server/bell.c, one per
 * access to shared memory.
 *
 * Asserted in every state: entries are read as they were written, in order, once. Stuck without being
 * finished is a lost wake-up. Then each rule is broken in turn and the explorer must notice: otherwise it
 * proves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/proto/ring_model.h"

struct explorer {
    struct model model;
    struct state *states; /* in order of discovery: the list is the work as well */
    size_t count, capacity;
    uint32_t *table; /* open addressing: index + 1 */
    size_t table_size;
    uint64_t transition_count;
};

/* ---- the search */

static uint64_t hash(const struct state *s)
{
    const unsigned char *bytes = (const unsigned char *)s;
    uint64_t value = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof *s; i++) {
        value = (value ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return value ^ value >> 29;
}

static void grow(struct explorer *e)
{
    e->capacity = e->capacity == 0 ? 1 << 12 : e->capacity * 2;
    e->table_size = e->capacity * 4;
    e->states = realloc(e->states, e->capacity * sizeof *e->states);
    free(e->table);
    e->table = calloc(e->table_size, sizeof *e->table);
    assert_true(e->states != NULL && e->table != NULL);
    for (size_t i = 0; i < e->count; i++) {
        size_t at = hash(&e->states[i]) & (e->table_size - 1);
        while (e->table[at] != 0) {
            at = (at + 1) & (e->table_size - 1);
        }
        e->table[at] = (uint32_t)i + 1;
    }
}

static void add(struct explorer *e, const struct state *s)
{
    if (e->count == e->capacity) {
        grow(e);
    }
    e->transition_count++;
    size_t at = hash(s) & (e->table_size - 1);
    while (e->table[at] != 0) {
        if (memcmp(&e->states[e->table[at] - 1], s, sizeof *s) == 0) {
            return;
        }
        at = (at + 1) & (e->table_size - 1);
    }
    e->states[e->count] = *s;
    e->table[at] = (uint32_t)++e->count;
}

/* All successors of one state. */
static void expand(struct explorer *e, const struct state *from)
{
    bool can_move = false;
    for (int thread = 0; thread < THREAD_COUNT; thread++) {
        struct state next = *from;
        if (from->buffer_length[thread] > 0) {
            drain_one(&next, (enum thread)thread);
            add(e, &next);
            can_move = true;
        }
    }
    for (int choice = 0; choice < 2; choice++) {
        struct state next = *from;
        if ((choice == 0 || from->step[CLIENT] == C_TOP) && step_client(&e->model, &next, choice)) {
            add(e, &next);
            can_move = true;
        }
    }
    struct state next = *from;
    if (step_server(&e->model, &next)) {
        add(e, &next);
        can_move = true;
    }
    next = *from;
    if (step_producer(&e->model, &next)) {
        add(e, &next);
        can_move = true;
    }
    claim(&e->model, can_move || is_finished(&e->model, from), "a wake-up was lost");
    /* Sleeps also end for nothing (signals, timeouts, stale edges); that must do no harm, and saves nobody.
     */
    next = *from;
    if (from->step[CLIENT] == C_ASLEEP) {
        next.step[CLIENT] = C_END;
        add(e, &next);
    }
    next = *from;
    if (from->step[SERVER] == S_SLEEP && from->buffer_length[SERVER] == 0) {
        next.step[SERVER] = S_DISARM_BELL;
        add(e, &next);
    }
}

/* What was found, NULL for nothing. */
static const char *explore(enum mutation mutation, uint8_t requests, uint8_t job_count, size_t *out_states,
                           uint64_t *out_transitions)
{
    struct explorer e = {.model = {mutation, requests, job_count, NULL}};
    struct state first;
    memset(&first, 0, sizeof first);
    add(&e, &first);
    for (size_t i = 0; i < e.count && e.model.finding == NULL; i++) {
        struct state from = e.states[i]; /* the list may move */
        expand(&e, &from);
    }
    *out_states = e.count;
    *out_transitions = e.transition_count;
    free(e.states);
    free(e.table);
    return e.model.finding;
}

static void test_no_interleaving_loses_a_wakeup_or_completes_twice(void **state)
{
    (void)state;
    static const struct {
        uint8_t requests, jobs;
    } sizes[] = {{1, 0}, {4, 0}, {0, 3}, {3, 2}, {5, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t states;
        uint64_t transitions;
        const char *finding = explore(RIGHT, sizes[i].requests, sizes[i].jobs, &states, &transitions);
        print_message("%u requests, %u jobs: %zu states, %llu transitions: %s\n", sizes[i].requests,
                      sizes[i].jobs, states, (unsigned long long)transitions,
                      finding == NULL ? "nothing found" : finding);
        assert_null(finding);
    }
}

static void test_each_broken_rule_is_noticed(void **state)
{
    (void)state;
    static const char *const names[MUTATION_COUNT] = {
        "",
        "submission_tail stored late",
        "needs_wakeup stored late",
        "completion_tail stored late",
        "client_waits stored late",
        "queue cell stored late",
        "executor looks once",
        "client looks once",
        "client waits without comparing",
        "executor disarms before it sleeps",
        "completion written behind its tail",
    };
    for (int mutation = RIGHT + 1; mutation < MUTATION_COUNT; mutation++) {
        size_t states;
        uint64_t transitions;
        const char *finding = explore((enum mutation)mutation, 3, 2, &states, &transitions);
        print_message("%s: %s after %zu states\n", names[mutation], finding == NULL ? "NOT NOTICED" : finding,
                      states);
        assert_non_null(finding);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_interleaving_loses_a_wakeup_or_completes_twice),
        cmocka_unit_test(test_each_broken_rule_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* load_worker.c: the loop that keeps requests in flight and records how they end. */
#include "client/load_worker.h"

#include <stdlib.h>

enum { EVENT_CAPACITY = 64 };
/* How often requests without an answer are looked for, and the stop flag is seen while nothing happens. */
static const uint64_t check_interval_ns = 50000000;

dk_status dk_load_worker_init(struct dk_load_worker *worker, const struct dk_load_plan *plan, uint32_t index,
                              struct dk_error *error)
{
    uint32_t share = plan->slot_count / plan->thread_count + (index < plan->slot_count % plan->thread_count);
    worker->plan = plan;
    worker->index = index;
    worker->slot_count = share;
    worker->slots = calloc(share, sizeof *worker->slots);
    worker->free_slots = calloc(share, sizeof *worker->free_slots);
    if (!worker->slots || !worker->free_slots)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u requests in flight", share);
    for (uint32_t i = 0; i < share; i++)
        worker->free_slots[worker->free_count++] = share - 1 - i;
    if (plan->rate > 0)
        dk_load_schedule_init(&worker->schedule, plan->arrivals, plan->rate, index, plan->thread_count,
                              plan->seed);
    return plan->transport->open(plan->transport->context, share, &worker->session, error);
}

void dk_load_worker_deinit(struct dk_load_worker *worker)
{
    if (worker->session)
        worker->plan->transport->close(worker->session);
    free(worker->slots);
    free(worker->free_slots);
}

static void submit(struct dk_load_worker *worker, uint64_t due_ns, uint64_t now_ns)
{
    uint32_t index = worker->free_slots[--worker->free_count];
    worker->slots[index] = (struct dk_load_slot){due_ns, now_ns, true};
    worker->plan->transport->submit(worker->session, index);
}

/* A counter with one writer: no locked instruction. */
static void bump(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void finish(struct dk_load_worker *worker, const struct dk_load_event *event)
{
    struct dk_load_slot *slot = &worker->slots[event->slot];
    struct dk_load_result *result = &worker->result;
    bool is_ok = event->code == DK_OK;
    slot->is_busy = false;
    worker->free_slots[worker->free_count++] = event->slot;
    bump(is_ok ? &worker->ok_count : &worker->failed_count);
    if (is_ok && event->done_ns >= worker->window_ns && event->done_ns < worker->end_ns)
        result->answered_count++;
    if (slot->due_ns < worker->window_ns || slot->due_ns >= worker->end_ns)
        return;
    result->codes[event->code < DK_LOAD_CODE_COUNT ? event->code : DK_LOAD_BAD_REPLY]++;
    if (!is_ok) {
        result->failed_count++;
        return;
    }
    uint64_t latency_ns = event->done_ns - slot->due_ns;
    dk_latency_record(&result->latency, latency_ns);
    if (event->kernel_ns > 0 && event->kernel_ns <= latency_ns) {
        dk_latency_record(&result->kernel, event->kernel_ns);
        dk_latency_record(&result->above_kernel, latency_ns - event->kernel_ns);
    }
}

static void give_up(struct dk_load_worker *worker, uint32_t index, uint64_t now_ns)
{
    if (!worker->plan->transport->cancel)
        return;
    worker->plan->transport->cancel(worker->session, index);
    finish(worker, &(struct dk_load_event){index, DK_LOAD_NO_ANSWER, now_ns, 0});
}

static bool is_set(const atomic_bool *flag)
{
    return flag && atomic_load_explicit(flag, memory_order_relaxed);
}

/* Now and then: requests past their timeout, and whether the run should stop. */
static void check(struct dk_load_worker *worker, uint64_t now_ns)
{
    if (now_ns < worker->next_check_ns)
        return;
    worker->next_check_ns = now_ns + check_interval_ns;
    uint64_t timeout_ns = (uint64_t)(worker->plan->timeout_s * 1e9);
    for (uint32_t i = 0; i < worker->slot_count; i++)
        if (worker->slots[i].is_busy && now_ns - worker->slots[i].sent_ns > timeout_ns)
            give_up(worker, i, now_ns);
    if (now_ns < worker->end_ns && (is_set(worker->plan->is_stopping) || is_set(worker->is_abandoned)))
        worker->end_ns = now_ns;
}

static uint64_t due_at(const struct dk_load_worker *worker)
{
    return worker->begin_ns + dk_load_schedule_peek(&worker->schedule);
}

static void note_lateness(struct dk_load_worker *worker, uint64_t due_ns, uint64_t now_ns)
{
    if (due_ns >= worker->window_ns && now_ns > due_ns && now_ns - due_ns > worker->result.max_late_ns)
        worker->result.max_late_ns = now_ns - due_ns;
}

/* Send what is due; returns until when there is nothing to send. */
static uint64_t submit_due(struct dk_load_worker *worker, uint64_t now_ns)
{
    if (worker->plan->rate <= 0) {
        while (worker->free_count > 0)
            submit(worker, now_ns, now_ns);
        return worker->end_ns;
    }
    uint64_t due_ns;
    while ((due_ns = due_at(worker)) <= now_ns && due_ns < worker->end_ns && worker->free_count > 0) {
        note_lateness(worker, due_ns, now_ns);
        submit(worker, due_ns, now_ns);
        dk_load_schedule_advance(&worker->schedule);
    }
    return worker->free_count > 0 && due_ns < worker->end_ns ? due_ns : worker->end_ns;
}

static void take_events(struct dk_load_worker *worker, uint64_t until_ns)
{
    struct dk_load_event events[EVENT_CAPACITY];
    uint64_t wake_ns = until_ns < worker->next_check_ns ? until_ns : worker->next_check_ns;
    size_t count = worker->plan->transport->poll(worker->session, wake_ns, events, EVENT_CAPACITY);
    for (size_t i = 0; i < count; i++)
        finish(worker, &events[i]);
}

/* Arrivals of the window that were never sent: what they had waited by then is the least of their latency,
 * and leaving them out would make an overloaded server look good. */
static void count_unsent(struct dk_load_worker *worker)
{
    if (worker->plan->rate <= 0)
        return;
    for (uint64_t due_ns; (due_ns = due_at(worker)) < worker->end_ns;
         dk_load_schedule_advance(&worker->schedule)) {
        if (due_ns < worker->window_ns)
            continue;
        note_lateness(worker, due_ns, worker->end_ns);
        worker->result.unsent_count++;
        dk_latency_record(&worker->result.latency, worker->end_ns - due_ns);
    }
}

void dk_load_worker_run(struct dk_load_worker *worker)
{
    uint64_t now_ns = dk_load_now_ns();
    /* Sessions are opened one after the other: all begin together. */
    while ((now_ns = dk_load_now_ns()) < worker->begin_ns)
        continue;
    for (; now_ns < worker->end_ns; now_ns = dk_load_now_ns()) {
        check(worker, now_ns);
        if (now_ns < worker->end_ns)
            take_events(worker, submit_due(worker, now_ns));
    }
    count_unsent(worker);
    uint64_t deadline_ns = now_ns + (uint64_t)(worker->plan->timeout_s * 1e9);
    while (worker->free_count < worker->slot_count && (now_ns = dk_load_now_ns()) < deadline_ns) {
        check(worker, now_ns);
        take_events(worker, deadline_ns);
    }
    /* What is still out after the timeout had no answer, whether or not the transport can give it up. */
    for (uint32_t i = 0; i < worker->slot_count; i++)
        if (worker->slots[i].is_busy)
            finish(worker, &(struct dk_load_event){i, DK_LOAD_NO_ANSWER, now_ns, 0});
}

/* ring_model.c: loads, stores and the three threads' steps. */
#include "tests/unit/proto/ring_model.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory with store buffers */

static uint8_t load(const struct state *s, enum thread thread, unsigned word)
{
    for (int i = s->buffer_length[thread]; i-- > 0;) {
        if (s->buffer[thread][i] >> 4 == word) {
            return s->buffer[thread][i] & 15;
        }
    }
    return s->memory[word];
}

static void store(struct state *s, enum thread thread, unsigned word, unsigned value)
{
    if (s->buffer_length[thread] == BUFFER) {
        abort(); /* the model itself is wrong: no thread stores so often without a fence */
    }
    s->buffer[thread][s->buffer_length[thread]++] = (uint8_t)(word << 4 | value);
}

void drain_one(struct state *s, enum thread thread)
{
    uint8_t entry = s->buffer[thread][0];
    s->buffer_length[thread]--;
    memmove(s->buffer[thread], s->buffer[thread] + 1, s->buffer_length[thread]);
    s->buffer[thread][s->buffer_length[thread]] = 0; /* equal states have equal bytes */
    s->memory[entry >> 4] = entry & 15;
}

/* Sequentially consistent: the step is possible only with an empty buffer. False: not now. */
static bool store_now(struct state *s, enum thread thread, unsigned word, unsigned value)
{
    if (s->buffer_length[thread] > 0) {
        return false;
    }
    s->memory[word] = (uint8_t)value;
    return true;
}

static bool store_as(struct state *s, enum thread thread, unsigned word, unsigned value, bool is_late)
{
    if (is_late) {
        store(s, thread, word, value);
        return true;
    }
    return store_now(s, thread, word, value);
}

void claim(struct model *model, bool is_true, const char *what)
{
    if (!is_true && model->finding == NULL) {
        model->finding = what;
    }
}

/* ---- the steps; false: not possible now */

/* `choice` 1: look for completions although more could be submitted. */
bool step_client(struct model *model, struct state *s, int choice)
{
    uint8_t *step = &s->step[CLIENT];
    bool can_send = s->sent < model->requests && s->sent - s->received < ENTRIES;
    switch ((enum client_step) * step) {
    case C_TOP:
        if (s->received == model->requests) {
            *step = C_DONE;
        } else if (can_send && choice == 0) {
            store(s, CLIENT, SUBMISSION + s->sent % ENTRIES, s->sent + 1u);
            s->sent++;
            *step = C_PUBLISH;
        } else if (s->sent > s->received) {
            *step = C_LOOK;
        } else {
            return false;
        }
        return true;
    case C_PUBLISH:
        *step = C_ASK;
        return store_as(s, CLIENT, SUBMISSION_TAIL, s->sent, model->mutation == CLIENT_PUBLISHES_LATE);
    case C_ASK:
        *step = load(s, CLIENT, NEEDS_WAKEUP) != 0 ? C_RING : C_TOP;
        return true;
    case C_RING:
        s->is_rung = 1;
        *step = C_TOP;
        return true;
    case C_LOOK:
        *step = load(s, CLIENT, COMPLETION_TAIL) != s->received ? C_READ : C_ANNOUNCE;
        return true;
    case C_READ:
        claim(model, load(s, CLIENT, COMPLETION + s->received % ENTRIES) == s->received + 1,
              "a completion was wrong");
        s->received++;
        *step = C_TOP;
        return true;
    case C_ANNOUNCE:
        *step = model->mutation == CLIENT_LOOKS_ONCE ? C_WAIT : C_LOOK_AGAIN;
        return store_as(s, CLIENT, CLIENT_WAITS, 1, model->mutation == CLIENT_ANNOUNCES_LATE);
    case C_LOOK_AGAIN:
        *step = load(s, CLIENT, COMPLETION_TAIL) != s->received ? C_END : C_WAIT;
        return true;
    case C_WAIT: /* the system call is a full fence; it compares and sleeps in one */
        if (s->buffer_length[CLIENT] > 0) {
            return false;
        }
        *step = s->memory[CLIENT_WAITS] == 1 || model->mutation == CLIENT_WAITS_BLINDLY ? C_ASLEEP : C_END;
        return true;
    case C_END:
        store(s, CLIENT, CLIENT_WAITS, 0);
        *step = C_TOP;
        return true;
    default:
        return false; /* C_ASLEEP: until woken; C_DONE */
    }
}

bool step_server(struct model *model, struct state *s)
{
    uint8_t *step = &s->step[SERVER];
    bool is_entry_late = model->mutation == ENTRY_AFTER_TAIL;
    switch ((enum server_step) * step) {
    case S_LOOK:
        *step = load(s, SERVER, SUBMISSION_TAIL) != s->taken ? S_TAKE : S_LOOK_QUEUE;
        return true;
    case S_TAKE:
        claim(model, load(s, SERVER, SUBMISSION + s->taken % ENTRIES) == s->taken + 1,
              "a submission was wrong");
        s->taken++;
        *step = is_entry_late ? S_PUBLISH : S_FILL;
        return true;
    case S_FILL:
        store(s, SERVER, COMPLETION + s->completed % ENTRIES, s->taken);
        *step = S_PUBLISH;
        return true;
    case S_PUBLISH:
        if (!store_as(s, SERVER, COMPLETION_TAIL, s->completed + 1u,
                      model->mutation == SERVER_PUBLISHES_LATE)) {
            return false;
        }
        s->completed++;
        claim(model, s->completed == s->taken && s->taken <= s->sent, "something completed twice");
        *step = is_entry_late ? S_LATE_FILL : S_ASK;
        return true;
    case S_LATE_FILL:
        store(s, SERVER, COMPLETION + (s->completed - 1u) % ENTRIES, s->taken);
        *step = S_ASK;
        return true;
    case S_ASK:
        *step = load(s, SERVER, CLIENT_WAITS) != 0 ? S_SWAP : S_LOOK;
        return true;
    case S_SWAP:
        if (s->buffer_length[SERVER] > 0) {
            return false;
        }
        *step = s->memory[CLIENT_WAITS] != 0 ? S_WAKE : S_LOOK;
        s->memory[CLIENT_WAITS] = 0;
        return true;
    case S_WAKE:
        if (s->step[CLIENT] == C_ASLEEP) {
            s->step[CLIENT] = C_END;
        }
        *step = S_LOOK;
        return true;
    case S_LOOK_QUEUE:
        if (load(s, SERVER, QUEUE) != s->jobs) {
            s->jobs++;
            *step = S_LOOK;
        } else {
            *step = S_ARM_BELL;
        }
        return true;
    case S_ARM_BELL:
        *step = S_ARM;
        return store_now(s, SERVER, BELL, 1);
    case S_ARM:
        *step = model->mutation == SERVER_LOOKS_ONCE ? S_SLEEP : S_LOOK_AGAIN;
        return store_as(s, SERVER, NEEDS_WAKEUP, 1, model->mutation == SERVER_ARMS_LATE);
    case S_LOOK_AGAIN:
        *step = load(s, SERVER, SUBMISSION_TAIL) != s->taken ? S_DISARM_BELL : S_LOOK_QUEUE_AGAIN;
        return true;
    case S_LOOK_QUEUE_AGAIN:
        *step = load(s, SERVER, QUEUE) != s->jobs           ? S_DISARM_BELL
                : model->mutation == SERVER_KEEPS_FLAG_DOWN ? S_DISARM_EARLY
                                                            : S_SLEEP;
        return true;
    case S_DISARM_EARLY:
        *step = S_SLEEP;
        return store_now(s, SERVER, NEEDS_WAKEUP, 0);
    case S_SLEEP:
        if (s->buffer_length[SERVER] > 0 || !s->is_rung) {
            return false;
        }
        s->is_rung = 0;
        *step = S_DISARM_BELL;
        return true;
    case S_DISARM_BELL:
        store(s, SERVER, BELL, 0);
        *step = S_DISARM;
        return true;
    case S_DISARM:
        *step = S_LOOK;
        return store_now(s, SERVER, NEEDS_WAKEUP, 0);
    default:
        return false;
    }
}

bool step_producer(struct model *model, struct state *s)
{
    uint8_t *step = &s->step[PRODUCER];
    switch ((enum producer_step) * step) {
    case P_PUSH:
        if (s->pushed == model->job_count) {
            *step = P_DONE;
            return true;
        }
        if (!store_as(s, PRODUCER, QUEUE, s->pushed + 1u, model->mutation == PRODUCER_PUBLISHES_LATE)) {
            return false;
        }
        s->pushed++;
        *step = P_ASK;
        return true;
    case P_ASK:
        *step = load(s, PRODUCER, BELL) != 0 ? P_SWAP : P_PUSH;
        return true;
    case P_SWAP:
        if (s->buffer_length[PRODUCER] > 0) {
            return false;
        }
        *step = s->memory[BELL] != 0 ? P_RING : P_PUSH;
        s->memory[BELL] = 0;
        return true;
    case P_RING:
        s->is_rung = 1;
        *step = P_PUSH;
        return true;
    default:
        return false;
    }
}

bool is_finished(const struct model *model, const struct state *s)
{
    return s->step[CLIENT] == C_DONE && s->step[PRODUCER] == P_DONE && s->jobs == model->job_count;
}

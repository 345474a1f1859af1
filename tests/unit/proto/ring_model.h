/* ring_model.h: the steps of the ring's wake-up protocol as a state machine, for the explorer. One step is
 * one access to shared memory, as in proto/ring.h and server/bell.c. Stores wait in a buffer, as on x86
 * (total store order); a sequentially consistent store is possible only when the buffer is empty. */
#ifndef DK_TESTS_RING_MODEL_H
#define DK_TESTS_RING_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { ENTRIES = 2, BUFFER = 8 };
enum word {
    SUBMISSION_TAIL,
    COMPLETION_TAIL,
    NEEDS_WAKEUP,
    CLIENT_WAITS,
    BELL,
    QUEUE,
    SUBMISSION,
    COMPLETION = SUBMISSION + ENTRIES,
    WORD_COUNT = COMPLETION + ENTRIES
};
enum thread { CLIENT, SERVER, PRODUCER, THREAD_COUNT };

/* What is done wrong on purpose. */
enum mutation {
    RIGHT,
    CLIENT_PUBLISHES_LATE,   /* submission_tail is an ordinary store */
    SERVER_ARMS_LATE,        /* needs_wakeup is an ordinary store */
    SERVER_PUBLISHES_LATE,   /* completion_tail is an ordinary store */
    CLIENT_ANNOUNCES_LATE,   /* client_waits is an ordinary store */
    PRODUCER_PUBLISHES_LATE, /* the queue's cell is an ordinary store */
    SERVER_LOOKS_ONCE,       /* not again after arming */
    CLIENT_LOOKS_ONCE,       /* not again after announcing */
    CLIENT_WAITS_BLINDLY,    /* FUTEX_WAIT that does not compare client_waits */
    SERVER_KEEPS_FLAG_DOWN,  /* disarms after its last look instead of before the next */
    ENTRY_AFTER_TAIL,        /* the completion is written behind its tail */
    MUTATION_COUNT
};

enum client_step {
    C_TOP,
    C_PUBLISH,
    C_ASK,
    C_RING,
    C_LOOK,
    C_READ,
    C_ANNOUNCE,
    C_LOOK_AGAIN,
    C_WAIT,
    C_ASLEEP,
    C_END,
    C_DONE
};
enum server_step {
    S_LOOK,
    S_TAKE,
    S_FILL,
    S_PUBLISH,
    S_LATE_FILL,
    S_ASK,
    S_SWAP,
    S_WAKE,
    S_LOOK_QUEUE,
    S_ARM_BELL,
    S_ARM,
    S_LOOK_AGAIN,
    S_LOOK_QUEUE_AGAIN,
    S_DISARM_EARLY,
    S_SLEEP,
    S_DISARM_BELL,
    S_DISARM
};
enum producer_step { P_PUSH, P_ASK, P_SWAP, P_RING, P_DONE };

struct state {
    uint8_t memory[WORD_COUNT];
    uint8_t step[THREAD_COUNT];
    uint8_t sent, received;         /* client */
    uint8_t taken, completed, jobs; /* server */
    uint8_t pushed;                 /* producer */
    uint8_t is_rung;                /* an edge that epoll_wait has not reported yet */
    uint8_t buffer_length[THREAD_COUNT];
    uint8_t buffer[THREAD_COUNT][BUFFER]; /* word << 4 | value */
};

/* One run of the model. */
struct model {
    enum mutation mutation;
    uint8_t requests, job_count;
    const char *finding; /* the first claim that was false; NULL: none */
};

/* Each changes *s; false: the step is not possible now. `choice` 1: the client looks for completions although
 * it could submit more. */
bool step_client(struct model *model, struct state *s, int choice);
bool step_server(struct model *model, struct state *s);
bool step_producer(struct model *model, struct state *s);
/* The oldest store of a thread that has one reaches memory. */
void drain_one(struct state *s, enum thread thread);
void claim(struct model *model, bool is_true, const char *what);
bool is_finished(const struct model *model, const struct state *s);

#endif

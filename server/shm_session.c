/* shm_session.c: a turn of one session. */
#include "server/shm_session.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/shm_models.h"
#include "server/shm_request.h"

dk_status dk_shm_session_init(struct dk_shm_session *session, void *mapping,
                              const struct dk_ring_layout *layout, struct dk_models *registry,
                              struct dk_error *error)
{
    *session = (struct dk_shm_session){.memory.fd = -1,
                                       .doorbell_fd = -1,
                                       .ring = dk_ring_at(mapping, layout),
                                       .entry_count = layout->entry_count};
    return dk_shm_models_new(registry, &session->models, error);
}

void dk_shm_session_deinit(struct dk_shm_session *session)
{
    dk_shm_models_free(session->models);
    session->models = NULL;
}

static void wake_client(struct dk_shm_session *session)
{
    struct dk_ring_header *header = session->ring.header;
    if (dk_ring_take_client_waits(header)) {
        (void)syscall(SYS_futex, &header->client_waits, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

static enum dk_shm_turn fail_session(struct dk_shm_session *session, const char *what, uint32_t by)
{
    session->broken_status = dk_fail(&session->broken, DK_BAD_REQUEST, "%s (by %u; the ring has %u entries)",
                                     what, by, session->entry_count);
    return DK_SHM_BROKEN;
}

/* A client may have entry_count requests between submission and release: a taken request always finds a free
 * completion. The shared head is looked at only when the last look does not suffice. */
static enum dk_shm_turn check_credit(struct dk_shm_session *session)
{
    if (session->completion_tail - session->completion_head < session->entry_count) {
        return DK_SHM_WORKED;
    }
    uint32_t head = dk_ring_completion_head(session->ring.header);
    uint32_t held = session->completion_tail - head;
    if (held > session->entry_count) {
        return fail_session(session, "completion_head is beyond the last completion",
                            head - session->completion_tail);
    }
    session->completion_head = head;
    return held < session->entry_count ? DK_SHM_WORKED
                                       : fail_session(session, "more requests than entries are in flight", 1);
}

/* The next request into session->submission. */
static enum dk_shm_turn take(struct dk_shm_session *session)
{
    if (session->submission_head == session->submission_tail) {
        session->submission_tail = dk_ring_submission_tail(session->ring.header);
        uint32_t count = session->submission_tail - session->submission_head;
        if (count == 0) {
            return DK_SHM_IDLE;
        }
        if (count > session->entry_count) {
            return fail_session(session, "submission_tail runs ahead of what the ring holds",
                                count - session->entry_count);
        }
    }
    enum dk_shm_turn turn = check_credit(session);
    if (turn == DK_SHM_WORKED) {
        dk_ring_copy_submission(&session->ring.submissions[session->submission_head & session->ring.mask],
                                &session->submission);
        session->submission_head++;
    }
    return turn;
}

static void complete(struct dk_shm_session *session, dk_status status, enum dk_ring_detail detail)
{
    const struct dk_launch *launch = &session->launch;
    session->ring.completions[session->completion_tail & session->ring.mask] = (struct dk_ring_completion){
        .user_data = session->submission.user_data,
        .status = (uint32_t)status,
        .detail = detail,
        .queue_ns = session->queue_ns,
        .kernel_ns = launch->kernel_ns,
        .piece_count = launch->piece_count,
        .bucket_rows = launch->bucket_rows,
        .split_k = launch->split_k,
        .model_version = session->model != NULL ? session->model->version : 0,
    };
    session->completion_tail++;
    dk_ring_publish_completions(session->ring.header, session->completion_tail);
    wake_client(session);
}

/* After the completion is out: nobody waits for this. */
static void record(const struct dk_shm_session *session, const struct dk_launcher *launcher, dk_status status,
                   uint64_t now_ns)
{
    const struct dk_launch *launch = &session->launch;
    const struct dk_model *model = session->model;
    if (launcher->metrics == NULL) {
        return;
    }
    uint64_t busy_ns = now_ns - session->started_ns;
    struct dk_metrics_sample sample = {
        .shape = model != NULL ? model->metrics_shape : DK_METRICS_SHAPE_OTHER,
        .model = model != NULL ? model->metrics_model : -1,
        .transport = DK_TRANSPORT_SHM,
        .outcome = dk_metrics_outcome(status),
        .rows = launch->m,
        .has_times = status == DK_OK && launch->m > 0,
    };
    if (sample.has_times) {
        uint64_t rows = launch->m < launcher->max_tokens ? launch->m : launcher->max_tokens;
        sample.bucket_index = dk_engine_bucket_index(launcher->engine, rows);
        sample.queue_ns = session->queue_ns;
        sample.kernel_ns = launch->kernel_ns;
        sample.copy_ns = busy_ns > launch->kernel_ns ? busy_ns - launch->kernel_ns : 0;
        sample.request_ns = session->queue_ns + busy_ns;
    }
    dk_metrics_record(launcher->metrics, &sample);
}

static void finish(struct dk_shm_session *session, const struct dk_launcher *launcher, dk_status status,
                   enum dk_ring_detail detail, uint64_t now_ns)
{
    complete(session, status, detail);
    record(session, launcher, status, now_ns);
    if (session->is_model_held) {
        dk_model_release(session->model);
        session->is_model_held = false;
    }
    session->model = NULL;
    session->is_active = false;
}

/* Waiting began when the client says, but not before the ring was last seen empty and not after now: what a
 * client says can bend the daemon's statistics only so far. */
static uint64_t waited_ns(const struct dk_shm_session *session, uint64_t now_ns)
{
    uint64_t since = session->submission.submitted_ns;
    if (since == 0 || since >= now_ns) {
        return 0;
    }
    return now_ns - (since > session->empty_ns ? since : session->empty_ns);
}

static bool is_expired(const struct dk_ring_submission *submission, uint64_t now_ns)
{
    return submission->timeout_us != 0 && submission->submitted_ns != 0 &&
           submission->submitted_ns < now_ns &&
           now_ns - submission->submitted_ns > (uint64_t)submission->timeout_us * 1000u;
}

/* Checks the request just taken and makes it the active one; what is wrong with it otherwise. */
static enum dk_ring_detail start(struct dk_shm_session *session, uint64_t now_ns)
{
    enum dk_ring_detail detail = DK_RING_DETAIL_NONE;
    session->launch = (struct dk_launch){0};
    session->started_ns = now_ns;
    session->queue_ns = waited_ns(session, now_ns);
    if (session->is_closing && (int32_t)(session->submission_head - session->closing_tail) > 0) {
        return DK_RING_DETAIL_CLOSING;
    }
    session->model = dk_shm_models_get(session->models, session->submission.model_id, &detail);
    if (session->model == NULL) {
        return detail;
    }
    detail = dk_shm_request_check(&session->submission, session->model, &session->ring, &session->launch);
    if (detail == DK_RING_DETAIL_NONE && is_expired(&session->submission, now_ns)) {
        detail = DK_RING_DETAIL_EXPIRED;
    }
    session->is_active = detail == DK_RING_DETAIL_NONE;
    return detail;
}

/* One piece of the active request. */
static void advance(struct dk_shm_session *session, const struct dk_launcher *launcher, uint64_t *now_ns)
{
    struct dk_error error;
    dk_status status = dk_launch_piece(launcher, &session->launch, &error);
    *now_ns = dk_clock_now_ns();
    if (status != DK_OK || dk_launch_is_done(&session->launch)) {
        finish(session, launcher, status, status == DK_OK ? DK_RING_DETAIL_NONE : DK_RING_DETAIL_COMPUTE,
               *now_ns);
    }
}

/* A reload between two turns must not take the model away from a request that is half done. */
static void hold_model(struct dk_shm_session *session)
{
    if (session->is_active && !session->is_model_held) {
        atomic_fetch_add_explicit(&session->model->reference_count, 1, memory_order_relaxed);
        session->is_model_held = true;
    }
}

/* A turn also ends after the piece that passes this: many small products, or one large one. */
enum { TURN_NS = 50000 };

enum dk_shm_turn dk_shm_session_turn(struct dk_shm_session *session, const struct dk_launcher *launcher,
                                     uint32_t piece_limit, uint64_t *now_ns)
{
    uint64_t begin_ns = *now_ns;
    dk_shm_models_refresh(session->models);
    for (uint32_t i = 0; i < piece_limit && *now_ns - begin_ns < TURN_NS; i++) {
        if (!session->is_active) {
            enum dk_shm_turn turn = take(session);
            if (turn == DK_SHM_IDLE) {
                session->empty_ns = *now_ns;
                return i == 0 ? DK_SHM_IDLE : DK_SHM_WORKED;
            }
            if (turn == DK_SHM_BROKEN) {
                return turn;
            }
            if (i == 0) {
                begin_ns = *now_ns = dk_clock_now_ns();
            }
            enum dk_ring_detail detail = start(session, *now_ns);
            if (detail != DK_RING_DETAIL_NONE) {
                finish(session, launcher, dk_ring_detail_status(detail), detail, *now_ns);
                continue;
            }
        }
        advance(session, launcher, now_ns);
    }
    hold_model(session);
    return DK_SHM_WORKED;
}

bool dk_shm_session_has_work(const struct dk_shm_session *session)
{
    return session->is_active || dk_ring_submission_tail(session->ring.header) != session->submission_head;
}

void dk_shm_session_close(struct dk_shm_session *session)
{
    if (session->is_closing) {
        return;
    }
    uint32_t tail = dk_ring_submission_tail(session->ring.header);
    bool is_sane = tail - session->submission_head <= session->entry_count;
    session->closing_tail = is_sane ? tail : session->submission_head;
    session->is_closing = true;
    dk_ring_set_server_state(session->ring.header, DK_RING_CLOSING);
}

bool dk_shm_session_is_done(const struct dk_shm_session *session)
{
    return session->is_closing && !session->is_active &&
           (int32_t)(session->submission_head - session->closing_tail) >= 0;
}

void dk_shm_session_end(struct dk_shm_session *session)
{
    if (session->is_model_held) {
        dk_model_release(session->model);
        session->is_model_held = false;
    }
    session->model = NULL;
    session->is_active = false;
    dk_shm_models_drop(session->models);
    dk_ring_set_server_state(session->ring.header, DK_RING_CLOSED);
    wake_client(session);
}

/* job.c: the pool of jobs: a free list under a mutex. */
#include "server/job.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "server/metrics.h"
#include "server/models.h"
#include "server/slab.h"

struct dk_jobs {
    pthread_mutex_t mutex; /* held for a pointer swap only */
    struct dk_slabs *slabs;
    struct dk_metrics *metrics;
    struct dk_job *free_head;
    uint32_t count, in_flight;
    struct dk_job jobs[];
};

dk_status dk_jobs_new(uint32_t count, struct dk_slabs *slabs, struct dk_metrics *metrics,
                      struct dk_jobs **out, struct dk_error *error)
{
    struct dk_jobs *jobs = calloc(1, sizeof *jobs + (size_t)count * sizeof jobs->jobs[0]);
    if (jobs == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate %u jobs", count);
    }
    (void)pthread_mutex_init(&jobs->mutex, NULL);
    jobs->slabs = slabs;
    jobs->metrics = metrics;
    jobs->count = count;
    for (uint32_t i = count; i-- > 0;) {
        jobs->jobs[i].next_free = jobs->free_head;
        jobs->free_head = &jobs->jobs[i];
    }
    *out = jobs;
    return DK_OK;
}

void dk_jobs_free(struct dk_jobs *jobs)
{
    if (jobs == NULL) {
        return;
    }
    assert(jobs->in_flight == 0);
    (void)pthread_mutex_destroy(&jobs->mutex);
    free(jobs);
}

dk_status dk_job_acquire(struct dk_jobs *jobs, struct dk_job **out, struct dk_error *error)
{
    (void)pthread_mutex_lock(&jobs->mutex);
    struct dk_job *job = jobs->free_head;
    if (job != NULL) {
        jobs->free_head = job->next_free;
        jobs->in_flight++;
    }
    (void)pthread_mutex_unlock(&jobs->mutex);
    if (job == NULL) {
        return dk_fail(error, DK_BUSY, "%u requests are in flight, the limit; try again", jobs->count);
    }
    *job = (struct dk_job){.client_fd = -1, .variant = ""};
    if (jobs->metrics != NULL) {
        dk_metrics_add(jobs->metrics, DK_METRIC_IN_FLIGHT, 1);
    }
    *out = job;
    return DK_OK;
}

dk_status dk_job_place_c(struct dk_job *job, struct dk_slabs *slabs, size_t a_bytes, size_t c_bytes,
                         struct dk_error *error)
{
    struct dk_slab *a_slab = job->slabs[DK_JOB_SLAB_A];
    size_t offset = (a_bytes + DK_SLAB_ALIGNMENT - 1) & ~(size_t)(DK_SLAB_ALIGNMENT - 1);
    if (c_bytes == 0) {
        return DK_OK;
    }
    if (a_slab != NULL && offset <= a_slab->bytes && c_bytes <= a_slab->bytes - offset) {
        job->c = a_slab->data + offset;
        return DK_OK;
    }
    dk_status status = dk_slab_acquire(slabs, c_bytes, &job->slabs[DK_JOB_SLAB_C], error);
    if (status == DK_OK) {
        job->c = job->slabs[DK_JOB_SLAB_C]->data;
    }
    return status;
}

void dk_job_release(struct dk_jobs *jobs, struct dk_job *job)
{
    if (job == NULL) {
        return;
    }
    for (int i = 0; i < DK_JOB_SLAB_COUNT; i++) {
        dk_slab_release(jobs->slabs, job->slabs[i]);
    }
    if (job->model != NULL) {
        dk_model_release(job->model);
    }
    if (jobs->metrics != NULL) {
        dk_metrics_add(jobs->metrics, DK_METRIC_IN_FLIGHT, -1);
    }
    (void)pthread_mutex_lock(&jobs->mutex);
    job->next_free = jobs->free_head;
    jobs->free_head = job;
    jobs->in_flight--;
    (void)pthread_mutex_unlock(&jobs->mutex);
}

uint32_t dk_jobs_in_flight(struct dk_jobs *jobs)
{
    (void)pthread_mutex_lock(&jobs->mutex);
    uint32_t in_flight = jobs->in_flight;
    (void)pthread_mutex_unlock(&jobs->mutex);
    return in_flight;
}

/* pipeline.c: many products, several in flight; operands are written and read where the daemon computes,
 * without a copy. Usage: example_pipeline ADDRESS MODEL [COUNT] */
#include "decomposek_client.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 8, IN_FLIGHT = 4 };

struct slot {
    uint16_t *x; /* bf16 [ROWS, k], in the session's data area */
    float *y;    /* [ROWS, n], likewise */
};

static dk_status submit(struct dk_client_model *model, struct slot *slot, long number, struct dk_error *error)
{
    const struct dk_client_model_info *info = dk_client_model_get_info(model);
    for (uint64_t i = 0; i < ROWS * info->k; i++)
        slot->x[i] = dk_bf16_from_float((float)((i + (uint64_t)number) % 5) - 2);
    const struct dk_client_request request = {
        .rows = ROWS, .a = slot->x, .a_dtype = DK_BF16, .c = slot->y, .c_dtype = DK_FP32, .user_data = slot};
    return dk_client_submit(model, &request, error);
}

static dk_status run(struct dk_client *client, struct dk_client_model *model, long total,
                     struct dk_error *error)
{
    struct slot slots[IN_FLIGHT];
    const struct dk_client_model_info *info = dk_client_model_get_info(model);
    long started = 0, finished = 0;
    double sum = 0;
    for (int i = 0; i < IN_FLIGHT && started < total; i++) {
        void *x, *y;
        dk_status status = dk_client_buffer_acquire(client, ROWS * info->k * sizeof(uint16_t), &x, error);
        if (status == DK_OK)
            status = dk_client_buffer_acquire(client, ROWS * info->n * sizeof(float), &y, error);
        if (status != DK_OK)
            return status;
        slots[i] = (struct slot){x, y};
        status = submit(model, &slots[i], started++, error);
        if (status != DK_OK)
            return status;
    }
    while (finished < total) {
        struct dk_client_completion done[IN_FLIGHT];
        size_t count;
        dk_status status = dk_client_wait(client, 0, done, IN_FLIGHT, &count, error);
        for (size_t i = 0; status == DK_OK && i < count; i++, finished++) {
            struct slot *slot = done[i].user_data;
            if (done[i].status != DK_OK)
                return dk_fail(error, done[i].status, "%s", done[i].message);
            sum += (double)slot->y[0];
            if (started < total)
                status = submit(model, slot, started++, error);
        }
        if (status != DK_OK)
            return status;
    }
    printf("%ld products, sum of y[0][0] %g\n", finished, sum);
    return DK_OK;
}

int main(int argc, char **argv)
{
    struct dk_client *client = NULL;
    struct dk_client_model *model = NULL;
    struct dk_error error;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s unix:/path|http://host:port MODEL [COUNT]\n", argv[0]);
        return 2;
    }
    long total = argc == 4 ? strtol(argv[3], NULL, 10) : 1000;
    dk_status status = dk_client_open(argv[1], NULL, &client, &error);
    if (status == DK_OK)
        status = dk_client_model_open(client, argv[2], &model, &error);
    if (status == DK_OK)
        status = run(client, model, total, &error);
    if (status != DK_OK)
        fprintf(stderr, "%s: %s\n", dk_status_name(status), error.message);
    dk_client_close(client); /* its model and buffers go with it */
    return status == DK_OK ? 0 : 1;
}

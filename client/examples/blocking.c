/* blocking.c: one product with a model of the daemon, waited for.
 * Usage: example_blocking ADDRESS MODEL, for example unix:/run/decomposek/ring.sock gate */
#include "decomposek_client.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    enum { ROWS = 4 };
    struct dk_client *client = NULL;
    struct dk_client_model *model = NULL;
    struct dk_client_timing timing;
    struct dk_error error;
    float *x = NULL, *y = NULL;
    int exit_code = 1;

    if (argc != 3) {
        fprintf(stderr, "usage: %s unix:/path|http://host:port MODEL\n", argv[0]);
        return 2;
    }
    if (dk_client_open(argv[1], NULL, &client, &error) != DK_OK ||
        dk_client_model_open(client, argv[2], &model, &error) != DK_OK)
        goto report;
    const struct dk_client_model_info *info = dk_client_model_get_info(model);
    x = calloc(ROWS * info->k, sizeof *x);
    y = calloc(ROWS * info->n, sizeof *y);
    if (!x || !y)
        goto done;
    for (uint64_t i = 0; i < ROWS * info->k; i++)
        x[i] = (float)(i % 7) - 3;

    const struct dk_client_request request = {
        .rows = ROWS, .a = x, .a_dtype = DK_FP32, .c = y, .c_dtype = DK_FP32, .timeout_ms = 5000};
    if (dk_client_infer(model, &request, &timing, &error) != DK_OK)
        goto report;
    for (int row = 0; row < ROWS; row++)
        printf("y[%d][0..] = %g %g\n", row, (double)y[(uint64_t)row * info->n],
               (double)y[(uint64_t)row * info->n + (info->n > 1)]);
    printf("kernel %.1f us, round trip %.1f us\n", (double)timing.kernel_ns / 1e3,
           (double)timing.round_trip_ns / 1e3);
    exit_code = 0;
    goto done;
report:
    fprintf(stderr, "%s: %s\n", dk_status_name(error.status), error.message);
done:
    free(x);
    free(y);
    dk_client_close(client); /* closes the model as well */
    return exit_code;
}

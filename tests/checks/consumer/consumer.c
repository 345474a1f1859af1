/* consumer.c: a foreign program that knows only what was installed; one exact product, checked. */
#include <decomposek.h>
#include <stdio.h>

int main(void)
{
    /* 2 x 3 times 3 x 2; small integers, so that any order of summation gives these bits. */
    static const float a[2][3] = {{1, 2, 3}, {4, 5, 6}};
    static const float b[3][2] = {{7, 8}, {9, 10}, {11, 12}};
    static const float want[2][2] = {{58, 64}, {139, 154}};
    float c[2][2] = {{0}};
    struct dk_error error = {0};
    struct dk_engine_options options = {.backend = DK_BACKEND_CPU, .thread_count = 2, .max_tokens = 4};
    struct dk_engine *engine = NULL;
    struct dk_weights *weights = NULL;
    void *workspace = NULL;
    int status = 1;
    if (dk_engine_new(&options, &engine, &error) != DK_OK)
        goto report;
    struct dk_weights_desc desc = {.n = 2, .k = 3, .dtype = DK_FP32, .layout = DK_LAYOUT_KN, .data = b};
    if (dk_weights_new(engine, &desc, &weights, &error) != DK_OK)
        goto free_engine;
    if (dk_workspace_new(engine, dk_workspace_bytes(weights, 2), &workspace, &error) != DK_OK)
        goto free_weights;
    struct dk_call call = {.m = 2,
                           .a = a,
                           .a_row_elements = 3,
                           .a_dtype = DK_FP32,
                           .c = c,
                           .c_row_elements = 2,
                           .c_dtype = DK_FP32,
                           .workspace = workspace};
    if (dk_enqueue(weights, &call, &error) == DK_OK) {
        status = 0;
        for (int row = 0; row < 2; row++)
            for (int column = 0; column < 2; column++)
                status |= c[row][column] != want[row][column];
        printf("consumer: decomposek %s, %s, %g %g %g %g\n", dk_version(),
               dk_engine_get_info(engine)->backend, (double)c[0][0], (double)c[0][1], (double)c[1][0],
               (double)c[1][1]);
    }
    dk_workspace_free(engine, workspace);
free_weights:
    dk_weights_free(weights);
free_engine:
    dk_engine_free(engine);
report:
    if (error.status != DK_OK)
        fprintf(stderr, "consumer: %s: %s\n", dk_status_name(error.status), error.message);
    return status;
}

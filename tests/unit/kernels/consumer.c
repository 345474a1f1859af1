/* consumer.c: the smallest program that uses the installed library: C[2,2] = A[2,3] * B[3,2]. */
#include <decomposek.h>
#include <stdio.h>

int main(void)
{
    const float a[2 * 3] = {1, 2, 3, 4, 5, 6}, b[3 * 2] = {1, 0, 0, 1, 1, 1};
    const float wanted[2 * 2] = {4, 5, 10, 11};
    float c[2 * 2];
    struct dk_engine_options options = {.backend = DK_BACKEND_CPU};
    struct dk_weights_desc desc = {.n = 2, .k = 3, .dtype = DK_FP32, .layout = DK_LAYOUT_KN, .data = b};
    struct dk_call call = {.m = 2, .a = a, .a_row_elements = 3, .c = c, .c_row_elements = 2};
    struct dk_engine *engine;
    struct dk_weights *weights;
    struct dk_error error;
    if (dk_engine_new(&options, &engine, &error) != DK_OK ||
        dk_weights_new(engine, &desc, &weights, &error) != DK_OK ||
        dk_workspace_new(engine, dk_workspace_bytes(weights, 2), &call.workspace, &error) != DK_OK ||
        dk_enqueue(weights, &call, &error) != DK_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    int wrong_count = 0;
    for (int i = 0; i < 4; i++) {
        wrong_count += c[i] != wanted[i];
    }
    printf("decomposek %s on %s: %d wrong\n", dk_version(), dk_engine_get_info(engine)->reason, wrong_count);
    dk_workspace_free(engine, call.workspace);
    dk_weights_free(weights);
    dk_engine_free(engine);
    return wrong_count;
}

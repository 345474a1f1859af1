/* fuzz_npy.c: any bytes as an .npy file: parsed without a step outside, and converted when accepted. */
#include <stdlib.h>
#include <string.h>

#include "client/npy.h"

/* Enough for the values of any input the fuzzer makes; a parsed file is never larger than itself, widened. */
enum { MAX_OUT_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dk_npy npy;
    struct dk_error error = {0};
    if (dk_npy_parse(data, size, &npy, &error) != DK_OK) {
        if (error.status == DK_OK || error.message[0] == 0)
            abort(); /* a refusal without a reason */
        return 0;
    }
    if (npy.data_offset > size)
        abort();
    for (int dtype = DK_FP32; dtype <= DK_FP16; dtype++) {
        size_t bytes = (size_t)(npy.rows * npy.cols) * dk_dtype_bytes((dk_dtype)dtype);
        if (bytes > MAX_OUT_BYTES)
            return 0;
        void *out = malloc(bytes > 0 ? bytes : 1);
        if (!out)
            return 0;
        (void)dk_npy_convert(&npy, data, (dk_dtype)dtype, out, &error);
        free(out);
    }
    return 0;
}

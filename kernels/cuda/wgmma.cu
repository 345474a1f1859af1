/* wgmma.cu: the compiled wgmma kernels; recipes of one tile share them. */
#include "kernels/cuda/variant.h"
#include "kernels/cuda/wgmma.cuh"

#define DK_KERNEL(...) reinterpret_cast<const void *>(&__VA_ARGS__)
#define DK_WGMMA_VARIANT(name, groups, tokens, column_tiles, note)                                           \
    {{#name,                                                                                                 \
      DK_FAMILY_WGMMA,                                                                                       \
      {{DK_KERNEL(dk::wgmma_kernel<groups, tokens, false>),                                                  \
        DK_KERNEL(dk::wgmma_kernel<groups, tokens, true>)},                                                  \
       {nullptr, nullptr}},                                                                                  \
      tokens,                                                                                                \
      (groups)*64,                                                                                           \
      16 / (column_tiles),                                                                                   \
      (groups)*4 + 4,                                                                                        \
      0,                                                                                                     \
      true,                                                                                                  \
      true,                                                                                                  \
      0,                                                                                                     \
      note,                                                                                                  \
      0},                                                                                                    \
     column_tiles},

extern "C" const struct dk_wgmma_variant dk_wgmma_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_wgmma_variant_count = sizeof dk_wgmma_variants / sizeof dk_wgmma_variants[0];

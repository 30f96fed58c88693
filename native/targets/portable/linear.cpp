// The linear layer for any CPU.
#include "targets/linear.h"

#include "kernels/linear_body.h"
#include "kernels/linear_quantize.h"
#include "targets/portable/simd.h"

namespace paceline::portable {

void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end) {
  kernels::linear<Simd>(task, tile_begin, tile_end);
}

void quantize(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols, uint8_t* activations,
              int32_t token_begin, int32_t token_end) {
  kernels::quantize<Simd>(x, x_stride, num_tokens, num_cols, activations, token_begin, token_end);
}

}  // namespace paceline::portable

// Defines a target's entry points of the linear layer: included once per target, after its simd.h, by its linear.cpp.
#pragma once
#include "kernels/linear_body.h"
#include "kernels/linear_quantize.h"
#include "targets/linear.h"

namespace paceline::PACELINE_TARGET {

void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end) {
  kernels::linear<Simd>(task, tile_begin, tile_end);
}

void quantize(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols, uint8_t* activations,
              int32_t token_begin, int32_t token_end) {
  kernels::quantize<Simd>(x, x_stride, num_tokens, num_cols, activations, token_begin, token_end);
}

}  // namespace paceline::PACELINE_TARGET

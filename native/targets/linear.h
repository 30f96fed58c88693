// The entry points of a target's linear layer (contracts: paceline/linear.h), compiled apart from its other kernels.
#pragma once
#include "paceline/linear.h"

namespace paceline::PACELINE_TARGET {

void quantize(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols, uint8_t* activations,
              int32_t token_begin, int32_t token_end);
void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end);

}  // namespace paceline::PACELINE_TARGET

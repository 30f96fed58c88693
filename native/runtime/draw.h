// Picking a token from a logits row: greedy, a race over all tokens, or a race over what top-k and top-p leave.
#pragma once
#include <cstdint>

#include "paceline/kernels.h"

namespace paceline {

// How one row is picked; the fields of `Draws` in backends/base.py.
struct DrawParams {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  uint64_t seed;
  int32_t seq_index;
  int32_t position;

  bool is_greedy() const { return temperature < 1e-6f; }
};

// The picked token of n logits, for a row that is not greedy. `scratch` holds n ids.
int32_t draw(const Kernels& kernels, const float* logits, int32_t n, const DrawParams& params, int32_t* scratch);

}  // namespace paceline

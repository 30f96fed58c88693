// Passes over f16, bf16 and f32 weights: w · x in f32, one accumulator per output, channels in ascending order.
//
// Arithmetic intensity: 64 bytes (f32: 128) of weights per channel of a 32-row tile feed 2 multiplies and 2 adds per
// token, so one token is bound by memory and from about 4 tokens on the multipliers are. Two row groups × up to 5
// tokens are 10 independent chains, enough to hide the add's latency; multiply and add are separate for the reason
// given in linear_pass.h.
#pragma once
#include "kernels/linear_pass.h"

namespace paceline::kernels {

// Cycles of a channel of 32 rows per token: two multiplies, two adds beside them, and their share of the conversions.
inline constexpr int kChannelCycles = 3;

// What one float pass works on; the fields that Pass has mean the same.
struct FloatPass {
  Pass pass;
  const float* x;  // token tile's first token, at the run's first channel
  ptrdiff_t x_stride;
  int32_t num_channels;
};

template <class S, PackedType kType>
[[gnu::always_inline]] inline typename S::Float load_numbers(const uint8_t* from) {
  if constexpr (kType == PackedType::f16) {
    return S::load_half(from);
  } else if constexpr (kType == PackedType::bf16) {
    return S::load_bfloat(from);
  } else {
    return S::load(reinterpret_cast<const float*>(from));
  }
}

template <class S, PackedType kType, int kTokens>
void run_float_pass(const FloatPass& task) {
  constexpr int32_t kGroupBytes = kRowGroup * float_bytes(kType);
  FloatSums<S, kTokens> y;
  load_sums<S, kTokens>(task.pass, y);
  const uint8_t* weights = task.pass.weights;
  for (int32_t channel = 0; channel < task.num_channels; ++channel) {
    if constexpr (kOutlastsMemory<2 * kGroupBytes, kChannelCycles * kTokens>)
      prefetch_ahead<S, 2 * kGroupBytes>(weights);
    const typename S::Float low = load_numbers<S, kType>(weights);
    const typename S::Float high = load_numbers<S, kType>(weights + kGroupBytes);
    unroll<kTokens>(PACELINE_EACH {
      const typename S::Float x = S::splat_load(task.x + i * task.x_stride + channel);
      y.at[0][i] = S::add(y.at[0][i], S::multiply(low, x));
      y.at[1][i] = S::add(y.at[1][i], S::multiply(high, x));
    });
    weights += 2 * kGroupBytes;
  }
  store_sums<S, kTokens>(task.pass, y);
}

}  // namespace paceline::kernels

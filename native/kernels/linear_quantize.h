// Activation quantiser: 32 channels to int8, with the sums that the weight types' zero points and mins need.
//
// Written once against a target's Simd; the contract is in paceline/linear.h. Streaming: 128 bytes in, 64 out, about 20
// vector operations per block, so it costs K/32 · ~10 ns per token.
#pragma once
#include "kernels/linear_layout.h"
#include "paceline/linear.h"

namespace paceline::kernels {

template <class S>
[[gnu::always_inline]] inline void quantize_block(const float* x, ActivationBlock* out) {
  constexpr int32_t kInfinityBits = 0x7f800000;
  constexpr float kSmallest = 0x1p-100f;
  const typename S::Float low = S::load(x), high = S::load(x + kRowGroup);
  const int32_t amax_bits = S::max_of(S::magnitude_bits(low), S::magnitude_bits(high));
  const float amax = __builtin_bit_cast(float, amax_bits);
  const bool is_finite = amax_bits < kInfinityBits;
  const bool has_quants = is_finite && amax >= kSmallest;
  out->scale = has_quants ? amax / 127.0f : (is_finite ? 0.0f : __builtin_nanf(""));
  const typename S::Float inverse = S::splat(has_quants ? 127.0f / amax : 0.0f);
  const typename S::Int low_quants = has_quants ? S::round_to_int(S::multiply(low, inverse)) : S::zero_int();
  const typename S::Int high_quants = has_quants ? S::round_to_int(S::multiply(high, inverse)) : S::zero_int();
  S::store_as_bytes(out->quants, low_quants);
  S::store_as_bytes(out->quants + kRowGroup, high_quants);
  const int32_t low_sum = S::sum_of(low_quants), high_sum = S::sum_of(high_quants);
  out->sum = low_sum + high_sum;
  out->scale_sum = out->scale * static_cast<float>(out->sum);
  out->correction[0] = -8 * out->sum;
  out->correction[1] = -16 * out->sum;
  out->correction[2] = -128 * out->sum;
  out->half_correction[0] = -32 * low_sum;
  out->half_correction[1] = -32 * high_sum;
}

template <class S>
[[gnu::always_inline]] inline void quantize(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols,
                                            uint8_t* activations, int32_t token_begin, int32_t token_end) {
  const int32_t num_blocks = num_cols / kQuantBlock;
  for (int32_t token = token_begin; token < token_end; ++token) {
    const TokenTile tile = token_tile_of(num_tokens, token);
    ActivationBlock* out =
        reinterpret_cast<ActivationBlock*>(activations) + activation_index(num_tokens, num_blocks, token, 0);
    for (int32_t block = 0; block < num_blocks; ++block) {
      quantize_block<S>(x + token * x_stride + block * kQuantBlock, out + static_cast<ptrdiff_t>(block) * tile.size);
    }
  }
}

}  // namespace paceline::kernels

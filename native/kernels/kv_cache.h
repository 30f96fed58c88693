// Keys, values and queries as integers: one scale for the channels of a head.
//
//   x ≈ scale · n,  n = round(x · limit / max|x|),  scale = max|x| / limit
//
// The limits are as large as exact sums allow. A score sums head_dim products of key and query, a mix 256 products of
// value and weight: every such sum fits 32 bits. So integer sums have no rounding and no order, on every target.
//
// Keys of 8 bits are rotated before they are rounded: a Hadamard matrix H (of ±1/√d) spreads a channel that is always
// large over all channels, and q·k = Hq·Hk. Values have no such channels.
#pragma once
#include <cmath>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/integer_lanes.h"
#include "paceline/kernels.h"

namespace paceline::kernels {

inline constexpr float kKvLimit = 1e30f;    // what is larger counts as this
inline constexpr float kSmallest = 1e-30f;  // a head whose numbers are all smaller counts as zero
inline constexpr int64_t kSumLimit = 0x7fffffff;

template <class Element>
struct KvElement;

template <>
struct KvElement<int16_t> {
  static constexpr bool kIsRotated = false;
  static constexpr int32_t kValueLimit = 4095;
  // Keys and queries share the bits: limit² · head_dim < 2^31.
  static int32_t key_limit(int32_t head_dim) {
    auto limit = static_cast<int32_t>(std::sqrt(static_cast<double>(kSumLimit) / head_dim));
    return limit < 32767 ? limit : 32767;
  }
  static int32_t query_limit(int32_t head_dim) { return key_limit(head_dim); }
};

template <>
struct KvElement<int8_t> {
  static constexpr bool kIsRotated = true;
  static constexpr int32_t kValueLimit = 127;
  static int32_t key_limit(int32_t) { return 127; }
  static int32_t query_limit(int32_t) { return 32767; }  // 32767 · 127 · 512 < 2^31
};

// The weights of a chunk add up to at most this; the rest is for their rounding.
template <class Element>
inline constexpr float kWeightSumLimit =
    static_cast<float>(kSumLimit / KvElement<Element>::kValueLimit - 2 * kAttentionChunk);
inline constexpr float kWeightLimit = 32767.0f;

// x · H in place, for a power of two of channels.
inline void rotate(float* x, int32_t count) {
  for (int32_t half = 1; half < count; half *= 2) {
    for (int32_t start = 0; start < count; start += 2 * half) {
      for (int32_t i = start; i < start + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  const float factor = 1.0f / std::sqrt(static_cast<float>(count));
  for (int32_t i = 0; i < count; ++i) x[i] *= factor;
}

template <class Element>
inline bool rotates(int32_t head_dim) {
  return KvElement<Element>::kIsRotated && (head_dim & (head_dim - 1)) == 0;
}

// Rounds a head's channels to integers of at most `limit`, padded with zeros to whole registers; returns the scale.
template <class S>
inline float round_head(const float* x, int32_t head_dim, bool is_rotated, int32_t limit, int16_t* quants) {
  float clipped[kMaxHeadDim];
  const auto high = S::set1(kKvLimit), low = S::set1(-kKvLimit);
  for_groups(head_dim, [&](int32_t i, int32_t n) {
    store_group<S>(clipped + i, S::max(S::min(load_group<S>(x + i, n), high), low), n);
  });
  if (is_rotated) rotate(clipped, head_dim);
  auto top = S::set1(0.0f);
  for_groups(head_dim, [&](int32_t i, int32_t n) {
    const auto v = load_group<S>(clipped + i, n);
    top = S::max(S::max(v, S::set1(0.0f) - v), top);
  });
  const float peak = S::reduce_max(top), bound = static_cast<float>(limit);
  const float inverse = peak >= kSmallest ? bound / peak : 0.0f;
  for_groups(head_dim, [&](int32_t i, int32_t n) {
    Pairs<S>::store_i16(quants + i, Pairs<S>::round_to_int(load_group<S>(clipped + i, n) * S::set1(inverse)));
  });
  return peak >= kSmallest ? peak / bound : 0.0f;
}

template <class S, class Element>
void kv_write(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* block) {
  using Limits = KvElement<Element>;
  const int32_t width = padded_head_dim(head_dim);
  int16_t quants[kMaxHeadDim];
  auto* scales = reinterpret_cast<float*>(block);
  auto* keys = reinterpret_cast<Element*>(block + kKvScaleBytes);
  scales[slot] = round_head<S>(k, head_dim, rotates<Element>(head_dim), Limits::key_limit(head_dim), quants);
  for (int32_t d = 0; d < width; d += 2) {
    Element* pair = keys + d * kBlockSize + 2 * slot;
    pair[0] = static_cast<Element>(quants[d]);
    pair[1] = static_cast<Element>(quants[d + 1]);
  }
  Element* values = keys + kBlockSize * width + slot / 2 * 2 * width + slot % 2;
  scales[kBlockSize + slot] = round_head<S>(v, head_dim, false, Limits::kValueLimit, quants);
  for (int32_t d = 0; d < width; ++d) values[2 * d] = static_cast<Element>(quants[d]);
}

}  // namespace paceline::kernels

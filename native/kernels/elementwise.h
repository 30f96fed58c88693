// Kernels that visit each number of a row once: norms, rope, gates, sums. All are bound by memory or latency, not by
// arithmetic; what matters here is a fixed order of sums and no wasted passes.
#pragma once
#include <cmath>

#include "kernels/functions.h"
#include "paceline/kernels.h"

namespace paceline::kernels {

// Calls body(i, n) for each group of n <= 16 adjacent items; n < 16 only for the last.
template <class Body>
inline void for_groups(int32_t count, Body body) {
  int32_t i = 0;
  for (; i + 16 <= count; i += 16) body(i, 16);
  if (i < count) body(i, count - i);
}

template <class S>
inline typename S::Vec load_group(const float* p, int32_t n) {
  return n == 16 ? S::load(p) : S::load_some(p, n);
}

template <class S>
inline void store_group(float* p, typename S::Vec v, int32_t n) {
  if (n == 16) {
    S::store(p, v);
  } else {
    S::store_some(p, v, n);
  }
}

// Four accumulators hide the latency of the adds; group g always goes to accumulator g % 4.
template <class S>
void rms_norm(const float* x, const float* weight, float eps, int32_t n, float* y) {
  using Vec = typename S::Vec;
  Vec sums[4] = {S::set1(0.0f), S::set1(0.0f), S::set1(0.0f), S::set1(0.0f)};
  for_groups(n, [&](int32_t i, int32_t count) {
    const Vec v = load_group<S>(x + i, count);
    Vec& sum = sums[i / 16 % 4];
    sum = S::fma(v, v, sum);
  });
  const float square_sum = S::reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
  const Vec factor = S::set1(1.0f / std::sqrt(square_sum / static_cast<float>(n) + eps));
  for_groups(n, [&](int32_t i, int32_t count) {
    store_group<S>(y + i, load_group<S>(x + i, count) * factor * load_group<S>(weight + i, count), count);
  });
}

template <class S>
void rope(const float* x, const float* angles, int32_t dim, int32_t head_dim, float* y) {
  const int32_t half = dim / 2;
  const float* sines = angles + half;
  for_groups(half, [&](int32_t i, int32_t n) {
    const auto cosine = load_group<S>(angles + i, n), sine = load_group<S>(sines + i, n);
    const auto first = load_group<S>(x + i, n), second = load_group<S>(x + half + i, n);
    store_group<S>(y + i, first * cosine - second * sine, n);
    store_group<S>(y + half + i, second * cosine + first * sine, n);
  });
  if (x != y) {
    for (int32_t i = dim; i < head_dim; ++i) y[i] = x[i];
  }
}

template <class S>
inline typename S::Vec activate(typename S::Vec x, Activation activation) {
  if (activation == Activation::silu) return x * logistic<S>(x);
  // 0.5·x·(1 + tanh(u)) = x·logistic(2u), u = sqrt(2/π)·(x + 0.044715·x³)
  const auto inner = x * S::fma(x * x, S::set1(0.0713548163f), S::set1(1.59576912f));
  return x * logistic<S>(inner);
}

template <class S>
void gated(const float* gate, const float* up, Activation activation, int32_t n, float* y) {
  for_groups(n, [&](int32_t i, int32_t count) {
    store_group<S>(y + i, activate<S>(load_group<S>(gate + i, count), activation) * load_group<S>(up + i, count),
                   count);
  });
}

template <class S>
void add(const float* a, const float* b, int32_t n, float* y) {
  for_groups(n, [&](int32_t i, int32_t count) {
    store_group<S>(y + i, load_group<S>(a + i, count) + load_group<S>(b + i, count), count);
  });
}

template <class S>
void scale(const float* x, float factor, int32_t n, float* y) {
  for_groups(n, [&](int32_t i, int32_t count) {
    store_group<S>(y + i, load_group<S>(x + i, count) * S::set1(factor), count);
  });
}

template <class S>
void softcap(const float* x, float cap, int32_t n, float* y) {
  const auto inverse = S::set1(1.0f / cap);
  for_groups(n, [&](int32_t i, int32_t count) {
    store_group<S>(y + i, tanh<S>(load_group<S>(x + i, count) * inverse) * S::set1(cap), count);
  });
}

}  // namespace paceline::kernels

// Scans over a logits row: the greedy argmax, and the Gumbel race that draws a token.
//
// Naive race: noise for each of V tokens, two logarithms in double precision each: 3 ms for 50,000 tokens.
// Here the noise of 64 tokens is made at once as raw words, and one comparison in single precision drops almost all:
// a token at distance x below the leader wins only if −log(−log u) > −x; since −log u >= 1 − u that needs 1 − u < e^x.
// The number of tokens that pass is about Σ e^x, a handful; only they are computed exactly, in double, as the reference
// does.
#pragma once
#include <limits>

#include "kernels/elementwise.h"
#include "paceline/philox.h"

namespace paceline::kernels {

template <class S>
float largest(const float* x, int32_t begin, int32_t end) {
  auto top = S::set1(-std::numeric_limits<float>::infinity());
  int32_t i = begin;
  for (; i + 16 <= end; i += 16) top = S::max(S::load(x + i), top);
  float best = S::reduce_max(top);
  for (; i < end; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

template <class S>
Best argmax(const float* logits, int32_t begin, int32_t end) {
  const float best = largest<S>(logits, begin, end);
  for (int32_t i = begin; i < end; ++i) {
    if (logits[i] == best) return {best, i};
  }
  return {-std::numeric_limits<float>::infinity(), begin};
}

template <class S>
int32_t collect(const float* logits, int32_t n, float floor, int32_t* ids) {
  int32_t count = 0;
  for (int32_t i = 0; i < n; i += 64) {
    const int32_t end = i + 64 < n ? i + 64 : n;
    if (largest<S>(logits, i, end) < floor) continue;
    for (int32_t j = i; j < end; ++j) {
      if (logits[j] >= floor) ids[count++] = j;
    }
  }
  return count;
}

template <class S>
double far_mass(const float* logits, int32_t n, float floor, float peak, float inverse_temperature) {
  double mass = 0.0;
  const auto border = S::set1(floor), top = S::set1(peak), factor = S::set1(inverse_temperature);
  const auto zero = S::set1(0.0f);
  int32_t i = 0;
  for (; i + 64 <= n; i += 64) {
    auto sum = zero;
    for (int32_t j = i; j < i + 64; j += 16) {
      const auto v = S::load(logits + j);
      sum = sum + S::select_ge(v, border, zero, exp<S>((v - top) * factor));
    }
    mass += static_cast<double>(S::reduce_add(sum));
  }
  for (; i < n; ++i) {
    if (logits[i] < floor)
      mass += std::exp(static_cast<double>(logits[i] - peak) * static_cast<double>(inverse_temperature));
  }
  return mass;
}

// Who leads a race, and how to challenge: exactly the reference's arithmetic.
struct Leader {
  double value;
  int32_t id;
  double peak;  // peak / temperature

  void challenge(const Race& race, float logit, int32_t token, uint32_t word) {
    const double scaled = static_cast<double>(logit) / race.temperature;
    const double weight = std::exp(scaled - peak);
    if (!(weight >= race.min_p && weight > 0.0)) return;
    const double score = scaled + gumbel(word);
    if (score > value) {
      value = score;
      id = token;
    }
  }
};

template <class S>
int32_t race(const float* logits, int32_t n, const Race& race) {
  constexpr float kMaxNoise = 22.9f;
  const NoiseKey key{race.seed, race.seq_index, race.position};
  const float inverse = static_cast<float>(1.0 / race.temperature);
  const double peak = static_cast<double>(race.peak) / race.temperature;
  Leader leader{-std::numeric_limits<double>::infinity(), 0, peak};
  float lead = -3.2f;  // the leader's score above `peak`; the likeliest token itself will score more than this
  float padded[64];
  uint32_t words[64];
  for (int32_t i = 0; i < n; i += 64) {
    const float* group = logits + i;
    const int32_t count = n - i < 64 ? n - i : 64;
    if ((largest<S>(group, 0, count) - race.peak) * inverse + kMaxNoise < lead) continue;
    if (count < 64) {
      for (int32_t j = 0; j < 64; ++j) padded[j] = j < count ? group[j] : -std::numeric_limits<float>::infinity();
      group = padded;
    }
    philox<16>(static_cast<uint32_t>(i) / 4, key, words);
    float chance[64], needed[64];
    for (int32_t j = 0; j < 64; ++j) chance[j] = 2.0f * static_cast<float>(static_cast<int32_t>(~words[j] >> 1));
    // 1 − u < e^x with room for every rounding: |x| <= 26 carries an error below 1e-5.
    for (int32_t j = 0; j < 64; j += 16) {
      const auto x = (S::load(group + j) - S::set1(race.peak)) * S::set1(inverse) - S::set1(lead);
      S::store(needed + j, exp<S>(x) * S::set1(4294967296.0f * 1.001f) + S::set1(4.0f));
    }
    for (int32_t j = 0; j < 64; ++j) {
      if (chance[j] > needed[j] || j >= count) continue;
      leader.challenge(race, group[j], i + j, words[j]);
    }
    const auto above = static_cast<float>(leader.value - peak);
    lead = above > lead ? above : lead;
  }
  return leader.id;
}

}  // namespace paceline::kernels

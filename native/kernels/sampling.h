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

// The words of 64 tokens from `first` (a multiple of 64), in token order: words[v] has tokens first + 16v ….
//
// One counter makes the words of four tokens, so lane l's counter is chosen such that transposing 4 × 4 squares in
// place brings the words into order: square j of the lanes counts first/4 + j, + 4, + 8, + 12.
template <class S>
inline void philox_words(int32_t first, const NoiseKey& key, typename S::Counters* words) {
  using Counters = typename S::Counters;
  alignas(64) uint32_t counts[16];
  for (int32_t lane = 0; lane < 16; ++lane) counts[lane] = static_cast<uint32_t>(first / 4 + lane % 4 * 4 + lane / 4);
  Counters c0 = S::load_words(counts), c1 = S::set1_word(static_cast<uint32_t>(key.position));
  Counters c2 = S::set1_word(static_cast<uint32_t>(key.seq_index)), c3 = S::set1_word(0);
  auto key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int32_t round = 0; round < kPhiloxRounds; ++round) {
    Counters high0, high1;
    const Counters low0 = S::multiply_wide(c0, kPhiloxFactors[0], high0);
    const Counters low1 = S::multiply_wide(c2, kPhiloxFactors[1], high1);
    c0 = high1 ^ c1 ^ S::set1_word(key0);
    c2 = high0 ^ c3 ^ S::set1_word(key1);
    c1 = low1;
    c3 = low0;
    key0 += kPhiloxSteps[0];
    key1 += kPhiloxSteps[1];
  }
  S::transpose_squares(c0, c1, c2, c3);
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

template <class S>
int32_t race(const float* logits, int32_t n, const Race& race) {
  constexpr float kMaxNoise = 22.9f;
  const NoiseKey key{race.seed, race.seq_index, race.position};
  const float inverse = static_cast<float>(1.0 / race.temperature);
  const double peak = static_cast<double>(race.peak) / race.temperature;
  Leader leader{-std::numeric_limits<double>::infinity(), 0, peak};
  float lead = -3.2f;  // the leader's score above `peak`; the likeliest token itself will score more than this
  const auto one = S::set1(1.0f), zero = S::set1(0.0f), top = S::set1(race.peak), factor = S::set1(inverse);
  alignas(64) float padded[64];
  for (int32_t i = 0; i < n; i += 64) {
    const float* group = logits + i;
    const int32_t count = n - i < 64 ? n - i : 64;
    if (count < 64) {
      for (int32_t j = 0; j < 64; ++j) padded[j] = j < count ? group[j] : -std::numeric_limits<float>::infinity();
      group = padded;
    }
    if ((largest<S>(group, 0, 64) - race.peak) * inverse + kMaxNoise < lead) continue;
    typename S::Counters words[4];
    philox_words<S>(i, key, words);
    // A challenger needs 1 − u < e^x: 2^32 − word < 2^32 · e^x, with room for every rounding (|x| <= 26 carries an
    // error below 1e-5, a word as a float one of 2^8).
    auto challengers = zero;
    for (int32_t v = 0; v < 4; ++v) {
      const auto x = (S::load(group + 16 * v) - top) * factor - S::set1(lead);
      const auto needed = exp<S>(x) * S::set1(4294967296.0f * 1.001f) + S::set1(512.0f);
      const auto chance = S::set1(4294967296.0f) - S::to_float(words[v]);
      challengers = challengers + S::select_ge(needed, chance, one, zero);
    }
    if (!(S::reduce_add(challengers) > 0.0f)) continue;
    // Rare enough to look at all 64 again, one by one; the leader only grows, so none of the dropped could win.
    for (int32_t j = 0; j < count; ++j) {
      const float x = (group[j] - race.peak) * inverse - lead;
      if (x + kMaxNoise >= 0.0f) leader.challenge(race, group[j], i + j, philox_word(i + j, key));
    }
    const auto above = static_cast<float>(leader.value - peak);
    lead = above > lead ? above : lead;
  }
  return leader.id;
}

}  // namespace paceline::kernels

// Counter-based randomness: the noise of a token is a pure function of (seed, sequence index, position, token id).
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", §4.3 (Philox4x32-10).
#pragma once
#include <cmath>
#include <cstdint>

namespace paceline {

// What `race` and the filters know about a row's randomness.
struct NoiseKey {
  uint64_t seed;
  int32_t seq_index;
  int32_t position;
};

// Words of N consecutive counters (first, first + 1 …): words[4 · i + w]. Plain loops over lanes, for the vectoriser.
template <int32_t N>
inline void philox(uint32_t first, const NoiseKey& key, uint32_t* words) {
  uint32_t c0[N], c1[N], c2[N], c3[N];
  for (int32_t i = 0; i < N; ++i) {
    c0[i] = first + static_cast<uint32_t>(i);
    c1[i] = static_cast<uint32_t>(key.position);
    c2[i] = static_cast<uint32_t>(key.seq_index);
    c3[i] = 0;
  }
  auto key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int32_t round = 0; round < 10; ++round) {
    for (int32_t i = 0; i < N; ++i) {
      const uint64_t product0 = uint64_t{0xD2511F53u} * c0[i], product1 = uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = static_cast<uint32_t>(product1 >> 32) ^ c1[i] ^ key0;
      c2[i] = static_cast<uint32_t>(product0 >> 32) ^ c3[i] ^ key1;
      c1[i] = static_cast<uint32_t>(product1);
      c3[i] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (int32_t i = 0; i < N; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

// Gumbel noise of a word: −log(−log((word + 0.5) · 2⁻³²)), between −3.14 and 22.9.
inline double gumbel(uint32_t word) { return -std::log(-std::log((word + 0.5) * 0x1p-32)); }

}  // namespace paceline

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

inline constexpr uint32_t kPhiloxFactors[2] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr uint32_t kPhiloxSteps[2] = {0x9E3779B9u, 0xBB67AE85u};
inline constexpr int32_t kPhiloxRounds = 10;

// The word of one token.
inline uint32_t philox_word(int32_t token, const NoiseKey& key) {
  uint32_t c[4] = {static_cast<uint32_t>(token) / 4, static_cast<uint32_t>(key.position),
                   static_cast<uint32_t>(key.seq_index), 0};
  auto key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
  for (int32_t round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxFactors[0]} * c[0], product1 = uint64_t{kPhiloxFactors[1]} * c[2];
    c[0] = static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0;
    c[2] = static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1;
    c[1] = static_cast<uint32_t>(product1);
    c[3] = static_cast<uint32_t>(product0);
    key0 += kPhiloxSteps[0];
    key1 += kPhiloxSteps[1];
  }
  return c[static_cast<uint32_t>(token) % 4];
}

// Gumbel noise of a word: −log(−log((word + 0.5) · 2⁻³²)), between −3.14 and 22.9.
inline double gumbel(uint32_t word) { return -std::log(-std::log((word + 0.5) * 0x1p-32)); }

}  // namespace paceline

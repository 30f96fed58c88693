// Vectors on AVX2, with and without VNNI: thin names for instructions, 8 lanes of one register each, and the 16 lanes
// of the activation quantiser as two of them. The bits are the portable target's.
//
// Without VNNI a dot is vpmaddubsw (pairs of products, summed in 16 bits, saturating), vpmaddwd by 1 (32 bits) and an
// add. The second and third are shared by as many dots as 16 bits can hold: of 4 products each
//
//   4 bit  8 · 2 · 15 · 127 = 30,480   a whole block of 32 channels
//   5 bit  4 · 2 · 31 · 127 = 31,496
//   6 bit  2 · 2 · 63 · 127 = 32,004
//   8 bit  1 · 2 · 128 · 127 = 32,512  as |w| · (x with w's sign): unsigned, 255 · 127 · 2 would saturate
//
// so 4 bits cost 9/8 instructions of the multipliers a dot, 8 bits three. With VNNI a dot is one vpdpbusd.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "targets/pair.h"

namespace paceline::PACELINE_TARGET {

// AVX-VNNI, or the same instruction as AVX-512 encodes it: so the tests can run it on CPUs that have only the latter.
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
#define PACELINE_HAS_DOTS
#endif

#define PACELINE_INLINE [[gnu::always_inline]] static inline

struct Narrow {
  using Float = __m256;
  struct Int {  // a struct, so that overloads tell integers from bytes
    __m256i v;
  };
  struct Bytes {
    __m256i v;
  };

  // Memory.
  PACELINE_INLINE Float load(const float* from) { return _mm256_loadu_ps(from); }
  PACELINE_INLINE Float load_some(const float* from, int32_t count) { return _mm256_maskload_ps(from, first(count)); }
  PACELINE_INLINE void store(float* to, Float value) { _mm256_storeu_ps(to, value); }
  PACELINE_INLINE void store_some(float* to, Float value, int32_t count) {
    _mm256_maskstore_ps(to, first(count), value);
  }
  PACELINE_INLINE Bytes load_bytes(const uint8_t* from) {
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(from))};
  }
  PACELINE_INLINE Float splat(float value) { return _mm256_set1_ps(value); }
  PACELINE_INLINE Float splat_load(const float* from) { return _mm256_broadcast_ss(from); }
  PACELINE_INLINE Int splat_load_int(const void* from) {
    int32_t value;
    __builtin_memcpy(&value, from, sizeof(value));
    return {_mm256_set1_epi32(value)};
  }
  PACELINE_INLINE Float zero() { return _mm256_setzero_ps(); }
  PACELINE_INLINE Int zero_int() { return {_mm256_setzero_si256()}; }
  PACELINE_INLINE Float load_half(const uint8_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  PACELINE_INLINE Float load_bfloat(const uint8_t* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  PACELINE_INLINE Int load_unsigned(const uint8_t* from) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
  }
  PACELINE_INLINE Int load_signed(const uint8_t* from) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
  }

  // Arithmetic: each operation rounds once.
  PACELINE_INLINE Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  PACELINE_INLINE Float subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
  PACELINE_INLINE Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  PACELINE_INLINE Int add(Int a, Int b) { return {_mm256_add_epi32(a.v, b.v)}; }
  PACELINE_INLINE Float to_float(Int a) { return _mm256_cvtepi32_ps(a.v); }

#ifdef PACELINE_HAS_DOTS
  static constexpr bool kHasSignedWeights = false;
  template <int kBits>
  static constexpr int kDotsPerFold = 0;
  // vpdpbusd, not vpdpbusds: no saturation anywhere.
  PACELINE_INLINE Int dot(Int sums, Bytes weights, Int activations) {
    return {_mm256_dpbusd_epi32(sums.v, weights.v, activations.v)};
  }
#else
  static constexpr bool kHasSignedWeights = true;
  template <int kBits>
  static constexpr int kDotsPerFold = kBits == 4 ? 8 : (kBits == 5 ? 4 : (kBits == 6 ? 2 : 1));
  struct Pairs {  // 16 × i16, each the sum of pairs of products
    __m256i v;
  };
  template <int kBits>
  PACELINE_INLINE Pairs dot_pairs(Bytes weights, Int activations) {
    if constexpr (kBits < 8) return {_mm256_maddubs_epi16(weights.v, activations.v)};
    return {_mm256_maddubs_epi16(_mm256_abs_epi8(weights.v), _mm256_sign_epi8(activations.v, weights.v))};
  }
  PACELINE_INLINE Pairs add(Pairs a, Pairs b) { return {_mm256_add_epi16(a.v, b.v)}; }
  PACELINE_INLINE Int fold(Int sums, Pairs pairs) {
    return {_mm256_add_epi32(sums.v, _mm256_madd_epi16(pairs.v, _mm256_set1_epi16(1)))};
  }
#endif

  // Bit fields of packed quants. What a shift brings into a byte's high bits is not specified: mask it.
  template <int kShift>
  PACELINE_INLINE Bytes shift_right(Bytes a) {
    return {_mm256_srli_epi16(a.v, kShift)};
  }
  template <uint8_t kMask>
  PACELINE_INLINE Bytes keep(Bytes a) {
    return {_mm256_and_si256(a.v, _mm256_set1_epi8(static_cast<char>(kMask)))};
  }
  template <uint8_t kMask>
  PACELINE_INLINE Bytes blend(Bytes a, Bytes b) {  // kMask's bits of a, the others of b
    const __m256i mask = _mm256_set1_epi8(static_cast<char>(kMask));
    return {_mm256_or_si256(_mm256_and_si256(a.v, mask), _mm256_andnot_si256(mask, b.v))};
  }
  template <uint8_t kMask>
  PACELINE_INLINE Bytes flip(Bytes a) {
    return {_mm256_xor_si256(a.v, _mm256_set1_epi8(static_cast<char>(kMask)))};
  }

  // Quantising.
  PACELINE_INLINE Int magnitude_bits(Float a) {
    return {_mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff))};
  }
  PACELINE_INLINE Int max(Int a, Int b) { return {_mm256_max_epi32(a.v, b.v)}; }
  PACELINE_INLINE int32_t max_of(Int a) {
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
    const __m128i two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 1)));
  }
  PACELINE_INLINE int32_t sum_of(Int a) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
    const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
  }
  // Nearest, ties to even: the mode that the control register has and nobody changes.
  PACELINE_INLINE Int round_to_int(Float a) { return {_mm256_cvtps_epi32(a)}; }
  PACELINE_INLINE void store_as_bytes(int8_t* to, Int a) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
  }

 private:
  PACELINE_INLINE __m256i first(int32_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

#undef PACELINE_INLINE

struct Simd : PairOf<Narrow> {
  using Narrow = PACELINE_TARGET::Narrow;  // the linear kernels work on 8 rows at a time …
  static constexpr int kMaxTokens = 5;     // … and this many tokens: their sums fit 16 registers

  // Into the L2 cache.
  [[gnu::always_inline]] static inline void prefetch(const void* address) {
    _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T1);
  }
};

}  // namespace paceline::PACELINE_TARGET

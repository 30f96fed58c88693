// Sixteen float lanes in two AVX2 registers.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "targets/pair.h"

namespace paceline::PACELINE_TARGET {

struct EightLanes {
  using Vec = __m256;
  using Counters = __m256i;  // 8 × u32

  static Vec set1(float x) { return _mm256_set1_ps(x); }
  static Vec load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
  static Vec load_some(const float* p, int32_t n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store_some(float* p, Vec v, int32_t n) { _mm256_maskstore_ps(p, mask(n), v); }

  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec subtract(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec multiply(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec divide(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  // The second operand where either is NaN.
  static Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  static Vec select_ge(Vec a, Vec b, Vec x, Vec y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GE_OQ)); }
  static Vec copy_sign(Vec magnitude, Vec sign) {
    const __m256 mask = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(mask, magnitude), _mm256_and_ps(mask, sign));
  }
  static Vec round(Vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Vec scale_by_power(Vec x, Vec n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(exponent));
  }

  static Vec load_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store_f16(uint16_t* p, Vec v) {
    const __m128i half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), half);
  }

  static float reduce_add(Vec v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float reduce_max(Vec v) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  static Counters set1_word(uint32_t x) { return _mm256_set1_epi32(static_cast<int32_t>(x)); }
  static Counters load_words(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store_words(uint32_t* p, Counters v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  static Counters exclusive_or(Counters a, Counters b) { return _mm256_xor_si256(a, b); }
  // The low half of each 64-bit product; the high half to `high`.
  static Counters multiply_wide(Counters a, uint32_t factor, Counters& high) {
    const __m256i factors = _mm256_set1_epi64x(factor);
    const __m256i even = _mm256_mul_epu32(a, factors), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factors);
    high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  }
  // Rows a, b, c, d of 4 × 4 squares, two squares side by side, transposed in place.
  static void transpose_squares(Counters& a, Counters& b, Counters& c, Counters& d) {
    const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
    const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
    a = _mm256_unpacklo_epi64(ab_low, cd_low);
    b = _mm256_unpackhi_epi64(ab_low, cd_low);
    c = _mm256_unpacklo_epi64(ab_high, cd_high);
    d = _mm256_unpackhi_epi64(ab_high, cd_high);
  }
  // The words as numbers, to 24 bits: the halves of 16 bits are exact, their sum rounds once.
  static Vec to_float(Counters a) {
    const __m256 high = _mm256_cvtepi32_ps(_mm256_srli_epi32(a, 16));
    const __m256 low = _mm256_cvtepi32_ps(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)));
    return _mm256_add_ps(_mm256_mul_ps(high, _mm256_set1_ps(65536.0f)), low);
  }

 private:
  static __m256i mask(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

struct Lanes : LanesOf<EightLanes> {
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
};

}  // namespace paceline::PACELINE_TARGET

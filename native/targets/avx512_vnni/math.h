// Sixteen float lanes in one AVX-512 register.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace paceline::avx512_vnni {

struct PairLanes;

struct Lanes {
  using Vec = __m512;
  using Pairs = PairLanes;
  using Counters = __m512i;  // 16 × u32

  static Vec set1(float x) { return _mm512_set1_ps(x); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }

  // The first n < 16 lanes; the others are zero.
  static Vec load_some(const float* p, int32_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_some(float* p, Vec v, int32_t n) { _mm512_mask_storeu_ps(p, mask(n), v); }

  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  // The second operand where either is NaN.
  static Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  // x where a >= b, else y.
  static Vec select_ge(Vec a, Vec b, Vec x, Vec y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), y, x);
  }
  static Vec copy_sign(Vec magnitude, Vec sign) {
    const __m512 mask = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int32_t>(0x80000000u)));
    return _mm512_or_ps(_mm512_andnot_ps(mask, magnitude), _mm512_and_ps(mask, sign));
  }
  // Nearest integer, ties to even.
  static Vec round(Vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // x · 2^n for integral n in [-126, 127].
  static Vec scale_by_power(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }

  static Vec load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_f16(uint16_t* p, Vec v) {
    const __m256i half = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
  }

  static float reduce_add(Vec v) { return _mm512_reduce_add_ps(v); }
  static float reduce_max(Vec v) { return _mm512_reduce_max_ps(v); }

  static Counters set1_word(uint32_t x) { return _mm512_set1_epi32(static_cast<int32_t>(x)); }
  static Counters load_words(const uint32_t* p) { return _mm512_loadu_si512(p); }
  static void store_words(uint32_t* p, Counters v) { _mm512_storeu_si512(p, v); }
  // The low half of each 64-bit product; the high half to `high`.
  static Counters multiply_wide(Counters a, uint32_t factor, Counters& high) {
    const __m512i factors = _mm512_set1_epi64(factor);
    const __m512i even = _mm512_mul_epu32(a, factors), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factors);
    high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    return _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
  }
  // Rows a, b, c, d of 4 × 4 squares, four squares side by side, transposed in place.
  static void transpose_squares(Counters& a, Counters& b, Counters& c, Counters& d) {
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    a = _mm512_unpacklo_epi64(ab_low, cd_low);
    b = _mm512_unpackhi_epi64(ab_low, cd_low);
    c = _mm512_unpacklo_epi64(ab_high, cd_high);
    d = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
  // The words as numbers, to 24 bits.
  static Vec to_float(Counters a) { return _mm512_cvtepu32_ps(a); }

  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

 private:
  static __mmask16 mask(int32_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
};

// Sixteen pairs of 16-bit integers in one register; the contract of each function is kernels/integer_lanes.h's.
struct PairLanes {
  using Vec = __m512;
  using Ints = __m512i;
  static Ints zero() { return _mm512_setzero_si512(); }
  static Ints load_pairs(const int16_t* p) { return _mm512_loadu_si512(p); }
  static Ints load_pairs(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Ints broadcast_pair(const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  // sums + a's first · b's first + a's second · b's second; the caller keeps it below 2^31.
  // In assembler because gcc 12 copies and spills the sums of the intrinsic when there are many.
  static Ints dot_pairs(Ints sums, Ints a, Ints b) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
  }
  static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static int32_t reduce_add(Ints a) { return _mm512_reduce_add_epi32(a); }
  static Vec to_float(Ints a) { return _mm512_cvtepi32_ps(a); }
  // Nearest, ties to even, for |x| < 2^31.
  static Ints round_to_int(Vec x) { return _mm512_cvtps_epi32(x); }
  // The 16 integers, each within 16 bits.
  static void store_i16(int16_t* p, Ints a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
  }
  // a in the lanes [begin, end) of 0 … 16, b elsewhere.
  static Vec select_lanes(int32_t begin, int32_t end, Vec a, Vec b) {
    const uint32_t lanes = ((1u << end) - 1u) & ~((1u << begin) - 1u);
    return _mm512_mask_blend_ps(static_cast<__mmask16>(lanes), b, a);
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
};

}  // namespace paceline::avx512_vnni

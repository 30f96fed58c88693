// Vectors of 16 lanes on AVX-512 with VNNI: thin names for instructions. The contract of each function is the
// portable target's (targets/portable/simd.h); the bits are the same.
#pragma once
// gcc 12 warns about its own headers' deliberately undefined values (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace paceline::avx512_vnni {

#define PACELINE_INLINE [[gnu::always_inline]] static inline

struct Simd {
  static constexpr int kMaxTokens = 5;  // tokens whose sums a pass can hold

  using Float = __m512;
  struct Int {  // a struct, so that overloads tell integers from bytes
    __m512i v;
  };
  struct Bytes {
    __m512i v;
  };

  // Memory.
  PACELINE_INLINE void prefetch(const void* address) { _mm_prefetch(address, _MM_HINT_T1); }
  PACELINE_INLINE Float load(const float* from) { return _mm512_loadu_ps(from); }
  PACELINE_INLINE Float load_some(const float* from, int32_t count) {
    return _mm512_maskz_loadu_ps(first(count), from);
  }
  PACELINE_INLINE void store(float* to, Float value) { _mm512_storeu_ps(to, value); }
  PACELINE_INLINE void store_some(float* to, Float value, int32_t count) {
    _mm512_mask_storeu_ps(to, first(count), value);
  }
  PACELINE_INLINE Bytes load_bytes(const uint8_t* from) { return {_mm512_load_si512(from)}; }
  PACELINE_INLINE Float splat(float value) { return _mm512_set1_ps(value); }
  PACELINE_INLINE Float splat_load(const float* from) { return _mm512_set1_ps(*from); }
  PACELINE_INLINE Int splat_load_int(const void* from) {
    int32_t value;
    __builtin_memcpy(&value, from, sizeof(value));
    return {_mm512_set1_epi32(value)};
  }
  PACELINE_INLINE Float zero() { return _mm512_setzero_ps(); }
  PACELINE_INLINE Int zero_int() { return {_mm512_setzero_si512()}; }
  PACELINE_INLINE Float load_half(const uint8_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  PACELINE_INLINE Float load_bfloat(const uint8_t* from) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  PACELINE_INLINE Int load_unsigned(const uint8_t* from) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  }
  PACELINE_INLINE Int load_signed(const uint8_t* from) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  }

  // Arithmetic: each operation rounds once.
  PACELINE_INLINE Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  PACELINE_INLINE Float subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
  PACELINE_INLINE Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  PACELINE_INLINE Int add(Int a, Int b) { return {_mm512_add_epi32(a.v, b.v)}; }
  PACELINE_INLINE Int multiply(Int a, Int b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
  PACELINE_INLINE Float to_float(Int a) { return _mm512_cvtepi32_ps(a.v); }
  // vpdpbusd, not vpdpbusds: no saturation anywhere.
  PACELINE_INLINE Int dot(Int sums, Bytes weights, Int activations) {
    return {_mm512_dpbusd_epi32(sums.v, weights.v, activations.v)};
  }

  // Bit fields of packed quants. Shifts and masks, no gf2p8affine: on Zen 4 that takes the dot products' ports.
  template <int kShift>
  PACELINE_INLINE Bytes shift_right(Bytes a) {
    return {_mm512_srli_epi16(a.v, kShift)};
  }
  template <uint8_t kMask>
  PACELINE_INLINE Bytes keep(Bytes a) {
    return {_mm512_and_si512(a.v, _mm512_set1_epi8(kMask))};
  }
  template <uint8_t kMask>
  PACELINE_INLINE Bytes blend(Bytes a, Bytes b) {  // one vpternlog: 0xCA is mask ? a : b
    return {_mm512_ternarylogic_epi32(_mm512_set1_epi8(kMask), a.v, b.v, 0xCA)};
  }

  // Quantising.
  PACELINE_INLINE Int magnitude_bits(Float a) {
    return {_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff))};
  }
  PACELINE_INLINE int32_t max_of(Int a, Int b) { return _mm512_reduce_max_epi32(_mm512_max_epi32(a.v, b.v)); }
  PACELINE_INLINE int32_t sum_of(Int a) { return _mm512_reduce_add_epi32(a.v); }
  PACELINE_INLINE Int round_to_int(Float a) {
    return {_mm512_cvt_roundps_epi32(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  PACELINE_INLINE void store_as_bytes(int8_t* to, Int a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(a.v));
  }

 private:
  PACELINE_INLINE __mmask16 first(int32_t count) { return static_cast<__mmask16>((1u << count) - 1); }
};

#undef PACELINE_INLINE

}  // namespace paceline::avx512_vnni

// Sixteen lanes as two vectors of eight, for targets whose registers hold no more: what the activation quantiser needs,
// and `Lanes` arithmetic. No code of one target may end up in another, so everything is a template over a target's own
// type.
#pragma once
#include <cstdint>

namespace paceline {

#define PACELINE_INLINE [[gnu::always_inline]] static inline

// 16 lanes of the target whose 8 are N. The contract of each function is the portable target's (simd.h there).
template <class N>
struct PairOf {
  struct Float {
    typename N::Float low, high;
  };
  struct Int {
    typename N::Int low, high;
  };

  PACELINE_INLINE Float load(const float* from) { return {N::load(from), N::load(from + 8)}; }
  PACELINE_INLINE Float splat(float value) { return {N::splat(value), N::splat(value)}; }
  PACELINE_INLINE Float multiply(Float a, Float b) { return {N::multiply(a.low, b.low), N::multiply(a.high, b.high)}; }
  PACELINE_INLINE Int zero_int() { return {N::zero_int(), N::zero_int()}; }
  PACELINE_INLINE Int magnitude_bits(Float a) { return {N::magnitude_bits(a.low), N::magnitude_bits(a.high)}; }
  PACELINE_INLINE int32_t max_of(Int a, Int b) {
    return N::max_of(N::max(N::max(a.low, a.high), N::max(b.low, b.high)));
  }
  PACELINE_INLINE int32_t sum_of(Int a) { return N::sum_of(N::add(a.low, a.high)); }
  PACELINE_INLINE Int round_to_int(Float a) { return {N::round_to_int(a.low), N::round_to_int(a.high)}; }
  PACELINE_INLINE void store_as_bytes(int8_t* to, Int a) {
    N::store_as_bytes(to, a.low);
    N::store_as_bytes(to + 8, a.high);
  }
};

// 16 float lanes of the target whose 8 are `L` (set1, load, …, and operators on its Vec). The contract of each function
// is the portable target's (math.h there).
template <class L>
struct LanesOf {
  struct Vec {
    typename L::Vec low, high;
    friend Vec operator+(Vec a, Vec b) { return {L::add(a.low, b.low), L::add(a.high, b.high)}; }
    friend Vec operator-(Vec a, Vec b) { return {L::subtract(a.low, b.low), L::subtract(a.high, b.high)}; }
    friend Vec operator*(Vec a, Vec b) { return {L::multiply(a.low, b.low), L::multiply(a.high, b.high)}; }
    friend Vec operator/(Vec a, Vec b) { return {L::divide(a.low, b.low), L::divide(a.high, b.high)}; }
  };
  struct Counters {
    typename L::Counters low, high;
    friend Counters operator^(Counters a, Counters b) {
      return {L::exclusive_or(a.low, b.low), L::exclusive_or(a.high, b.high)};
    }
  };

  PACELINE_INLINE Vec set1(float x) { return {L::set1(x), L::set1(x)}; }
  PACELINE_INLINE Vec load(const float* p) { return {L::load(p), L::load(p + 8)}; }
  PACELINE_INLINE void store(float* p, Vec v) {
    L::store(p, v.low);
    L::store(p + 8, v.high);
  }
  // The first n < 16 lanes; the others are zero.
  PACELINE_INLINE Vec load_some(const float* p, int32_t n) {
    return n < 8 ? Vec{L::load_some(p, n), L::set1(0.0f)} : Vec{L::load(p), L::load_some(p + 8, n - 8)};
  }
  PACELINE_INLINE void store_some(float* p, Vec v, int32_t n) {
    if (n < 8) return L::store_some(p, v.low, n);
    L::store(p, v.low);
    L::store_some(p + 8, v.high, n - 8);
  }

  PACELINE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {L::fma(a.low, b.low, c.low), L::fma(a.high, b.high, c.high)}; }
  PACELINE_INLINE Vec max(Vec a, Vec b) { return {L::max(a.low, b.low), L::max(a.high, b.high)}; }
  PACELINE_INLINE Vec min(Vec a, Vec b) { return {L::min(a.low, b.low), L::min(a.high, b.high)}; }
  PACELINE_INLINE Vec select_ge(Vec a, Vec b, Vec x, Vec y) {
    return {L::select_ge(a.low, b.low, x.low, y.low), L::select_ge(a.high, b.high, x.high, y.high)};
  }
  PACELINE_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
    return {L::copy_sign(magnitude.low, sign.low), L::copy_sign(magnitude.high, sign.high)};
  }
  PACELINE_INLINE Vec round(Vec x) { return {L::round(x.low), L::round(x.high)}; }
  PACELINE_INLINE Vec scale_by_power(Vec x, Vec n) {
    return {L::scale_by_power(x.low, n.low), L::scale_by_power(x.high, n.high)};
  }
  PACELINE_INLINE Vec load_f16(const uint16_t* p) { return {L::load_f16(p), L::load_f16(p + 8)}; }
  PACELINE_INLINE void store_f16(uint16_t* p, Vec v) {
    L::store_f16(p, v.low);
    L::store_f16(p + 8, v.high);
  }
  PACELINE_INLINE float reduce_add(Vec v) { return L::reduce_add(L::add(v.low, v.high)); }
  PACELINE_INLINE float reduce_max(Vec v) { return L::reduce_max(L::max(v.low, v.high)); }

  PACELINE_INLINE Counters set1_word(uint32_t x) { return {L::set1_word(x), L::set1_word(x)}; }
  PACELINE_INLINE Counters load_words(const uint32_t* p) { return {L::load_words(p), L::load_words(p + 8)}; }
  PACELINE_INLINE void store_words(uint32_t* p, Counters v) {
    L::store_words(p, v.low);
    L::store_words(p + 8, v.high);
  }
  PACELINE_INLINE Counters multiply_wide(Counters a, uint32_t factor, Counters& high) {
    return {L::multiply_wide(a.low, factor, high.low), L::multiply_wide(a.high, factor, high.high)};
  }
  PACELINE_INLINE void transpose_squares(Counters& a, Counters& b, Counters& c, Counters& d) {
    L::transpose_squares(a.low, b.low, c.low, d.low);
    L::transpose_squares(a.high, b.high, c.high, d.high);
  }
  PACELINE_INLINE Vec to_float(Counters a) { return {L::to_float(a.low), L::to_float(a.high)}; }
};

#undef PACELINE_INLINE

}  // namespace paceline

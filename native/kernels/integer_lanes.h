// Sixteen lanes of integers, each also a pair of 16-bit integers: what attention multiplies with.
//
// A target may bring its own as `Lanes::Pairs`; the others get `PairLanesOf<Lanes>`, the compiler's vector extension
// with the instruction that matters, pmaddwd, where there is one. It is a template over the target's type, so that the
// linker cannot mix code of one target into another.
#pragma once
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace paceline::kernels {

template <class S>
struct PairLanesOf {
  using Vec = typename S::Vec;
  typedef int32_t Ints __attribute__((vector_size(64)));
  typedef int16_t Shorts __attribute__((vector_size(64)));
  typedef int16_t NarrowShorts __attribute__((vector_size(32)));
  typedef int8_t NarrowBytes __attribute__((vector_size(32)));
  typedef float Floats __attribute__((vector_size(64)));

  static Ints zero() { return Ints{}; }
  static Ints load_pairs(const int16_t* p) { return copy_from<Ints>(p); }
  // Widened.
  static Ints load_pairs(const int8_t* p) {
    return reinterpret_cast<Ints>(__builtin_convertvector(copy_from<NarrowBytes>(p), Shorts));
  }
  // The same pair in every lane.
  static Ints broadcast_pair(const int16_t* p) { return Ints{} + copy_from<int32_t>(p); }
  // sums + a's first · b's first + a's second · b's second; the caller keeps it below 2^31.
  static Ints dot_pairs(Ints sums, Ints a, Ints b) {
#if defined(__AVX2__)
    return add_products<__m256i>(
        sums, a, b, [](__m256i x, __m256i y, __m256i sum) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y)); });
#elif defined(__SSE2__)
    return add_products<__m128i>(
        sums, a, b, [](__m128i x, __m128i y, __m128i sum) { return _mm_add_epi32(sum, _mm_madd_epi16(x, y)); });
#else
    return sums + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
  }
  static Ints add(Ints a, Ints b) { return a + b; }
  static int32_t reduce_add(Ints a) {
    int32_t sum = 0;
    for (int32_t i = 0; i < 16; ++i) sum += a[i];
    return sum;
  }
  static Vec to_float(Ints a) {
    const auto floats = __builtin_convertvector(a, Floats);
    float lanes[16];
    std::memcpy(lanes, &floats, sizeof lanes);
    return S::load(lanes);
  }
  // Nearest, ties to even, for |x| < 2^22.
  static Ints round_to_int(Vec x) {
    float lanes[16];
    S::store(lanes, S::round(x));
    return __builtin_convertvector(copy_from<Floats>(lanes), Ints);
  }
  // The 16 integers, each within 16 bits.
  static void store_i16(int16_t* p, Ints a) {
    const auto narrow = __builtin_convertvector(a, NarrowShorts);
    std::memcpy(p, &narrow, sizeof narrow);
  }
  // a in the lanes [begin, end) of 0 … 16, b elsewhere.
  static Vec select_lanes(int32_t begin, int32_t end, Vec a, Vec b) {
    float chosen[16], others[16];
    S::store(chosen, a);
    S::store(others, b);
    for (int32_t i = begin; i < end; ++i) others[i] = chosen[i];
    return S::load(others);
  }
  // Into the L2 cache.
  static void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

 private:
  template <class T>
  static T copy_from(const void* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  template <class Part, class Add>
  static Ints add_products(Ints sums, Ints a, Ints b, Add add) {
    constexpr int32_t kParts = sizeof(Ints) / sizeof(Part);
    Part x[kParts], y[kParts], sum[kParts];
    std::memcpy(x, &a, sizeof x);
    std::memcpy(y, &b, sizeof y);
    std::memcpy(sum, &sums, sizeof sum);
    for (int32_t i = 0; i < kParts; ++i) sum[i] = add(x[i], y[i], sum[i]);
    std::memcpy(&sums, sum, sizeof sum);
    return sums;
  }
};

template <class S>
struct PairsChoice {
  using Type = PairLanesOf<S>;
};
template <class S>
  requires requires { typename S::Pairs; }
struct PairsChoice<S> {
  using Type = typename S::Pairs;
};

// The integer lanes of a target.
template <class S>
using Pairs = typename PairsChoice<S>::Type;

}  // namespace paceline::kernels

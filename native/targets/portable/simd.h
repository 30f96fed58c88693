// Vectors of 16 lanes for any machine: GCC/Clang vector extensions of 16 bytes, which SSE2 and NEON have.
//
// The one idea: every operation gives the bits that the AVX-512 target's instruction gives, so that the bodies in
// kernels/ have the same result on both. Written for that, not for speed.
#pragma once
#include <cstdint>
#include <cstring>

namespace paceline::portable {

#define PACELINE_INLINE [[gnu::always_inline]] static inline

struct Simd {
  static constexpr int kMaxTokens = 1;  // tokens whose sums a pass can hold

  using F4 = float __attribute__((vector_size(16)));
  using I4 = int32_t __attribute__((vector_size(16)));
  using S8 = int16_t __attribute__((vector_size(16)));
  using U8 = uint16_t __attribute__((vector_size(16)));
  using B16 = uint8_t __attribute__((vector_size(16)));

  struct Float {  // 16 × f32
    F4 part[4];
  };
  struct Int {  // 16 × i32
    I4 part[4];
  };
  struct Bytes {  // 64 × u8
    B16 part[4];
  };

  // Memory.
  // Into the L2 cache.
  PACELINE_INLINE void prefetch(const void* address) { __builtin_prefetch(address, 0, 2); }
  PACELINE_INLINE Float load(const float* from) { return copy_from<Float>(from); }
  PACELINE_INLINE Float load_some(const float* from, int32_t count) {
    Float value = zero();
    std::memcpy(&value, from, sizeof(float) * count);
    return value;
  }
  PACELINE_INLINE void store(float* to, Float value) { std::memcpy(to, &value, sizeof(value)); }
  PACELINE_INLINE void store_some(float* to, Float value, int32_t count) {
    std::memcpy(to, &value, sizeof(float) * count);
  }
  PACELINE_INLINE Bytes load_bytes(const uint8_t* from) { return copy_from<Bytes>(from); }
  PACELINE_INLINE Float splat(float value) {
    return map<Float>([&](int) { return F4{value, value, value, value}; });
  }
  PACELINE_INLINE Float splat_load(const float* from) { return splat(*from); }
  PACELINE_INLINE Int splat_load_int(const void* from) {
    int32_t value;
    std::memcpy(&value, from, sizeof(value));
    return map<Int>([&](int) { return I4{value, value, value, value}; });
  }
  PACELINE_INLINE Float zero() { return splat(0.0f); }
  PACELINE_INLINE Int zero_int() {
    return map<Int>([](int) { return I4{}; });
  }

  // 16 numbers in memory, widened.
  PACELINE_INLINE Float load_half(const uint8_t* from) {
    const Int bits = widen<uint16_t>(from);
    return map<Float>([&](int i) {
      const I4 sign = (bits.part[i] & 0x8000) << 16, magnitude = bits.part[i] & 0x7fff;
      const F4 scaled = (F4)(magnitude << 13) * 0x1p112f;  // mends the exponent, normalises subnormals
      const I4 is_special = magnitude >= 0x7c00, is_nan = magnitude > 0x7c00;
      const I4 special = 0x7f800000 | (magnitude << 13) | (is_nan & 0x00400000);
      return (F4)(sign | (is_special & special) | (~is_special & (I4)scaled));
    });
  }
  PACELINE_INLINE Float load_bfloat(const uint8_t* from) {
    const Int bits = widen<uint16_t>(from);
    return map<Float>([&](int i) { return (F4)(bits.part[i] << 16); });
  }
  PACELINE_INLINE Int load_unsigned(const uint8_t* from) { return widen<uint8_t>(from); }
  PACELINE_INLINE Int load_signed(const uint8_t* from) { return widen<int8_t>(from); }

  // Arithmetic: each operation rounds once.
  PACELINE_INLINE Float add(Float a, Float b) {
    return map<Float>([&](int i) { return a.part[i] + b.part[i]; });
  }
  PACELINE_INLINE Float subtract(Float a, Float b) {
    return map<Float>([&](int i) { return a.part[i] - b.part[i]; });
  }
  PACELINE_INLINE Float multiply(Float a, Float b) {
    return map<Float>([&](int i) { return a.part[i] * b.part[i]; });
  }
  PACELINE_INLINE Int add(Int a, Int b) {
    return map<Int>([&](int i) { return a.part[i] + b.part[i]; });
  }
  PACELINE_INLINE Int multiply(Int a, Int b) {
    return map<Int>([&](int i) { return a.part[i] * b.part[i]; });
  }
  PACELINE_INLINE Float to_float(Int a) {
    return map<Float>([&](int i) { return __builtin_convertvector(a.part[i], F4); });
  }

  // Lane r += Σ over its 4 bytes of weights (unsigned) · activations (signed). Products fit 16 bits: 255 · 128 < 2^15.
  PACELINE_INLINE Int dot(Int sums, Bytes weights, Int activations) {
    return map<Int>([&](int i) {
      const U8 unsigned_pairs = (U8)weights.part[i];
      const S8 signed_pairs = (S8)activations.part[i];
      const I4 low = (I4)((S8)(unsigned_pairs & 0xff) * (S8)((S8)((U8)signed_pairs << 8) >> 8));
      const I4 high = (I4)((S8)(unsigned_pairs >> 8) * (S8)(signed_pairs >> 8));
      return sums.part[i] + ((low << 16) >> 16) + (low >> 16) + ((high << 16) >> 16) + (high >> 16);
    });
  }

  // Bit fields of packed quants, byte by byte. What a shift brings into a byte's high bits is not specified: mask it.
  template <int kShift>
  PACELINE_INLINE Bytes shift_right(Bytes a) {
    return map<Bytes>([&](int i) { return a.part[i] >> kShift; });
  }
  template <uint8_t kMask>
  PACELINE_INLINE Bytes keep(Bytes a) {
    return map<Bytes>([&](int i) { return a.part[i] & kMask; });
  }
  // kMask's bits of a, the others of b.
  template <uint8_t kMask>
  PACELINE_INLINE Bytes blend(Bytes a, Bytes b) {
    constexpr uint8_t kOthers = static_cast<uint8_t>(~kMask);
    return map<Bytes>([&](int i) { return (a.part[i] & kMask) | (b.part[i] & kOthers); });
  }

  // Quantising.
  // The bits of |a|: ordered as integers they are ordered as numbers, then infinity, then NaN.
  PACELINE_INLINE Int magnitude_bits(Float a) {
    return map<Int>([&](int i) { return (I4)a.part[i] & 0x7fffffff; });
  }
  PACELINE_INLINE int32_t max_of(Int a, Int b) {
    int32_t most = 0;
    for (int i = 0; i < 16; ++i) {
      if (a.part[i / 4][i % 4] > most) most = a.part[i / 4][i % 4];
      if (b.part[i / 4][i % 4] > most) most = b.part[i / 4][i % 4];
    }
    return most;
  }
  PACELINE_INLINE int32_t sum_of(Int a) {
    const I4 pairs = (a.part[0] + a.part[1]) + (a.part[2] + a.part[3]);
    return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
  }
  // Nearest integer, ties to even, for |a| < 2^22: adding 1.5 · 2^23 leaves the integer in the low bits.
  PACELINE_INLINE Int round_to_int(Float a) {
    return map<Int>([&](int i) { return (I4)(a.part[i] + 0x1.8p23f) - 0x4b400000; });
  }
  PACELINE_INLINE void store_as_bytes(int8_t* to, Int a) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<int8_t>(a.part[i / 4][i % 4]);
  }

 private:
  template <class Vector, class Part>
  PACELINE_INLINE Vector map(Part part) {
    return {{part(0), part(1), part(2), part(3)}};
  }
  template <class Vector>
  PACELINE_INLINE Vector copy_from(const void* from) {
    Vector value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  template <class Narrow>
  PACELINE_INLINE Int widen(const uint8_t* from) {
    Narrow narrow[16];
    std::memcpy(narrow, from, sizeof(narrow));
    Int wide;
    for (int i = 0; i < 16; ++i) wide.part[i / 4][i % 4] = narrow[i];
    return wide;
  }
};

#undef PACELINE_INLINE

}  // namespace paceline::portable

// Sixteen float lanes on any CPU: the compiler's vector extension, which it lowers to whatever registers there are.
// `fma` is a multiply and an add here (a library fma without hardware would be hundreds of times slower).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline::portable {

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

struct Lanes {
  using Vec = Floats;
  using Counters = Words;  // 16 × u32

  static Vec set1(float x) { return Vec{} + x; }
  static Vec load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }

  // The first n < 16 lanes; the others are zero.
  static Vec load_some(const float* p, int32_t n) {
    Vec v{};
    std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
    return v;
  }
  static void store_some(float* p, Vec v, int32_t n) { std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(float)); }

  static Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
  // The second operand where either is NaN, as x86 does.
  static Vec max(Vec a, Vec b) { return a > b ? a : b; }
  static Vec min(Vec a, Vec b) { return a < b ? a : b; }
  // x where a >= b, else y.
  static Vec select_ge(Vec a, Vec b, Vec x, Vec y) { return a >= b ? x : y; }
  static Vec copy_sign(Vec magnitude, Vec sign) {
    const Words mask = Words{} + 0x80000000u;
    return reinterpret_cast<Vec>((reinterpret_cast<Words>(magnitude) & ~mask) | (reinterpret_cast<Words>(sign) & mask));
  }
  // Nearest integer, ties to even, for |x| < 2^22.
  static Vec round(Vec x) {
    const Vec magic = set1(12582912.0f);  // 1.5 · 2^23
    return (x + magic) - magic;
  }
  // x · 2^n for integral n in [-126, 127].
  static Vec scale_by_power(Vec x, Vec n) {
    const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
    return x * reinterpret_cast<Vec>(exponent);
  }

  // f16 → f32, exact: move the fields up, then rescale the exponent; infinities and NaN get the top exponent.
  static Vec load_f16(const uint16_t* p) {
    Halves h;
    std::memcpy(&h, p, sizeof h);
    const Words w = __builtin_convertvector(h, Words);
    const Words magnitude = (w & 0x7fffu) << 13;
    const Vec scaled = reinterpret_cast<Vec>(magnitude) * 5.192296858534828e33f;  // 2^112
    const Words special = reinterpret_cast<Words>(magnitude >= (0x7c00u << 13)) & 0x7f800000u;
    return reinterpret_cast<Vec>(reinterpret_cast<Words>(scaled) | special | ((w & 0x8000u) << 16));
  }

  // f32 → f16, nearest even, for |x| <= 65504.
  static void store_f16(uint16_t* p, Vec v) {
    const Words bits = reinterpret_cast<Words>(v);
    const Words sign = (bits >> 16) & 0x8000u;
    const Words magnitude = bits & 0x7fffffffu;
    // Normal: rebias and round on the 13 bits that fall off. Small: the adder rounds to multiples of 2^-24.
    const Words normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const Vec shifted = reinterpret_cast<Vec>(magnitude) + 0.5f;
    const Words small = reinterpret_cast<Words>(shifted) - 0x3f000000u;
    const Words half = (magnitude < (113u << 23) ? small : normal) | sign;
    const Halves out = __builtin_convertvector(half, Halves);
    std::memcpy(p, &out, sizeof out);
  }

  static float reduce_add(Vec v) {
    float lanes[16];
    store(lanes, v);
    for (int32_t width = 8; width > 0; width /= 2) {
      for (int32_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
  }
  static float reduce_max(Vec v) {
    float lanes[16];
    store(lanes, v);
    float best = lanes[0];
    for (int32_t i = 1; i < 16; ++i) best = lanes[i] > best ? lanes[i] : best;
    return best;
  }

  static Counters set1_word(uint32_t x) { return Words{} + x; }
  static Counters load_words(const uint32_t* p) {
    Words v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store_words(uint32_t* p, Counters v) { std::memcpy(p, &v, sizeof v); }
  // The low half of each 64-bit product; the high half to `high`.
  static Counters multiply_wide(Counters a, uint32_t factor, Counters& high) {
    typedef uint64_t Wide __attribute__((vector_size(64)));
    const Wide even = (reinterpret_cast<Wide>(a) & 0xffffffffu) * factor,
               odd = (reinterpret_cast<Wide>(a) >> 32) * factor;
    high = reinterpret_cast<Words>((even >> 32) | (odd & 0xffffffff00000000u));
    return reinterpret_cast<Words>((even & 0xffffffffu) | (odd << 32));
  }
  // Rows a, b, c, d of 4 × 4 squares, four squares side by side, transposed in place.
  static void transpose_squares(Counters& a, Counters& b, Counters& c, Counters& d) {
    Words* rows[4] = {&a, &b, &c, &d};
    for (int32_t square = 0; square < 16; square += 4) {
      for (int32_t i = 0; i < 4; ++i) {
        for (int32_t j = i + 1; j < 4; ++j) {
          const uint32_t kept = (*rows[i])[square + j];
          (*rows[i])[square + j] = (*rows[j])[square + i];
          (*rows[j])[square + i] = kept;
        }
      }
    }
  }
  // The words as numbers, to 24 bits.
  static Vec to_float(Counters a) { return __builtin_convertvector(a, Vec); }

  static void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
};

}  // namespace paceline::portable

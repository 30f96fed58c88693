// Numbers as they lie in a GGUF file: ggml type numbers and the block structs of the quantised types.
//
// The one idea: a struct here is the file's bytes, so its size is asserted; nothing else in the core knows the file
// format except kernels/quant. Little-endian hosts only, as GGUF files in the wild are. Source: the GGUF specification
// (ggml docs/gguf.md) and the block definitions it refers to.
#pragma once
#include <bit>
#include <cstdint>

namespace paceline {

static_assert(std::endian::native == std::endian::little, "packed weights and GGUF blocks are little-endian");

// ggml's type numbers, for the types that a weight can have.
enum class GgmlType : int32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

// Field names: d scale, m min (both f16 bits) · qs low quant bits · qh / hmask high quant bits · scales sub-block
// scales.

struct BlockQ4_0 {  // x = d · (q − 8); byte i holds channels i and i + 16
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockQ4_1 {  // x = d · q + m
  uint16_t d, m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ5_0 {  // x = d · (q − 16); bit i of qh is bit 4 of channel i
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct BlockQ5_1 {  // x = d · q + m
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct BlockQ8_0 {  // x = d · q
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ3_K {  // x = d · scale · (q − 4), scale of 16 channels: 6 bits − 32
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

struct BlockQ4_K {  // x = d · scale · q − dmin · min, scale and min of 32 channels: 6 bits each
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

struct BlockQ6_K {  // x = d · scale · (q − 32), scale of 16 channels: signed
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

}  // namespace paceline

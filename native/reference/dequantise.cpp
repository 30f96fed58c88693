// GGUF rows by the definition of their formats. Written whole block by whole block, unlike the packer's readers, so
// that a mistake in one is not in the other. Source: ggml's descriptions of its block types.
#include <cmath>
#include <cstring>

#include "paceline/types.h"
#include "reference/linear.h"

namespace paceline::reference {
namespace {

float half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

void put(WeightRow& row, float term) {
  row.value.push_back(term);
  row.magnitude.push_back(std::fabs(term));
}

void put(WeightRow& row, float term, float shift) {
  row.value.push_back(term + shift);
  row.magnitude.push_back(std::fabs(term) + std::fabs(shift));
}

void expand(const BlockQ4_0& b, WeightRow& row) {
  for (int i = 0; i < 16; ++i) put(row, half(b.d) * static_cast<float>((b.qs[i] % 16) - 8));
  for (int i = 0; i < 16; ++i) put(row, half(b.d) * static_cast<float>((b.qs[i] / 16) - 8));
}

void expand(const BlockQ4_1& b, WeightRow& row) {
  for (int i = 0; i < 16; ++i) put(row, half(b.d) * static_cast<float>(b.qs[i] % 16), half(b.m));
  for (int i = 0; i < 16; ++i) put(row, half(b.d) * static_cast<float>(b.qs[i] / 16), half(b.m));
}

template <class Block>
int five_bits(const Block& b, int k) {
  const int low = k < 16 ? b.qs[k] % 16 : b.qs[k - 16] / 16;
  return low + 16 * ((b.qh[k / 8] >> (k % 8)) % 2);
}

void expand(const BlockQ5_0& b, WeightRow& row) {
  for (int k = 0; k < 32; ++k) put(row, half(b.d) * static_cast<float>(five_bits(b, k) - 16));
}

void expand(const BlockQ5_1& b, WeightRow& row) {
  for (int k = 0; k < 32; ++k) put(row, half(b.d) * static_cast<float>(five_bits(b, k)), half(b.m));
}

void expand(const BlockQ8_0& b, WeightRow& row) {
  for (int k = 0; k < 32; ++k) put(row, half(b.d) * static_cast<float>(b.qs[k]));
}

// The 6-bit scales of Q3_K through the 32-bit words in which ggml describes them.
void q3_scales(const BlockQ3_K& b, int (&scales)[16]) {
  uint32_t word[3];
  std::memcpy(word, b.scales, sizeof(word));
  const uint32_t low = 0x0f0f0f0f, two = 0x03030303;
  const uint32_t unpacked[4] = {
      (word[0] & low) | ((word[2] & two) << 4),
      (word[1] & low) | (((word[2] >> 2) & two) << 4),
      ((word[0] >> 4) & low) | (((word[2] >> 4) & two) << 4),
      ((word[1] >> 4) & low) | (((word[2] >> 6) & two) << 4),
  };
  for (int i = 0; i < 16; ++i) scales[i] = static_cast<int>((unpacked[i / 4] >> (8 * (i % 4))) & 63) - 32;
}

void expand(const BlockQ3_K& b, WeightRow& row) {
  int scales[16];
  q3_scales(b, scales);
  for (int k = 0; k < 256; ++k) {
    const int bits = (b.qs[32 * (k / 128) + k % 32] >> (2 * (k % 128 / 32))) & 3;
    const int is_high = (b.hmask[k % 32] >> (k / 32)) & 1;
    put(row, half(b.d) * static_cast<float>(scales[k / 16]) * static_cast<float>(bits - (is_high ? 0 : 4)));
  }
}

// Scale and min number `i` of the eight in 12 bytes.
void k_scale(const uint8_t* s, int i, int& scale, int& min) {
  scale = i < 4 ? s[i] % 64 : s[i + 4] % 16 + 16 * (s[i - 4] / 64);
  min = i < 4 ? s[i + 4] % 64 : s[i + 4] / 16 + 16 * (s[i] / 64);
}

template <class Quant>
void expand_k(uint16_t d, uint16_t dmin, const uint8_t* scales, WeightRow& row, Quant quant) {
  for (int k = 0; k < 256; ++k) {
    int scale, min;
    k_scale(scales, k / 32, scale, min);
    put(row, half(d) * static_cast<float>(scale) * static_cast<float>(quant(k)),
        -(half(dmin) * static_cast<float>(min)));
  }
}

void expand(const BlockQ4_K& b, WeightRow& row) {
  expand_k(b.d, b.dmin, b.scales, row, [&](int k) {
    const int byte = b.qs[32 * (k / 64) + k % 32];
    return k % 64 < 32 ? byte % 16 : byte / 16;
  });
}

void expand(const BlockQ5_K& b, WeightRow& row) {
  expand_k(b.d, b.dmin, b.scales, row, [&](int k) {
    const int byte = b.qs[32 * (k / 64) + k % 32];
    return (k % 64 < 32 ? byte % 16 : byte / 16) + 16 * ((b.qh[k % 32] >> (k / 32)) & 1);
  });
}

void expand(const BlockQ6_K& b, WeightRow& row) {
  for (int k = 0; k < 256; ++k) {
    const int half_index = k / 128, in_half = k % 128;
    const int byte = b.ql[64 * half_index + in_half % 64];
    const int low = in_half < 64 ? byte % 16 : byte / 16;
    const int high = (b.qh[32 * half_index + in_half % 32] >> (2 * (in_half / 32))) & 3;
    put(row, half(b.d) * static_cast<float>(b.scales[k / 16]) * static_cast<float>(low + 16 * high - 32));
  }
}

template <class Block>
WeightRow expand_blocks(const uint8_t* bytes, int32_t num_cols) {
  WeightRow row;
  while (static_cast<int32_t>(row.value.size()) < num_cols) {
    Block block;
    std::memcpy(&block, bytes, sizeof(block));
    expand(block, row);
    bytes += sizeof(block);
  }
  return row;
}

WeightRow expand_floats(GgmlType type, const uint8_t* bytes, int32_t num_cols) {
  WeightRow row;
  for (int32_t k = 0; k < num_cols; ++k) {
    float value = 0;
    uint16_t bits = 0;
    if (type == GgmlType::f32) {
      std::memcpy(&value, bytes + 4 * k, 4);
    } else {
      std::memcpy(&bits, bytes + 2 * k, 2);
      value = type == GgmlType::f16 ? half(bits) : std::bit_cast<float>(uint32_t{bits} * 65536u);
    }
    row.value.push_back(value);
    row.magnitude.push_back(std::fabs(value));
  }
  return row;
}

}  // namespace

int64_t row_bytes(int32_t ggml_type, int32_t num_cols) {
  switch (static_cast<GgmlType>(ggml_type)) {
    case GgmlType::q4_0:
      return num_cols / 32 * 18;
    case GgmlType::q4_1:
      return num_cols / 32 * 20;
    case GgmlType::q5_0:
      return num_cols / 32 * 22;
    case GgmlType::q5_1:
      return num_cols / 32 * 24;
    case GgmlType::q8_0:
      return num_cols / 32 * 34;
    case GgmlType::q3_k:
      return num_cols / 256 * 110;
    case GgmlType::q4_k:
      return num_cols / 256 * 144;
    case GgmlType::q5_k:
      return num_cols / 256 * 176;
    case GgmlType::q6_k:
      return num_cols / 256 * 210;
    case GgmlType::f16:
    case GgmlType::bf16:
      return 2 * num_cols;
    case GgmlType::f32:
      return 4 * num_cols;
    case GgmlType::q2_k:
      return num_cols / 256 * 84;
  }
  return 0;
}

WeightRow dequantise(int32_t ggml_type, const uint8_t* row, int32_t num_cols) {
  switch (const GgmlType type = static_cast<GgmlType>(ggml_type)) {
    case GgmlType::q4_0:
      return expand_blocks<BlockQ4_0>(row, num_cols);
    case GgmlType::q4_1:
      return expand_blocks<BlockQ4_1>(row, num_cols);
    case GgmlType::q5_0:
      return expand_blocks<BlockQ5_0>(row, num_cols);
    case GgmlType::q5_1:
      return expand_blocks<BlockQ5_1>(row, num_cols);
    case GgmlType::q8_0:
      return expand_blocks<BlockQ8_0>(row, num_cols);
    case GgmlType::q3_k:
      return expand_blocks<BlockQ3_K>(row, num_cols);
    case GgmlType::q4_k:
      return expand_blocks<BlockQ4_K>(row, num_cols);
    case GgmlType::q5_k:
      return expand_blocks<BlockQ5_K>(row, num_cols);
    case GgmlType::q6_k:
      return expand_blocks<BlockQ6_K>(row, num_cols);
    case GgmlType::q2_k:
      return {};
    default:
      return expand_floats(type, row, num_cols);
  }
}

}  // namespace paceline::reference

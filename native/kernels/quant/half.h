// f16 and bf16 bits to f32, exactly, with integer operations only: the same on every machine.
#pragma once
#include <bit>
#include <cstdint>

namespace paceline::quant {

// IEEE binary16 to binary32. Subnormals, infinities and NaNs (quieted, payload kept) as the hardware converts them.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    const uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | quiet);
  }
  // The exponent is 112 too small after the shift; a multiplication mends it and normalises subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace paceline::quant

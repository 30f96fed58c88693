// GGUF blocks to RowBlock. Source: the block layouts of ggml's quantised types (see paceline/types.h).
#include <cstring>

#include "kernels/quant/row_block.h"

namespace paceline::quant {
namespace {

// Byte i holds channels i (low nibble) and i + 16.
void read_nibbles(const uint8_t* qs, uint8_t* quants) {
  for (int i = 0; i < 16; ++i) {
    quants[i] = qs[i] & 0x0f;
    quants[i + 16] = qs[i] >> 4;
  }
}

// Four channels at a time: the multiplication lays copies of four bits so that bit i lands at the bottom of byte i.
void add_fifth_bits(const uint8_t* qh, uint8_t* quants) {
  uint32_t bits;
  std::memcpy(&bits, qh, sizeof(bits));
  for (int k = 0; k < kQuantBlock; k += 4) {
    uint32_t four;
    std::memcpy(&four, quants + k, sizeof(four));
    four |= ((((bits >> k) & 15u) * 0x00204081u) & 0x01010101u) << 4;
    std::memcpy(quants + k, &four, sizeof(four));
  }
}

// K types keep 64 channels in 32 bytes: even blocks of 32 are the low nibbles, odd ones the high nibbles.
void read_k_nibbles(const uint8_t* qs, int32_t sub, uint8_t* quants) {
  const uint8_t* bytes = qs + 32 * (sub / 2);
  const int shift = 4 * (sub % 2);
  for (int i = 0; i < kQuantBlock; ++i) quants[i] = (bytes[i] >> shift) & 0x0f;
}

// Eight 6-bit scales and eight 6-bit mins in 12 bytes: the first four of each plain, the others split into 4 + 2 bits.
void read_k_scales(const uint8_t* scales, int32_t sub, RowBlock& out) {
  if (sub < 4) {
    out.sub_scale[0] = scales[sub] & 63;
    out.sub_min = scales[sub + 4] & 63;
    return;
  }
  out.sub_scale[0] = (scales[sub + 4] & 0x0f) | ((scales[sub - 4] >> 6) << 4);
  out.sub_min = (scales[sub + 4] >> 4) | ((scales[sub] >> 6) << 4);
}

// Sixteen 6-bit scales in 12 bytes: low nibbles in bytes 0-7, two high bits each in bytes 8-11; the value is minus 32.
uint8_t q3_scale(const uint8_t* scales, int32_t index) {
  const int low = index < 8 ? scales[index] & 0x0f : scales[index - 8] >> 4;
  const int high = (scales[8 + index % 4] >> (2 * (index / 4))) & 3;
  return static_cast<uint8_t>((low | (high << 4)) - 32);
}

}  // namespace

void read_row_block(const BlockQ4_0& block, int32_t, RowBlock& out) {
  read_nibbles(block.qs, out.quants);
  out.scale = block.d;
}

void read_row_block(const BlockQ4_1& block, int32_t, RowBlock& out) {
  read_nibbles(block.qs, out.quants);
  out.scale = block.d;
  out.min = block.m;
}

void read_row_block(const BlockQ5_0& block, int32_t, RowBlock& out) {
  read_nibbles(block.qs, out.quants);
  add_fifth_bits(block.qh, out.quants);
  out.scale = block.d;
}

void read_row_block(const BlockQ5_1& block, int32_t, RowBlock& out) {
  read_nibbles(block.qs, out.quants);
  add_fifth_bits(block.qh, out.quants);
  out.scale = block.d;
  out.min = block.m;
}

void read_row_block(const BlockQ8_0& block, int32_t, RowBlock& out) {
  for (int i = 0; i < kQuantBlock; ++i) out.quants[i] = static_cast<uint8_t>(block.qs[i] ^ 0x80);  // q + 128
  out.scale = block.d;
}

// 3-bit quants − 4 become 6-bit quants − 32. Two bits lie in qs (128 channels in 32 bytes), the third in hmask.
void read_row_block(const BlockQ3_K& block, int32_t sub, RowBlock& out) {
  const uint8_t* qs = block.qs + 32 * (sub / 4);
  const int shift = 2 * (sub % 4);
  for (int i = 0; i < kQuantBlock; ++i) {
    const int low = (qs[i] >> shift) & 3;
    const int high = (block.hmask[i] >> sub) & 1;
    out.quants[i] = static_cast<uint8_t>((low | (high << 2)) - 4 + 32);
  }
  out.scale = block.d;
  out.sub_scale[0] = q3_scale(block.scales, 2 * sub);
  out.sub_scale[1] = q3_scale(block.scales, 2 * sub + 1);
}

void read_row_block(const BlockQ4_K& block, int32_t sub, RowBlock& out) {
  read_k_nibbles(block.qs, sub, out.quants);
  read_k_scales(block.scales, sub, out);
  out.scale = block.d;
  out.min = block.dmin;
}

void read_row_block(const BlockQ5_K& block, int32_t sub, RowBlock& out) {
  read_k_nibbles(block.qs, sub, out.quants);
  for (int i = 0; i < kQuantBlock; ++i) out.quants[i] |= ((block.qh[i] >> sub) & 1u) << 4;
  read_k_scales(block.scales, sub, out);
  out.scale = block.d;
  out.min = block.dmin;
}

// Per 128 channels: 64 bytes of nibbles (channels 0-63 low, 64-127 high), 32 bytes of two high bits of four channels.
void read_row_block(const BlockQ6_K& block, int32_t sub, RowBlock& out) {
  const int half = sub / 4, quarter = sub % 4;
  const uint8_t* ql = block.ql + 64 * half + 32 * (quarter % 2);
  const uint8_t* qh = block.qh + 32 * half;
  const int low_shift = 4 * (quarter / 2), high_shift = 2 * quarter;
  for (int i = 0; i < kQuantBlock; ++i) {
    out.quants[i] = ((ql[i] >> low_shift) & 0x0f) | (((qh[i] >> high_shift) & 3) << 4);
  }
  out.scale = block.d;
  out.sub_scale[0] = static_cast<uint8_t>(block.scales[2 * sub]);
  out.sub_scale[1] = static_cast<uint8_t>(block.scales[2 * sub + 1]);
}

}  // namespace paceline::quant

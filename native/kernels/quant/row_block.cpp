// RowBlock to packed bytes and back. The bytes' picture is in kernels/linear_layout.h.
#include "kernels/quant/row_block.h"

#include <cstring>

namespace paceline::quant {
namespace {

constexpr int kGroups = 8;  // groups of 4 channels in a block

void put16(uint8_t* array, int32_t index, uint16_t value) { std::memcpy(array + 2 * index, &value, 2); }

uint16_t get16(const uint8_t* array, int32_t index) {
  uint16_t value;
  std::memcpy(&value, array + 2 * index, 2);
  return value;
}

// The row's 4 bytes in line `line` of a plane that has `lines` lines per 16 rows.
uint8_t* lane(uint8_t* plane, int32_t lines, int32_t row, int32_t line) {
  return plane + ((row / kRowGroup) * lines + line) * kLine + 4 * (row % kRowGroup);
}

template <PackedType kType>
void store_header(const RowBlock& from, const BlockPosition& at) {
  constexpr BlockLayout layout = layout_of<kType>();
  if constexpr (layout.super_bytes > 0) {
    put16(at.super, at.row, from.scale);
    if constexpr (layout.super_bytes == 2 * kLine) put16(at.super + kLine, at.row, from.min);
    at.block[at.row] = from.sub_scale[0];
    at.block[kRowTile + at.row] = kType == PackedType::q6k ? from.sub_scale[1] : from.sub_min;
  } else {
    put16(at.block, at.row, from.scale);
    if constexpr (layout.header_bytes == 2 * kLine) put16(at.block + kLine, at.row, from.min);
  }
}

template <PackedType kType>
void load_header(const BlockPosition& at, RowBlock& to) {
  constexpr BlockLayout layout = layout_of<kType>();
  if constexpr (layout.super_bytes > 0) {
    to.scale = get16(at.super, at.row);
    if constexpr (layout.super_bytes == 2 * kLine) to.min = get16(at.super + kLine, at.row);
    to.sub_scale[0] = at.block[at.row];
    (kType == PackedType::q6k ? to.sub_scale[1] : to.sub_min) = at.block[kRowTile + at.row];
  } else {
    to.scale = get16(at.block, at.row);
    if constexpr (layout.header_bytes == 2 * kLine) to.min = get16(at.block + kLine, at.row);
  }
}

void store_nibbles(const uint8_t* quants, uint8_t* plane, int32_t row) {
  uint8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = (quants[i] & 0x0f) | (quants[i + 16] << 4);
  for (int j = 0; j < 4; ++j) std::memcpy(lane(plane, 4, row, j), bytes + 4 * j, 4);
}

void store_fifth_bits(const uint8_t* quants, uint8_t* plane, int32_t row) {
  uint8_t bytes[4] = {};
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < 4; ++i) bytes[i] |= ((quants[4 * g + i] >> 4) & 1u) << g;
  }
  std::memcpy(lane(plane, 1, row, 0), bytes, 4);
}

void store_top_bits(const uint8_t* quants, uint8_t* plane, int32_t row) {
  for (int half = 0; half < 2; ++half) {
    uint8_t bytes[4] = {};
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 4; ++i) bytes[i] |= ((quants[16 * half + 4 * j + i] >> 4) & 3u) << (2 * j);
    }
    std::memcpy(lane(plane, 2, row, half), bytes, 4);
  }
}

}  // namespace

template <PackedType kType>
void store_row_block(const RowBlock& row_block, const BlockPosition& at) {
  constexpr BlockLayout layout = layout_of<kType>();
  store_header<kType>(row_block, at);
  uint8_t* low = at.block + layout.header_bytes;
  if constexpr (layout.bits == 8) {
    for (int g = 0; g < kGroups; ++g) std::memcpy(lane(low, kGroups, at.row, g), row_block.quants + 4 * g, 4);
  } else {
    store_nibbles(row_block.quants, low, at.row);
  }
  if constexpr (layout.bits == 5) store_fifth_bits(row_block.quants, low + layout.low_bytes, at.row);
  if constexpr (layout.bits == 6) store_top_bits(row_block.quants, low + layout.low_bytes, at.row);
}

template <PackedType kType>
void load_row_block(const BlockPosition& at, RowBlock& out) {
  constexpr BlockLayout layout = layout_of<kType>();
  load_header<kType>(at, out);
  uint8_t* low = at.block + layout.header_bytes;
  uint8_t* high = low + layout.low_bytes;
  for (int k = 0; k < kQuantBlock; ++k) {
    const int group = k / 4, byte = k % 4;
    if constexpr (layout.bits == 8) {
      out.quants[k] = lane(low, kGroups, at.row, group)[byte];
    } else {
      out.quants[k] = (lane(low, 4, at.row, group % 4)[byte] >> (4 * (group / 4))) & 0x0f;
    }
    if constexpr (layout.bits == 5) out.quants[k] |= ((lane(high, 1, at.row, 0)[byte] >> group) & 1) << 4;
    if constexpr (layout.bits == 6) {
      out.quants[k] |= ((lane(high, 2, at.row, group / 4)[byte] >> (2 * (group % 4))) & 3) << 4;
    }
  }
}

#define PACELINE_INSTANTIATE(type)                                                        \
  template void store_row_block<PackedType::type>(const RowBlock&, const BlockPosition&); \
  template void load_row_block<PackedType::type>(const BlockPosition&, RowBlock&);
PACELINE_INSTANTIATE(q4s)
PACELINE_INSTANTIATE(q4a)
PACELINE_INSTANTIATE(q4k)
PACELINE_INSTANTIATE(q5s)
PACELINE_INSTANTIATE(q5a)
PACELINE_INSTANTIATE(q5k)
PACELINE_INSTANTIATE(q6k)
PACELINE_INSTANTIATE(q8s)
#undef PACELINE_INSTANTIATE

}  // namespace paceline::quant

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

// The row's 4 bytes in one of its lines.
template <PackedType kType>
uint8_t* lane(const BlockPosition& at, int32_t line) {
  constexpr BlockLayout layout = layout_of<kType>();
  uint8_t* const lines = at.block + layout.header_bytes + at.row / kRowGroup * layout.group_step();
  return lines + line * layout.line_step() + 4 * (at.row % kRowGroup);
}

// Four bytes side by side, each a quant of the same group or a byte of the same line: all are joined and split at once.
using Word = uint32_t;

constexpr Word in_each(uint8_t byte) { return byte * Word{0x01010101}; }

// Lines from groups, and back; the picture is in kernels/linear_layout.h.
template <int kBits>
void join_bits(const Word (&g)[kGroups], Word (&line)[kGroups]) {
  if constexpr (kBits == 4) {
    for (int i = 0; i < 4; ++i) line[i] = g[i] | (g[i + 4] << 4);
  } else if constexpr (kBits == 5) {
    line[0] = g[0] | ((g[5] & in_each(7)) << 5);
    line[1] = g[1] | ((g[5] & in_each(24)) << 2) | ((g[7] & in_each(8)) << 4);
    line[2] = g[2] | ((g[6] & in_each(7)) << 5);
    line[3] = g[3] | ((g[6] & in_each(24)) << 2) | ((g[7] & in_each(16)) << 3);
    line[4] = g[4] | ((g[7] & in_each(7)) << 5);
  } else if constexpr (kBits == 6) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 3; ++i)
        line[3 * half + i] = g[4 * half + i] | ((g[4 * half + 3] >> (2 * i) & in_each(3)) << 6);
    }
  } else {
    for (int i = 0; i < kGroups; ++i) line[i] = g[i];
  }
}

template <int kBits>
void split_bits(const Word (&line)[kGroups], Word (&g)[kGroups]) {
  constexpr Word kMask = in_each((1 << kBits) - 1);
  if constexpr (kBits == 4) {
    for (int i = 0; i < kGroups; ++i) g[i] = (line[i % 4] >> (i / 4 * 4)) & kMask;
  } else if constexpr (kBits == 5) {
    for (int i = 0; i < 5; ++i) g[i] = line[i] & kMask;
    g[5] = (line[0] >> 5 & in_each(7)) | (line[1] >> 2 & in_each(24));
    g[6] = (line[2] >> 5 & in_each(7)) | (line[3] >> 2 & in_each(24));
    g[7] = (line[4] >> 5 & in_each(7)) | (line[1] >> 4 & in_each(8)) | (line[3] >> 3 & in_each(16));
  } else if constexpr (kBits == 6) {
    for (int half = 0; half < 2; ++half) {
      const Word* of_half = line + 3 * half;
      Word last = 0;
      for (int i = 0; i < 3; ++i) {
        g[4 * half + i] = of_half[i] & kMask;
        last |= (of_half[i] >> 6 & in_each(3)) << (2 * i);
      }
      g[4 * half + 3] = last;
    }
  } else {
    for (int i = 0; i < kGroups; ++i) g[i] = line[i];
  }
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

}  // namespace

template <PackedType kType>
void store_row_block(const RowBlock& row_block, const BlockPosition& at) {
  constexpr BlockLayout layout = layout_of<kType>();
  store_header<kType>(row_block, at);
  Word groups[kGroups], lines[kGroups];
  std::memcpy(groups, row_block.quants, sizeof(groups));
  join_bits<layout.bits>(groups, lines);
  for (int line = 0; line < layout.bits; ++line) std::memcpy(lane<kType>(at, line), &lines[line], sizeof(Word));
}

template <PackedType kType>
void load_row_block(const BlockPosition& at, RowBlock& out) {
  constexpr BlockLayout layout = layout_of<kType>();
  load_header<kType>(at, out);
  Word groups[kGroups], lines[kGroups] = {};
  for (int line = 0; line < layout.bits; ++line) std::memcpy(&lines[line], lane<kType>(at, line), sizeof(Word));
  split_bits<layout.bits>(lines, groups);
  std::memcpy(out.quants, groups, sizeof(groups));
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

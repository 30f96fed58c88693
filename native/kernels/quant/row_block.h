// 32 channels of one weight row, unpacked: the form between a GGUF block and a packed tile.
//
// The one idea: every source type is read into this struct and every packed type is written from it, so N readers and M
// writers replace N × M conversions. Numbers stay what the file says (f16 bits, integer scales): nothing is rounded.
#pragma once
#include <cstdint>

#include "kernels/linear_layout.h"
#include "paceline/types.h"

namespace paceline::quant {

struct RowBlock {
  uint8_t quants[kQuantBlock];  // unsigned: signed value + the packed type's zero point
  uint16_t scale = 0;           // f16 bits: per 32, or d of the 256 for k types
  uint16_t min = 0;             // f16 bits: per 32, or dmin of the 256 for q4k and q5k
  uint8_t sub_scale[2] = {};    // k types: scale of the 32 channels, or (q6k, signed) of each 16
  uint8_t sub_min = 0;
};

// read_row_block(block, sub, out): channels 32·sub … 32·sub + 31 of a GGUF block. One overload per source type.
void read_row_block(const BlockQ4_0& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ4_1& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ5_0& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ5_1& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ8_0& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ3_K& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ4_K& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ5_K& block, int32_t sub, RowBlock& out);
void read_row_block(const BlockQ6_K& block, int32_t sub, RowBlock& out);

// Where the parts of one block of one row lie in a tile.
struct BlockPosition {
  uint8_t* super;  // super header of the tile's 256 channels (k types), else unused
  uint8_t* block;
  int32_t row;  // in the tile
};

// Writes or reads one row of one packed block.
template <PackedType kType>
void store_row_block(const RowBlock& row_block, const BlockPosition& at);
template <PackedType kType>
void load_row_block(const BlockPosition& at, RowBlock& out);

}  // namespace paceline::quant

// Packing: GGUF tensors to tiles and back to f32 rows. Runs at load: plain, portable, 10-40 ns per 32 weights.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/quant/half.h"
#include "kernels/quant/row_block.h"
#include "paceline/linear.h"
#include "paceline/types.h"

namespace paceline {
namespace {

using quant::BlockPosition;
using quant::RowBlock;

struct PackJob {
  const uint8_t* source;
  uint8_t* packed;
  int32_t num_rows, num_cols;
};

size_t tile_bytes(PackedType type, int32_t num_cols) {
  size_t bytes = 0;
  const bool is_quantised = visit_quantised(type, [&]<PackedType kType>() {
    constexpr BlockLayout layout = layout_of<kType>();
    bytes = static_cast<size_t>(num_cols / (kQuantBlock * layout.blocks_per_super())) * layout.super_stride();
  });
  return is_quantised ? bytes : static_cast<size_t>(num_cols) * kRowTile * float_bytes(type);
}

// The position of 32-channel block `block` of row `row` (both in the tile).
template <PackedType kType>
BlockPosition position(uint8_t* tile, int32_t block, int32_t row) {
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr int32_t kPer = layout.blocks_per_super();
  uint8_t* super = tile + static_cast<size_t>(block / kPer) * layout.super_stride();
  return {super, super + layout.super_bytes + (block % kPer) * layout.block_bytes(), row};
}

template <class Block, PackedType kType>
void pack_quantised(const PackJob& job, int32_t tile) {
  constexpr int32_t kChannels = layout_of<kType>().super_bytes > 0 ? kSuperBlock : kQuantBlock;
  const size_t bytes = tile_bytes(kType, job.num_cols);
  uint8_t* const to = job.packed + tile * bytes;
  const int32_t rows = std::min(kRowTile, job.num_rows - tile * kRowTile);
  const size_t row_bytes = static_cast<size_t>(job.num_cols / kChannels) * sizeof(Block);
  const uint8_t* const from = job.source + static_cast<size_t>(tile) * kRowTile * row_bytes;
  if (rows < kRowTile) std::memset(to, 0, bytes);
  for (int32_t index = 0; index < job.num_cols / kChannels; ++index) {
    for (int32_t row = 0; row < rows; ++row) {
      Block block;
      std::memcpy(&block, from + row * row_bytes + index * sizeof(Block), sizeof(Block));
      for (int32_t sub = 0; sub < kChannels / kQuantBlock; ++sub) {
        RowBlock row_block;
        quant::read_row_block(block, sub, row_block);
        quant::store_row_block<kType>(row_block, position<kType>(to, index * (kChannels / kQuantBlock) + sub, row));
      }
    }
  }
}

template <class Number>
void pack_floats(const PackJob& job, int32_t tile) {
  const size_t bytes = static_cast<size_t>(job.num_cols) * kRowTile * sizeof(Number);
  uint8_t* const to = job.packed + tile * bytes;
  const int32_t rows = std::min(kRowTile, job.num_rows - tile * kRowTile);
  const size_t row_bytes = static_cast<size_t>(job.num_cols) * sizeof(Number);
  const uint8_t* const from = job.source + static_cast<size_t>(tile) * kRowTile * row_bytes;
  if (rows < kRowTile) std::memset(to, 0, bytes);
  for (int32_t col = 0; col < job.num_cols; ++col) {
    for (int32_t row = 0; row < rows; ++row) {
      std::memcpy(to + (static_cast<size_t>(col) * kRowTile + row) * sizeof(Number),
                  from + row * row_bytes + col * sizeof(Number), sizeof(Number));
    }
  }
}

void pack_tile(GgmlType type, const PackJob& job, int32_t tile) {
  switch (type) {
    case GgmlType::q4_0:
      return pack_quantised<BlockQ4_0, PackedType::q4s>(job, tile);
    case GgmlType::q4_1:
      return pack_quantised<BlockQ4_1, PackedType::q4a>(job, tile);
    case GgmlType::q5_0:
      return pack_quantised<BlockQ5_0, PackedType::q5s>(job, tile);
    case GgmlType::q5_1:
      return pack_quantised<BlockQ5_1, PackedType::q5a>(job, tile);
    case GgmlType::q8_0:
      return pack_quantised<BlockQ8_0, PackedType::q8s>(job, tile);
    case GgmlType::q3_k:
      return pack_quantised<BlockQ3_K, PackedType::q6k>(job, tile);
    case GgmlType::q4_k:
      return pack_quantised<BlockQ4_K, PackedType::q4k>(job, tile);
    case GgmlType::q5_k:
      return pack_quantised<BlockQ5_K, PackedType::q5k>(job, tile);
    case GgmlType::q6_k:
      return pack_quantised<BlockQ6_K, PackedType::q6k>(job, tile);
    case GgmlType::f16:
    case GgmlType::bf16:
      return pack_floats<uint16_t>(job, tile);
    case GgmlType::f32:
      return pack_floats<uint32_t>(job, tile);
    case GgmlType::q2_k:
      return;  // packed_type_for says −1: the caller never gets here
  }
}

// What the GGUF format says a block's numbers are; every product is exact in f32, only the last addition rounds.
template <PackedType kType>
void dequantise(const RowBlock& block, float* out) {
  const float scale = quant::half_to_float(block.scale), min = quant::half_to_float(block.min);
  for (int32_t k = 0; k < kQuantBlock; ++k) {
    const float value = static_cast<float>(block.quants[k] - layout_of<kType>().zero_point);
    if constexpr (kType == PackedType::q4k || kType == PackedType::q5k) {
      out[k] = scale * block.sub_scale[0] * value - min * block.sub_min;
    } else if constexpr (kType == PackedType::q6k) {
      out[k] = scale * static_cast<int8_t>(block.sub_scale[k / 16]) * value;
    } else if constexpr (kType == PackedType::q4a || kType == PackedType::q5a) {
      out[k] = scale * value + min;
    } else {
      out[k] = scale * value;
    }
  }
}

void unpack_floats(const MatrixPart& part, int32_t row, float* out) {
  const size_t width = float_bytes(part.type);
  const uint8_t* tile = part.data + (row / kRowTile) * tile_bytes(part.type, part.num_cols);
  for (int32_t col = 0; col < part.num_cols; ++col) {
    const uint8_t* at = tile + (static_cast<size_t>(col) * kRowTile + row % kRowTile) * width;
    if (part.type == PackedType::f32) {
      std::memcpy(out + col, at, sizeof(float));
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    out[col] = part.type == PackedType::f16 ? quant::half_to_float(bits) : quant::bfloat_to_float(bits);
  }
}

}  // namespace

int32_t packed_type_for(int32_t ggml_type) {
  const auto as_number = [](PackedType type) { return static_cast<int32_t>(type); };
  switch (static_cast<GgmlType>(ggml_type)) {
    case GgmlType::q4_0:
      return as_number(PackedType::q4s);
    case GgmlType::q4_1:
      return as_number(PackedType::q4a);
    case GgmlType::q4_k:
      return as_number(PackedType::q4k);
    case GgmlType::q5_0:
      return as_number(PackedType::q5s);
    case GgmlType::q5_1:
      return as_number(PackedType::q5a);
    case GgmlType::q5_k:
      return as_number(PackedType::q5k);
    case GgmlType::q3_k:  // exact: 3-bit quants and 6-bit scales fit
    case GgmlType::q6_k:
      return as_number(PackedType::q6k);
    case GgmlType::q8_0:
      return as_number(PackedType::q8s);
    case GgmlType::f16:
      return as_number(PackedType::f16);
    case GgmlType::bf16:
      return as_number(PackedType::bf16);
    case GgmlType::f32:
      return as_number(PackedType::f32);
    case GgmlType::q2_k:  // a min per 16 channels has no packed form
      return -1;
  }
  return -1;
}

size_t packed_bytes(PackedType type, int32_t num_rows, int32_t num_cols) {
  const size_t tiles = (static_cast<size_t>(num_rows) + kRowTile - 1) / kRowTile;
  return tiles * tile_bytes(type, num_cols);
}

void pack_tiles(int32_t ggml_type, const uint8_t* source, int32_t num_rows, int32_t num_cols, uint8_t* packed,
                int32_t tile_begin, int32_t tile_end) {
  const PackJob job{source, packed, num_rows, num_cols};
  for (int32_t tile = tile_begin; tile < tile_end; ++tile) pack_tile(static_cast<GgmlType>(ggml_type), job, tile);
}

void unpack_row(const MatrixPart& part, int32_t row, float* out) {
  const bool is_quantised = visit_quantised(part.type, [&]<PackedType kType>() {
    // Reading only: the position type serves both directions.
    uint8_t* tile = const_cast<uint8_t*>(part.data) + (row / kRowTile) * tile_bytes(kType, part.num_cols);
    for (int32_t block = 0; block < part.num_cols / kQuantBlock; ++block) {
      RowBlock row_block;
      quant::load_row_block<kType>(position<kType>(tile, block, row % kRowTile), row_block);
      dequantise<kType>(row_block, out + block * kQuantBlock);
    }
  });
  if (!is_quantised) unpack_floats(part, row, out);
}

size_t activation_bytes(int32_t num_tokens, int32_t num_cols) {
  return static_cast<size_t>(num_tokens) * (num_cols / kQuantBlock) * sizeof(ActivationBlock);
}

const ActivationBlock& activation_block(const uint8_t* activations, int32_t num_tokens, int32_t num_cols, int32_t token,
                                        int32_t block) {
  const size_t index = activation_index(num_tokens, num_cols / kQuantBlock, token, block);
  return reinterpret_cast<const ActivationBlock*>(activations)[index];
}

int32_t num_tiles(const LinearTask& task) {
  int32_t tiles = 0;
  for (int32_t part = 0; part < task.num_parts; ++part) {
    tiles += (task.parts[part].num_rows + kRowTile - 1) / kRowTile;
  }
  return tiles;
}

}  // namespace paceline

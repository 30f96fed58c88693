// The linear layer: which passes run in which order. Written once against a target's Simd.
//
// T <= 5: one pass per tile, all of K: the weights stream by once. T > 5: several token tiles share a weight chunk.
//
//   for each chunk of about 64 tokens       their activations stay in the L2 cache
//     for each chunk of 1536 channels       32 rows × 1536 channels ≈ 30 KB stay near over the token tiles
//       for each tile of 32 rows
//         for each token tile               each fetches its share of the next chunk: memory works during all
//
// A channel chunk continues from the sums in y, so the order of the float sum is the same as in one pass.
#pragma once
#include "kernels/linear_floats.h"
#include "kernels/linear_narrow.h"
#include "kernels/linear_pass.h"

namespace paceline::kernels {

inline constexpr int32_t kChannelChunk = 1536;      // a multiple of 256
inline constexpr int32_t kFloatChannelChunk = 512;  // 32 KB of 16-bit numbers
inline constexpr int32_t kTokenChunk = 64;

// The tiles of one part that a call must compute.
struct TileRange {
  const MatrixPart* part;
  int32_t first_row;  // of the part, in y
  int32_t begin, end;
};

// Token tiles [begin, end) of the step.
struct TokenRange {
  int32_t begin, end;
};

[[gnu::always_inline]] inline constexpr int32_t ceil_divide(int32_t a, int32_t b) { return (a + b - 1) / b; }
[[gnu::always_inline]] inline constexpr int32_t at_most(int32_t value, int32_t limit) {
  return value < limit ? value : limit;
}

// Calls visit(integral_constant<int, tokens>, first token) so that a tile of `size` tokens is covered: at once, or
// token by token on a target whose vectors are too few to hold a tile's sums. kSmallest … 5 are the sizes that occur.
template <class S, int kSmallest, class Visit>
[[gnu::always_inline]] inline void cover_tokens(int32_t size, Visit&& visit) {
  if constexpr (S::kMaxTokens == 1) {
    for (int32_t token = 0; token < size; ++token) visit(std::integral_constant<int, 1>{}, token);
  } else {
    static_assert(S::kMaxTokens == kMaxTokenTile);
    unroll<kMaxTokenTile>(PACELINE_EACH {
      constexpr int kSize = i + 1;
      if constexpr (kSize >= kSmallest) {
        if (size == kSize) visit(std::integral_constant<int, kSize>{}, 0);
      }
    });
  }
}

// One pass over a tile: 32 rows at once, or 8 by 8 on a target of narrow vectors.
template <class S, PackedType kType, int kTokens, bool kStream>
[[gnu::always_inline]] inline void cover_rows(const Pass& pass) {
  if constexpr (kIsNarrow<S>) {
    run_narrow_pass<S, kType, kTokens, kStream>(pass);
  } else {
    run_pass<S, kType, kTokens, kStream>(pass);
  }
}

// The fields of a pass that depend on tile and tokens only.
template <class S>
[[gnu::always_inline]] inline Pass start_pass(const LinearTask& task, const TileRange& range, int32_t tile,
                                              int32_t token) {
  const int32_t row = range.first_row + tile * kRowTile;
  Pass pass{};
  pass.num_rows = at_most(kRowTile, range.part->num_rows - tile * kRowTile);
  pass.bias = task.bias != nullptr ? task.bias + row : nullptr;
  pass.y = task.y + token * task.y_stride + row;
  pass.y_stride = task.y_stride;
  return pass;
}

template <class S, PackedType kType>
void stream_tiles(const LinearTask& task, const TileRange& range) {
  constexpr BlockLayout layout = layout_of<kType>();
  const int32_t num_blocks = task.num_cols / kQuantBlock;
  const size_t tile_bytes = static_cast<size_t>(num_blocks / layout.blocks_per_super()) * layout.super_stride();
  cover_tokens<S, 1>(
      task.num_tokens, [&](auto tokens, int32_t token) __attribute__((always_inline)) {
        for (int32_t tile = range.begin; tile < range.end; ++tile) {
          Pass pass = start_pass<S>(task, range, tile, token);
          pass.weights = range.part->data + tile * tile_bytes;
          pass.activations = task.activations + token * sizeof(ActivationBlock);
          pass.tile_tokens = task.num_tokens;
          pass.num_blocks = num_blocks;
          pass.is_first = true;
          cover_rows<S, kType, tokens, true>(pass);
        }
      });
}

// All token tiles of one weight chunk. `pass` has everything but the token fields.
template <class S, PackedType kType>
void run_chunk(const LinearTask& task, const TokenRange& tokens, Pass pass, int32_t first_block) {
  const int32_t all_blocks = task.num_cols / kQuantBlock;
  float* const y = pass.y;
  for (int32_t index = tokens.begin; index < tokens.end; ++index) {
    const TokenTile tile = token_tile(task.num_tokens, index);
    const size_t at = static_cast<size_t>(tile.begin) * all_blocks + static_cast<size_t>(first_block) * tile.size;
    pass.tile_tokens = tile.size;
    cover_tokens<S, 3>(
        tile.size, [&](auto size, int32_t token) __attribute__((always_inline)) {
          pass.activations = task.activations + (at + token) * sizeof(ActivationBlock);
          pass.y = y + (tile.begin + token) * task.y_stride;
          cover_rows<S, kType, size, S::kMaxTokens == 1>(pass);
        });
    pass.next += static_cast<size_t>(pass.num_blocks) * pass.next_lines * kLine;
  }
}

template <class S, PackedType kType>
void reuse_tiles(const LinearTask& task, const TileRange& range, const TokenRange& tokens) {
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr int32_t kPer = layout.blocks_per_super();
  const int32_t num_blocks = task.num_cols / kQuantBlock;
  const size_t tile_bytes = static_cast<size_t>(num_blocks / kPer) * layout.super_stride();
  const int32_t lines =
      ceil_divide(layout.super_stride(), kPer * kLine);  // of a block, its share of the super header in it
  for (int32_t first = 0; first < num_blocks; first += kChannelChunk / kQuantBlock) {
    const size_t chunk_offset = static_cast<size_t>(first / kPer) * layout.super_stride();
    for (int32_t tile = range.begin; tile < range.end; ++tile) {
      Pass pass = start_pass<S>(task, range, tile, 0);
      pass.weights = range.part->data + tile * tile_bytes + chunk_offset;
      pass.num_blocks = at_most(kChannelChunk / kQuantBlock, num_blocks - first);
      pass.is_first = first == 0;
      if (first + pass.num_blocks < num_blocks) pass.bias = nullptr;
      pass.next = pass.weights + tile_bytes;
      pass.next_lines = ceil_divide(lines, tokens.end - tokens.begin);
      run_chunk<S, kType>(task, tokens, pass, first);
    }
  }
}

template <class S, PackedType kType>
void run_float_tiles(const LinearTask& task, const TileRange& range, const TokenRange& tokens) {
  constexpr size_t kChannelBytes = static_cast<size_t>(kRowTile) * float_bytes(kType);
  const bool is_stream = task.num_tokens <= kMaxTokenTile;
  const int32_t chunk = is_stream ? task.num_cols : kFloatChannelChunk;
  for (int32_t tile = range.begin; tile < range.end; ++tile) {
    for (int32_t first = 0; first < task.num_cols; first += chunk) {
      for (int32_t index = tokens.begin; index < tokens.end; ++index) {
        const TokenTile token = token_tile(task.num_tokens, index);
        cover_tokens<S, 1>(
            token.size, [&](auto size, int32_t from) __attribute__((always_inline)) {
              FloatPass pass{start_pass<S>(task, range, tile, token.begin + from), nullptr, task.x_stride, 0};
              pass.pass.weights =
                  range.part->data + (static_cast<size_t>(tile) * task.num_cols + first) * kChannelBytes;
              pass.pass.is_first = first == 0;
              pass.x = task.x + (token.begin + from) * task.x_stride + first;
              pass.num_channels = at_most(chunk, task.num_cols - first);
              if (first + pass.num_channels < task.num_cols) pass.pass.bias = nullptr;
              if constexpr (kIsNarrow<S>) {
                run_narrow_float_pass<S, kType, size>(pass);
              } else {
                run_float_pass<S, kType, size>(pass);
              }
            });
      }
    }
  }
}

template <class S>
void run_part(const LinearTask& task, const TileRange& range, const TokenRange& tokens) {
  const bool is_quantised = visit_quantised(
      range.part->type, [&]<PackedType kType>() __attribute__((always_inline)) {
        if (task.num_tokens <= kMaxTokenTile) {
          stream_tiles<S, kType>(task, range);
        } else {
          reuse_tiles<S, kType>(task, range, tokens);
        }
      });
  if (is_quantised) return;
  if (range.part->type == PackedType::f16) return run_float_tiles<S, PackedType::f16>(task, range, tokens);
  if (range.part->type == PackedType::bf16) return run_float_tiles<S, PackedType::bf16>(task, range, tokens);
  run_float_tiles<S, PackedType::f32>(task, range, tokens);
}

// Output tiles [tile_begin, tile_end) over all parts, for the token tiles of one chunk.
template <class S>
void run_tiles(const LinearTask& task, int32_t tile_begin, int32_t tile_end, const TokenRange& tokens) {
  int32_t first_tile = 0, first_row = 0;
  for (int32_t index = 0; index < task.num_parts; ++index) {
    const MatrixPart& part = task.parts[index];
    const int32_t num_tiles = ceil_divide(part.num_rows, kRowTile);
    const int32_t begin = tile_begin > first_tile ? tile_begin - first_tile : 0;
    const int32_t end = at_most(tile_end - first_tile, num_tiles);
    if (begin < end) run_part<S>(task, {&part, first_row, begin, end}, tokens);
    first_tile += num_tiles;
    first_row += part.num_rows;
  }
}

template <class S>
void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end) {
  if (task.num_tokens == 0) return;
  const int32_t num_token_tiles = paceline::num_token_tiles(task.num_tokens);
  const int32_t num_chunks = ceil_divide(task.num_tokens, kTokenChunk);
  const int32_t chunk = ceil_divide(num_token_tiles, num_chunks);
  for (int32_t begin = 0; begin < num_token_tiles; begin += chunk) {
    run_tiles<S>(task, tile_begin, tile_end, {begin, at_most(begin + chunk, num_token_tiles)});
  }
}

}  // namespace paceline::kernels

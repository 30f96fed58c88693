// How the attention of a step is shared out over threads: tiles in one fixed order, cut into parts of equal cost.
//
//   slice 0: KV head 0: tile, tile, …   KV head 1: tile, …   slice 1: …          a tile: up to 12 (token, head) pairs
//   thread 0 ─────────────────────────┤ thread 1 ──────────┤ thread 2 …         borders may lie inside a tile
//
// The one idea: results do not depend on the borders, so borders may lie wherever the work is even. A border inside a
// tile of few chunks parts its pairs: both threads read the same keys. In a tile of many chunks it parts the positions:
// each thread folds or keeps the chunks that it computed, and after a barrier they are folded in order.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/step.h"

namespace paceline {

// What the split of an instruction depends on, beside the step.
struct AttentionShape {
  int32_t num_kv_heads = 0;
  int32_t heads_per_kv = 0;
  int32_t window = 0;

  bool operator==(const AttentionShape&) const = default;
};

// One tile: its pairs, and the chunks that some pair of it sees.
struct TilePlace {
  int32_t slice;
  AttentionTile tile;
  int32_t first_block;  // blocks [first_block, end_block) of the slice's table
  int32_t end_block;

  int32_t num_pairs() const { return tile.pair_end - tile.pair_begin; }
  int32_t first_chunk() const { return first_block * kBlockSize / kAttentionChunk; }
  int32_t end_chunk() const { return ((end_block - 1) * kBlockSize) / kAttentionChunk + 1; }
  int32_t num_chunks() const { return end_chunk() - first_chunk(); }
};

// A place in the walk over all tiles: before pair `pair` of chunk `chunk` (both from the tile's own start).
struct Border {
  int32_t tile_index = 0;
  int32_t chunk = 0;
  int32_t pair = 0;
  bool parts_chunks = false;  // inside a tile, between chunks; else `pair` parts all of the tile's chunks

  bool is_inside() const { return chunk > 0 || pair > 0; }
};

// Thread t works from borders[t] to borders[t + 1].
struct AttentionSplit {
  AttentionShape shape;
  std::vector<Border> borders;  // [num_threads + 1]
  bool parts_chunks = false;    // some border does: threads must meet and fold
};

// Where the tiles of a step lie: visit(tile_index, place) for the indices [begin, end), in order.
template <class Visit>
void for_tiles(const Step& step, const AttentionShape& shape, int32_t begin, int32_t end, Visit visit);

// Number of tiles of a step.
int32_t count_tiles(const Step& step, const AttentionShape& shape);

// Fills the split's borders for a step; `borders` keeps its size. Tiles of more chunks are not parted between chunks.
void split_attention(const Step& step, int32_t max_chunks, AttentionSplit& split);

// The place of one tile of a slice.
TilePlace place_tile(const Step& step, const AttentionShape& shape, int32_t slice, int32_t index_in_slice);

// Tiles of one KV head of a slice.
inline int32_t tiles_per_kv_head(const Step& step, const AttentionShape& shape, int32_t slice) {
  const int32_t num_pairs = (step.slice_starts[slice + 1] - step.slice_starts[slice]) * shape.heads_per_kv;
  return (num_pairs + kMaxPairs - 1) / kMaxPairs;
}

template <class Visit>
void for_tiles(const Step& step, const AttentionShape& shape, int32_t begin, int32_t end, Visit visit) {
  int32_t before = 0;
  for (int32_t slice = 0; slice < step.num_slices && before < end; ++slice) {
    const int32_t count = shape.num_kv_heads * tiles_per_kv_head(step, shape, slice);
    const int32_t from = begin > before ? begin - before : 0, to = end < before + count ? end - before : count;
    for (int32_t i = from; i < to; ++i) visit(before + i, place_tile(step, shape, slice, i));
    before += count;
  }
}

}  // namespace paceline

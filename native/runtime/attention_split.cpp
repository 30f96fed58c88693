#include "runtime/attention_split.h"

#include <algorithm>
#include <limits>

namespace paceline {
namespace {

constexpr int32_t kEnd = std::numeric_limits<int32_t>::max();
constexpr int32_t kMinChunksToPart = 4;     // below it, reading keys and values twice costs less than to meet
constexpr int32_t kSmallTilesPerPart = 24;  // a tile smaller than this share of a thread's part is not cut

// Cost of a tile in units of one pair's work on one block: loading K and V counts like two pairs.
int64_t cost_of(const TilePlace& place) {
  return int64_t{place.end_block - place.first_block} * (place.num_pairs() + 2) + 4 * place.num_pairs();
}

// The border that lies `done` into a tile of cost `cost`.
Border border_inside(const TilePlace& place, int32_t tile_index, int64_t done, int64_t cost, bool may_part_chunks) {
  const int32_t num_pairs = place.num_pairs();
  if (!may_part_chunks || place.num_chunks() < kMinChunksToPart) {
    const auto pair = static_cast<int32_t>((2 * done * num_pairs + cost) / (2 * cost));
    return pair == num_pairs ? Border{tile_index + 1} : Border{tile_index, 0, pair, false};
  }
  constexpr int32_t kChunkBlocks = kAttentionChunk / kBlockSize;
  // In pairs of blocks: the border's block, then how far it is into its chunk's pairs.
  const int64_t at = done * (place.end_block - place.first_block) * num_pairs / cost;
  const auto block = static_cast<int32_t>(place.first_block + at / num_pairs);
  const int32_t chunk_first = std::max(block / kChunkBlocks * kChunkBlocks, place.first_block);
  const int32_t chunk_end = std::min((block / kChunkBlocks + 1) * kChunkBlocks, place.end_block);
  const int64_t into = at - int64_t{chunk_first - place.first_block} * num_pairs;
  const auto pair = static_cast<int32_t>(into / (chunk_end - chunk_first));
  const Border border{tile_index, block / kChunkBlocks - place.first_chunk(), pair, true};
  return border.is_inside() ? border : Border{tile_index};
}

}  // namespace

TilePlace place_tile(const Step& step, const AttentionShape& shape, int32_t slice, int32_t index_in_slice) {
  const int32_t token_begin = step.slice_starts[slice], token_end = step.slice_starts[slice + 1];
  const int32_t per_head = tiles_per_kv_head(step, shape, slice);
  const int32_t kv_head = index_in_slice / per_head, pair_begin = index_in_slice % per_head * kMaxPairs;
  const int32_t pair_end = std::min(pair_begin + kMaxPairs, (token_end - token_begin) * shape.heads_per_kv);
  const int32_t low = step.positions[token_begin + pair_begin / shape.heads_per_kv];
  const int32_t high = step.positions[token_begin + (pair_end - 1) / shape.heads_per_kv];
  const int32_t first = shape.window > 0 && low >= shape.window ? low - shape.window + 1 : 0;
  return {slice, {kv_head, token_begin, pair_begin, pair_end}, first / kBlockSize, high / kBlockSize + 1};
}

int32_t count_tiles(const Step& step, const AttentionShape& shape) {
  int32_t count = 0;
  for (int32_t slice = 0; slice < step.num_slices; ++slice) {
    count += shape.num_kv_heads * tiles_per_kv_head(step, shape, slice);
  }
  return count;
}

void split_attention(const Step& step, int32_t max_chunks, AttentionSplit& split) {
  const auto num_threads = static_cast<int64_t>(split.borders.size()) - 1;
  int64_t total = 0;
  for_tiles(step, split.shape, 0, kEnd, [&](int32_t, const TilePlace& place) { total += cost_of(place); });
  std::fill(split.borders.begin(), split.borders.end(), Border{kEnd});
  split.borders[0] = {};
  split.parts_chunks = false;
  int64_t thread = 1, done = 0;
  for_tiles(step, split.shape, 0, kEnd, [&](int32_t index, const TilePlace& place) {
    const int64_t cost = cost_of(place);
    for (; thread < num_threads && total * thread / num_threads < done + cost; ++thread) {
      const int64_t into = total * thread / num_threads - done;
      Border border{index + (2 * into > cost)};
      if (cost * kSmallTilesPerPart > total / num_threads) {
        border = border_inside(place, index, into, cost, place.num_chunks() <= max_chunks);
      }
      split.borders[static_cast<size_t>(thread)] = border;
      split.parts_chunks |= border.parts_chunks && border.is_inside();
    }
    done += cost;
  });
}

}  // namespace paceline

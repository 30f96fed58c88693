// How attention is shared out: tiles of (token, head) pairs in a fixed order, cut into parts of equal cost.
#include <algorithm>

#include "runtime/executor.h"

namespace paceline {
namespace {

// Tokens of one tile: as many as fit kMaxPairs with all query heads of a KV head, at least one.
int32_t tokens_per_tile(int32_t heads_per_kv) { return std::max(1, kMaxPairs / heads_per_kv); }

// Query heads of one tile: all of a KV head when they fit.
int32_t heads_per_tile(int32_t heads_per_kv) { return std::min(heads_per_kv, kMaxPairs); }

// Cost of a tile in units of one pair's work on one block: loading and widening K and V counts like three pairs.
int64_t cost_of(int32_t num_blocks, int32_t num_pairs) { return int64_t{num_blocks} * (num_pairs + 3) + 8; }

// Calls visit(slice, token_begin, token_end, cost) for the tiles of every slice; each stands for all heads.
template <class Visit>
void for_token_tiles(const Step& step, const Instruction& instruction, Visit visit) {
  const int32_t heads_per_kv = instruction.num_heads / instruction.num_kv_heads;
  const int32_t tile = tokens_per_tile(heads_per_kv);
  for (int32_t slice = 0; slice < step.num_slices; ++slice) {
    const int32_t end = step.slice_starts[slice + 1];
    for (int32_t token = step.slice_starts[slice]; token < end; token += tile) {
      const int32_t last = std::min(token + tile, end);
      const int32_t high = step.positions[last - 1] + 1;
      const int32_t seen = instruction.window > 0 ? std::min(high, instruction.window + tile) : high;
      visit(slice, token, last, cost_of((seen + kBlockSize - 1) / kBlockSize, (last - token) * heads_per_kv));
    }
  }
}

}  // namespace

// The int8 form of a tile's result, while it is near.
void Executor::quantize_heads(const Instruction& instruction, const AttentionTile& tile) const {
  if (instruction.activations < 0) return;
  const int32_t column = tile.head_begin * instruction.head_dim;
  const int32_t num_cols = (tile.head_end - tile.head_begin) * instruction.head_dim;
  for (int32_t token = tile.token_begin; token < tile.token_end; ++token) {
    quantize_columns(instruction, token, column, row_of(instruction.out, token) + column, num_cols);
  }
}

void Executor::attend(const Instruction& instruction, int32_t thread) {
  const int32_t heads_per_kv = instruction.num_heads / instruction.num_kv_heads;
  AttentionTask task{
      .q = floats(instruction.a),
      .q_stride = instruction.a.stride,
      .out = floats(instruction.out),
      .out_stride = instruction.out.stride,
      .kv = reinterpret_cast<const uint16_t*>(kv_.data()) + instruction.kv_offset,
      .block_stride = program_.kv_block_elements,
      .block_table = nullptr,
      .positions = step_->positions,
      .num_heads = instruction.num_heads,
      .num_kv_heads = instruction.num_kv_heads,
      .head_dim = instruction.head_dim,
      .window = instruction.window,
      .scale = instruction.scale,
      .softcap = instruction.softcap,
  };
  int64_t total = 0;
  for_token_tiles(*step_, instruction,
                  [&](int32_t, int32_t, int32_t, int64_t cost) { total += cost * instruction.num_kv_heads; });
  // Cost is laid out tile by tile, KV head by KV head, query head by query head; a thread takes the query heads whose
  // middle lies in its part. Only a KV head on a border is read by two threads, and one sequence alone still keeps both
  // busy.
  const int64_t begin = total * thread / pool_.num_threads(), end = total * (thread + 1) / pool_.num_threads();
  const int32_t group = heads_per_tile(heads_per_kv);
  const auto heads_before = [&](int64_t border, int64_t done, int64_t cost) {
    const int64_t heads = (2 * (border - done) * heads_per_kv + cost) / (2 * cost);
    return static_cast<int32_t>(std::clamp<int64_t>(heads, 0, heads_per_kv));
  };
  int64_t done = 0;
  for_token_tiles(*step_, instruction, [&](int32_t slice, int32_t token_begin, int32_t token_end, int64_t cost) {
    task.block_table = step_->block_table(slice);
    for (int32_t kv_head = 0; kv_head < instruction.num_kv_heads; ++kv_head, done += cost) {
      const int32_t first_head = kv_head * heads_per_kv + heads_before(begin, done, cost);
      const int32_t last_head = kv_head * heads_per_kv + heads_before(end, done, cost);
      for (int32_t head = first_head; head < last_head; head += group) {
        const AttentionTile tile{token_begin, token_end, head, std::min(head + group, last_head)};
        kernels_.attention(task, tile, scratch(thread));
        quantize_heads(instruction, tile);
      }
    }
  });
}

}  // namespace paceline

// Paged attention of one tile of (token, query head) pairs that share a KV head.
//
//   positions  0 …      chunk 0     | 256 …   chunk 1     | …        chunks lie at fixed logical positions
//   pair       q·K → scores[256] → mask → max, 2^(x - max) → weights[256] → Σ weights·V      then fold, in order
//
// The heavy work is in integers (attention_products.h), whose sums have no order. What is left in floats is one pair's
// and one chunk's own: the largest score, the weights relative to it, their sum in 16 lanes and a fixed tree. So a pair
// has the same bits in any tile, and a chunk has the same result on whichever thread; only folding has an order.
//
// A weight is p · (the value's scale), as an integer: as large as 16 bits and an exact sum allow, so that its rounding
// error is at most 2^-13 of the mean one and 2^-16 of the largest one. What an integer is worth is chosen such that all
// of them together are worth what the weights were: many equal weights round the same way.
#pragma once
#include <limits>

#include "kernels/attention_products.h"
#include "kernels/functions.h"

namespace paceline::kernels {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = 1.44269504f;

// Folds a later part {max, sum, out} into a state, all with one arithmetic: what both are multiplied with.
template <class S>
inline void fold_factors(float max, float later_max, float& keep, float& add) {
  const float top = later_max > max ? later_max : max;
  float lanes[16];
  S::store(lanes, exp2<S>(S::set1(max - top)));
  keep = max == kMinusInfinity ? 0.0f : lanes[0];
  S::store(lanes, exp2<S>(S::set1(later_max - top)));
  add = lanes[0];
}

template <class S>
void fold(const float* later, int32_t head_dim, float* state) {
  if (later[0] == kMinusInfinity) return;
  float keep, add;
  fold_factors<S>(state[0], later[0], keep, add);
  const auto keeps = S::set1(keep), adds = S::set1(add);
  for (int32_t i = kStateHeader; i < attention_state_floats(head_dim); i += 16) {
    S::store(state + i, S::fma(S::load(later + i), adds, S::load(state + i) * keeps));
  }
  state[1] = state[1] * keep + later[1] * add;
  state[0] = later[0] > state[0] ? later[0] : state[0];
}

// Turns a pair's scores of one chunk into integer weights and folds their maximum and sum into the state.
// [begin, end) are the chunk offsets that the pair sees; [first, last) those that were scored, whole blocks.
struct Visible {
  int32_t begin, end, first, last;
};

template <class S>
inline void soften(const AttentionTask& task, const TileScratch& s, int32_t pair, const Visible& visible,
                   const uint8_t* const* blocks, float weight_sum_limit) {
  using Vec = typename S::Vec;
  float* scores = s.scores + pair * kAttentionChunk;
  int16_t* weights = s.weights(pair);
  s.add[pair] = 0.0f;
  const auto [begin, end, first, last] = visible;
  if (begin >= end) {
    std::memset(weights + first, 0, static_cast<size_t>(last - first) * sizeof(int16_t));
    return;
  }
  const int32_t from = begin / 16 * 16, to = (end + 15) / 16 * 16;
  const auto lanes_seen = [&](int32_t i, Vec v, Vec other) {
    if (begin <= i && i + 16 <= end) return v;
    return Pairs<S>::select_lanes(begin > i ? begin - i : 0, end < i + 16 ? end - i : 16, v, other);
  };
  float factor = s.factor[pair];
  if (task.softcap > 0.0f) {
    const Vec inner = S::set1(factor / task.softcap), cap = S::set1(task.softcap);
    for (int32_t i = from; i < to; i += 16) S::store(scores + i, tanh<S>(S::load(scores + i) * inner) * cap);
    factor = kLog2E;
  }
  Vec top = S::set1(kMinusInfinity);
  for (int32_t i = from; i < to; i += 16)
    top = S::max(lanes_seen(i, S::load(scores + i), S::set1(kMinusInfinity)), top);
  const float max = S::reduce_max(top) * factor;
  const Vec factors = S::set1(factor), shift = S::set1(-max), zero = S::set1(0.0f);
  Vec sum = zero, weight_sum = zero, weight_max = zero;
  for (int32_t i = from; i < to; i += 16) {
    const Vec p = lanes_seen(i, exp2<S>(S::fma(S::load(scores + i), factors, shift)), zero);
    const Vec weight = p * S::load(reinterpret_cast<const float*>(blocks[i / 16]) + kBlockSize);
    S::store(scores + i, weight);
    sum = sum + p;
    weight_sum = weight_sum + weight;
    weight_max = S::max(weight, weight_max);
  }
  const float largest = S::reduce_max(weight_max), total = S::reduce_add(weight_sum);
  const float by_size = kWeightLimit / largest, by_sum = weight_sum_limit / total;
  const float density = largest < kSmallest ? 0.0f : by_size < by_sum ? by_size : by_sum;
  for (int32_t i = first; i < from; i += 16) std::memset(weights + i, 0, 16 * sizeof(int16_t));
  auto integer_sum = Pairs<S>::zero();
  for (int32_t i = from; i < to; i += 16) {
    const auto rounded = Pairs<S>::round_to_int(S::load(scores + i) * S::set1(density));
    integer_sum = Pairs<S>::add(integer_sum, rounded);
    Pairs<S>::store_i16(weights + i, rounded);
  }
  for (int32_t i = to; i < last; i += 16) std::memset(weights + i, 0, 16 * sizeof(int16_t));
  float* state = s.state(pair);
  fold_factors<S>(state[0], max, s.keep[pair], s.add[pair]);
  state[1] = state[1] * s.keep[pair] + S::reduce_add(sum) * s.add[pair];
  state[0] = max > state[0] ? max : state[0];
  s.unit[pair] = density > 0.0f ? total / static_cast<float>(Pairs<S>::reduce_add(integer_sum)) : 0.0f;
}

// The first position that a token at `position` sees.
inline int32_t first_visible(const AttentionTask& task, int32_t position) {
  return task.window > 0 && position >= task.window ? position - task.window + 1 : 0;
}

inline int32_t token_of(const AttentionTask& task, const AttentionTile& tile, int32_t pair) {
  return tile.token_begin + (tile.pair_begin + pair) / task.heads_per_kv();
}

inline int32_t head_of(const AttentionTask& task, const AttentionTile& tile, int32_t pair) {
  return tile.kv_head * task.heads_per_kv() + (tile.pair_begin + pair) % task.heads_per_kv();
}

// The tile's queries as integers, [W/2][P][2]; rows beyond the tile's pairs are zero.
template <class S, class Element, int32_t P>
inline void load_queries(const AttentionTask& task, const AttentionTile& tile, const TileScratch& s) {
  int16_t quants[kMaxHeadDim];
  for (int32_t pair = 0; pair < P; ++pair) {
    if (pair < s.num_pairs) {
      const float* q = task.q + token_of(task, tile, pair) * task.q_stride +
                       static_cast<ptrdiff_t>(head_of(task, tile, pair)) * task.head_dim;
      const float scale = round_head<S>(q, task.head_dim, rotates<Element>(task.head_dim),
                                        KvElement<Element>::query_limit(task.head_dim), quants);
      s.factor[pair] = scale * task.scale * (task.softcap > 0.0f ? 1.0f : kLog2E);
    } else {
      std::memset(quants, 0, sizeof quants);
    }
    for (int32_t d = 0; d < s.width; d += 2) std::memcpy(s.q + d * P + 2 * pair, quants + d, 2 * sizeof(int16_t));
  }
}

template <class S, class Element, int32_t P>
void attend_pairs(const AttentionTask& task, const AttentionTile& tile, int32_t chunk_begin, int32_t chunk_end,
                  const TileScratch& s) {
  load_queries<S, Element, P>(task, tile, s);
  const int32_t low = first_visible(task, task.positions[token_of(task, tile, 0)]);
  const int32_t high = task.positions[token_of(task, tile, s.num_pairs - 1)];
  const uint8_t* head_base =
      task.kv + static_cast<ptrdiff_t>(tile.kv_head) *
                    (kKvScaleBytes + 2 * kBlockSize * s.width * static_cast<int32_t>(sizeof(Element)));
  for (int32_t chunk = chunk_begin; chunk < chunk_end; ++chunk) {
    const int32_t origin = chunk * kAttentionChunk;
    const int32_t first = low > origin ? (low - origin) / kBlockSize : 0;
    const int32_t last = high - origin < kAttentionChunk ? (high - origin) / kBlockSize + 1 : kChunkBlocks;
    if (first >= last) continue;
    ChunkBlocks blocks{first, last, {}, {}};
    const int32_t last_block = high / kBlockSize;
    for (int32_t b = first; b < last; ++b) {
      const int32_t at = origin / kBlockSize + b, then = at + kChunkBlocks;
      blocks.blocks[b] = head_base + static_cast<ptrdiff_t>(task.block_table[at]) * task.block_stride;
      blocks.next[b] = head_base + static_cast<ptrdiff_t>(task.block_table[then < last_block ? then : last_block]) *
                                       task.block_stride;
    }
    score_chunk<S, Element, P>(s, blocks);
    for (int32_t pair = 0; pair < s.num_pairs; ++pair) {
      const int32_t position = task.positions[token_of(task, tile, pair)];
      const int32_t begin = first_visible(task, position) - origin, end = position - origin + 1;
      soften<S>(
          task, s, pair,
          {begin > 0 ? begin : 0, end < kAttentionChunk ? end : kAttentionChunk, first * kBlockSize, last * kBlockSize},
          blocks.blocks, kWeightSumLimit<Element>);
    }
    for (int32_t pair = s.num_pairs; pair < P; ++pair) {
      std::memset(s.weights(pair) + first * kBlockSize, 0,
                  static_cast<size_t>(last - first) * kBlockSize * sizeof(int16_t));
    }
    weigh_chunk<S, Element, P>(s, blocks);
  }
}

template <class S, class Element>
void attend(const AttentionTask& task, const AttentionTile& tile, int32_t chunk_begin, int32_t chunk_end, float* states,
            float* scratch) {
  const int32_t num_pairs = tile.pair_end - tile.pair_begin;
  const TileScratch s = make_scratch(scratch, task.head_dim, num_pairs, states);
  const auto run = [&](auto attend_these) { attend_these(task, tile, chunk_begin, chunk_end, s); };
  if (num_pairs <= 1) return run(attend_pairs<S, Element, 1>);
  if (num_pairs <= 2) return run(attend_pairs<S, Element, 2>);
  if (num_pairs <= 3) return run(attend_pairs<S, Element, 3>);
  if (num_pairs <= 4) return run(attend_pairs<S, Element, 4>);
  if (num_pairs <= 6) return run(attend_pairs<S, Element, 6>);
  if (num_pairs <= 7) return run(attend_pairs<S, Element, 7>);
  if (num_pairs <= 8) return run(attend_pairs<S, Element, 8>);
  return run(attend_pairs<S, Element, 12>);
}

}  // namespace paceline::kernels

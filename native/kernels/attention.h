// Paged attention of one tile of (token, query head) pairs that share a KV head.
//
//   positions  0 …      chunk 0     | 256 …   chunk 1     | …        chunks lie at fixed logical positions
//   pair       q·K → scores[256] → mask → max, exp, sum → Σ p·V      then fold into the running (max, sum, out), in
//   order
//
// Naive: one pair at a time reads all of K and V again for each of the 3–8 query heads of a KV head and for each token
// of a prompt. Here up to 12 pairs share every load and f16 → f32 conversion: K [head_dim][16] gives the scores of 16
// tokens in one register without a horizontal sum, q comes as a broadcast; V [16][head_dim] is read row by row with p
// as a broadcast.
//
// Bits: a pair's arithmetic is the same in any tile. Each score and each output channel is one chain in one lane;
// masked positions add exactly 0 (p is 0 or at least e^-80, so that no product can round to -0).
#pragma once
#include <limits>

#include "kernels/elementwise.h"
#include "kernels/functions.h"
#include "paceline/kernels.h"

namespace paceline::kernels {

inline constexpr int32_t kChunkBlocks = kAttentionChunk / kBlockSize;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Head width in the cache and in scratch: whole registers.
inline constexpr int32_t padded_head_dim(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }

// One tile's working memory, all in the thread's scratch.
struct TileScratch {
  float* scores;  // [kMaxPairs][kAttentionChunk]
  float* q;       // [width][pairs of the tile]: one pointer, constant offsets
  float* out;     // [kMaxPairs][width], not yet divided by `sum`
  float* max;     // [kMaxPairs]
  float* sum;
  float* rescale;
  int32_t width;
};

inline TileScratch make_scratch(float* memory, int32_t head_dim) {
  const int32_t width = padded_head_dim(head_dim);
  TileScratch s{};
  s.width = width;
  s.scores = memory;
  s.q = s.scores + kMaxPairs * kAttentionChunk;
  s.out = s.q + kMaxPairs * width;
  s.max = s.out + kMaxPairs * width;
  s.sum = s.max + kMaxPairs;
  s.rescale = s.sum + kMaxPairs;
  return s;
}

// Scores of P pairs against B blocks, unscaled.
template <class S, int32_t P, int32_t B>
inline void score_blocks(const TileScratch& s, const uint16_t* const* blocks, int32_t head_dim, float* scores) {
  using Vec = typename S::Vec;
  Vec sums[P][B];
#pragma GCC unroll 16
  for (int32_t p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int32_t b = 0; b < B; ++b) sums[p][b] = S::set1(0.0f);
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    Vec keys[B];
#pragma GCC unroll 4
    for (int32_t b = 0; b < B; ++b) keys[b] = S::load_f16(blocks[b] + d * kBlockSize);
#pragma GCC unroll 16
    for (int32_t p = 0; p < P; ++p) {
      const Vec q = S::set1(s.q[d * P + p]);
#pragma GCC unroll 4
      for (int32_t b = 0; b < B; ++b) sums[p][b] = S::fma(q, keys[b], sums[p][b]);
    }
  }
#pragma GCC unroll 16
  for (int32_t p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int32_t b = 0; b < B; ++b) S::store(scores + p * kAttentionChunk + b * kBlockSize, sums[p][b]);
  }
}

// out[p] = out[p] · rescale[p] + Σ p·V over the chunk's blocks, for N registers of channels from `channel`.
template <class S, int32_t P, int32_t N>
inline void weigh_values(const TileScratch& s, const uint16_t* const* blocks, int32_t first_block, int32_t end_block,
                         int32_t channel) {
  using Vec = typename S::Vec;
  Vec sums[P][N];
#pragma GCC unroll 16
  for (int32_t p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int32_t n = 0; n < N; ++n) sums[p][n] = S::set1(0.0f);
  }
  for (int32_t b = first_block; b < end_block; ++b) {
    const uint16_t* values = blocks[b] + kBlockSize * s.width + channel;
    const float* weights = s.scores + b * kBlockSize;
    for (int32_t t = 0; t < kBlockSize; ++t) {
      Vec v[N];
#pragma GCC unroll 4
      for (int32_t n = 0; n < N; ++n) v[n] = S::load_f16(values + t * s.width + n * 16);
#pragma GCC unroll 16
      for (int32_t p = 0; p < P; ++p) {
        const Vec weight = S::set1(weights[p * kAttentionChunk + t]);
#pragma GCC unroll 4
        for (int32_t n = 0; n < N; ++n) sums[p][n] = S::fma(weight, v[n], sums[p][n]);
      }
    }
  }
#pragma GCC unroll 16
  for (int32_t p = 0; p < P; ++p) {
    const Vec rescale = S::set1(s.rescale[p]);
#pragma GCC unroll 4
    for (int32_t n = 0; n < N; ++n) {
      float* out = s.out + p * s.width + channel + n * 16;
      S::store(out, S::load(out) * rescale + sums[p][n]);
    }
  }
}

// Turns a pair's scores of one chunk into weights and folds their maximum and sum into the running ones.
// [begin, end) are the chunk offsets that the pair sees; [first, last) those that were scored, whole blocks.
template <class S>
inline void soften(const AttentionTask& task, const TileScratch& s, int32_t pair, int32_t begin, int32_t end,
                   int32_t first, int32_t last) {
  using Vec = typename S::Vec;
  float* scores = s.scores + pair * kAttentionChunk;
  if (begin >= end) {
    for (int32_t i = first; i < last; i += 16) S::store(scores + i, S::set1(0.0f));
    s.rescale[pair] = 1.0f;
    return;
  }
  const int32_t from = begin / 16 * 16, to = (end + 15) / 16 * 16;
  const Vec minus_infinity = S::set1(kMinusInfinity);
  Vec top = minus_infinity;
  for (int32_t i = from; i < to; i += 16) {
    Vec v = S::load(scores + i) * S::set1(task.scale);
    if (task.softcap > 0.0f) v = tanh<S>(v * S::set1(1.0f / task.softcap)) * S::set1(task.softcap);
    S::store(scores + i, v);
    if (i < begin || i + 16 > end) {
      for (int32_t t = i; t < begin; ++t) scores[t] = kMinusInfinity;
      for (int32_t t = end > i ? end : i; t < i + 16; ++t) scores[t] = kMinusInfinity;
      v = S::load(scores + i);
    }
    top = S::max(v, top);
  }
  const float chunk_max = S::reduce_max(top);
  const float new_max = chunk_max > s.max[pair] ? chunk_max : s.max[pair];
  const Vec shift = S::set1(new_max), floor = S::set1(-80.0f), zero = S::set1(0.0f);
  Vec sum = zero;
  for (int32_t i = from; i < to; i += 16) {
    const Vec x = S::load(scores + i) - shift;
    const Vec weight = S::select_ge(x, floor, exp<S>(x), zero);
    S::store(scores + i, weight);
    sum = sum + weight;
  }
  for (int32_t i = first; i < from; i += 16) S::store(scores + i, zero);
  for (int32_t i = to; i < last; i += 16) S::store(scores + i, zero);
  float lanes[16];
  S::store(lanes, S::select_ge(S::set1(s.max[pair] - new_max), floor, exp<S>(S::set1(s.max[pair] - new_max)), zero));
  s.rescale[pair] = lanes[0];
  s.sum[pair] = s.sum[pair] * lanes[0] + S::reduce_add(sum);
  s.max[pair] = new_max;
}

// The positions [begin, end) that a token at `position` sees.
inline int32_t first_visible(const AttentionTask& task, int32_t position) {
  return task.window > 0 && position >= task.window ? position - task.window + 1 : 0;
}

template <class S, int32_t P>
inline void score_chunk(const TileScratch& s, const uint16_t* const* blocks, int32_t first, int32_t end,
                        int32_t head_dim) {
  // P · kTogether independent chains hide the latency of the multiply-adds.
  constexpr int32_t kTogether = P <= 3 ? 4 : P <= 6 ? 2 : 1;
  int32_t b = first;
  for (; b + kTogether <= end; b += kTogether) {
    score_blocks<S, P, kTogether>(s, blocks + b, head_dim, s.scores + b * kBlockSize);
  }
  for (; b < end; ++b) score_blocks<S, P, 1>(s, blocks + b, head_dim, s.scores + b * kBlockSize);
}

template <class S, int32_t P>
inline void weigh_chunk(const TileScratch& s, const uint16_t* const* blocks, int32_t first, int32_t end) {
  constexpr int32_t kTogether = P <= 6 ? 4 : 2;
  int32_t channel = 0;
  for (; channel + 16 * kTogether <= s.width; channel += 16 * kTogether) {
    weigh_values<S, P, kTogether>(s, blocks, first, end, channel);
  }
  for (; channel < s.width; channel += 16) weigh_values<S, P, 1>(s, blocks, first, end, channel);
}

// The tile with P >= num_pairs; the pairs beyond num_pairs compute on zeros and are dropped.
template <class S, int32_t P>
void attend(const AttentionTask& task, const AttentionTile& tile, const TileScratch& s, int32_t num_pairs) {
  const int32_t num_heads = tile.head_end - tile.head_begin;
  const int32_t head_dim = task.head_dim;
  const auto position_of = [&](int32_t pair) { return task.positions[tile.token_begin + pair / num_heads]; };
  int32_t low = std::numeric_limits<int32_t>::max(), high = 0;
  for (int32_t pair = 0; pair < P; ++pair) {
    s.max[pair] = kMinusInfinity;
    s.sum[pair] = 0.0f;
    s.rescale[pair] = 1.0f;
    for (int32_t d = 0; d < s.width; ++d) s.q[d * P + pair] = s.out[pair * s.width + d] = 0.0f;
    if (pair >= num_pairs) continue;
    const int32_t token = tile.token_begin + pair / num_heads, head = tile.head_begin + pair % num_heads;
    const float* q = task.q + token * task.q_stride + static_cast<ptrdiff_t>(head) * head_dim;
    for (int32_t d = 0; d < head_dim; ++d) s.q[d * P + pair] = q[d];
    const int32_t position = position_of(pair), first = first_visible(task, position);
    low = first < low ? first : low;
    high = position > high ? position : high;
  }
  const int32_t kv_head = tile.head_begin / (task.num_heads / task.num_kv_heads);
  const uint16_t* head_base = task.kv + static_cast<ptrdiff_t>(kv_head) * 2 * kBlockSize * s.width;
  for (int32_t chunk = low / kAttentionChunk; chunk <= high / kAttentionChunk; ++chunk) {
    const int32_t origin = chunk * kAttentionChunk;
    const int32_t first = low > origin ? (low - origin) / kBlockSize : 0;
    const int32_t last = high - origin < kAttentionChunk ? (high - origin) / kBlockSize : kChunkBlocks - 1;
    const uint16_t* blocks[kChunkBlocks];
    for (int32_t b = first; b <= last; ++b) {
      blocks[b] = head_base + static_cast<ptrdiff_t>(task.block_table[origin / kBlockSize + b]) * task.block_stride;
    }
    score_chunk<S, P>(s, blocks, first, last + 1, head_dim);
    for (int32_t pair = 0; pair < num_pairs; ++pair) {
      const int32_t position = position_of(pair);
      const int32_t begin = first_visible(task, position) - origin, end = position - origin + 1;
      soften<S>(task, s, pair, begin > 0 ? begin : 0, end < kAttentionChunk ? end : kAttentionChunk, first * kBlockSize,
                (last + 1) * kBlockSize);
    }
    weigh_chunk<S, P>(s, blocks, first, last + 1);
  }
  for (int32_t pair = 0; pair < num_pairs; ++pair) {
    const int32_t token = tile.token_begin + pair / num_heads, head = tile.head_begin + pair % num_heads;
    scale<S>(s.out + pair * s.width, 1.0f / s.sum[pair], head_dim,
             task.out + token * task.out_stride + static_cast<ptrdiff_t>(head) * head_dim);
  }
}

template <class S>
void attention(const AttentionTask& task, const AttentionTile& tile, float* scratch) {
  const TileScratch s = make_scratch(scratch, task.head_dim);
  const int32_t num_pairs = (tile.token_end - tile.token_begin) * (tile.head_end - tile.head_begin);
  if (num_pairs <= 1) return attend<S, 1>(task, tile, s, num_pairs);
  if (num_pairs <= 2) return attend<S, 2>(task, tile, s, num_pairs);
  if (num_pairs <= 3) return attend<S, 3>(task, tile, s, num_pairs);
  if (num_pairs <= 4) return attend<S, 4>(task, tile, s, num_pairs);
  if (num_pairs <= 6) return attend<S, 6>(task, tile, s, num_pairs);
  if (num_pairs <= 8) return attend<S, 8>(task, tile, s, num_pairs);
  return attend<S, 12>(task, tile, s, num_pairs);
}

// One token's k and v → its slot of a block. NaN takes max's second operand, then saturates like everything else.
template <class S>
void kv_write(const float* k, const float* v, int32_t head_dim, int32_t slot, uint16_t* block) {
  const int32_t width = padded_head_dim(head_dim);
  const auto high = S::set1(65504.0f), low = S::set1(-65504.0f);
  uint16_t* values = block + kBlockSize * width + slot * width;
  for_groups(head_dim, [&](int32_t i, int32_t n) {
    uint16_t keys[16];
    S::store_f16(keys, S::max(S::min(load_group<S>(k + i, n), high), low));
    for (int32_t d = 0; d < n; ++d) block[(i + d) * kBlockSize + slot] = keys[d];
    S::store_f16(values + i, S::max(S::min(load_group<S>(v + i, n), high), low));
  });
}

}  // namespace paceline::kernels

// The two products of attention over a chunk's blocks, for P pairs at a time: q·K and weights·V, in integers.
//
// Naive: one pair at a time reads all of K and V again for each of the 3–8 query heads of a KV head and for each token
// of a prompt. Here up to 12 pairs share every load. K [W/2][16 tokens][2] gives the scores of 16 tokens in one
// register without a horizontal sum, q's pair of channels comes as a broadcast; V [8][W][2 tokens] gives 16 channels, a
// pair of weights comes as a broadcast. One instruction (vpdpwssd) makes 32 multiply-adds, twice those of f32.
#pragma once
#include "kernels/kv_cache.h"

namespace paceline::kernels {

inline constexpr int32_t kChunkBlocks = kAttentionChunk / kBlockSize;

// One tile's working memory, all in the thread's scratch.
struct TileScratch {
  float* scores;  // [kMaxPairs][kAttentionChunk]; then the weights, as 16 bits at the start of each row
  int16_t* q;     // [W/2][pairs of the tile][2 channels]
  float* factor;  // [kMaxPairs]: score integers times a key's scale times this are powers of two
  float* unit;    // what one unit of the mix is worth
  float* keep;    // what the running sums are multiplied with
  float* add;     // what the chunk's sums are multiplied with; 0: the pair sees nothing of the chunk
  float* states;  // [pairs][attention_state_floats]
  int32_t width;  // W
  int32_t num_pairs;

  int16_t* weights(int32_t pair) const { return reinterpret_cast<int16_t*>(scores + pair * kAttentionChunk); }
  float* state(int32_t pair) const { return states + pair * (kStateHeader + width); }
};

inline TileScratch make_scratch(float* memory, int32_t head_dim, int32_t num_pairs, float* states) {
  TileScratch s{};
  s.width = padded_head_dim(head_dim);
  s.num_pairs = num_pairs;
  s.states = states;
  s.scores = memory;
  s.factor = s.scores + kMaxPairs * kAttentionChunk;
  s.unit = s.factor + 16;
  s.keep = s.unit + 16;
  s.add = s.keep + 16;
  s.q = reinterpret_cast<int16_t*>(s.add + 16);
  return s;
}

// The blocks [first, end) of a chunk that a tile sees, and those that it will see next.
struct ChunkBlocks {
  int32_t first;
  int32_t end;
  const uint8_t* blocks[kChunkBlocks];
  const uint8_t* next[kChunkBlocks];
};

template <class Element>
inline const Element* keys_of(const uint8_t* block) {
  return reinterpret_cast<const Element*>(block + kKvScaleBytes);
}

// Scores of P pairs against B blocks, times the keys' scales.
template <class S, class Element, int32_t P, int32_t B>
inline void score_blocks(const TileScratch& s, const uint8_t* const* blocks, float* scores) {
  using Ints = typename Pairs<S>::Ints;
  Ints sums[P][B];
#pragma GCC unroll 16
  for (int32_t p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int32_t b = 0; b < B; ++b) sums[p][b] = Pairs<S>::zero();
  }
  const int16_t* q = s.q;
  for (int32_t d = 0; d < s.width; d += 2, q += 2 * P) {
    Ints keys[B];
#pragma GCC unroll 4
    for (int32_t b = 0; b < B; ++b) {
      const Element* line = keys_of<Element>(blocks[b]) + d * kBlockSize;
      keys[b] = Pairs<S>::load_pairs(line);
      Pairs<S>::prefetch(line + kBlockSize * s.width);
    }
#pragma GCC unroll 16
    for (int32_t p = 0; p < P; ++p) {
      const Ints pair = Pairs<S>::broadcast_pair(q + 2 * p);
#pragma GCC unroll 4
      for (int32_t b = 0; b < B; ++b) sums[p][b] = Pairs<S>::dot_pairs(sums[p][b], keys[b], pair);
    }
  }
#pragma GCC unroll 4
  for (int32_t b = 0; b < B; ++b) {
    const auto scale = S::load(reinterpret_cast<const float*>(blocks[b]));
#pragma GCC unroll 16
    for (int32_t p = 0; p < P; ++p) {
      S::store(scores + p * kAttentionChunk + b * kBlockSize, Pairs<S>::to_float(sums[p][b]) * scale);
    }
  }
}

// out[p] = out[p] · keep[p] + (Σ weights·V) · unit[p] · add[p], for N registers of channels from `channel`.
template <class S, class Element, int32_t P, int32_t N>
inline void weigh_values(const TileScratch& s, const ChunkBlocks& chunk, int32_t channel) {
  using Ints = typename Pairs<S>::Ints;
  Ints sums[P][N];
#pragma GCC unroll 16
  for (int32_t p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int32_t n = 0; n < N; ++n) sums[p][n] = Pairs<S>::zero();
  }
  for (int32_t b = chunk.first; b < chunk.end; ++b) {
    const Element* values = keys_of<Element>(chunk.blocks[b]) + kBlockSize * s.width + 2 * channel;
    const Element* next = keys_of<Element>(chunk.next[b]) + 2 * channel;
    const int16_t* weights = s.weights(0) + b * kBlockSize;
    for (int32_t t = 0; t < kBlockSize; t += 2) {
      Ints v[N];
#pragma GCC unroll 4
      for (int32_t n = 0; n < N; ++n) {
        v[n] = Pairs<S>::load_pairs(values + t * s.width + n * 32);
        Pairs<S>::prefetch(next + t * s.width + n * 32);
      }
#pragma GCC unroll 16
      for (int32_t p = 0; p < P; ++p) {
        const Ints pair = Pairs<S>::broadcast_pair(weights + p * 2 * kAttentionChunk + t);
#pragma GCC unroll 4
        for (int32_t n = 0; n < N; ++n) sums[p][n] = Pairs<S>::dot_pairs(sums[p][n], v[n], pair);
      }
    }
  }
#pragma GCC unroll 16
  for (int32_t p = 0; p < P; ++p) {
    if (p >= s.num_pairs || s.add[p] == 0.0f) continue;
    const auto keep = S::set1(s.keep[p]), add = S::set1(s.add[p]), unit = S::set1(s.unit[p]);
#pragma GCC unroll 4
    for (int32_t n = 0; n < N; ++n) {
      float* out = s.state(p) + kStateHeader + channel + n * 16;
      S::store(out, S::fma(Pairs<S>::to_float(sums[p][n]) * unit, add, S::load(out) * keep));
    }
  }
}

template <class S, class Element, int32_t P>
inline void score_chunk(const TileScratch& s, const ChunkBlocks& chunk) {
  constexpr int32_t kTogether = P <= 6 ? 4 : 2;
  int32_t b = chunk.first;
  for (; b + kTogether <= chunk.end; b += kTogether) {
    score_blocks<S, Element, P, kTogether>(s, chunk.blocks + b, s.scores + b * kBlockSize);
  }
  for (; b < chunk.end; ++b) score_blocks<S, Element, P, 1>(s, chunk.blocks + b, s.scores + b * kBlockSize);
}

template <class S, class Element, int32_t P>
inline void weigh_chunk(const TileScratch& s, const ChunkBlocks& chunk) {
  constexpr int32_t kTogether = P <= 6 ? 4 : 2;
  int32_t channel = 0;
  for (; channel + 16 * kTogether <= s.width; channel += 16 * kTogether) {
    weigh_values<S, Element, P, kTogether>(s, chunk, channel);
  }
  for (; channel < s.width; channel += 16) weigh_values<S, Element, P, 1>(s, chunk, channel);
}

}  // namespace paceline::kernels

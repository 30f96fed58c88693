// Kernel contracts: what every target implements, as one table of function pointers.
//
// The one idea: a kernel is a leaf. It gets raw pointers and a range of rows, does one thing, never allocates, prints
// or fails; who runs which range on which thread is decided by the executor. Bodies are written once in kernels/*.h
// against a target's `Lanes` (16 floats); reference/*.cpp has the plain loops that the tests compare with.
//
// Bit-equality: a row's result depends on that row's inputs only. Every float sum runs in one fixed order (16 lane
// sums, then a fixed tree), whatever range, tile or thread the row came in. Bits may differ between targets, not within
// one.
#pragma once
#include <cstddef>
#include <cstdint>

#include "paceline/linear.h"

namespace paceline {

inline constexpr int32_t kBlockSize = 16;        // tokens of one KV block
inline constexpr int32_t kAttentionChunk = 256;  // logical positions whose softmax is taken together
inline constexpr int32_t kMaxPairs = 12;         // (token, query head) pairs of one attention tile
inline constexpr int32_t kMaxHeadDim = 512;

enum class Activation : int32_t { silu, gelu_tanh };

// How keys and values lie in the cache: integers with one float scale per token and KV head.
enum class KvType : int32_t { int16, int8 };
inline constexpr int32_t kNumKvTypes = 2;

// Head width in the cache and in scratch: whole registers.
inline constexpr int32_t padded_head_dim(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Layout of one KV head of one layer in one block, W = padded_head_dim:
//   scales f32: K [16 tokens], V [16 tokens] | K [W/2][16 tokens][2 channels] | V [8 pairs of tokens][W][2 tokens]
inline constexpr int32_t kKvScaleBytes = 2 * kBlockSize * static_cast<int32_t>(sizeof(float));
inline constexpr int32_t kv_element_bytes(KvType type) { return type == KvType::int16 ? 2 : 1; }
inline constexpr int32_t kv_head_bytes(KvType type, int32_t head_dim) {
  return kKvScaleBytes + 2 * kBlockSize * padded_head_dim(head_dim) * kv_element_bytes(type);
}

// One attention layer of one slice. A token's position decides what it sees: positions
// max(0, p - window + 1) … p of the slice's block table.
struct AttentionTask {
  const float* q;  // [T, num_heads · head_dim]
  ptrdiff_t q_stride;
  float* out;  // like q
  ptrdiff_t out_stride;
  const uint8_t* kv;       // block 0's part of this layer
  ptrdiff_t block_stride;  // bytes between blocks
  const int32_t* block_table;
  const int32_t* positions;  // [T]
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t window;  // 0: unlimited
  float scale;
  float softcap;  // 0: none

  int32_t heads_per_kv() const { return num_heads / num_kv_heads; }
};

// At most kMaxPairs pairs of one KV head. With G = heads_per_kv, pair i is token `token_begin + i / G` and query head
// `kv_head · G + i % G`.
struct AttentionTile {
  int32_t kv_head;
  int32_t token_begin;
  int32_t pair_begin;
  int32_t pair_end;
};

// What is known of one pair after some of its chunks: {max, sum, 14 unused, out [W]}, maxima in powers of two. The
// result is out / sum. A fresh state is {-inf, 0, …, 0}.
inline constexpr int32_t kStateHeader = 16;
inline constexpr int32_t attention_state_floats(int32_t head_dim) { return kStateHeader + padded_head_dim(head_dim); }

// Floats of one thread's scratch that `attend` needs for heads of `head_dim` channels.
inline constexpr size_t attention_scratch_floats(int32_t head_dim) {
  return static_cast<size_t>(kMaxPairs) * (kAttentionChunk + static_cast<size_t>(padded_head_dim(head_dim)) / 2) + 64;
}

using KvWriteFn = void (*)(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* block);
using AttendFn = void (*)(const AttentionTask& task, const AttentionTile& tile, int32_t chunk_begin, int32_t chunk_end,
                          float* states, float* scratch);

// A Gumbel race over one logits row: who has the largest logit / temperature + noise.
struct Race {
  float peak;          // the row's largest logit, finite
  double temperature;  // > 0
  double min_p;        // tokens less likely than min_p times the likeliest do not take part
  uint64_t seed;
  int32_t seq_index;
  int32_t position;
};

// The best token of a range: the largest value, the lowest id on ties.
struct Best {
  float value;
  int32_t id;
};

struct Kernels {
  const char* name;

  QuantizeFn quantize;
  LinearFn linear;

  // y = x / sqrt(mean(x²) + eps) · weight, for one row of n values. y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int32_t n, float* y);

  // Rotates pairs (i, i + dim/2) of one head by cos[i], sin[i] (angles: cos [dim/2], sin [dim/2]) and copies the
  // channels from `dim` to `head_dim`. y may be x.
  void (*rope)(const float* x, const float* angles, int32_t dim, int32_t head_dim, float* y);

  // y = act(gate) · up; y may be gate. Exponentials within 2 ulp.
  void (*gated)(const float* gate, const float* up, Activation activation, int32_t n, float* y);

  // y = a + b. y may be a or b.
  void (*add)(const float* a, const float* b, int32_t n, float* y);

  // y = x · factor. y may be x.
  void (*scale)(const float* x, float factor, int32_t n, float* y);

  // y = cap · tanh(x / cap). y may be x.
  void (*softcap)(const float* x, float cap, int32_t n, float* y);

  // Per KvType: writes one token's k and v [head_dim] into slot `slot` of a KV head's part of a block, rounded to
  // nearest even. What is no number or beyond ±kKvLimit counts as kKvLimit, so that the cache is always finite and a
  // broken sequence cannot poison another one.
  KvWriteFn kv_write[kNumKvTypes];

  // Per KvType: folds the chunks [chunk_begin, chunk_end) of 256 logical positions, in order, into the states of the
  // tile's pairs [pair_end - pair_begin]. A chunk's own result depends on nothing but the pair and the chunk.
  AttendFn attend[kNumKvTypes];

  // Folds into a state what another one holds of later chunks: the same bits as if `attend` had gone on itself.
  void (*fold)(const float* later, int32_t head_dim, float* state);

  // The best of logits [begin, end); an empty range or a range of NaN gives {-inf, begin}.
  Best (*argmax)(const float* logits, int32_t begin, int32_t end);

  // The winner's id among n tokens; the lowest on ties. Noise: Philox4x32-10 as `Draws` in backends/base.py says.
  int32_t (*race)(const float* logits, int32_t n, const Race& race);

  // Writes the ids of logits >= floor in ascending order; returns how many.
  int32_t (*collect)(const float* logits, int32_t n, float floor, int32_t* ids);

  // Σ exp((logit - peak) / temperature) over the logits < floor, in single precision: for those too small to matter one
  // by one.
  double (*far_mass)(const float* logits, int32_t n, float floor, float peak, float inverse_temperature);
};

// The tables, one per target; a build contains those of its architecture.
namespace portable {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
namespace avx2_vnni {
const Kernels& kernels();
}
namespace avx512_vnni {
const Kernels& kernels();
}

}  // namespace paceline

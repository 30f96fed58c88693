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

// One attention layer of one slice. A token's position decides what it sees: positions
// max(0, p - window + 1) … p of the slice's block table.
//
// Layout of a KV block of one layer and KV head, f16: K [head_dim][16 tokens], then V [16 tokens][head_dim].
struct AttentionTask {
  const float* q;  // [T, num_heads · head_dim]
  ptrdiff_t q_stride;
  float* out;  // like q
  ptrdiff_t out_stride;
  const uint16_t* kv;      // block 0's part of this layer
  ptrdiff_t block_stride;  // f16 elements between blocks
  const int32_t* block_table;
  const int32_t* positions;  // [T]
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t window;  // 0: unlimited
  float scale;
  float softcap;  // 0: none
};

// The (token, head) pairs of one tile: tokens × query heads of one KV head, at most kMaxPairs.
struct AttentionTile {
  int32_t token_begin;
  int32_t token_end;
  int32_t head_begin;  // absolute query heads, all of one KV head
  int32_t head_end;
};

// f16 elements of one KV head of one layer in one block: K and V, the head's width rounded up to whole registers.
inline constexpr int32_t kv_head_elements(int32_t head_dim) { return 2 * kBlockSize * ((head_dim + 15) / 16 * 16); }

// Floats of one thread's scratch that `attention` needs for heads of `head_dim` channels.
inline constexpr size_t attention_scratch_floats(int32_t head_dim) {
  return static_cast<size_t>(kMaxPairs) * (kAttentionChunk + 2 * (static_cast<size_t>(head_dim) + 16) + 4);
}

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

  // Writes one token's k and v [head_dim] into slot `slot` of a KV block: f16, nearest even, saturated to ±65504 (NaN
  // becomes 65504), so that the cache is always finite and a broken sequence cannot poison another one.
  void (*kv_write)(const float* k, const float* v, int32_t head_dim, int32_t slot, uint16_t* block);

  // Softmax attention of one tile. Chunks of 256 logical positions, combined in order.
  void (*attention)(const AttentionTask& task, const AttentionTile& tile, float* scratch);

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

// The tables, one per target that this build contains. `linear` and `quantize` come from targets/<name>/linear.cpp.
namespace portable {
void quantize(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols, uint8_t* activations,
              int32_t token_begin, int32_t token_end);
void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end);
const Kernels& kernels();
}  // namespace portable

namespace avx512_vnni {
void quantize(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols, uint8_t* activations,
              int32_t token_begin, int32_t token_end);
void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end);
const Kernels& kernels();
}  // namespace avx512_vnni

}  // namespace paceline

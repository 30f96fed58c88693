// Linear layers: packed weights, quantised activations, and the one kernel contract that every target implements.
//
// The one idea: weights are repacked once, at load, into the order in which the kernel reads them; activations are
// quantised per 32 channels to int8. Integer dot products are exact, the float sum over K blocks runs in one fixed
// order without fused multiply-adds, so an output row's bits depend neither on how many other rows the step has nor on
// the target.
//
// Exact integers, for tests: when every weight scale is 1 (mins 0) and every 32 channels of x are integers whose
// largest magnitude is 127, activation scales are exactly 1 and y is the integer dot product itself while it stays
// below 2^24.
#pragma once
#include <cstddef>
#include <cstdint>

namespace paceline {

inline constexpr int32_t kRowTile = 32;      // output rows of one packed tile
inline constexpr int32_t kQuantBlock = 32;   // channels that share one activation scale
inline constexpr int32_t kSuperBlock = 256;  // channels that share the f16 scale of a k type

// How a weight part is stored after packing. Names: bits, then header: s = f16 scale/32, a = f16 scale + f16 min/32,
// k = superblock of 256 (f16 d, dmin and integer sub-scales). Picture of the bytes: kernels/linear_layout.h.
enum class PackedType : int32_t { q4s, q4a, q4k, q5s, q5a, q5k, q6k, q8s, f16, bf16, f32 };

// One row range of a linear layer, packed: ceil(num_rows / 32) tiles; missing rows of the last tile are zero.
struct MatrixPart {
  PackedType type;
  int32_t num_rows;
  int32_t num_cols;     // a multiple of 256 for k types, of 32 for the other quantised types, free for float types
  const uint8_t* data;  // 64-byte aligned, packed_bytes() long
};

// The packed type that a GGUF tensor type (ggml number) becomes, or -1 when there is none (caller dequantises to f32
// first).
int32_t packed_type_for(int32_t ggml_type);

// Bytes of a packed part; a multiple of 64.
size_t packed_bytes(PackedType type, int32_t num_rows, int32_t num_cols);

// Packs tiles [tile_begin, tile_end) of a row-major GGUF tensor of `ggml_type`. Lossless. Threads may pack disjoint
// tiles. `source` needs no alignment.
void pack_tiles(int32_t ggml_type, const uint8_t* source, int32_t num_rows, int32_t num_cols, uint8_t* packed,
                int32_t tile_begin, int32_t tile_end);

// Dequantises one packed row to f32 [num_cols]: embedding rows, and the test that packing loses nothing.
void unpack_row(const MatrixPart& part, int32_t row, float* out);

// 32 quantised channels of one token, one cache line, with everything that a consumer needs of their sum: an
// accumulator that starts at −zero_point · Σq turns unsigned weights into signed ones at no cost.
struct alignas(64) ActivationBlock {
  float scale;
  float scale_sum;             // scale · Σq, for types with a min
  int32_t correction[3];       // −8 · Σq, −16 · Σq, −128 · Σq: q4s, q5s, q8s
  int32_t half_correction[2];  // −32 · Σ of each 16 channels: q6k
  int32_t sum;                 // Σq
  int8_t quants[kQuantBlock];
};
static_assert(sizeof(ActivationBlock) == 64);

// Bytes of the quantised activations of T tokens of K channels. The buffer must be 64-byte aligned.
size_t activation_bytes(int32_t num_tokens, int32_t num_cols);

// Where the block of (token, channel / 32) lies: tokens are grouped into tiles that one kernel pass covers, and a tile
// is [K/32][tokens of the tile]. For tests and tools.
const ActivationBlock& activation_block(const uint8_t* activations, int32_t num_tokens, int32_t num_cols, int32_t token,
                                        int32_t block);

// y[T, N] = x[T, K] · Wᵀ (+ bias). N runs over all parts in order.
struct LinearTask {
  const MatrixPart* parts;
  int32_t num_parts;
  int32_t num_tokens;
  int32_t num_cols;
  const uint8_t* activations;  // from Kernels::quantize, for quantised parts
  const float* x;              // [T, K] f32, for f16/bf16/f32 parts
  ptrdiff_t x_stride;          // floats between rows of x
  const float* bias;           // [N] or nullptr
  float* y;                    // no alignment needed; every element of the tiles is written, none is read before
  ptrdiff_t y_stride;          // floats between rows of y
};

// Tiles of 32 output rows over all parts (each part rounded up on its own).
int32_t num_tiles(const LinearTask& task);

// Contracts of the per-target entry points (function pointers in Kernels, see kernels.h):
//
// quantize: x [T, K] f32 (row stride in floats) -> activations, tokens [token_begin, token_end). K is a multiple of 32.
//   Per 32 channels: amax = max|x|; scale = amax / 127 (f32); inverse = 127 / amax (f32);
//   q = round-half-even(x · inverse) in −127…127. The same bits for every target and thread count.
//   amax < 2⁻¹⁰⁰ (well before 127 / amax overflows): scale and every q are 0.
//   A block that holds a NaN or an infinity: scale NaN, every q 0. All outputs of the token are NaN, no others.
//   `num_tokens` is the T of the whole buffer (the layout depends on it).
using QuantizeFn = void (*)(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols,
                            uint8_t* activations, int32_t token_begin, int32_t token_end);
//
// linear: all tokens × output tiles [tile_begin, tile_end).
//   Quantised types, per block of 32 in ascending order, f32, each operation rounded on its own:
//     s types: y += f32(Σ(q_w − zero)·q_x) · (scale_w · scale_x)
//     a types: y += f32(Σ q_w·q_x) · (scale_w · scale_x), then y += min_w · scale_sum
//     q4k q5k: the same with scale_w = d·sc, min_w = dmin·mn, and y −= min_w · scale_sum
//     q6k:     y += (f32(Σ₀) · (d·sc₀) + f32(Σ₁) · (d·sc₁)) · scale_x, Σ₀ and Σ₁ of 16 channels each, zero 32
//   Float types: y += f32(w[k]) · x[k] for ascending k. At the end y += bias.
using LinearFn = void (*)(const LinearTask& task, int32_t tile_begin, int32_t tile_end);

}  // namespace paceline

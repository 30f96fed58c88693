// Linear layers: packed weights, quantised activations, and the one kernel contract that every target implements.
//
// The one idea: weights are repacked once, at load, into the order in which the kernel reads them; activations are quantised
// per 32 channels to int8. Integer dot products are exact, the float sum over K blocks runs in one fixed order, so an output
// row's bits never depend on how many other rows the step has.
#pragma once
#include <cstddef>
#include <cstdint>

namespace paceline {

inline constexpr int32_t kRowTile = 32;   // output rows of one packed tile
inline constexpr int32_t kQuantBlock = 32;  // channels that share one activation scale

// How a weight part is stored after packing. Names: bits, then header: s = f16 scale/32, a = f16 scale + f16 min/32,
// k = superblock of 256 (f16 d, dmin and integer sub-scales).
enum class PackedType : int32_t { q4s, q4a, q4k, q5s, q5a, q5k, q6k, q8s, f16, bf16, f32 };

// One row range of a linear layer, packed: ceil(num_rows / 32) tiles; missing rows of the last tile are zero.
struct MatrixPart {
  PackedType type;
  int32_t num_rows;
  int32_t num_cols;
  const uint8_t* data;  // 64-byte aligned, packed_bytes() long
};

// The packed type that a GGUF tensor type (ggml number) becomes, or -1 when there is none (caller dequantises to f32 first).
int32_t packed_type_for(int32_t ggml_type);

// Bytes of a packed part; a multiple of 64.
size_t packed_bytes(PackedType type, int32_t num_rows, int32_t num_cols);

// Packs tiles [tile_begin, tile_end) of a row-major GGUF tensor of `ggml_type`. Lossless. Threads may pack disjoint tiles.
void pack_tiles(int32_t ggml_type, const uint8_t* source, int32_t num_rows, int32_t num_cols, uint8_t* packed,
                int32_t tile_begin, int32_t tile_end);

// Dequantises one packed row to f32 [num_cols]: embedding rows, and the test that packing loses nothing.
void unpack_row(const MatrixPart& part, int32_t row, float* out);

// Bytes of the quantised activations of T tokens of K channels.
size_t activation_bytes(int32_t num_tokens, int32_t num_cols);

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
  float* y;
  ptrdiff_t y_stride;  // floats between rows of y
};

// Tiles of 32 output rows over all parts (each part rounded up on its own).
int32_t num_tiles(const LinearTask& task);

// Contracts of the per-target entry points (function pointers in Kernels, see kernels.h):
//
// quantize: x [T, K] f32 (row stride in floats) -> activations, tokens [token_begin, token_end).
//   Per 32 channels: amax = max|x|; scale = amax / 127 (f32); inverse = 127 / amax, or 0 when amax is 0;
//   q = round-half-even(x · inverse) in -127…127. The same bits for every target and thread count.
//   `num_tokens` is the T of the whole buffer (the layout may depend on it).
using QuantizeFn = void (*)(const float* x, ptrdiff_t x_stride, int32_t num_tokens, int32_t num_cols, uint8_t* activations,
                            int32_t token_begin, int32_t token_end);
//
// linear: all tokens × output tiles [tile_begin, tile_end).
using LinearFn = void (*)(const LinearTask& task, int32_t tile_begin, int32_t tile_end);

}  // namespace paceline

// The bytes of packed weights and the grouping of tokens: what the packer, the quantiser and the kernels must agree on.
//
// A tile is 32 output rows × K. It is one sequential stream of blocks of 32 channels; a k type puts a header of f16
// numbers in front of every 8 blocks. Everything starts on a 64-byte line, so no vector load crosses one:
//
//   super header (k types)  f16 d[32]; q4k and q5k: then f16 dmin[32]
//   block header            s types: f16 scale[32]; a types: f16 scale[32], f16 min[32];
//                           q4k, q5k: u8 sc[32], u8 mn[32]; q6k: i8 sc[32] of channels 0-15, i8 sc[32] of channels
//                           16-31
//   quants                  one line per bit of the type (4, 5, 6 or 8) for rows 0-15, as many for rows 16-31
//
// The lines of quants lie in the order in which the kernel reads them: alternating between rows 0-15 and 16-31, for q6k
// first all of rows 0-15. Hardware prefetchers follow a strictly sequential stream; with all of rows 0-15 first in
// every type, the 8-bit type reads 17 GB/s instead of 29 on a Zen 4 core whose limit is 31.
//
// A line holds, for row r of its 16, bytes 4r … 4r+3: four consecutive channels, the lane of a 4-way byte dot product.
// "Group" g = channels 4g … 4g+3. Quants are unsigned: q + zero_point. The bits of a line's bytes, 7 first:
//
//   8 bit  line g: gggggggg                                                 0 operations to decode all 8 groups
//   4 bit  line g: [g+4 4 bits][g 4 bits], g < 4                           12
//   5 bit  line 0: [5, low 3 bits][0]                                      19 (nibbles and a plane of high bits: 27)
//          line 1: [7, bit 3][5, high 2][1]
//          line 2: [6, low 3][2]
//          line 3: [7, bit 4][6, high 2][3]
//          line 4: [7, low 3][4]
//   6 bit  line 0: [3, low 2][0]                                           18 (nibbles and planes of high bits: 26)
//          line 1: [3, middle 2][1]
//          line 2: [3, high 2][2], then the same for groups 4-7
//
// So five of eight, or three of four groups lie whole in the low bits of a line and cost one mask.
//
// Float types: for every channel the 32 rows' numbers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "paceline/linear.h"

namespace paceline {

inline constexpr int32_t kLine = 64;      // bytes of a cache line, and of the widest vector
inline constexpr int32_t kRowGroup = 16;  // rows that one vector of 32-bit lanes covers

struct BlockLayout {
  int32_t bits;          // of a quant, and lines per 16 rows
  int32_t zero_point;    // subtracted from the unsigned quant; 0 for types with a min
  int32_t super_bytes;   // header per 256 channels; 0 when the type has none
  int32_t header_bytes;  // per block
  bool is_interleaved;   // lines of rows 0-15 and 16-31 alternate

  constexpr int32_t block_bytes() const { return header_bytes + 2 * bits * kLine; }
  constexpr int32_t blocks_per_super() const { return super_bytes > 0 ? kSuperBlock / kQuantBlock : 1; }
  // From the first line of rows 0-15 to that of rows 16-31, and from a line to the next of the same rows.
  constexpr int32_t group_step() const { return is_interleaved ? kLine : bits * kLine; }
  constexpr int32_t line_step() const { return is_interleaved ? 2 * kLine : kLine; }
  constexpr int32_t super_stride() const { return super_bytes + blocks_per_super() * block_bytes(); }
};

// The layout of a quantised type. consteval: kernels of every target use it, and no code may be shared among targets.
template <PackedType kType>
consteval BlockLayout layout_of() {
  switch (kType) {
    case PackedType::q4s:
      return {4, 8, 0, 64, true};
    case PackedType::q4a:
      return {4, 0, 0, 128, true};
    case PackedType::q4k:
      return {4, 0, 128, 64, true};
    case PackedType::q5s:
      return {5, 16, 0, 64, true};
    case PackedType::q5a:
      return {5, 0, 0, 128, true};
    case PackedType::q5k:
      return {5, 0, 128, 64, true};
    case PackedType::q6k:
      return {6, 32, 64, 64, false};
    case PackedType::q8s:
      return {8, 128, 0, 64, true};
    default:
      return {};
  }
}

// Calls visit.template operator()<type>() with the quantised type as a constant; false when `type` is a float type.
template <class Visit>
[[gnu::always_inline]] inline bool visit_quantised(PackedType type, Visit&& visit) {
  switch (type) {
    case PackedType::q4s:
      visit.template operator()<PackedType::q4s>();
      return true;
    case PackedType::q4a:
      visit.template operator()<PackedType::q4a>();
      return true;
    case PackedType::q4k:
      visit.template operator()<PackedType::q4k>();
      return true;
    case PackedType::q5s:
      visit.template operator()<PackedType::q5s>();
      return true;
    case PackedType::q5a:
      visit.template operator()<PackedType::q5a>();
      return true;
    case PackedType::q5k:
      visit.template operator()<PackedType::q5k>();
      return true;
    case PackedType::q6k:
      visit.template operator()<PackedType::q6k>();
      return true;
    case PackedType::q8s:
      visit.template operator()<PackedType::q8s>();
      return true;
    default:
      return false;
  }
}

// Bytes of one number of a float type.
[[gnu::always_inline]] inline constexpr int32_t float_bytes(PackedType type) { return type == PackedType::f32 ? 4 : 2; }

// A pass of the kernel covers up to 5 tokens; 4 is the fastest. T <= 5 tokens are one pass; more are split into fours,
// the rest so that no pass is smaller than 3. T = 4n: fours; 4n+1: a five at the end; 4n+2: two threes; 4n+3: a three.
struct TokenTile {
  int32_t begin;
  int32_t size;
};

inline constexpr int32_t kMaxTokenTile = 5;

[[gnu::always_inline]] inline constexpr int32_t num_token_tiles(int32_t num_tokens) {
  return num_tokens <= kMaxTokenTile ? 1 : (num_tokens % 4 == 1 ? num_tokens / 4 : (num_tokens + 3) / 4);
}

[[gnu::always_inline]] inline constexpr TokenTile token_tile(int32_t num_tokens, int32_t index) {
  if (num_tokens <= kMaxTokenTile) return {0, num_tokens};
  const int32_t rest = num_tokens % 4;
  const int32_t num_fours = num_tokens / 4 - (rest == 1 || rest == 2 ? 1 : 0);
  if (index < num_fours) return {4 * index, 4};
  if (rest == 1) return {4 * num_fours, 5};
  return {4 * num_fours + 3 * (index - num_fours), 3};
}

// The tile that holds `token`.
[[gnu::always_inline]] inline constexpr TokenTile token_tile_of(int32_t num_tokens, int32_t token) {
  if (num_tokens <= kMaxTokenTile) return {0, num_tokens};
  const int32_t rest = num_tokens % 4;
  const int32_t fours_end = num_tokens - (rest == 1 ? 5 : (rest == 2 ? 6 : rest));
  if (token < fours_end) return {token & ~3, 4};
  if (rest == 1) return {fours_end, 5};
  return {fours_end + (token - fours_end) / 3 * 3, 3};
}

// Index of the activation block of (token, block) in a buffer of `num_tokens` tokens of `num_blocks` blocks.
[[gnu::always_inline]] inline constexpr size_t activation_index(int32_t num_tokens, int32_t num_blocks, int32_t token,
                                                                int32_t block) {
  const TokenTile tile = token_tile_of(num_tokens, token);
  return static_cast<size_t>(tile.begin) * num_blocks + static_cast<size_t>(block) * tile.size + (token - tile.begin);
}

}  // namespace paceline

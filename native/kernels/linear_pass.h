// One pass: a tile of 32 output rows × a run of channels × up to 5 tokens, for every quantised type.
//
// Arithmetic intensity. A block (32 rows × 32 channels) of a 4-bit type is 576-640 bytes and needs, per token, 16
// byte-dot instructions. A core that streams 20-40 GB/s gets a block in 15-30 ns: enough for about 3-5 tokens of dot
// products, so up to there a step costs the same as for one token (bound: memory), beyond it the dot products are the
// bound. Decoding and the float sums must then hide behind them, and that fixes the shape:
//
//   32 rows × 4 tokens   one broadcast of 4 activation bytes feeds two dots, one decoded weight vector feeds four;
//   loads, decode
//                        and dots are balanced. 8 integer + 8 float accumulators, 4 decoded vectors, masks: no spill.
//   16 rows × 8 tokens   one load per dot: bound by the load ports (58 % of peak measured where 32 × 4 gives 71-78 %).
//   zero points          integer sums start at −zero · Σq, which the quantiser left next to the quants: no instruction.
//   scales               per 16 rows × token: convert, two multiplies, one add (three and two with a min); 8 dots to
//   hide behind.
//
// No fused multiply-add: the multiplies share the dot products' ports either way, the adds have their own on every core
// we know with VNNI, so it costs nothing there, and a target without it gives the same bits.
//
// Every loop over accumulators is unrolled by templates, not by pragma: gcc 12 otherwise keeps the arrays in memory (2×
// slower).
#pragma once
#include <type_traits>
#include <utility>

#include "kernels/linear_layout.h"
#include "paceline/linear.h"

namespace paceline::kernels {

// What one pass works on.
struct Pass {
  const uint8_t* weights;      // at the run's first channel
  const uint8_t* activations;  // first token, at the run's first block
  int32_t tile_tokens;         // of the token tile: activation blocks from one block to the next
  int32_t num_blocks;          // channels / 32 of the run
  int32_t num_rows;            // of the tile that exist: 1 … 32
  bool is_first;               // run starts at channel 0: sums start at 0, else at what y holds
  const float* bias;           // of the tile's rows, for the run that ends at K; else nullptr
  float* y;                    // tile's first row, token tile's first token
  ptrdiff_t y_stride;
  const uint8_t* next;  // what a later pass needs, prefetched alongside …
  int32_t next_lines;   // … this many lines per block (passes of several token tiles only)
};

// How far ahead a pass that streams its weights once prefetches. Measured; below 4 KB the lines come too late.
template <int kTokens>
inline constexpr int32_t kPrefetchBytes = kTokens <= 2 ? 4096 : 8192;

// Calls visit(integral_constant<int, 0>) … visit(integral_constant<int, N − 1>), unrolled.
template <int N, class Visit>
[[gnu::always_inline]] inline void unroll(Visit&& visit) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (visit(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

#define PACELINE_EACH [&](auto i) __attribute__((always_inline))

// Sums of 2 row groups × tokens.
template <class S, int kTokens>
struct IntSums {
  typename S::Int at[2][kTokens];
};
template <class S, int kTokens>
struct FloatSums {
  typename S::Float at[2][kTokens];
};

// Group kGroup (4 channels) of 16 rows as unsigned bytes.
template <class S, PackedType kType, int kGroup>
[[gnu::always_inline]] inline typename S::Bytes load_group(const uint8_t* block, int row_group) {
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr int kLines = layout.low_bytes / (2 * kLine);
  const uint8_t* low = block + layout.header_bytes + row_group * kLines * kLine;
  const typename S::Bytes bytes = S::load_bytes(low + kGroup % kLines * kLine);
  if constexpr (layout.bits == 8) {
    return bytes;
  } else if constexpr (layout.bits == 4) {
    return kGroup < 4 ? S::low_nibbles(bytes) : S::high_nibbles(bytes);
  } else {
    constexpr int kHighLines = layout.high_bytes / (2 * kLine);
    const uint8_t* high = block + layout.header_bytes + layout.low_bytes + row_group * kHighLines * kLine;
    typename S::Bytes top;
    if constexpr (layout.bits == 5) {
      top = S::template move_to_bit4<kGroup, 1>(S::load_bytes(high));
    } else {
      top = S::template move_to_bit4<kGroup % 4 * 2, 2>(S::load_bytes(high + kGroup / 4 * kLine));
    }
    return kGroup < 4 ? S::low_nibbles_or(bytes, top) : S::high_nibbles_or(bytes, top);
  }
}

// sums += group kGroup's dot products.
template <class S, PackedType kType, int kGroup, int kTokens>
[[gnu::always_inline]] inline void add_group(const uint8_t* block, const ActivationBlock* x,
                                             IntSums<S, kTokens>& sums) {
  const typename S::Bytes weights[2] = {load_group<S, kType, kGroup>(block, 0), load_group<S, kType, kGroup>(block, 1)};
  unroll<kTokens>(PACELINE_EACH {
    const typename S::Int quants = S::splat_load_int(x[i].quants + 4 * kGroup);
    sums.at[0][i] = S::dot(sums.at[0][i], weights[0], quants);
    sums.at[1][i] = S::dot(sums.at[1][i], weights[1], quants);
  });
}

// sums = −zero_point · Σq of the 32 channels (of the half for q6k).
template <class S, PackedType kType, int kTokens>
[[gnu::always_inline]] inline void start_sums(const ActivationBlock* x, [[maybe_unused]] int half,
                                              IntSums<S, kTokens>& sums) {
  constexpr int32_t kZero = layout_of<kType>().zero_point;
  unroll<kTokens>(PACELINE_EACH {
    if constexpr (kZero == 0) {
      sums.at[0][i] = S::zero_int();
    } else if constexpr (kZero == 32) {
      sums.at[0][i] = S::splat_load_int(x[i].half_correction + half);
    } else {
      sums.at[0][i] = S::splat_load_int(x[i].correction + (kZero == 8 ? 0 : (kZero == 16 ? 1 : 2)));
    }
    sums.at[1][i] = sums.at[0][i];
  });
}

// y += f32(sum) · (scale · x.scale) [± min · x.scale_sum] for one group of 16 rows.
template <class S, PackedType kType, int kTokens>
[[gnu::always_inline]] inline void add_scaled(const uint8_t* super, const uint8_t* block, int row_group,
                                              const ActivationBlock* x, const IntSums<S, kTokens>& sums,
                                              FloatSums<S, kTokens>& y) {
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr bool kHasMin = layout.zero_point == 0;
  constexpr bool kIsSuper = layout.super_bytes > 0;
  const int halves = row_group * kRowGroup * 2, bytes = row_group * kRowGroup;
  typename S::Float scale, min = S::zero();
  if constexpr (kType == PackedType::q6k) {
    scale = S::load_half(super + halves);  // the integer scales are in the sums already
  } else if constexpr (kIsSuper) {
    scale = S::multiply(S::load_half(super + halves), S::to_float(S::load_unsigned(block + bytes)));
    min = S::multiply(S::load_half(super + kLine + halves), S::to_float(S::load_unsigned(block + kRowTile + bytes)));
  } else {
    scale = S::load_half(block + halves);
    if constexpr (kHasMin) min = S::load_half(block + kLine + halves);
  }
  unroll<kTokens>(PACELINE_EACH {
    typename S::Float& to = y.at[row_group][i];
    const typename S::Float both = S::multiply(scale, S::splat_load(&x[i].scale));
    to = S::add(to, S::multiply(S::to_float(sums.at[row_group][i]), both));
    if constexpr (kHasMin) {
      const typename S::Float shift = S::multiply(min, S::splat_load(&x[i].scale_sum));
      to = kIsSuper ? S::subtract(to, shift) : S::add(to, shift);
    }
  });
}

// One block of 32 channels, all types but q6k.
template <class S, PackedType kType, int kTokens>
[[gnu::always_inline]] inline void add_block(const uint8_t* super, const uint8_t* block, const ActivationBlock* x,
                                             FloatSums<S, kTokens>& y) {
  IntSums<S, kTokens> sums;
  start_sums<S, kType, kTokens>(x, 0, sums);
  unroll<4>(PACELINE_EACH {
    add_group<S, kType, i, kTokens>(block, x, sums);
    add_group<S, kType, i + 4, kTokens>(block, x, sums);
  });
  add_scaled<S, kType, kTokens>(super, block, 0, x, sums, y);
  add_scaled<S, kType, kTokens>(super, block, 1, x, sums, y);
}

// sums = sc · sums for half `half` of a q6k block. |Σ| ≤ 16·32·127, |sc| ≤ 128: both halves together stay below 2^24,
// so the conversion to f32 that follows is exact.
template <class S, int kTokens>
[[gnu::always_inline]] inline void scale_half(const uint8_t* block, int half, IntSums<S, kTokens>& sums) {
  unroll<2>([&](auto group) __attribute__((always_inline)) {
    const typename S::Int scale = S::load_signed(block + half * kRowTile + group * kRowGroup);
    unroll<kTokens>(PACELINE_EACH { sums.at[group][i] = S::multiply(scale, sums.at[group][i]); });
  });
}

// One block of q6k: each 16 channels have their own integer scale. Halves run one after the other to save registers.
template <class S, int kTokens>
[[gnu::always_inline]] inline void add_block_q6k(const uint8_t* super, const uint8_t* block, const ActivationBlock* x,
                                                 FloatSums<S, kTokens>& y) {
  constexpr PackedType kType = PackedType::q6k;
  IntSums<S, kTokens> first, second;
  start_sums<S, kType, kTokens>(x, 0, first);
  unroll<4>(PACELINE_EACH { add_group<S, kType, i, kTokens>(block, x, first); });
  scale_half<S, kTokens>(block, 0, first);
  start_sums<S, kType, kTokens>(x, 1, second);
  unroll<4>(PACELINE_EACH { add_group<S, kType, i + 4, kTokens>(block, x, second); });
  scale_half<S, kTokens>(block, 1, second);
  unroll<kTokens>(PACELINE_EACH {
    second.at[0][i] = S::add(first.at[0][i], second.at[0][i]);
    second.at[1][i] = S::add(first.at[1][i], second.at[1][i]);
  });
  add_scaled<S, kType, kTokens>(super, block, 0, x, second, y);
  add_scaled<S, kType, kTokens>(super, block, 1, x, second, y);
}

template <class S, int kTokens>
[[gnu::always_inline]] inline void load_sums(const Pass& pass, FloatSums<S, kTokens>& y) {
  const int32_t second = pass.num_rows - kRowGroup;
  unroll<kTokens>(PACELINE_EACH {
    if (pass.is_first) {
      y.at[0][i] = S::zero();
      y.at[1][i] = S::zero();
    } else {
      const float* from = pass.y + i * pass.y_stride;
      y.at[0][i] = second >= 0 ? S::load(from) : S::load_some(from, pass.num_rows);
      y.at[1][i] = second == kRowGroup ? S::load(from + kRowGroup)
                   : second > 0        ? S::load_some(from + kRowGroup, second)
                                       : S::zero();
    }
  });
}

// y of 16 rows (the first `count`) plus bias, to memory.
template <class S>
[[gnu::always_inline]] inline void store_rows(float* to, const float* bias, typename S::Float y, int32_t count) {
  if (count >= kRowGroup) {
    S::store(to, bias != nullptr ? S::add(y, S::load(bias)) : y);
  } else if (count > 0) {
    S::store_some(to, bias != nullptr ? S::add(y, S::load_some(bias, count)) : y, count);
  }
}

template <class S, int kTokens>
[[gnu::always_inline]] inline void store_sums(const Pass& pass, const FloatSums<S, kTokens>& y) {
  const float* bias = pass.bias;
  unroll<kTokens>(PACELINE_EACH {
    float* to = pass.y + i * pass.y_stride;
    store_rows<S>(to, bias, y.at[0][i], pass.num_rows);
    store_rows<S>(to + kRowGroup, bias != nullptr ? bias + kRowGroup : bias, y.at[1][i], pass.num_rows - kRowGroup);
  });
}

// The kernel. kStream: the weights pass by once, so the lines of a block a fixed distance ahead are fetched with each
// block; otherwise `pass.next` says what the passes over this chunk fetch for the next one.
template <class S, PackedType kType, int kTokens, bool kStream>
void run_pass(const Pass& pass) {
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr int32_t kPer = layout.blocks_per_super();
  FloatSums<S, kTokens> y;
  load_sums<S, kTokens>(pass, y);
  const uint8_t* super = pass.weights;
  const ActivationBlock* x = reinterpret_cast<const ActivationBlock*>(pass.activations);
  const uint8_t* next = pass.next;
  for (int32_t begin = 0; begin < pass.num_blocks; begin += kPer) {
    const uint8_t* block = super + layout.super_bytes;
    for (int32_t sub = 0; sub < kPer; ++sub) {
      if constexpr (kStream) {
        unroll<layout.block_bytes() / kLine>(
            PACELINE_EACH { S::prefetch(block + kPrefetchBytes<kTokens> + i * kLine); });
      } else {
        for (int32_t line = 0; line < pass.next_lines; ++line) S::prefetch(next + line * kLine);
        next += pass.next_lines * kLine;
      }
      if constexpr (kType == PackedType::q6k) {
        add_block_q6k<S, kTokens>(super, block, x, y);
      } else {
        add_block<S, kType, kTokens>(super, block, x, y);
      }
      block += layout.block_bytes();
      x += S::kMaxTokens == 1 ? pass.tile_tokens : kTokens;
    }
    super += layout.super_stride();
  }
  store_sums<S, kTokens>(pass, y);
}

}  // namespace paceline::kernels

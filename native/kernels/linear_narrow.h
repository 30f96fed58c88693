// The passes for targets whose vectors hold 8 rows (AVX2, NEON): 8 rows × up to S::kMaxTokens tokens at a time.
//
// The float sums of 32 rows × 4 tokens alone would fill 16 registers. So a pass goes through the channels in strips,
// and within a strip through the tile's four groups of 8 rows one after the other:
//
//            channels →     strip 0           strip 1
//   rows  0 …  7         1 → → → →  ┌→ 5 → → → →            between its strips a group's sums lie in y, as between
//   rows  8 … 15         2 → → → →  │  6 → → → →            two chunks of channels; within one they stay in registers
//   rows 16 … 23         3 → → → →  │  7 → → → →
//   rows 24 … 31         4 → → → → ─┘  8 → → → →
//
// A strip of 256 channels is 5 KB of 4-bit weights and 512 bytes of activations per token: they come from memory once
// and wait in the L1 cache for the other three groups. Each sum keeps the order of linear_pass.h, so it has the same
// bits.
#pragma once
#include "kernels/linear_floats.h"
#include "kernels/linear_pass.h"

namespace paceline::kernels {

inline constexpr int32_t kNarrowRows = 8;
inline constexpr int32_t kStripBlocks = 8;  // 256 channels, the superblock of a k type
inline constexpr int32_t kFloatStrip = 64;  // channels: 4 or 8 KB of weights

// Sums of 8 rows × tokens.
template <class N, int kTokens>
struct NarrowSums {
  typename N::Float at[kTokens];
};

// Whether the linear kernels of S go the narrow way.
template <class S>
inline constexpr bool kIsNarrow = requires { typename S::Narrow; };

// sums += the dots of kCount groups in their order from number kFirst. `lines`: of 8 rows.
template <class N, PackedType kType, int kTokens, int kFirst, int kCount>
[[gnu::always_inline]] inline void add_dots(const uint8_t* lines, const ActivationBlock* x, typename N::Int* sums) {
  constexpr int kBits = layout_of<kType>().bits;
  constexpr int kTogether = N::template kDotsPerFold<kBits>;
  const auto weights_of = [&](auto index) __attribute__((always_inline)) {
    const typename N::Bytes weights = load_group<N, kType, kGroupOrder<kBits>[index]>(lines);
    if constexpr (kBits == 8 && N::kHasSignedWeights) {
      return N::template flip<0x80>(weights);
    } else {
      return weights;
    }
  };
  const auto quants_of = [&](auto index, auto token) __attribute__((always_inline)) {
    return N::splat_load_int(x[token].quants + 4 * kGroupOrder<kBits>[index]);
  };
  if constexpr (kTogether == 0) {
    unroll<kCount>([&](auto step) __attribute__((always_inline)) {
      constexpr std::integral_constant<int, kFirst + step> kIndex;
      const typename N::Bytes weights = weights_of(kIndex);
      unroll<kTokens>(PACELINE_EACH { sums[i] = N::dot(sums[i], weights, quants_of(kIndex, i)); });
    });
  } else {
    typename N::Pairs pairs[kTokens];
    unroll<kCount>([&](auto step) __attribute__((always_inline)) {
      constexpr std::integral_constant<int, kFirst + step> kIndex;
      constexpr int kPlace = step % kTogether;
      const typename N::Bytes weights = weights_of(kIndex);
      unroll<kTokens>(PACELINE_EACH {
        const typename N::Pairs more = N::template dot_pairs<kBits>(weights, quants_of(kIndex, i));
        pairs[i] = kPlace == 0 ? more : N::add(pairs[i], more);
        if constexpr (kPlace == kTogether - 1) sums[i] = N::fold(sums[i], pairs[i]);
      });
    });
  }
}

// start_sum, for dots that take signed weights where they have 8 bits.
template <class N, PackedType kType>
[[gnu::always_inline]] inline typename N::Int start_narrow_sum(const ActivationBlock& x, int half) {
  if constexpr (layout_of<kType>().bits == 8 && N::kHasSignedWeights) {
    return N::zero_int();
  } else {
    return start_sum<N, kType>(x, half);
  }
}

// One block of the 8 rows from `row` of the tile.
template <class N, PackedType kType, int kTokens>
[[gnu::always_inline]] inline void add_narrow_block(const uint8_t* super, const uint8_t* block, int32_t row,
                                                    const ActivationBlock* x, NarrowSums<N, kTokens>& y) {
  constexpr BlockLayout layout = layout_of<kType>();
  const uint8_t* lines = block + layout.header_bytes + row / kRowGroup * layout.group_step() + row % kRowGroup * 4;
  if constexpr (kType == PackedType::q6k) {
    typename N::Int sums[2][kTokens];
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      unroll<kTokens>(PACELINE_EACH { sums[half][i] = start_narrow_sum<N, kType>(x[i], half); });
      add_dots<N, kType, kTokens, 4 * half, 4>(lines, x, sums[half]);
    });
    const typename N::Float d = N::load_half(super + 2 * row);
    const typename N::Float first = N::multiply(d, N::to_float(N::load_signed(block + row)));
    const typename N::Float second = N::multiply(d, N::to_float(N::load_signed(block + kRowTile + row)));
    unroll<kTokens>(PACELINE_EACH {
      const typename N::Float both =
          N::add(N::multiply(N::to_float(sums[0][i]), first), N::multiply(N::to_float(sums[1][i]), second));
      y.at[i] = N::add(y.at[i], N::multiply(both, N::splat_load(&x[i].scale)));
    });
  } else {
    typename N::Int sums[kTokens];
    unroll<kTokens>(PACELINE_EACH { sums[i] = start_narrow_sum<N, kType>(x[i], 0); });
    add_dots<N, kType, kTokens, 0, 8>(lines, x, sums);
    const RowScales<N> rows = load_scales<N, kType>(super, block, row);
    unroll<kTokens>(PACELINE_EACH { y.at[i] = add_scaled<N, kType>(y.at[i], sums[i], rows, x[i]); });
  }
}

template <class N, int kTokens>
[[gnu::always_inline]] inline void load_narrow_sums(const Pass& pass, int32_t row, NarrowSums<N, kTokens>& y) {
  const int32_t count = pass.num_rows - row;
  unroll<kTokens>(PACELINE_EACH {
    const float* from = pass.y + i * pass.y_stride + row;
    y.at[i] = pass.is_first ? N::zero() : (count >= kNarrowRows ? N::load(from) : N::load_some(from, count));
  });
}

template <class N, int kTokens>
[[gnu::always_inline]] inline void store_narrow_sums(const Pass& pass, int32_t row, const NarrowSums<N, kTokens>& y) {
  const int32_t count = pass.num_rows - row;
  const float* bias = pass.bias != nullptr ? pass.bias + row : nullptr;
  unroll<kTokens>(PACELINE_EACH {
    float* to = pass.y + i * pass.y_stride + row;
    if (count >= kNarrowRows) {
      N::store(to, bias != nullptr ? N::add(y.at[i], N::load(bias)) : y.at[i]);
    } else {
      N::store_some(to, bias != nullptr ? N::add(y.at[i], N::load_some(bias, count)) : y.at[i], count);
    }
  });
}

// A strip of blocks for each group of 8 rows that exist. In a stream each group asks for its quarter of what lies
// kPrefetchBytes behind; otherwise the first asks for the strip's share of `pass.next`.
template <class S, PackedType kType, int kTokens, bool kStream>
void run_narrow_strip(const Pass& pass) {
  using N = typename S::Narrow;
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr int kBlockBytes = layout.block_bytes(), kQuarterLines = (kBlockBytes / kLine + 3) / 4;
  for (int32_t row = 0; row < pass.num_rows; row += kNarrowRows) {
    NarrowSums<N, kTokens> y;
    load_narrow_sums<N, kTokens>(pass, row, y);
    const uint8_t* block = pass.weights + layout.super_bytes;
    const ActivationBlock* x = reinterpret_cast<const ActivationBlock*>(pass.activations);
    const uint8_t* ahead =
        kStream ? pass.weights + kPrefetchBytes + row / kNarrowRows * kQuarterLines * kLine : pass.next;
    const int32_t num_ahead = kStream ? kQuarterLines : (row == 0 ? pass.next_lines : 0);
    for (int32_t index = 0; index < pass.num_blocks; ++index) {
      for (int32_t line = 0; line < num_ahead; ++line) S::prefetch(ahead + line * kLine);
      ahead += kStream ? kBlockBytes : num_ahead * kLine;
      add_narrow_block<N, kType, kTokens>(pass.weights, block, row, x, y);
      block += kBlockBytes;
      x += pass.tile_tokens;
    }
    store_narrow_sums<N, kTokens>(pass, row, y);
  }
}

// run_pass of linear_pass.h, strip by strip.
template <class S, PackedType kType, int kTokens, bool kStream>
void run_narrow_pass(const Pass& pass) {
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr int32_t kStripBytes = kStripBlocks / layout.blocks_per_super() * layout.super_stride();
  static_assert(kStripBlocks % layout.blocks_per_super() == 0);
  Pass strip = pass;
  strip.bias = nullptr;
  for (int32_t begin = 0; begin < pass.num_blocks; begin += kStripBlocks) {
    const int32_t rest = pass.num_blocks - begin;
    strip.num_blocks = rest < kStripBlocks ? rest : kStripBlocks;
    if (rest <= kStripBlocks) strip.bias = pass.bias;
    run_narrow_strip<S, kType, kTokens, kStream>(strip);
    strip.is_first = false;
    strip.weights += kStripBytes;
    strip.activations += static_cast<size_t>(kStripBlocks) * pass.tile_tokens * sizeof(ActivationBlock);
    strip.next += static_cast<size_t>(kStripBlocks) * pass.next_lines * kLine;
  }
}

// run_float_pass of linear_floats.h, strip by strip.
template <class S, PackedType kType, int kTokens>
void run_narrow_float_pass(const FloatPass& task) {
  using N = typename S::Narrow;
  constexpr int32_t kNumberBytes = float_bytes(kType), kChannelBytes = kRowTile * kNumberBytes;
  Pass strip = task.pass;
  for (int32_t begin = 0; begin < task.num_channels; begin += kFloatStrip) {
    const int32_t rest = task.num_channels - begin, count = rest < kFloatStrip ? rest : kFloatStrip;
    const float* x = task.x + begin;
    strip.bias = rest <= kFloatStrip ? task.pass.bias : nullptr;
    for (int32_t row = 0; row < strip.num_rows; row += kNarrowRows) {
      NarrowSums<N, kTokens> y;
      load_narrow_sums<N, kTokens>(strip, row, y);
      const uint8_t* weights = strip.weights + row * kNumberBytes;
      for (int32_t channel = 0; channel < count; ++channel) {
        if (row == 0) prefetch_ahead<S, kChannelBytes>(weights);
        const typename N::Float w = load_numbers<N, kType>(weights);
        unroll<kTokens>(PACELINE_EACH {
          y.at[i] = N::add(y.at[i], N::multiply(w, N::splat_load(x + i * task.x_stride + channel)));
        });
        weights += kChannelBytes;
      }
      store_narrow_sums<N, kTokens>(strip, row, y);
    }
    strip.is_first = false;
    strip.weights += static_cast<size_t>(count) * kChannelBytes;
  }
}

}  // namespace paceline::kernels

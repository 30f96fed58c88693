// One pass: a tile of 32 output rows × a run of channels × up to 5 tokens, for every quantised type.
//
// Arithmetic intensity. A block (32 rows × 32 channels) of a 4-bit type is 576-640 bytes and takes, per token, 16 dots
// (byte dot products of 16 lanes × 4 bytes), each good for 2048 operations. At one dot per cycle and 10 bytes of memory
// per cycle (Zen 4, one core: 0.47 TOPS, 31 GB/s) memory delivers a block in 60 cycles: time for 3 tokens with all that
// comes with the dots. Up to there a step costs what it costs for one token; beyond it the dots are the bound, and
// decoding and the float sums must hide behind them. That fixes the shape:
//
//   32 rows × 4 tokens  A broadcast of 4 activation bytes feeds two dots, a decoded weight vector feeds four. 8 integer
//                       and 8 float accumulators, weights, masks and scales fit 32 registers.
//   16 rows × 8 tokens  One load per dot: the load ports are the bound (58 % of peak where 32 × 4 has 71-78 %).
//   zero points         Integer sums start at −zero · Σq, which the quantiser left next to the quants: no work.
//   scales              Per 16 rows, token and 8 dots: a conversion, two multiplies, an add (with a min 3 and 2).
//
// Bound: multiplies share the dots' two ports, everything else has its own. So at best 8/10 of the dots' peak for s
// types, 8/11 with a min and for q6k; measured 77, 62-68 and 60 % of the peak at 64 tokens.
//
// No fused multiply-add: a multiply costs the dots' ports either way and the add has ports of its own, so it gains
// nothing, and without it a target that lacks it gives the same bits.
//
// Every loop over accumulators is unrolled by templates, not by pragma: gcc 12 otherwise keeps the arrays in memory, at
// half the speed. A test counts the vector stores.
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

// Prefetching. A pass that reads its weights once and is bound by memory needs none: the stream is strictly sequential
// and the hardware follows it at the machine's limit (31 of 31 GB/s on a Zen 4 core; prefetching into L1 costs 10 %,
// into L2 30 %). A pass bound by its dots leaves the hardware behind, because loads are issued no earlier than the dots
// before them let them: there each chunk of the stream asks for the one 8 KB further on, into L2 (q4a, 4 tokens: 20 to
// 24 GB/s, which is the dots' limit). 4 KB is as bad as nothing at 3 tokens, 16 KB equals 8 KB.
inline constexpr int32_t kPrefetchBytes = 8192;

// Whether work of kCycles outlasts the arrival of kBytes, at 10 bytes a cycle.
template <int kBytes, int kCycles>
inline constexpr bool kOutlastsMemory = 10 * kCycles > kBytes;

// Cycles of a block per token: 16 dots at 70 % of one per cycle.
inline constexpr int kBlockCycles = 23;

// Calls visit(integral_constant<int, 0>) … visit(integral_constant<int, N − 1>), unrolled.
template <int N, class Visit>
[[gnu::always_inline]] inline void unroll(Visit&& visit) {
  const auto visit_all = [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (visit(std::integral_constant<int, I>{}), ...);
  };
  visit_all(std::make_integer_sequence<int, N>{});
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

// Group kGroup (4 channels) of 16 rows as unsigned bytes, from the row group's first line; bits: see linear_layout.h.
template <class S, PackedType kType, int kGroup>
[[gnu::always_inline]] inline typename S::Bytes load_group(const uint8_t* lines) {
  constexpr int kBits = layout_of<kType>().bits;
  const auto line = [&](int index) __attribute__((always_inline)) {
    return S::load_bytes(lines + index * layout_of<kType>().line_step());
  };
  if constexpr (kBits == 8) {
    return line(kGroup);
  } else if constexpr (kBits == 4) {
    if constexpr (kGroup < 4) return S::template keep<0x0f>(line(kGroup));
    return S::template keep<0x0f>(S::template shift_right<4>(line(kGroup - 4)));
  } else if constexpr (kBits == 5) {
    if constexpr (kGroup < 5) return S::template keep<0x1f>(line(kGroup));
    typename S::Bytes high;
    if constexpr (kGroup == 7) {
      high = S::template blend<0x08>(S::template shift_right<4>(line(1)), S::template shift_right<3>(line(3)));
    } else {
      high = S::template shift_right<2>(line(kGroup == 5 ? 1 : 3));
    }
    const typename S::Bytes low = S::template shift_right<5>(line(2 * (kGroup - 5)));
    return S::template keep<0x1f>(S::template blend<0x07>(low, high));
  } else {
    constexpr int kFirst = kGroup / 4 * 3;
    if constexpr (kGroup % 4 < 3) return S::template keep<0x3f>(line(kFirst + kGroup % 4));
    const typename S::Bytes low = S::template shift_right<6>(line(kFirst));
    const typename S::Bytes middle = S::template shift_right<4>(line(kFirst + 1));
    const typename S::Bytes high = S::template shift_right<2>(line(kFirst + 2));
    return S::template keep<0x3f>(S::template blend<0x03>(low, S::template blend<0x0c>(middle, high)));
  }
}

// The order in which a block's groups are taken: lines that two groups share are used soon after each other.
template <int kBits>
inline constexpr int kGroupOrder[8] = {0, 1, 2, 3, 4, 5, 6, 7};
template <>
inline constexpr int kGroupOrder<4>[8] = {0, 4, 1, 5, 2, 6, 3, 7};
template <>
inline constexpr int kGroupOrder<5>[8] = {0, 1, 5, 2, 3, 6, 4, 7};

// What an integer sum starts at: −zero_point · Σq of the 32 channels (of half `half` for q6k).
template <class S, PackedType kType>
[[gnu::always_inline]] inline typename S::Int start_sum(const ActivationBlock& x, [[maybe_unused]] int half) {
  constexpr int32_t kZero = layout_of<kType>().zero_point;
  if constexpr (kZero == 0) {
    return S::zero_int();
  } else if constexpr (kZero == 32) {
    return S::splat_load_int(x.half_correction + half);
  } else {
    return S::splat_load_int(x.correction + (kZero == 8 ? 0 : (kZero == 16 ? 1 : 2)));
  }
}

// Scale and min of a vector's rows for one block.
template <class S>
struct RowScales {
  typename S::Float scale, min;
};

template <class S, PackedType kType>
[[gnu::always_inline]] inline RowScales<S> load_scales(const uint8_t* super, const uint8_t* block, int first_row) {
  const int halves = first_row * 2, bytes = first_row;
  if constexpr (layout_of<kType>().super_bytes == 0) {
    constexpr bool kHasMin = layout_of<kType>().zero_point == 0;
    return {S::load_half(block + halves), kHasMin ? S::load_half(block + kLine + halves) : S::zero()};
  } else {
    return {S::multiply(S::load_half(super + halves), S::to_float(S::load_unsigned(block + bytes))),
            S::multiply(S::load_half(super + kLine + halves), S::to_float(S::load_unsigned(block + kRowTile + bytes)))};
  }
}

// y += f32(sum) · (scale · x.scale) [± min · x.scale_sum] for 16 rows and one token.
template <class S, PackedType kType>
[[gnu::always_inline]] inline typename S::Float add_scaled(typename S::Float y, typename S::Int sum,
                                                           const RowScales<S>& rows, const ActivationBlock& x) {
  constexpr BlockLayout layout = layout_of<kType>();
  const typename S::Float scale = S::multiply(rows.scale, S::splat_load(&x.scale));
  y = S::add(y, S::multiply(S::to_float(sum), scale));
  if constexpr (layout.zero_point == 0) {
    const typename S::Float shift = S::multiply(rows.min, S::splat_load(&x.scale_sum));
    y = layout.super_bytes > 0 ? S::subtract(y, shift) : S::add(y, shift);
  }
  return y;
}

// One block of 32 channels, all types but q6k.
template <class S, PackedType kType, int kTokens>
[[gnu::always_inline]] inline void add_block(const uint8_t* super, const uint8_t* block, const ActivationBlock* x,
                                             FloatSums<S, kTokens>& y) {
  constexpr int kBits = layout_of<kType>().bits;
  const uint8_t* lines = block + layout_of<kType>().header_bytes;
  IntSums<S, kTokens> sums;
  unroll<kTokens>(PACELINE_EACH { sums.at[0][i] = sums.at[1][i] = start_sum<S, kType>(x[i], 0); });
  unroll<8>([&](auto index) __attribute__((always_inline)) {
    constexpr int kGroup = kGroupOrder<kBits>[index];
    const typename S::Bytes low = load_group<S, kType, kGroup>(lines);
    const typename S::Bytes high = load_group<S, kType, kGroup>(lines + layout_of<kType>().group_step());
    unroll<kTokens>(PACELINE_EACH {
      const typename S::Int quants = S::splat_load_int(x[i].quants + 4 * kGroup);
      sums.at[0][i] = S::dot(sums.at[0][i], low, quants);
      sums.at[1][i] = S::dot(sums.at[1][i], high, quants);
    });
  });
  unroll<2>([&](auto row_group) __attribute__((always_inline)) {
    const RowScales<S> rows = load_scales<S, kType>(super, block, row_group * kRowGroup);
    unroll<kTokens>(PACELINE_EACH {
      y.at[row_group][i] = add_scaled<S, kType>(y.at[row_group][i], sums.at[row_group][i], rows, x[i]);
    });
  });
}

// The same pointer, of which the compiler no longer knows that it is the same.
template <class T>
[[gnu::always_inline]] inline const T* forget(const T* pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}

// One block of q6k: each 16 channels have their own scale, so there are twice as many sums; row groups run one after
// the other to keep them in registers. (`forget`: gcc would store the 32 broadcasts of the first for the second.)
template <class S, int kTokens>
[[gnu::always_inline]] inline void add_block_q6k(const uint8_t* super, const uint8_t* block, const ActivationBlock* x,
                                                 FloatSums<S, kTokens>& y) {
  constexpr BlockLayout layout = layout_of<PackedType::q6k>();
  constexpr int kHeader = layout.header_bytes, kGroupStep = layout.group_step();
  unroll<2>([&](auto row_group) __attribute__((always_inline)) {
    const uint8_t* lines = block + kHeader + row_group * kGroupStep;
    x = forget(x);
    IntSums<S, kTokens> sums;  // at[half][token]
    unroll<2 * kTokens>(PACELINE_EACH {
      sums.at[i / kTokens][i % kTokens] = start_sum<S, PackedType::q6k>(x[i % kTokens], i / kTokens);
    });
    unroll<8>([&](auto group) __attribute__((always_inline)) {
      const typename S::Bytes weights = load_group<S, PackedType::q6k, group>(lines);
      unroll<kTokens>(PACELINE_EACH {
        typename S::Int& sum = sums.at[group / 4][i];
        sum = S::dot(sum, weights, S::splat_load_int(x[i].quants + 4 * group));
      });
    });
    const typename S::Float d = S::load_half(super + row_group * kRowGroup * 2);
    const uint8_t* scales = block + row_group * kRowGroup;
    const typename S::Float first = S::multiply(d, S::to_float(S::load_signed(scales)));
    const typename S::Float second = S::multiply(d, S::to_float(S::load_signed(scales + kRowTile)));
    unroll<kTokens>(PACELINE_EACH {
      const typename S::Float both =
          S::add(S::multiply(S::to_float(sums.at[0][i]), first), S::multiply(S::to_float(sums.at[1][i]), second));
      y.at[row_group][i] = S::add(y.at[row_group][i], S::multiply(both, S::splat_load(&x[i].scale)));
    });
  });
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

// Asks for the `kBytes` that lie kPrefetchBytes behind `at`.
template <class S, int kBytes>
[[gnu::always_inline]] inline void prefetch_ahead(const uint8_t* at) {
  unroll<kBytes / kLine>(PACELINE_EACH { S::prefetch(at + kPrefetchBytes + i * kLine); });
}

// The kernel. kStream: the weights pass by once. Otherwise `pass.next` says what each block fetches of the next chunk.
template <class S, PackedType kType, int kTokens, bool kStream>
void run_pass(const Pass& pass) {
  constexpr BlockLayout layout = layout_of<kType>();
  constexpr int kPer = layout.blocks_per_super(), kBlockBytes = layout.block_bytes();
  constexpr bool kIsAhead = kStream && kOutlastsMemory<kBlockBytes, kBlockCycles * kTokens>;
  FloatSums<S, kTokens> y;
  load_sums<S, kTokens>(pass, y);
  const uint8_t* super = pass.weights;
  const ActivationBlock* x = reinterpret_cast<const ActivationBlock*>(pass.activations);
  const uint8_t* next = pass.next;
  for (int32_t begin = 0; begin < pass.num_blocks; begin += kPer) {
    const uint8_t* block = super + layout.super_bytes;
    if constexpr (kIsAhead) prefetch_ahead<S, layout.super_bytes>(super);
    for (int32_t sub = 0; sub < kPer; ++sub) {
      if constexpr (kIsAhead) prefetch_ahead<S, kBlockBytes>(block);
      if constexpr (!kStream) {
        for (int32_t line = 0; line < pass.next_lines; ++line) S::prefetch(next + line * kLine);
        next += pass.next_lines * kLine;
      }
      if constexpr (kType == PackedType::q6k) {
        add_block_q6k<S, kTokens>(super, block, x, y);
      } else {
        add_block<S, kType, kTokens>(super, block, x, y);
      }
      block += kBlockBytes;
      x += S::kMaxTokens == 1 ? pass.tile_tokens : kTokens;
    }
    super += layout.super_stride();
  }
  store_sums<S, kTokens>(pass, y);
}

}  // namespace paceline::kernels

// One step's input as the core sees it: flat arrays that belong to the caller, checked before anything reads through
// them.
#pragma once
#include <cstdint>
#include <string>

#include "paceline/program.h"

namespace paceline {

// Shape letters as in backends/base.py: T tokens, S slices, R logits rows.
struct Step {
  int32_t num_tokens = 0;
  int32_t num_slices = 0;
  int32_t num_rows = 0;
  int32_t num_copies = 0;
  int32_t max_blocks = 0;                 // columns of block_tables
  const int32_t* token_ids = nullptr;     // [T]
  const int32_t* positions = nullptr;     // [T]
  const int32_t* slice_starts = nullptr;  // [S + 1]
  const int32_t* context_lens = nullptr;  // [S]
  const int32_t* block_tables = nullptr;  // [S, max_blocks]
  const int32_t* row_indices = nullptr;   // [R]
  const int32_t* copies = nullptr;        // [C, 2]

  // What the slice sees; where the KV of its position p lies.
  const int32_t* block_table(int32_t slice) const { return block_tables + static_cast<ptrdiff_t>(slice) * max_blocks; }
};

// Draws of R rows, one array per field of `Draws`.
struct DrawArrays {
  const float* temperature = nullptr;
  const int32_t* top_k = nullptr;
  const float* top_p = nullptr;
  const float* min_p = nullptr;
  const uint64_t* seeds = nullptr;
  const int32_t* seq_indices = nullptr;
  const int32_t* positions = nullptr;
};

// What is wrong with a step, or an empty string: every index is in range, every slice fits its table, and no token
// would be written into the null block 0.
std::string find_fault(const Step& step, const Program& program, int32_t num_blocks);

}  // namespace paceline

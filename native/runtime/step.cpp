#include "runtime/step.h"

namespace paceline {
namespace {

std::string outside(const char* what, int64_t index, int64_t value, int64_t low, int64_t high) {
  return std::string(what) + "[" + std::to_string(index) + "] is " + std::to_string(value) + "; expected " +
         std::to_string(low) + " to " + std::to_string(high);
}

// The first entry outside [low, high], said in words.
std::string find_outside(const char* what, const int32_t* values, int64_t count, int32_t low, int32_t high) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < low || values[i] > high) return outside(what, i, values[i], low, high);
  }
  return {};
}

std::string find_slice_fault(const Step& step, int32_t slice, int32_t num_blocks) {
  const int32_t begin = step.slice_starts[slice], end = step.slice_starts[slice + 1];
  const int32_t context = step.context_lens[slice];
  if (begin < 0 || end < begin || end > step.num_tokens) return "slice_starts must ascend from 0 to the token count";
  if (context < 0 || context > static_cast<int64_t>(step.max_blocks) * kBlockSize) {
    return outside("context_lens", slice, context, 0, static_cast<int64_t>(step.max_blocks) * kBlockSize);
  }
  const int32_t* table = step.block_table(slice);
  std::string fault = find_outside("block_tables", table, (context + kBlockSize - 1) / kBlockSize, 0, num_blocks - 1);
  for (int32_t token = begin; fault.empty() && token < end; ++token) {
    const int32_t position = step.positions[token];
    if (position < 0 || position >= context)
      fault = outside("positions", token, position, 0, context - 1);
    else if (token > begin && position < step.positions[token - 1])
      fault = "the positions of a slice must ascend";
    else if (table[position / kBlockSize] == 0)
      fault = "position " + std::to_string(position) + " has no block";
  }
  return fault;
}

}  // namespace

std::string find_fault(const Step& step, const Program& program, int32_t num_blocks) {
  if (step.num_tokens > program.max_tokens) return outside("num_tokens", 0, step.num_tokens, 0, program.max_tokens);
  if (step.num_rows > program.max_rows) return outside("num_rows", 0, step.num_rows, 0, program.max_rows);
  if (step.slice_starts[0] != 0 || step.slice_starts[step.num_slices] != step.num_tokens) {
    return "slice_starts must ascend from 0 to the token count";
  }
  std::string fault = find_outside("token_ids", step.token_ids, step.num_tokens, 0, program.vocab_size - 1);
  if (fault.empty()) fault = find_outside("row_indices", step.row_indices, step.num_rows, 0, step.num_tokens - 1);
  if (fault.empty()) fault = find_outside("copies", step.copies, 2 * int64_t{step.num_copies}, 0, num_blocks - 1);
  for (int32_t slice = 0; fault.empty() && slice < step.num_slices; ++slice) {
    fault = find_slice_fault(step, slice, num_blocks);
  }
  return fault;
}

}  // namespace paceline

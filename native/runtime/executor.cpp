#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/linear_layout.h"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

// One thread's scratch: a result of which only the int8 form is kept, tiles of a linear layer, ids for
// `draw`.
size_t scratch_bytes(const Program& program) {
  auto floats = static_cast<size_t>(program.logits.cols);
  for (const Instruction& instruction : program.instructions) {
    floats = std::max({floats, static_cast<size_t>(instruction.out.cols), linear_scratch_floats(instruction)});
  }
  return (floats * sizeof(float) + 63) / 64 * 64;
}

std::vector<AttentionShape> attention_shapes(const Program& program) {
  std::vector<AttentionShape> shapes;
  for (const Instruction& i : program.instructions) {
    if (i.opcode == Opcode::attention) shapes.push_back({i.num_kv_heads, i.num_heads / i.num_kv_heads, i.window});
  }
  return shapes;
}

}  // namespace

Executor::Executor(const Kernels& kernels, ThreadPool& pool, const Weights& weights, Program program,
                   int32_t num_blocks)
    : kernels_(kernels),
      pool_(pool),
      weights_(weights),
      program_(std::move(program)),
      num_blocks_(num_blocks),
      arena_(static_cast<size_t>(program_.arena_bytes)),
      kv_(static_cast<size_t>(num_blocks) * static_cast<size_t>(program_.kv_block_bytes)),
      attention_(kernels, pool, program_.kv_type, program_.max_head_dim, num_blocks, attention_shapes(program_)),
      scratch_bytes_per_thread_(scratch_bytes(program_)),
      slice_of_token_(static_cast<size_t>(program_.max_tokens)),
      bests_(static_cast<size_t>(program_.max_rows) * static_cast<size_t>(pool.num_threads())),
      nanoseconds_(program_.instructions.size() + 1) {
  scratch_ = Mapping(scratch_bytes_per_thread_ * static_cast<size_t>(pool.num_threads()));
  check_program();
}

void Executor::check_program() const {
  const auto fits = [](int32_t id, size_t count) { return id >= -1 && id < static_cast<int64_t>(count); };
  for (const Instruction& instruction : program_.instructions) {
    const bool needs_vectors = instruction.opcode != Opcode::angles;
    const size_t num_vectors = needs_vectors ? weights_.vectors().size() : weights_.frequencies().size();
    if (!fits(instruction.matrix, weights_.matrices().size()) || !fits(instruction.vector, num_vectors) ||
        !fits(instruction.q_norm, num_vectors) || !fits(instruction.k_norm, num_vectors)) {
      throw std::invalid_argument("an instruction names a weight that does not exist");
    }
    if (instruction.head_dim > kMaxHeadDim || instruction.head_dim > program_.max_head_dim) {
      throw std::invalid_argument("an instruction's head is wider than the program's widest");
    }
  }
}

void Executor::run(const Step& step, const DrawArrays& draws, int32_t* picks) {
  step_ = &step;
  draws_ = &draws;
  picks_ = picks;
  logits_ = {logits(), program_.logits.stride, step.num_rows};
  for (int32_t slice = 0; slice < step.num_slices; ++slice) {
    for (int32_t token = step.slice_starts[slice]; token < step.slice_starts[slice + 1]; ++token) {
      slice_of_token_[static_cast<size_t>(token)] = slice;
    }
  }
  attention_.prepare(step);
  pool_.run(run_share, this);
}

void Executor::pick(const float* logits, ptrdiff_t stride, int32_t num_rows, const DrawArrays& draws, int32_t* picks) {
  draws_ = &draws;
  picks_ = picks;
  logits_ = {logits, stride, num_rows};
  pool_.run(pick_share, this);
}

void Executor::run_share(void* self, int32_t thread) {
  Executor& executor = *static_cast<Executor*>(self);
  if (executor.step_->num_copies > 0) {
    executor.copy_blocks(thread);
    executor.pool_.barrier();
  }
  const bool is_timing = thread == 0 && executor.is_profiling;
  auto before = is_timing ? Clock::now() : Clock::time_point{};
  const auto lap = [&](size_t index) {
    const auto now = Clock::now();
    executor.nanoseconds_[index] += std::chrono::duration_cast<std::chrono::nanoseconds>(now - before).count();
    before = now;
  };
  const std::vector<Instruction>& instructions = executor.program_.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (thread == 0) executor.progress_.fetch_add(1, std::memory_order_relaxed);
    executor.execute(instructions[i], thread);
    if (instructions[i].barrier) executor.pool_.barrier();
    if (is_timing) lap(i);
  }
  executor.pick_rows(thread);
  if (is_timing) lap(instructions.size());
}

void Executor::pick_share(void* self, int32_t thread) { static_cast<Executor*>(self)->pick_rows(thread); }

// Every thread copies its own bytes of each block, so that a chain of copies (a → b, b → c) keeps its order.
void Executor::copy_blocks(int32_t thread) {
  const Range bytes = share(static_cast<int32_t>(program_.kv_block_bytes), thread, pool_.num_threads());
  for (int32_t i = 0; i < step_->num_copies; ++i) {
    const uint8_t* from = kv_.data() + step_->copies[2 * i] * program_.kv_block_bytes + bytes.begin;
    uint8_t* to = kv_.data() + step_->copies[2 * i + 1] * program_.kv_block_bytes + bytes.begin;
    std::memmove(to, from, static_cast<size_t>(bytes.end - bytes.begin));
  }
}

void Executor::execute(const Instruction& instruction, int32_t thread) {
  switch (instruction.opcode) {
    case Opcode::attention:
      return attend(instruction, thread);
    case Opcode::linear:
      return instruction.b.cols > 0 ? multiply_add(instruction, thread) : multiply(instruction, thread);
    case Opcode::gated_linear:
      return multiply_gated(instruction, thread);
    case Opcode::qkv_linear:
      return multiply_heads(instruction, thread);
    default:
      return execute_rows(instruction, thread);
  }
}

// A piece of a token tile is laid out like a whole buffer of that tile's tokens.
void Executor::quantize_columns(const Instruction& instruction, int32_t token, int32_t column, const float* x,
                                int32_t num_cols) const {
  const int32_t all_tokens = num_rows(instruction), blocks = instruction.out.cols / kQuantBlock;
  const TokenTile tile = token_tile_of(all_tokens, token);
  const size_t first = static_cast<size_t>(tile.begin) * blocks + static_cast<size_t>(column / kQuantBlock) * tile.size;
  uint8_t* to = arena_.data() + instruction.activations + first * sizeof(ActivationBlock);
  kernels_.quantize(x, 0, tile.size, num_cols, to, token - tile.begin, token - tile.begin + 1);
}

}  // namespace paceline

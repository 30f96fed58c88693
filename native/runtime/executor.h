// The executor: replays a program for one step on all threads, then picks tokens.
//
// The one idea: every thread walks the same instruction list and takes its static share of each instruction's rows,
// output tiles or attention tiles; a barrier stands only where the recorder found that one thread reads what another
// wrote. Nothing is allocated, locked or looked up by name; the only thing that changes from step to step is `Step`.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "paceline/program.h"
#include "runtime/draw.h"
#include "runtime/memory.h"
#include "runtime/step.h"
#include "runtime/threads.h"
#include "runtime/weights.h"

namespace paceline {

class Executor {
 public:
  // The pool and the weights must outlive the executor. Throws std::invalid_argument for a program that does not fit
  // the weights, std::bad_alloc when there is no memory.
  Executor(const Kernels& kernels, ThreadPool& pool, const Weights& weights, Program program, int32_t num_blocks);

  // Runs one checked step; picks [R].
  void run(const Step& step, const DrawArrays& draws, int32_t* picks);

  // Picks from logits [R, V] of the caller's, rows `stride` floats apart.
  void pick(const float* logits, ptrdiff_t stride, int32_t num_rows, const DrawArrays& draws, int32_t* picks);

  const Program& program() const { return program_; }
  int32_t num_blocks() const { return num_blocks_; }
  const float* logits() const { return floats(program_.logits); }

  // Instructions begun since construction: a supervisor sees whether a long step still moves.
  int64_t progress() const { return progress_.load(std::memory_order_relaxed); }

  // Nanoseconds that worker 0 spent in each instruction (its barrier included), then in picking.
  bool is_profiling = false;
  const std::vector<int64_t>& nanoseconds() const { return nanoseconds_; }
  void reset_profile() { nanoseconds_.assign(nanoseconds_.size(), 0); }

 private:
  struct Logits {
    const float* data;
    ptrdiff_t stride;
    int32_t num_rows;
  };

  static void run_share(void* self, int32_t thread);
  static void pick_share(void* self, int32_t thread);
  void copy_blocks(int32_t thread);
  void execute(const Instruction& instruction, int32_t thread);
  void execute_rows(const Instruction& instruction, int32_t thread);
  void execute_row(const Instruction& instruction, int32_t row);
  void write_kv(const Instruction& instruction, Range tokens);
  void attend(const Instruction& instruction, int32_t thread);
  void multiply(const Instruction& instruction, int32_t thread);
  void pick_rows(int32_t thread);
  DrawParams draw_params(int32_t row) const;
  void check_program() const;

  float* floats(const Operand& operand) const { return reinterpret_cast<float*>(arena_.data() + operand.offset); }
  float* row_of(const Operand& operand, int32_t row) const {
    return floats(operand) + static_cast<ptrdiff_t>(row) * operand.stride;
  }
  uint8_t* activations(const Instruction& instruction) const { return arena_.data() + instruction.activations; }
  int32_t num_rows(const Instruction& instruction) const {
    return instruction.rows == RowKind::tokens ? step_->num_tokens : step_->num_rows;
  }

  const Kernels& kernels_;
  ThreadPool& pool_;
  const Weights& weights_;
  const Program program_;
  const int32_t num_blocks_;
  Mapping arena_;
  Mapping kv_;
  Mapping scratch_;  // per thread: attention, then ids for `draw`
  size_t scratch_bytes_per_thread_;
  std::vector<int32_t> slice_of_token_;
  std::vector<Best> bests_;  // [max_rows, threads]: each thread's best of its vocabulary range
  std::vector<int64_t> nanoseconds_;
  std::atomic<int64_t> progress_{0};

  // The step being run.
  const Step* step_ = nullptr;
  const DrawArrays* draws_ = nullptr;
  int32_t* picks_ = nullptr;
  Logits logits_{};
};

}  // namespace paceline

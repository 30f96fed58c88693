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
#include "runtime/attention_runner.h"
#include "runtime/draw.h"
#include "runtime/memory.h"
#include "runtime/step.h"
#include "runtime/threads.h"
#include "runtime/weights.h"

namespace paceline {

// Where a group of tiles is computed: a row per token, `stride` floats apart.
struct Tiles {
  float* data;
  ptrdiff_t stride;

  float* row(int32_t index) const { return data + index * stride; }
};

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
  void execute_row(const Instruction& instruction, int32_t row, float* out);
  void write_kv(const Instruction& instruction, Range tokens);
  void attend(const Instruction& instruction, int32_t thread);
  void pick_rows(int32_t thread);
  DrawParams draw_params(int32_t row) const;
  void check_program() const;

  // Linear layers: see executor_linear.cpp.
  void multiply(const Instruction& instruction, int32_t thread);
  void multiply_add(const Instruction& instruction, int32_t thread);
  void multiply_gated(const Instruction& instruction, int32_t thread);
  void multiply_heads(const Instruction& instruction, int32_t thread);
  void compute(const Instruction& instruction, Range tokens, Range rows, const Tiles& to) const;
  void finish_queries(const Instruction& instruction, Range tokens, Range heads, const Tiles& q) const;
  void finish_keys(const Instruction& instruction, Range tokens, Range heads, const Tiles& k, const Tiles& v);

  // Writes the int8 form of columns [column, column + num_cols) of a token's row.
  void quantize_columns(const Instruction& instruction, int32_t token, int32_t column, const float* x,
                        int32_t num_cols) const;
  // Writes one head of a token's k and v into the cache.
  void cache_head(const Instruction& instruction, int32_t token, int32_t head, const float* k, const float* v);

  float* floats(const Operand& operand) const { return reinterpret_cast<float*>(arena_.data() + operand.offset); }
  float* row_of(const Operand& operand, int32_t row) const {
    return floats(operand) + static_cast<ptrdiff_t>(row) * operand.stride;
  }
  float* scratch(int32_t thread) const {
    return reinterpret_cast<float*>(scratch_.data() + static_cast<size_t>(thread) * scratch_bytes_per_thread_);
  }
  const Matrix& matrix_of(const Instruction& instruction) const {
    return weights_.matrices()[static_cast<size_t>(instruction.matrix)];
  }
  const float* vector(int32_t id) const {
    return id < 0 ? nullptr : weights_.vectors()[static_cast<size_t>(id)].data();
  }
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
  AttentionRunner attention_;
  Mapping scratch_;  // per thread, whatever its instruction needs: see scratch_bytes
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

// Floats of scratch that a linear instruction needs.
size_t linear_scratch_floats(const Instruction& instruction);

}  // namespace paceline

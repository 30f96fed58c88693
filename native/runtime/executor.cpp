#include "runtime/executor.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

size_t scratch_bytes(const Program& program) {
  const size_t attention = attention_scratch_floats(program.max_head_dim) * sizeof(float);
  const size_t ids = static_cast<size_t>(program.logits.cols) * sizeof(int32_t);
  return (std::max(attention, ids) + 63) / 64 * 64;
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
      kv_(static_cast<size_t>(num_blocks) * static_cast<size_t>(program_.kv_block_elements) * sizeof(uint16_t)),
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
    if (!fits(instruction.matrix, weights_.matrices().size()) || !fits(instruction.vector, num_vectors)) {
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
  const Range elements = share(static_cast<int32_t>(program_.kv_block_elements), thread, pool_.num_threads());
  auto* base = reinterpret_cast<uint16_t*>(kv_.data());
  for (int32_t i = 0; i < step_->num_copies; ++i) {
    const uint16_t* from = base + step_->copies[2 * i] * program_.kv_block_elements + elements.begin;
    uint16_t* to = base + step_->copies[2 * i + 1] * program_.kv_block_elements + elements.begin;
    std::memmove(to, from, static_cast<size_t>(elements.end - elements.begin) * sizeof(uint16_t));
  }
}

void Executor::execute(const Instruction& instruction, int32_t thread) {
  switch (instruction.opcode) {
    case Opcode::attention:
      return attend(instruction, thread);
    case Opcode::linear:
      return multiply(instruction, thread);
    default:
      return execute_rows(instruction, thread);
  }
}

// Instructions that split by rows; what they wrote may be quantised at once by the same thread.
void Executor::execute_rows(const Instruction& instruction, int32_t thread) {
  const int32_t count = num_rows(instruction);
  const Range rows = share(count, thread, pool_.num_threads());
  if (instruction.opcode == Opcode::kv_write) return write_kv(instruction, rows);
  if (instruction.opcode != Opcode::quantize) {
    for (int32_t row = rows.begin; row < rows.end; ++row) execute_row(instruction, row);
  }
  if (instruction.activations < 0) return;
  const Operand& source = instruction.opcode == Opcode::quantize ? instruction.a : instruction.out;
  kernels_.quantize(floats(source), source.stride, count, source.cols, activations(instruction), rows.begin, rows.end);
}

void Executor::execute_row(const Instruction& i, int32_t row) {
  float* out = row_of(i.out, row);
  const float* a = row_of(i.a, row);
  const auto vector = [&] { return weights_.vectors()[static_cast<size_t>(i.vector)].data(); };
  switch (i.opcode) {
    case Opcode::embed: {
      const Matrix& table = weights_.matrices()[static_cast<size_t>(i.matrix)];
      int32_t id = step_->token_ids[row];
      const MatrixPart* part = table.parts.data();
      for (; id >= part->num_rows; ++part) id -= part->num_rows;
      unpack_row(*part, id, out);
      return kernels_.scale(out, i.scale, i.out.cols, out);
    }
    case Opcode::angles: {
      const std::vector<double>& frequencies = weights_.frequencies()[static_cast<size_t>(i.vector)];
      for (size_t pair = 0; pair < frequencies.size(); ++pair) {
        const double angle = step_->positions[row] * frequencies[pair];
        out[pair] = static_cast<float>(std::cos(angle));
        out[pair + frequencies.size()] = static_cast<float>(std::sin(angle));
      }
      return;
    }
    case Opcode::rms_norm:
      return kernels_.rms_norm(a, vector(), i.eps, i.out.cols, out);
    case Opcode::head_norm:
      for (int32_t head = 0; head < i.out.cols; head += i.head_dim) {
        kernels_.rms_norm(a + head, vector(), i.eps, i.head_dim, out + head);
      }
      return;
    case Opcode::rope:
      for (int32_t head = 0; head < i.out.cols; head += i.head_dim) {
        kernels_.rope(a + head, row_of(i.b, row), i.rope_dim, i.head_dim, out + head);
      }
      return;
    case Opcode::gated:
      return kernels_.gated(a, a + i.out.cols, i.activation, i.out.cols, out);
    case Opcode::add:
      return kernels_.add(a, row_of(i.b, row), i.out.cols, out);
    case Opcode::softcap:
      return kernels_.softcap(a, i.softcap, i.out.cols, out);
    case Opcode::gather_rows:
      std::memcpy(out, row_of(i.a, step_->row_indices[row]), static_cast<size_t>(i.out.cols) * sizeof(float));
      return;
    default:
      return;
  }
}

void Executor::write_kv(const Instruction& instruction, Range tokens) {
  const int32_t head_dim = instruction.head_dim;
  const ptrdiff_t head_elements = kv_head_elements(head_dim);
  auto* layer = reinterpret_cast<uint16_t*>(kv_.data()) + instruction.kv_offset;
  for (int32_t token = tokens.begin; token < tokens.end; ++token) {
    const int32_t position = step_->positions[token];
    const int32_t block = step_->block_table(slice_of_token_[static_cast<size_t>(token)])[position / kBlockSize];
    uint16_t* target = layer + block * program_.kv_block_elements;
    const float *k = row_of(instruction.a, token), *v = row_of(instruction.b, token);
    for (int32_t head = 0; head < instruction.num_kv_heads; ++head) {
      kernels_.kv_write(k + head * head_dim, v + head * head_dim, head_dim, position % kBlockSize,
                        target + head * head_elements);
    }
  }
}

void Executor::multiply(const Instruction& instruction, int32_t thread) {
  const Matrix& matrix = weights_.matrices()[static_cast<size_t>(instruction.matrix)];
  const LinearTask task{
      .parts = matrix.parts.data(),
      .num_parts = static_cast<int32_t>(matrix.parts.size()),
      .num_tokens = num_rows(instruction),
      .num_cols = matrix.num_cols,
      .activations = instruction.activations < 0 ? nullptr : activations(instruction),
      .x = floats(instruction.a),
      .x_stride = instruction.a.stride,
      .bias = instruction.vector < 0 ? nullptr : weights_.vectors()[static_cast<size_t>(instruction.vector)].data(),
      .y = floats(instruction.out),
      .y_stride = instruction.out.stride,
  };
  if (task.num_tokens == 0) return;
  const Range tiles = share(num_tiles(task), thread, pool_.num_threads());
  if (tiles.begin < tiles.end) kernels_.linear(task, tiles.begin, tiles.end);
}

}  // namespace paceline

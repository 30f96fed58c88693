// Instructions that split by rows: each thread takes its share of the step's tokens (or logits rows).
#include <cmath>
#include <cstring>

#include "runtime/executor.h"

namespace paceline {

// What was written may be quantised at once, by the same thread; a result that nobody else reads stays in scratch.
void Executor::execute_rows(const Instruction& instruction, int32_t thread) {
  const Range rows = share(num_rows(instruction), thread, pool_.num_threads());
  if (instruction.opcode == Opcode::kv_write) return write_kv(instruction, rows);
  for (int32_t row = rows.begin; row < rows.end; ++row) {
    float* out = instruction.out.offset < 0 ? scratch(thread) : row_of(instruction.out, row);
    if (instruction.opcode == Opcode::quantize) {
      out = row_of(instruction.a, row);
    } else {
      execute_row(instruction, row, out);
    }
    if (instruction.activations >= 0) quantize_columns(instruction, row, 0, out, instruction.out.cols);
  }
}

void Executor::execute_row(const Instruction& i, int32_t row, float* out) {
  const float* a = row_of(i.a, row);
  switch (i.opcode) {
    case Opcode::embed: {
      const Matrix& table = matrix_of(i);
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
      return kernels_.rms_norm(a, vector(i.vector), i.eps, i.out.cols, out);
    case Opcode::head_norm:
      for (int32_t head = 0; head < i.out.cols; head += i.head_dim) {
        kernels_.rms_norm(a + head, vector(i.vector), i.eps, i.head_dim, out + head);
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
  for (int32_t token = tokens.begin; token < tokens.end; ++token) {
    const float *k = row_of(instruction.a, token), *v = row_of(instruction.b, token);
    for (int32_t head = 0; head < instruction.num_kv_heads; ++head) {
      cache_head(instruction, token, head, k + head * head_dim, v + head * head_dim);
    }
  }
}

void Executor::cache_head(const Instruction& instruction, int32_t token, int32_t head, const float* k, const float* v) {
  const int32_t position = step_->positions[token];
  const int32_t block = step_->block_table(slice_of_token_[static_cast<size_t>(token)])[position / kBlockSize];
  const KvType type = program_.kv_type;
  uint8_t* target = kv_.data() + instruction.kv_offset + block * program_.kv_block_bytes +
                    head * kv_head_bytes(type, instruction.head_dim);
  kernels_.kv_write[static_cast<size_t>(type)](k, v, instruction.head_dim, position % kBlockSize, target);
}

}  // namespace paceline

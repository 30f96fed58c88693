// How linear layers are shared out: each thread takes the same output rows in every step, a group of tiles at a time.
//
//   for each chunk of about 64 tokens          their activations stay in the L2 cache
//     for each group of the thread's rows      results of a chunk: about 64 KB of scratch
//       the kernel, then, token by token, what the instruction does with the results while they are near
//
// The last line is the point: a sum, a gate, a rotation need no barrier and no pass over memory of their own. A group
// is made of units (a tile, a pair of gate and up tiles, whole heads) so that no other thread has a part of what it
// needs.
#include <algorithm>
#include <numeric>

#include "kernels/linear_layout.h"
#include "runtime/executor.h"

namespace paceline {
namespace {

constexpr int32_t kGroupFloats = 16384;
constexpr int32_t kChunkTokens = 64;
constexpr int32_t kRowPadding = 16;  // rows a power of two apart would share cache sets

int32_t ceil_divide(int32_t a, int32_t b) { return (a + b - 1) / b; }

// Calls visit(tokens) for chunks of whole token tiles; a chunk is tiled like a step of as many tokens.
template <class Visit>
void for_token_chunks(int32_t num_tokens, Visit visit) {
  const int32_t num_tiles = num_token_tiles(num_tokens);
  const int32_t per_chunk = ceil_divide(num_tiles, ceil_divide(num_tokens, kChunkTokens));
  for (int32_t tile = 0; tile < num_tiles; tile += per_chunk) {
    const int32_t next = tile + per_chunk;
    visit(
        Range{token_tile(num_tokens, tile).begin, next < num_tiles ? token_tile(num_tokens, next).begin : num_tokens});
  }
}

// Calls visit(range) for groups of [units.begin, units.end) whose results of a chunk, `unit_rows` each, fit the
// scratch.
template <class Visit>
void for_groups(Range units, int32_t unit_rows, Range tokens, Visit visit) {
  const int32_t group = std::max(1, kGroupFloats / ((tokens.end - tokens.begin) * unit_rows));
  for (int32_t begin = units.begin; begin < units.end; begin += group) {
    visit(Range{begin, std::min(begin + group, units.end)});
  }
}

// Heads that fill whole tiles together.
int32_t heads_per_unit(int32_t head_dim) { return kRowTile / std::gcd(head_dim, kRowTile); }

// Output rows of a unit.
int32_t unit_rows(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::gated_linear:
      return 2 * kRowTile;
    case Opcode::qkv_linear:  // of k and v together; a unit of q has half
      return 2 * heads_per_unit(instruction.head_dim) * instruction.head_dim;
    default:
      return kRowTile;
  }
}

// A part's rows [rows.begin, rows.end), counted over the whole matrix, as a part of its own; they begin at a tile.
MatrixPart rows_of(const Matrix& matrix, Range rows) {
  const MatrixPart* part = matrix.parts.data();
  int32_t first = 0;
  for (; rows.begin >= first + part->num_rows; ++part) first += part->num_rows;
  const size_t tile_bytes = packed_bytes(part->type, kRowTile, part->num_cols);
  const auto tile = static_cast<size_t>((rows.begin - first) / kRowTile);
  return {part->type, rows.end - rows.begin, part->num_cols, part->data + tile * tile_bytes};
}

// The units of q, then those of k and v, that a thread takes: equal numbers of tiles, a unit of k and v counting twice.
struct HeadShare {
  Range q;
  Range kv;
};
HeadShare share_heads(int32_t q_units, int32_t kv_units, int32_t thread, int32_t num_threads) {
  const int64_t total = q_units + 2 * static_cast<int64_t>(kv_units);
  const auto q_at = [&](int32_t t) {
    return static_cast<int32_t>(std::min<int64_t>(total * t / num_threads, q_units));
  };
  const auto kv_at = [&](int32_t t) {
    return static_cast<int32_t>(std::max<int64_t>(total * t / num_threads - q_units + 1, 0) / 2);
  };
  return {{q_at(thread), q_at(thread + 1)}, {kv_at(thread), kv_at(thread + 1)}};
}

}  // namespace

size_t linear_scratch_floats(const Instruction& instruction) {
  const size_t rows = static_cast<size_t>(unit_rows(instruction));
  return std::max<size_t>(kGroupFloats, kChunkTokens * rows) + 2 * kChunkTokens * kRowPadding;
}

// All tokens of a chunk × output rows of one part, into `to`.
void Executor::compute(const Instruction& instruction, Range tokens, Range rows, const Tiles& to) const {
  const Matrix& matrix = matrix_of(instruction);
  const MatrixPart part = rows_of(matrix, rows);
  const size_t blocks_before = static_cast<size_t>(tokens.begin) * static_cast<size_t>(matrix.num_cols / kQuantBlock);
  const float* bias = vector(instruction.vector);
  const LinearTask task{
      .parts = &part,
      .num_parts = 1,
      .num_tokens = tokens.end - tokens.begin,
      .num_cols = matrix.num_cols,
      .activations = arena_.data() + instruction.a.offset + blocks_before * sizeof(ActivationBlock),
      .x = row_of(instruction.a, tokens.begin),
      .x_stride = instruction.a.stride,
      .bias = bias == nullptr ? nullptr : bias + rows.begin,
      .y = to.data,
      .y_stride = to.stride,
  };
  kernels_.linear(task, 0, num_tiles(task));
}

// Straight into `out`.
void Executor::multiply(const Instruction& instruction, int32_t thread) {
  const Matrix& matrix = matrix_of(instruction);
  const LinearTask task{
      .parts = matrix.parts.data(),
      .num_parts = static_cast<int32_t>(matrix.parts.size()),
      .num_tokens = num_rows(instruction),
      .num_cols = matrix.num_cols,
      .activations = arena_.data() + instruction.a.offset,
      .x = floats(instruction.a),
      .x_stride = instruction.a.stride,
      .bias = vector(instruction.vector),
      .y = floats(instruction.out),
      .y_stride = instruction.out.stride,
  };
  if (task.num_tokens == 0) return;
  const Range tiles = share(num_tiles(task), thread, pool_.num_threads());
  if (tiles.begin < tiles.end) kernels_.linear(task, tiles.begin, tiles.end);
}

// Plus b.
void Executor::multiply_add(const Instruction& instruction, int32_t thread) {
  const Matrix& matrix = matrix_of(instruction);
  int32_t first_row = 0;
  for (const MatrixPart& part : matrix.parts) {
    const Range tiles = share(ceil_divide(part.num_rows, kRowTile), thread, pool_.num_threads());
    for_token_chunks(num_rows(instruction), [&](Range tokens) {
      for_groups(tiles, kRowTile, tokens, [&](Range group) {
        const Range rows{first_row + group.begin * kRowTile, first_row + std::min(group.end * kRowTile, part.num_rows)};
        const int32_t count = rows.end - rows.begin;
        const Tiles y{scratch(thread), count + kRowPadding};
        compute(instruction, tokens, rows, y);
        for (int32_t token = tokens.begin; token < tokens.end; ++token) {
          const float* b = row_of(instruction.b, token) + rows.begin;
          kernels_.add(b, y.row(token - tokens.begin), count, row_of(instruction.out, token) + rows.begin);
        }
      });
    });
    first_row += part.num_rows;
  }
}

// The first half of the rows is the gate of the second; results are quantised at once.
void Executor::multiply_gated(const Instruction& instruction, int32_t thread) {
  const int32_t half = matrix_of(instruction).num_rows / 2;
  const Range pairs = share(ceil_divide(half, kRowTile), thread, pool_.num_threads());
  for_token_chunks(num_rows(instruction), [&](Range tokens) {
    for_groups(pairs, unit_rows(instruction), tokens, [&](Range group) {
      const Range rows{group.begin * kRowTile, std::min(group.end * kRowTile, half)};
      const int32_t count = rows.end - rows.begin;
      const Tiles gate{scratch(thread), count + kRowPadding};
      const Tiles up{gate.row(tokens.end - tokens.begin), gate.stride};
      compute(instruction, tokens, rows, gate);
      compute(instruction, tokens, {half + rows.begin, half + rows.end}, up);
      for (int32_t token = tokens.begin; token < tokens.end; ++token) {
        float* x = gate.row(token - tokens.begin);
        float* y = instruction.out.offset < 0 ? x : row_of(instruction.out, token) + rows.begin;
        kernels_.gated(x, up.row(token - tokens.begin), instruction.activation, count, y);
        if (instruction.activations >= 0) quantize_columns(instruction, token, rows.begin, y, count);
      }
    });
  });
}

// Rows of q, k and v, head by head.
void Executor::multiply_heads(const Instruction& instruction, int32_t thread) {
  const int32_t per_unit = heads_per_unit(instruction.head_dim), dim = instruction.head_dim;
  const int32_t num_heads = instruction.num_heads, num_kv_heads = instruction.num_kv_heads;
  const HeadShare units =
      share_heads(ceil_divide(num_heads, per_unit), ceil_divide(num_kv_heads, per_unit), thread, pool_.num_threads());
  const int32_t k_row = num_heads * dim, v_row = k_row + num_kv_heads * dim;
  for_token_chunks(num_rows(instruction), [&](Range tokens) {
    for_groups(units.q, per_unit * dim, tokens, [&](Range group) {
      const Range heads{group.begin * per_unit, std::min(group.end * per_unit, num_heads)};
      const Tiles q{scratch(thread), (heads.end - heads.begin) * dim + kRowPadding};
      compute(instruction, tokens, {heads.begin * dim, heads.end * dim}, q);
      finish_queries(instruction, tokens, heads, q);
    });
    for_groups(units.kv, unit_rows(instruction), tokens, [&](Range group) {
      const Range heads{group.begin * per_unit, std::min(group.end * per_unit, num_kv_heads)};
      const Tiles k{scratch(thread), (heads.end - heads.begin) * dim + kRowPadding};
      const Tiles v{k.row(tokens.end - tokens.begin), k.stride};
      compute(instruction, tokens, {k_row + heads.begin * dim, k_row + heads.end * dim}, k);
      compute(instruction, tokens, {v_row + heads.begin * dim, v_row + heads.end * dim}, v);
      finish_keys(instruction, tokens, heads, k, v);
    });
  });
}

void Executor::finish_queries(const Instruction& instruction, Range tokens, Range heads, const Tiles& q) const {
  const float* gain = vector(instruction.q_norm);
  const int32_t dim = instruction.head_dim;
  for (int32_t token = tokens.begin; token < tokens.end; ++token) {
    float* head = q.row(token - tokens.begin);
    for (int32_t index = heads.begin; index < heads.end; ++index, head += dim) {
      if (gain != nullptr) kernels_.rms_norm(head, gain, instruction.eps, dim, head);
      kernels_.rope(head, row_of(instruction.b, token), instruction.rope_dim, dim,
                    row_of(instruction.out, token) + index * dim);
    }
  }
}

void Executor::finish_keys(const Instruction& instruction, Range tokens, Range heads, const Tiles& k, const Tiles& v) {
  const float* gain = vector(instruction.k_norm);
  const int32_t dim = instruction.head_dim;
  for (int32_t token = tokens.begin; token < tokens.end; ++token) {
    float* head = k.row(token - tokens.begin);
    const float* values = v.row(token - tokens.begin);
    for (int32_t index = heads.begin; index < heads.end; ++index, head += dim, values += dim) {
      if (gain != nullptr) kernels_.rms_norm(head, gain, instruction.eps, dim, head);
      kernels_.rope(head, row_of(instruction.b, token), instruction.rope_dim, dim, head);
      cache_head(instruction, token, index, head, values);
    }
  }
}

}  // namespace paceline

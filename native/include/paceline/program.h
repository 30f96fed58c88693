// The program: a model's forward pass as plain instructions, recorded once and replayed every step.
//
// The one idea: everything that Python knows (shapes, weights, where a value lives in the arena, which instructions
// must wait for each other) is resolved when the program is made. What varies from step to step is only the number of
// rows: T tokens or R logits rows. Values are f32 rows in one arena that was sized for the most rows.
#pragma once
#include <cstdint>
#include <vector>

#include "paceline/kernels.h"

namespace paceline {

enum class Opcode : int32_t {
  embed,         // out[T, E] = table[token_ids] · scale
  angles,        // out[T, dim] = cos, sin of position · inverse frequency
  rms_norm,      // out = norm(a) · vector
  head_norm,     // the same for each head of head_dim channels
  rope,          // out = a rotated by the angles b
  kv_write,      // cache[layer] ← k = a, v = b
  attention,     // out = softmax attention of q = a over cache[layer]
  quantize,      // activations ← a
  linear,        // out = a · matrixᵀ + bias (+ b); a is the int8 form of its value when the matrix is quantised
  gated_linear,  // out = act(first half of a · matrixᵀ + bias) · second half
  qkv_linear,  // q, k, v = a · matrixᵀ + bias; heads of q and k normed and rotated by b; out = q, cache[layer] ← k, v
  gated,       // out = act(a's first half) · a's second half
  add,         // out = a + b
  softcap,     // out = cap · tanh(a / cap)
  gather_rows,  // out[R] = a[row_indices]
};

// Which count of the step is an instruction's number of rows.
enum class RowKind : int32_t { tokens, logits };

// A value: rows of `cols` floats in the arena, `stride` floats apart; or its int8 form, laid out as linear.h says.
struct Operand {
  int64_t offset = 0;  // bytes; -1: nobody reads it
  int32_t stride = 0;
  int32_t cols = 0;
};

struct Instruction {
  Opcode opcode = Opcode::embed;
  RowKind rows = RowKind::tokens;
  bool barrier = false;  // all threads meet after this instruction
  Operand out;
  Operand a;
  Operand b;
  int64_t activations = -1;  // arena bytes: int8 form of `out` to be written as well (quantize: of `a`)
  int32_t matrix = -1;
  int32_t vector = -1;  // gain of a norm, bias of a linear layer, inverse frequencies of angles
  int32_t q_norm = -1;  // gains of the head norms of qkv_linear
  int32_t k_norm = -1;
  int64_t kv_offset = 0;  // bytes from a KV block's start to this layer's part
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rope_dim = 0;
  int32_t window = 0;  // 0: unlimited
  Activation activation = Activation::silu;
  float scale = 1.0f;
  float eps = 0.0f;
  float softcap = 0.0f;  // 0: none
};

// A whole forward pass and the memory that it needs.
struct Program {
  std::vector<Instruction> instructions;
  Operand logits;  // [R, V]
  int64_t arena_bytes = 0;
  KvType kv_type = KvType::int16;
  int64_t kv_block_bytes = 0;  // of one KV block over all layers
  int32_t vocab_size = 0;      // token ids are below it
  int32_t max_tokens = 0;
  int32_t max_rows = 0;
  int32_t max_head_dim = 0;
};

}  // namespace paceline

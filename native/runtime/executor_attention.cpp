// What the executor tells the attention runner of an instruction, and what it does with each finished head.
#include "runtime/executor.h"

namespace paceline {

void Executor::attend(const Instruction& instruction, int32_t thread) {
  struct Context {
    const Executor& executor;
    const Instruction& instruction;

    // The int8 form of a head's result, while it is near.
    static void quantize_head(const void* self, int32_t token, int32_t head) {
      const auto& [executor, instruction] = *static_cast<const Context*>(self);
      if (instruction.activations < 0) return;
      const int32_t column = head * instruction.head_dim;
      const float* x = executor.row_of(instruction.out, token) + column;
      executor.quantize_columns(instruction, token, column, x, instruction.head_dim);
    }
  };
  const Context context{*this, instruction};
  attention_.run(
      {
          .q = floats(instruction.a),
          .q_stride = instruction.a.stride,
          .out = floats(instruction.out),
          .out_stride = instruction.out.stride,
          .kv = kv_.data() + instruction.kv_offset,
          .block_stride = program_.kv_block_bytes,
          .block_table = nullptr,
          .positions = step_->positions,
          .num_heads = instruction.num_heads,
          .num_kv_heads = instruction.num_kv_heads,
          .head_dim = instruction.head_dim,
          .window = instruction.window,
          .scale = instruction.scale,
          .softcap = instruction.softcap,
      },
      thread, {Context::quantize_head, &context});
}

}  // namespace paceline

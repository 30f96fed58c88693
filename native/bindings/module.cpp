// The Python module `paceline.backends.native._core`: the only file of the core that knows Python.
//
// The one idea: nothing is decided here. Arrays are checked and lent to the core by pointer, the GIL is released for as
// long as the core works, and what the core finds wrong with an input becomes a ValueError (a MemoryError when memory
// ran out).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "paceline/linear.h"
#include "paceline/program.h"
#include "runtime/dispatch.h"
#include "runtime/executor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {
namespace {

template <class T, int kDims>
using Array = nb::ndarray<const T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using Picks = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = Array<uint8_t, 1>;

void expect(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

const Kernels& find_kernels(const std::string& name) {
  for (const TargetInfo& target : list_targets()) {
    if (target.name != name) continue;
    if (target.kernels == nullptr)
      throw std::invalid_argument("target `" + name + "` cannot run here: " + target.reason);
    return *target.kernels;
  }
  throw std::invalid_argument("there is no target `" + name + "`");
}

// The draws of R rows, lent.
struct Draws {
  Array<float, 1> temperature;
  Array<int32_t, 1> top_k;
  Array<float, 1> top_p;
  Array<float, 1> min_p;
  Array<uint64_t, 1> seeds;
  Array<int32_t, 1> seq_indices;
  Array<int32_t, 1> positions;

  DrawArrays lend(size_t num_rows) const {
    for (size_t length : {temperature.shape(0), top_k.shape(0), top_p.shape(0), min_p.shape(0), seeds.shape(0),
                          seq_indices.shape(0), positions.shape(0)}) {
      expect(length == num_rows, "every array of the draws needs one entry per logits row");
    }
    return {temperature.data(), top_k.data(),       top_p.data(),    min_p.data(),
            seeds.data(),       seq_indices.data(), positions.data()};
  }
};

int32_t add_matrix(Weights& weights, ThreadPool& pool,
                   const std::vector<std::tuple<int32_t, int32_t, int32_t, Bytes>>& parts) {
  std::vector<SourcePart> sources;
  for (const auto& [type, num_rows, num_cols, data] : parts) sources.push_back({type, num_rows, num_cols, data.data()});
  nb::gil_scoped_release released;
  return weights.add_matrix(pool, sources);
}

void run(Executor& executor, Array<int32_t, 1> token_ids, Array<int32_t, 1> positions, Array<int32_t, 1> slice_starts,
         Array<int32_t, 1> context_lens, Array<int32_t, 2> block_tables, Array<int32_t, 1> row_indices,
         Array<int32_t, 2> copies, const Draws& draws, Picks picks) {
  const size_t num_slices = context_lens.shape(0);
  expect(positions.shape(0) == token_ids.shape(0), "`positions` needs one entry per token");
  expect(slice_starts.shape(0) == num_slices + 1, "`slice_starts` needs one entry more than `context_lens`");
  expect(block_tables.shape(0) == num_slices, "`block_tables` needs one row per slice");
  expect(copies.shape(0) == 0 || copies.shape(1) == 2, "`copies` needs two columns");
  expect(picks.shape(0) == row_indices.shape(0), "`picks` needs one entry per logits row");
  const Step step{
      .num_tokens = static_cast<int32_t>(token_ids.shape(0)),
      .num_slices = static_cast<int32_t>(num_slices),
      .num_rows = static_cast<int32_t>(row_indices.shape(0)),
      .num_copies = static_cast<int32_t>(copies.shape(0)),
      .max_blocks = static_cast<int32_t>(block_tables.shape(1)),
      .token_ids = token_ids.data(),
      .positions = positions.data(),
      .slice_starts = slice_starts.data(),
      .context_lens = context_lens.data(),
      .block_tables = block_tables.data(),
      .row_indices = row_indices.data(),
      .copies = copies.data(),
  };
  const DrawArrays draw_arrays = draws.lend(row_indices.shape(0));
  const std::string fault = find_fault(step, executor.program(), executor.num_blocks());
  if (!fault.empty()) throw std::invalid_argument(fault);
  nb::gil_scoped_release released;
  executor.run(step, draw_arrays, picks.data());
}

void pick(Executor& executor, Array<float, 2> logits, const Draws& draws, Picks picks) {
  const size_t num_rows = logits.shape(0);
  expect(num_rows <= static_cast<size_t>(executor.program().max_rows), "more logits rows than the program's most");
  expect(static_cast<int32_t>(logits.shape(1)) == executor.program().logits.cols, "a logits row is not V wide");
  expect(picks.shape(0) == num_rows, "`picks` needs one entry per logits row");
  const DrawArrays draw_arrays = draws.lend(num_rows);
  nb::gil_scoped_release released;
  executor.pick(logits.data(), static_cast<ptrdiff_t>(logits.shape(1)), static_cast<int32_t>(num_rows), draw_arrays,
                picks.data());
}

// The logits of the last step, a view of the arena.
nb::ndarray<nb::numpy, const float, nb::ndim<2>> logits(const Executor& executor, size_t num_rows) {
  const Program& program = executor.program();
  expect(num_rows <= static_cast<size_t>(program.max_rows), "more logits rows than the program's most");
  return {executor.logits(),
          {num_rows, static_cast<size_t>(program.logits.cols)},
          nb::find(executor),
          {program.logits.stride, 1}};
}

void bind_program(nb::module_& m) {
  nb::enum_<Opcode>(m, "Opcode")
      .value("embed", Opcode::embed)
      .value("angles", Opcode::angles)
      .value("rms_norm", Opcode::rms_norm)
      .value("head_norm", Opcode::head_norm)
      .value("rope", Opcode::rope)
      .value("kv_write", Opcode::kv_write)
      .value("attention", Opcode::attention)
      .value("quantize", Opcode::quantize)
      .value("linear", Opcode::linear)
      .value("gated_linear", Opcode::gated_linear)
      .value("qkv_linear", Opcode::qkv_linear)
      .value("gated", Opcode::gated)
      .value("add", Opcode::add)
      .value("softcap", Opcode::softcap)
      .value("gather_rows", Opcode::gather_rows);
  nb::enum_<RowKind>(m, "RowKind").value("tokens", RowKind::tokens).value("logits", RowKind::logits);
  nb::enum_<Activation>(m, "Activation").value("silu", Activation::silu).value("gelu_tanh", Activation::gelu_tanh);
  nb::enum_<KvType>(m, "KvType").value("int16", KvType::int16).value("int8", KvType::int8);
  nb::class_<Operand>(m, "Operand").def(nb::init<int64_t, int32_t, int32_t>(), "offset"_a, "stride"_a, "cols"_a);
  nb::class_<Instruction>(m, "Instruction")
      .def(nb::init<>())
      .def_rw("opcode", &Instruction::opcode)
      .def_rw("rows", &Instruction::rows)
      .def_rw("barrier", &Instruction::barrier)
      .def_rw("out", &Instruction::out)
      .def_rw("a", &Instruction::a)
      .def_rw("b", &Instruction::b)
      .def_rw("activations", &Instruction::activations)
      .def_rw("matrix", &Instruction::matrix)
      .def_rw("vector", &Instruction::vector)
      .def_rw("q_norm", &Instruction::q_norm)
      .def_rw("k_norm", &Instruction::k_norm)
      .def_rw("kv_offset", &Instruction::kv_offset)
      .def_rw("num_heads", &Instruction::num_heads)
      .def_rw("num_kv_heads", &Instruction::num_kv_heads)
      .def_rw("head_dim", &Instruction::head_dim)
      .def_rw("rope_dim", &Instruction::rope_dim)
      .def_rw("window", &Instruction::window)
      .def_rw("activation", &Instruction::activation)
      .def_rw("scale", &Instruction::scale)
      .def_rw("eps", &Instruction::eps)
      .def_rw("softcap", &Instruction::softcap);
  nb::class_<Program>(m, "Program")
      .def(nb::init<>())
      .def_rw("instructions", &Program::instructions)
      .def_rw("logits", &Program::logits)
      .def_rw("arena_bytes", &Program::arena_bytes)
      .def_rw("kv_type", &Program::kv_type)
      .def_rw("kv_block_bytes", &Program::kv_block_bytes)
      .def_rw("vocab_size", &Program::vocab_size)
      .def_rw("max_tokens", &Program::max_tokens)
      .def_rw("max_rows", &Program::max_rows)
      .def_rw("max_head_dim", &Program::max_head_dim);
}

void bind_runtime(nb::module_& m) {
  nb::class_<ThreadPool>(m, "ThreadPool")
      .def(nb::init<int32_t>(), "num_threads"_a)
      .def_prop_ro("num_threads", &ThreadPool::num_threads);
  nb::class_<Weights>(m, "Weights")
      .def(nb::init<size_t>(), "total_bytes"_a)
      .def("add_matrix", add_matrix, "pool"_a, "parts"_a)
      .def(
          "add_vector", [](Weights& w, Array<float, 1> v) { return w.add_vector(v.data(), v.size()); }, "values"_a)
      .def(
          "add_frequencies", [](Weights& w, Array<double, 1> v) { return w.add_frequencies(v.data(), v.size()); },
          "values"_a);
  nb::class_<Draws>(m, "Draws")
      .def(nb::init<Array<float, 1>, Array<int32_t, 1>, Array<float, 1>, Array<float, 1>, Array<uint64_t, 1>,
                    Array<int32_t, 1>, Array<int32_t, 1>>(),
           "temperature"_a.noconvert(), "top_k"_a.noconvert(), "top_p"_a.noconvert(), "min_p"_a.noconvert(),
           "seeds"_a.noconvert(), "seq_indices"_a.noconvert(), "positions"_a.noconvert());
  nb::class_<Executor>(m, "Executor")
      .def(
          "__init__",
          [](Executor* self, const std::string& target, ThreadPool& pool, const Weights& weights,
             const Program& program,
             int32_t num_blocks) { new (self) Executor(find_kernels(target), pool, weights, program, num_blocks); },
          "target"_a, "pool"_a, "weights"_a, "program"_a, "num_blocks"_a, nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>())
      .def("run", run, "token_ids"_a.noconvert(), "positions"_a.noconvert(), "slice_starts"_a.noconvert(),
           "context_lens"_a.noconvert(), "block_tables"_a.noconvert(), "row_indices"_a.noconvert(),
           "copies"_a.noconvert(), "draws"_a, "picks"_a.noconvert())
      .def("pick", pick, "logits"_a.noconvert(), "draws"_a, "picks"_a.noconvert())
      .def("logits", logits, "num_rows"_a)
      .def_prop_ro("progress", &Executor::progress)
      .def_rw("is_profiling", &Executor::is_profiling)
      .def_prop_ro("nanoseconds", &Executor::nanoseconds)
      .def("reset_profile", &Executor::reset_profile);
}

}  // namespace

NB_MODULE(_core, m) {
  bind_program(m);
  bind_runtime(m);
  m.attr("MAX_HEAD_DIM") = kMaxHeadDim;
  m.attr("ROW_TILE") = kRowTile;
  m.attr("QUANT_BLOCK") = kQuantBlock;
  m.def("kv_head_bytes", kv_head_bytes, "type"_a, "head_dim"_a);
  m.def("packed_type_for", packed_type_for, "ggml_type"_a);
  m.def(
      "packed_bytes",
      [](int32_t ggml_type, int32_t num_rows, int32_t num_cols) {
        const int32_t type = packed_type_for(ggml_type);
        expect(type >= 0, "this tensor type has no packed form");
        return packed_bytes(static_cast<PackedType>(type), num_rows, num_cols);
      },
      "ggml_type"_a, "num_rows"_a, "num_cols"_a);
  m.def("activation_bytes", activation_bytes, "num_tokens"_a, "num_cols"_a);
  m.def("targets", [] {
    std::vector<std::tuple<std::string, bool, std::string>> rows;
    for (const TargetInfo& target : list_targets()) rows.emplace_back(target.name, target.is_available, target.reason);
    return rows;
  });
}

}  // namespace paceline

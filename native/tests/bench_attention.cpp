// Measures attention as the executor runs it: µs a layer, GB/s of keys and values, G multiply-adds a second.
//
//   bench_attention [--target name] [--threads n] [--type int16|int8] [--seconds s] [shape …]
//
// A shape is heads/kv heads/head width: 9/3/64 (SmolLM2), 14/2/64 and 12/2/128 (Qwen2.5 0.5B and 1.5B), 4/1/256
// (Gemma). A program of nothing but attention, as many layers as make 256 MB of cache (at most 64), is run step after
// step; the median step counts. The first line says how fast plain reading of memory is: compare within one run only.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "paceline/program.h"
#include "runtime/dispatch.h"
#include "runtime/executor.h"

namespace paceline {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double g_seconds = 0.5;

template <class Work>
double median_s(Work work) {
  std::vector<double> times;
  const double start = now_s();
  while (times.size() < 3 || now_s() - start < g_seconds) {
    const double before = now_s();
    work();
    times.push_back(now_s() - before);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

struct Reading {
  const uint64_t* words;
  size_t count;
  int32_t num_threads;
  uint64_t sums[256][8];
};

void read_share(void* context, int32_t thread) {
  auto& reading = *static_cast<Reading*>(context);
  const size_t begin = reading.count / 8 * thread / reading.num_threads * 8,
               end = reading.count / 8 * (thread + 1) / reading.num_threads * 8;
  uint64_t sums[8] = {};
  for (size_t i = begin; i < end; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += reading.words[i + j];
  }
  std::memcpy(reading.sums[thread], sums, sizeof sums);
}

double read_bandwidth(ThreadPool& pool) {
  static const Mapping memory = [] {
    Mapping mapping(size_t{256} << 20);
    std::memset(mapping.data(), 1, mapping.bytes());
    return mapping;
  }();
  Reading reading{reinterpret_cast<const uint64_t*>(memory.data()), (size_t{256} << 20) / 8, pool.num_threads(), {}};
  return (size_t{256} << 20) / median_s([&] { pool.run(read_share, &reading); }) * 1e-9;
}

struct Shape {
  int32_t num_heads, num_kv_heads, head_dim;
};

struct Load {
  const char* name;
  int32_t num_seqs, num_tokens, context;  // every sequence computes its last num_tokens
};
constexpr Load kLoads[] = {{"decode", 1, 1, 128},    {"decode", 1, 1, 512},    {"decode", 1, 1, 2048},
                           {"decode", 1, 1, 8192},   {"decode", 16, 1, 160},   {"decode", 16, 1, 512},
                           {"decode", 16, 1, 2048},  {"verify", 1, 5, 160},    {"verify", 1, 5, 2048},
                           {"prefill", 1, 512, 512}, {"prefill", 1, 256, 512}, {"prefill", 1, 256, 2048},
                           {"prefill", 1, 256, 8192}};

constexpr int32_t kMaxTokens = 512;

Program make_program(const Shape& shape, KvType type, int32_t num_layers) {
  Program program;
  program.kv_type = type;
  const int32_t q_cols = shape.num_heads * shape.head_dim, kv_cols = shape.num_kv_heads * shape.head_dim;
  const Operand q{0, q_cols, q_cols};
  const Operand out{int64_t{4} * kMaxTokens * q_cols, q_cols, q_cols};
  const Operand kv{2 * out.offset, kv_cols, kv_cols};
  program.arena_bytes = kv.offset + int64_t{4} * kMaxTokens * kv_cols;
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    Instruction write;
    write.opcode = Opcode::kv_write;
    write.a = write.b = kv;
    write.kv_offset = layer * shape.num_kv_heads * kv_head_bytes(type, shape.head_dim);
    write.num_kv_heads = shape.num_kv_heads;
    write.head_dim = shape.head_dim;
    write.barrier = true;
    Instruction attention = write;
    attention.opcode = Opcode::attention;
    attention.a = q;
    attention.out = out;
    attention.num_heads = shape.num_heads;
    attention.scale = 0.125f;
    program.instructions.push_back(write);
    program.instructions.push_back(attention);
  }
  program.kv_block_bytes = num_layers * shape.num_kv_heads * int64_t{kv_head_bytes(type, shape.head_dim)};
  program.logits = {0, 1, 1};
  program.vocab_size = 1;
  program.max_tokens = kMaxTokens;
  program.max_rows = 1;
  program.max_head_dim = shape.head_dim;
  return program;
}

// A step and the arrays behind it.
struct Arrays {
  std::vector<int32_t> token_ids, positions, slice_starts{0}, context_lens, block_tables, copies;
  int32_t max_blocks;

  Arrays(const Load& load, bool copies_blocks) : max_blocks((load.context + kBlockSize - 1) / kBlockSize) {
    std::vector<int32_t> blocks(static_cast<size_t>(load.num_seqs) * max_blocks);
    std::iota(blocks.begin(), blocks.end(), 1);
    for (int32_t seq = 0; seq < load.num_seqs; ++seq) {
      for (int32_t i = 0; i < load.num_tokens; ++i) positions.push_back(load.context - load.num_tokens + i);
      slice_starts.push_back(static_cast<int32_t>(positions.size()));
      context_lens.push_back(load.context);
    }
    token_ids.assign(positions.size(), 0);
    for (const int32_t block : blocks) {
      if (copies_blocks && block > 1) copies.insert(copies.end(), {1, block});
    }
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    block_tables = blocks;
  }
  Step step() const {
    return {.num_tokens = static_cast<int32_t>(positions.size()),
            .num_slices = static_cast<int32_t>(context_lens.size()),
            .num_rows = 0,
            .num_copies = static_cast<int32_t>(copies.size() / 2),
            .max_blocks = max_blocks,
            .token_ids = token_ids.data(),
            .positions = positions.data(),
            .slice_starts = slice_starts.data(),
            .context_lens = context_lens.data(),
            .block_tables = block_tables.data(),
            .row_indices = nullptr,
            .copies = copies.data()};
  }
};

int64_t attention_ns(const Executor& executor) {
  int64_t sum = 0;
  for (size_t i = 1; i < executor.nanoseconds().size(); i += 2) sum += executor.nanoseconds()[i];
  return sum;
}

void measure(const Kernels& kernels, ThreadPool& pool, KvType type, const Shape& shape, const Load& load) {
  const int64_t tokens = int64_t{load.num_seqs} * load.context;
  const int64_t layer_bytes =
      (tokens + kBlockSize - 1) / kBlockSize * shape.num_kv_heads * kv_head_bytes(type, shape.head_dim);
  const auto num_layers = static_cast<int32_t>(std::clamp<int64_t>((int64_t{256} << 20) / layer_bytes, 2, 64));
  const Weights weights(0);
  const int32_t num_blocks = load.num_seqs * ((load.context + kBlockSize - 1) / kBlockSize) + 1;
  Executor executor(kernels, pool, weights, make_program(shape, type, num_layers), num_blocks);
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  auto* arena = const_cast<float*>(executor.logits());
  for (int64_t i = 0; i < executor.program().arena_bytes / 4; ++i) arena[i] = normal(engine);
  executor.run(Arrays({"", 1, 16, 16}, false).step(), {}, nullptr);
  executor.run(Arrays(load, true).step(), {}, nullptr);
  const Arrays arrays(load, false);
  executor.is_profiling = true;
  std::vector<int64_t> times;
  for (const double start = now_s(); times.size() < 3 || now_s() - start < g_seconds;) {
    executor.reset_profile();
    executor.run(arrays.step(), {}, nullptr);
    times.push_back(attention_ns(executor));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  const double seconds = 1e-9 * static_cast<double>(times[times.size() / 2]) / num_layers;
  // What the causal mask leaves: token i of the slice sees context - num_tokens + i + 1 positions.
  const double seen = load.num_tokens * (load.context - 0.5 * (load.num_tokens - 1)) * load.num_seqs;
  const double products = 2.0 * seen * shape.num_heads * shape.head_dim;
  std::printf("%2d/%d/%-3d %-7s %2d x %3d tokens, context %4d: %9.1f us a layer %6.1f GB/s %6.1f G products/s\n",
              shape.num_heads, shape.num_kv_heads, shape.head_dim, load.name, load.num_seqs, load.num_tokens,
              load.context, seconds * 1e6, static_cast<double>(layer_bytes) / seconds * 1e-9,
              products / seconds * 1e-9);
  std::fflush(stdout);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  using namespace paceline;
  std::string target = list_targets()[0].name, only;
  int32_t num_threads = 2;
  KvType type = KvType::int16;
  std::vector<Shape> shapes;
  for (int i = 1; i < argc; ++i) {
    Shape shape{};
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (!std::strcmp(argv[i], "--target")) {
      target = value();
    } else if (!std::strcmp(argv[i], "--threads")) {
      num_threads = std::atoi(value());
    } else if (!std::strcmp(argv[i], "--type")) {
      type = std::strcmp(value(), "int8") ? KvType::int16 : KvType::int8;
    } else if (!std::strcmp(argv[i], "--seconds")) {
      g_seconds = std::atof(value());
    } else if (!std::strcmp(argv[i], "--only")) {
      only = value();
    } else if (std::sscanf(argv[i], "%d/%d/%d", &shape.num_heads, &shape.num_kv_heads, &shape.head_dim) == 3) {
      shapes.push_back(shape);
    }
  }
  if (shapes.empty()) shapes = {{9, 3, 64}, {14, 2, 64}, {12, 2, 128}, {4, 1, 256}};
  ThreadPool pool(num_threads);
  for (const TargetInfo& info : list_targets()) {
    if (info.name != target || info.kernels == nullptr) continue;
    std::printf("%s, %d threads, plain reading %.1f GB/s\n", target.c_str(), num_threads, read_bandwidth(pool));
    for (const Shape& shape : shapes) {
      for (const Load& load : kLoads) {
        if (only.empty() || only == load.name) measure(*info.kernels, pool, type, shape, load);
      }
    }
  }
}

// How attention is shared out: every pair and chunk exactly once, evenly, and with the same bits on any number of
// threads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "claims.h"
#include "runtime/attention_runner.h"
#include "runtime/dispatch.h"

namespace paceline {
namespace {

// A step of slices (tokens, context): the last tokens of sequences of so many tokens, blocks in any order.
struct Slices {
  std::vector<int32_t> positions, starts{0}, contexts, tables;
  int32_t max_blocks = 0, num_blocks = 1;

  explicit Slices(const std::vector<std::pair<int32_t, int32_t>>& slices) {
    for (const auto& [tokens, context] : slices) {
      for (int32_t i = 0; i < tokens; ++i) positions.push_back(context - tokens + i);
      starts.push_back(static_cast<int32_t>(positions.size()));
      contexts.push_back(context);
      max_blocks = std::max(max_blocks, (context + kBlockSize - 1) / kBlockSize);
    }
    tables.assign(slices.size() * max_blocks, 0);
    for (size_t slice = 0; slice < slices.size(); ++slice) {
      const int32_t count = (contexts[slice] + kBlockSize - 1) / kBlockSize;
      auto* table = tables.data() + slice * max_blocks;
      std::iota(table, table + count, num_blocks);
      std::shuffle(table, table + count, std::mt19937(7));
      num_blocks += count;
    }
  }
  Step step() const {
    Step step;
    step.num_tokens = static_cast<int32_t>(positions.size());
    step.num_slices = static_cast<int32_t>(contexts.size());
    step.max_blocks = max_blocks;
    step.positions = positions.data();
    step.slice_starts = starts.data();
    step.context_lens = contexts.data();
    step.block_tables = tables.data();
    return step;
  }
};

const std::vector<std::vector<std::pair<int32_t, int32_t>>> kSteps = {
    {{1, 1}},
    {{1, 100}},
    {{1, 1500}},
    {{5, 2500}},
    {{40, 1100}},
    {{1, 300}, {1, 20}, {7, 1300}, {1, 5}},
    {{1, 3000}, {30, 30}},
};
const AttentionShape kShapes[] = {{3, 3, 0}, {1, 4, 0}, {2, 7, 0}, {1, 16, 100}, {1, 4, 1030}, {5, 1, 0}};

std::string name_of(const AttentionShape& shape, size_t step, int32_t threads) {
  return std::to_string(shape.num_kv_heads) + " heads x " + std::to_string(shape.heads_per_kv) + ", window " +
         std::to_string(shape.window) + ", step " + std::to_string(step) + ", " + std::to_string(threads) + " threads";
}

// Walks each thread's part by the definition of borders and counts (slice, KV head, pair, chunk).
void test_split_covers_everything_once() {
  for (size_t index = 0; index < kSteps.size(); ++index) {
    const Slices slices(kSteps[index]);
    const Step step = slices.step();
    for (const AttentionShape& shape : kShapes) {
      for (const int32_t threads : {1, 2, 3, 8}) {
        AttentionSplit split{shape, std::vector<Border>(threads + 1), false};
        split_attention(step, 1000, split);
        std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, int32_t> counts;
        std::vector<double> work(threads);
        for (int32_t thread = 0; thread < threads; ++thread) {
          const Border &begin = split.borders[thread], &end = split.borders[thread + 1];
          const int32_t last = end.is_inside() ? end.tile_index + 1 : end.tile_index;
          for_tiles(step, shape, begin.tile_index, last, [&](int32_t tile_index, const TilePlace& place) {
            for (int32_t chunk = 0; chunk < place.num_chunks(); ++chunk) {
              for (int32_t pair = 0; pair < place.num_pairs(); ++pair) {
                const auto is_before = [&](const Border& border) {
                  if (tile_index != border.tile_index) return tile_index < border.tile_index;
                  if (!border.parts_chunks) return pair < border.pair;
                  return chunk != border.chunk ? chunk < border.chunk : pair < border.pair;
                };
                if (is_before(begin) || !is_before(end)) continue;
                ++counts[{place.slice, place.tile.kv_head, place.tile.pair_begin + pair, chunk}];
                work[thread] += 1.0;
              }
            }
          });
        }
        size_t expected = 0;
        for_tiles(step, shape, 0, 1 << 30, [&](int32_t, const TilePlace& place) {
          expected += static_cast<size_t>(place.num_chunks()) * place.num_pairs();
        });
        claim(counts.size() == expected, "all is computed: " + name_of(shape, index, threads));
        for (const auto& [key, count] : counts) claim(count == 1, "once: " + name_of(shape, index, threads));
      }
    }
  }
}

void test_work_is_even() {
  for (const int32_t context : {2048, 5000}) {
    const Slices slices({{1, context}});
    const Step step = slices.step();
    for (const AttentionShape& shape : {AttentionShape{3, 3, 0}, AttentionShape{1, 4, 0}, AttentionShape{2, 6, 0}}) {
      AttentionSplit split{shape, std::vector<Border>(3), false};
      split_attention(step, 1000, split);
      const Border& border = split.borders[1];
      double before = 0, all = 0;
      for_tiles(step, shape, 0, 1 << 30, [&](int32_t tile_index, const TilePlace& place) {
        const double size = place.num_chunks() * place.num_pairs();
        all += size;
        if (tile_index < border.tile_index) before += size;
        if (tile_index == border.tile_index) before += border.chunk * place.num_pairs() + border.pair;
      });
      claim(std::abs(before / all - 0.5) < 0.05, "both threads get half: " + name_of(shape, context, 2));
    }
  }
}

struct Memory {
  std::vector<uint8_t> kv;
  std::vector<float> q;

  Memory(const Kernels& kernels, KvType type, const AttentionShape& shape, int32_t head_dim, const Slices& slices) {
    std::mt19937 engine(11);
    std::normal_distribution<float> normal;
    const int32_t head_bytes = kv_head_bytes(type, head_dim);
    kv.resize(static_cast<size_t>(slices.num_blocks) * shape.num_kv_heads * head_bytes);
    std::vector<float> k(head_dim), v(head_dim);
    for (size_t at = 0; at < kv.size(); at += head_bytes) {
      for (int32_t slot = 0; slot < kBlockSize; ++slot) {
        for (float& x : k) x = normal(engine);
        for (float& x : v) x = normal(engine);
        kernels.kv_write[static_cast<size_t>(type)](k.data(), v.data(), head_dim, slot, kv.data() + at);
      }
    }
    q.resize(slices.positions.size() * shape.num_kv_heads * shape.heads_per_kv * head_dim);
    for (float& x : q) x = normal(engine);
  }
};

struct Job {
  AttentionRunner* runner;
  AttentionTask task;

  static void run(void* context, int32_t thread) {
    const Job& job = *static_cast<Job*>(context);
    job.runner->run(job.task, thread, {ignore, nullptr});
  }
  static void ignore(const void*, int32_t, int32_t) {}
};

void test_threads_do_not_change_bits(const Kernels& kernels, KvType type) {
  const int32_t head_dim = 32;
  for (const AttentionShape& shape : kShapes) {
    for (size_t index = 0; index < kSteps.size(); ++index) {
      const Slices slices(kSteps[index]);
      const Step step = slices.step();
      const Memory memory(kernels, type, shape, head_dim, slices);
      const int32_t num_heads = shape.num_kv_heads * shape.heads_per_kv, width = num_heads * head_dim;
      std::vector<float> alone;
      for (const int32_t threads : {1, 2, 3, 5}) {
        // With room for few chunks, long tiles are parted by pairs only.
        for (const int32_t num_blocks : {slices.num_blocks, 16}) {
          ThreadPool pool(threads);
          AttentionRunner runner(kernels, pool, type, head_dim, num_blocks, {shape});
          runner.prepare(step);
          std::vector<float> out(memory.q.size(), NAN);
          Job job{&runner,
                  {memory.q.data(), width, out.data(), width, memory.kv.data(),
                   shape.num_kv_heads * kv_head_bytes(type, head_dim), nullptr, slices.positions.data(), num_heads,
                   shape.num_kv_heads, head_dim, shape.window, 0.2f, 0.0f}};
          pool.run(Job::run, &job);
          if (alone.empty()) alone = out;
          claim(std::memcmp(alone.data(), out.data(), out.size() * sizeof(float)) == 0,
                std::string(kernels.name) + " same bits: " + name_of(shape, index, threads));
          claim(std::none_of(out.begin(), out.end(), [](float x) { return std::isnan(x); }), "all rows are written");
        }
      }
    }
  }
}

}  // namespace
}  // namespace paceline

int main() {
  using namespace paceline;
  test_split_covers_everything_once();
  test_work_is_even();
  for (const TargetInfo& target : list_targets()) {  // the best one that runs here
    if (target.kernels == nullptr) continue;
    for (const KvType type : {KvType::int16, KvType::int8}) test_threads_do_not_change_bits(*target.kernels, type);
    break;
  }
  std::printf("%d failed\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}

#include "runtime/attention_runner.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace paceline {
namespace {

constexpr size_t round_to_line(size_t floats) { return (floats + 15) / 16 * 16; }

void make_fresh(float* states, int32_t count, int32_t head_dim) {
  const int32_t stride = attention_state_floats(head_dim);
  std::memset(states, 0, static_cast<size_t>(count) * static_cast<size_t>(stride) * sizeof(float));
  for (int32_t i = 0; i < count; ++i) states[i * stride] = -std::numeric_limits<float>::infinity();
}

AttentionShape shape_of(const AttentionTask& task) { return {task.num_kv_heads, task.heads_per_kv(), task.window}; }

}  // namespace

AttentionRunner::AttentionRunner(const Kernels& kernels, ThreadPool& pool, KvType type, int32_t max_head_dim,
                                 int32_t num_blocks, const std::vector<AttentionShape>& shapes)
    : kernels_(kernels),
      pool_(pool),
      type_(type),
      max_head_dim_(max_head_dim),
      max_chunks_((num_blocks * kBlockSize + kAttentionChunk - 1) / kAttentionChunk) {
  for (const AttentionShape& shape : shapes) {
    const auto is_same = [&](const AttentionSplit& split) { return split.shape == shape; };
    if (std::any_of(splits_.begin(), splits_.end(), is_same)) continue;
    splits_.push_back({shape, std::vector<Border>(static_cast<size_t>(pool.num_threads()) + 1), false});
  }
  const size_t states = kMaxPairs * static_cast<size_t>(attention_state_floats(max_head_dim));
  const size_t num_kept = pool.num_threads() > 1 ? 1 + static_cast<size_t>(max_chunks_) : 0;
  floats_per_thread_ = round_to_line(attention_scratch_floats(max_head_dim)) + states * (1 + num_kept);
  memory_ = Mapping(floats_per_thread_ * static_cast<size_t>(pool.num_threads()) * sizeof(float));
}

void AttentionRunner::prepare(const Step& step) {
  step_ = &step;
  for (AttentionSplit& split : splits_) split_attention(step, max_chunks_, split);
}

AttentionRunner::States AttentionRunner::states_of(int32_t thread) const {
  const size_t tile_floats = kMaxPairs * static_cast<size_t>(attention_state_floats(max_head_dim_));
  States states{};
  states.scratch = reinterpret_cast<float*>(memory_.data()) + static_cast<size_t>(thread) * floats_per_thread_;
  states.running = states.scratch + round_to_line(attention_scratch_floats(max_head_dim_));
  states.kept = states.running + tile_floats;
  states.chunks = states.kept + tile_floats;
  return states;
}

// A thread's states of one chunk of a parted tile, the chunk counted from the tile's start.
float* AttentionRunner::chunk_states(const States& states, int32_t chunk, int32_t head_dim) const {
  return states.chunks + static_cast<ptrdiff_t>(chunk) * kMaxPairs * attention_state_floats(head_dim);
}

const AttentionSplit& AttentionRunner::split_of(const AttentionTask& task) const {
  const AttentionShape shape = shape_of(task);
  return *std::find_if(splits_.begin(), splits_.end(), [&](const auto& split) { return split.shape == shape; });
}

void AttentionRunner::run(AttentionTask task, int32_t thread, const HeadDone& done) {
  const AttentionSplit& split = split_of(task);
  const Border& begin = split.borders[static_cast<size_t>(thread)];
  const Border& end = split.borders[static_cast<size_t>(thread) + 1];
  Job job{task, done, thread, states_of(thread)};
  const int32_t last = end.is_inside() ? end.tile_index + 1 : end.tile_index;
  for_tiles(*step_, split.shape, begin.tile_index, last, [&](int32_t index, const TilePlace& place) {
    job.task.block_table = step_->block_table(place.slice);
    const bool has_begin = index == begin.tile_index && begin.is_inside();
    const bool has_end = index == end.tile_index;
    if ((has_begin && begin.parts_chunks) || (has_end && end.parts_chunks)) {
      const Border whole_end{index, place.num_chunks(), 0, true};
      return run_part(job, place, has_begin ? begin : Border{index}, has_end ? end : whole_end);
    }
    AttentionTile tile = place.tile;
    if (has_begin) tile.pair_begin += begin.pair;
    if (has_end) tile.pair_end = place.tile.pair_begin + end.pair;
    if (tile.pair_begin < tile.pair_end) run_whole(job, place, tile);
  });
  if (!split.parts_chunks) return;
  pool_.barrier();
  fold_parted(job, split);
}

void AttentionRunner::run_whole(const Job& job, const TilePlace& place, const AttentionTile& tile) {
  const auto& [task, done, thread, states] = job;
  const int32_t num_pairs = tile.pair_end - tile.pair_begin;
  make_fresh(states.running, num_pairs, task.head_dim);
  kernels_.attend[static_cast<size_t>(type_)](task, tile, place.first_chunk(), place.end_chunk(), states.running,
                                              states.scratch);
  for (int32_t pair = 0; pair < num_pairs; ++pair) {
    finish(job, tile, pair, states.running + pair * attention_state_floats(task.head_dim));
  }
}

// The chunks of a parted tile between two borders: folded when they are its first, else one by one.
void AttentionRunner::run_part(const Job& job, const TilePlace& place, const Border& begin, const Border& end) {
  const AttentionTask& task = job.task;
  const States& states = job.states;
  const int32_t stride = attention_state_floats(task.head_dim), first_chunk = place.first_chunk();
  const auto run_chunks = [&](int32_t from, int32_t to, int32_t pair_begin, int32_t pair_end, float* tile_states) {
    AttentionTile tile = place.tile;
    tile.pair_begin = place.tile.pair_begin + pair_begin;
    tile.pair_end = place.tile.pair_begin + pair_end;
    if (from >= to || pair_begin >= pair_end) return;
    kernels_.attend[static_cast<size_t>(type_)](task, tile, first_chunk + from, first_chunk + to,
                                                tile_states + pair_begin * stride, states.scratch);
  };
  const int32_t num_pairs = place.num_pairs();
  if (!begin.is_inside()) {
    make_fresh(states.kept, num_pairs, task.head_dim);
    run_chunks(0, end.chunk, 0, num_pairs, states.kept);
    run_chunks(end.chunk, end.chunk + 1, 0, end.pair, states.kept);
    return;
  }
  for (int32_t chunk = begin.chunk; chunk < end.chunk + (end.pair > 0); ++chunk) {
    float* tile_states = chunk_states(states, chunk, task.head_dim);
    make_fresh(tile_states, num_pairs, task.head_dim);
    run_chunks(chunk, chunk + 1, chunk == begin.chunk ? begin.pair : 0, chunk == end.chunk ? end.pair : num_pairs,
               tile_states);
  }
}

// Every parted tile once: thread `first` has its start, the threads whose parts begin inside it follow.
void AttentionRunner::fold_parted(Job& job, const AttentionSplit& split) {
  for (int32_t next = 1; next < pool_.num_threads(); ++next) {
    const Border &border = split.borders[static_cast<size_t>(next)],
                 &before = split.borders[static_cast<size_t>(next) - 1];
    if (!border.parts_chunks || !border.is_inside()) continue;
    if (before.tile_index == border.tile_index && before.is_inside()) continue;
    for_tiles(*step_, split.shape, border.tile_index, border.tile_index + 1,
              [&](int32_t, const TilePlace& place) { fold_tile(job, split, place, next - 1); });
  }
}

void AttentionRunner::fold_tile(const Job& job, const AttentionSplit& split, const TilePlace& place,
                                int32_t first_thread) {
  const AttentionTask& task = job.task;
  const int32_t stride = attention_state_floats(task.head_dim), num_pairs = place.num_pairs();
  const Range pairs = share(num_pairs, job.thread, pool_.num_threads());
  float* kept = states_of(first_thread).kept;
  const int32_t tile_index = split.borders[static_cast<size_t>(first_thread) + 1].tile_index;
  for (int32_t other = first_thread + 1; other < pool_.num_threads(); ++other) {
    const Border &begin = split.borders[static_cast<size_t>(other)],
                 &end = split.borders[static_cast<size_t>(other) + 1];
    if (begin.tile_index != tile_index || !begin.is_inside()) break;
    const bool has_end = end.tile_index == tile_index;
    const int32_t end_chunk = has_end ? end.chunk + (end.pair > 0) : place.num_chunks();
    for (int32_t chunk = begin.chunk; chunk < end_chunk; ++chunk) {
      const float* later = chunk_states(states_of(other), chunk, task.head_dim);
      for (int32_t pair = pairs.begin; pair < pairs.end; ++pair) {
        kernels_.fold(later + pair * stride, task.head_dim, kept + pair * stride);
      }
    }
  }
  for (int32_t pair = pairs.begin; pair < pairs.end; ++pair) finish(job, place.tile, pair, kept + pair * stride);
}

// A pair's result to its place: the rows of one (token, head) are written by one thread.
void AttentionRunner::finish(const Job& job, const AttentionTile& tile, int32_t pair, const float* state) const {
  const AttentionTask& task = job.task;
  const int32_t group = task.heads_per_kv(), index = tile.pair_begin + pair;
  const int32_t token = tile.token_begin + index / group, head = tile.kv_head * group + index % group;
  kernels_.scale(state + kStateHeader, 1.0f / state[1], task.head_dim,
                 task.out + token * task.out_stride + static_cast<ptrdiff_t>(head) * task.head_dim);
  job.done.call(job.done.context, token, head);
}

}  // namespace paceline

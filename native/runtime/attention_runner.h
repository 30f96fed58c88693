// Runs the attention of a step: every thread its share of the tiles, then the folding of tiles that several threads
// worked on.
//
// The one idea: a pair's chunks are computed by anyone and folded in order. The thread that has a tile's start folds as
// it goes; the others keep each chunk's state, and after a barrier each pair's are folded by one thread.
#pragma once
#include <cstdint>
#include <vector>

#include "paceline/kernels.h"
#include "runtime/attention_split.h"
#include "runtime/memory.h"
#include "runtime/threads.h"

namespace paceline {

// Told of each (token, query head) whose result is written, by the thread that wrote it.
struct HeadDone {
  void (*call)(const void* context, int32_t token, int32_t head);
  const void* context;
};

class AttentionRunner {
 public:
  // For programs whose instructions have these shapes, over sequences of at most `num_blocks` blocks (longer ones run,
  // but their tiles are not parted between chunks). Kernels and pool must outlive it.
  AttentionRunner(const Kernels& kernels, ThreadPool& pool, KvType type, int32_t max_head_dim, int32_t num_blocks,
                  const std::vector<AttentionShape>& shapes);

  // Before the threads run a step: how its work is shared out.
  void prepare(const Step& step);

  // Thread `thread`'s share of one instruction. `task.block_table` is set here. All threads call it; when it returns,
  // the rows of this thread's pairs are written, not those of others; `done` has heard of each.
  void run(AttentionTask task, int32_t thread, const HeadDone& done);

 private:
  // A thread's states: of the tile at hand; of the tile whose start it has and whose end it has not; of each chunk of
  // the tile whose start it has not.
  struct States {
    float* scratch;
    float* running;
    float* kept;
    float* chunks;
  };

  // One thread's call.
  struct Job {
    AttentionTask task;
    const HeadDone& done;
    int32_t thread;
    States states;
  };

  States states_of(int32_t thread) const;
  float* chunk_states(const States& states, int32_t chunk, int32_t head_dim) const;
  void run_whole(const Job& job, const TilePlace& place, const AttentionTile& tile);
  void run_part(const Job& job, const TilePlace& place, const Border& begin, const Border& end);
  void fold_parted(Job& job, const AttentionSplit& split);
  void fold_tile(const Job& job, const AttentionSplit& split, const TilePlace& place, int32_t first_thread);
  void finish(const Job& job, const AttentionTile& tile, int32_t pair, const float* state) const;
  const AttentionSplit& split_of(const AttentionTask& task) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  const KvType type_;
  const int32_t max_head_dim_;
  const int32_t max_chunks_;
  std::vector<AttentionSplit> splits_;
  const Step* step_ = nullptr;
  size_t floats_per_thread_;
  Mapping memory_;
};

}  // namespace paceline

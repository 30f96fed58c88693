// How picking is shared out: the greedy argmax by vocabulary ranges of all rows, drawn rows one per thread.
#include "runtime/executor.h"

namespace paceline {

DrawParams Executor::draw_params(int32_t row) const {
  const DrawArrays& d = *draws_;
  return {d.temperature[row], d.top_k[row],       d.top_p[row],    d.min_p[row],
          d.seeds[row],       d.seq_indices[row], d.positions[row]};
}

void Executor::pick_rows(int32_t thread) {
  const int32_t num_threads = pool_.num_threads(), vocab_size = program_.logits.cols;
  if (logits_.num_rows == 0) return;
  const Range ids = share(vocab_size, thread, num_threads);
  for (int32_t row = 0; row < logits_.num_rows; ++row) {
    if (!draw_params(row).is_greedy()) continue;
    const float* logits = logits_.data + row * logits_.stride;
    bests_[static_cast<size_t>(row) * static_cast<size_t>(num_threads) + static_cast<size_t>(thread)] =
        kernels_.argmax(logits, ids.begin, ids.end);
  }
  pool_.barrier();
  auto* candidates = reinterpret_cast<int32_t*>(scratch(thread));
  for (int32_t row = thread; row < logits_.num_rows; row += num_threads) {
    const DrawParams params = draw_params(row);
    if (!params.is_greedy()) {
      picks_[row] = draw(kernels_, logits_.data + row * logits_.stride, vocab_size, params, candidates);
      continue;
    }
    const Best* bests = &bests_[static_cast<size_t>(row) * static_cast<size_t>(num_threads)];
    Best best = bests[0];  // ranges ascend: a later one must be strictly better
    for (int32_t t = 1; t < num_threads; ++t) best = bests[t].value > best.value ? bests[t] : best;
    picks_[row] = best.id;
  }
}

}  // namespace paceline

#include "runtime/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "paceline/philox.h"

namespace paceline {
namespace {

// Tokens this far below the likeliest weigh less than 2e-9 each: their mass may be summed in single precision.
constexpr double kNear = 20.0;

// A row being filtered: ids of the tokens near the peak, kept as a heap, likeliest on top.
struct Filter {
  const float* logits;
  const DrawParams& params;
  double temperature;
  double peak;  // scaled
  int32_t* ids;
  int32_t count;

  double scaled(int32_t id) const { return static_cast<double>(logits[id]) / temperature; }
  double weight(int32_t id) const { return std::exp(scaled(id) - peak); }
  // Order of the heap: the larger logit first, then the lower id.
  bool comes_later(int32_t a, int32_t b) const { return logits[a] != logits[b] ? logits[a] < logits[b] : a > b; }
};

uint32_t word_of(int32_t id, const DrawParams& params) {
  return philox_word(id, {params.seed, params.seq_index, params.position});
}

struct Outcome {
  int32_t winner = -1;
  bool is_closed = false;  // a filter ended the race, not the end of the heap
};

// Takes tokens from the heap, likeliest first, until a filter closes; the best score among them wins. `total` is the
// mass of all tokens (1 when top_p is off).
Outcome race_of_likeliest(Filter filter, double total) {
  const DrawParams& params = filter.params;
  const auto later = [&](int32_t a, int32_t b) { return filter.comes_later(a, b); };
  const double top_p = static_cast<double>(params.top_p), min_p = static_cast<double>(params.min_p);
  std::make_heap(filter.ids, filter.ids + filter.count, later);
  double mass = 0.0, best = -std::numeric_limits<double>::infinity();
  Outcome outcome;
  int32_t num_taken = 0;
  while (filter.count > 0) {
    const int32_t id = filter.ids[0];
    const double weight = filter.weight(id);
    outcome.is_closed = !(weight >= min_p && weight > 0.0);
    if (outcome.is_closed) return outcome;
    const double score = filter.scaled(id) + gumbel(word_of(id, params));
    if (score > best || (score == best && id < outcome.winner)) {
      best = score;
      outcome.winner = id;
    }
    mass += weight;
    ++num_taken;
    outcome.is_closed =
        (params.top_k > 0 && num_taken >= params.top_k) || (params.top_p < 1.0f && mass / total >= top_p);
    if (outcome.is_closed) return outcome;
    std::pop_heap(filter.ids, filter.ids + filter.count, later);
    --filter.count;
  }
  return outcome;
}

}  // namespace

int32_t draw(const Kernels& kernels, const float* logits, int32_t n, const DrawParams& params, int32_t* scratch) {
  const Best top = kernels.argmax(logits, 0, n);
  if (!std::isfinite(top.value)) return top.id;
  const auto temperature = static_cast<double>(params.temperature);
  if (params.top_k <= 0 && params.top_p >= 1.0f) {
    const Race race{top.value,   temperature,      static_cast<double>(params.min_p),
                    params.seed, params.seq_index, params.position};
    return kernels.race(logits, n, race);
  }
  const auto floor = static_cast<float>(static_cast<double>(top.value) - kNear * temperature);
  Filter filter{logits, params, temperature, static_cast<double>(top.value) / temperature, scratch, 0};
  filter.count = kernels.collect(logits, n, floor, scratch);
  double total = 1.0;
  if (params.top_p < 1.0f) {
    total = kernels.far_mass(logits, n, floor, top.value, static_cast<float>(1.0 / temperature));
    for (int32_t i = 0; i < filter.count; ++i) total += filter.weight(scratch[i]);
  }
  Outcome outcome = race_of_likeliest(filter, total);
  if (!outcome.is_closed) {  // rare: top_k beyond the near tokens, or top_p near 1; all take part, however unlikely
    filter.count = kernels.collect(logits, n, std::numeric_limits<float>::lowest(), scratch);
    outcome = race_of_likeliest(filter, total);
  }
  return outcome.winner >= 0 ? outcome.winner : top.id;
}

}  // namespace paceline

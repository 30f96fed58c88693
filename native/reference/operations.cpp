#include "reference/operations.h"

#include <cmath>
#include <limits>
#include <vector>

#include "paceline/philox.h"

namespace paceline::reference {

void rms_norm(const float* x, const float* weight, double eps, int32_t n, double* y) {
  double square_sum = 0.0;
  for (int32_t i = 0; i < n; ++i) square_sum += double{x[i]} * x[i];
  for (int32_t i = 0; i < n; ++i) y[i] = x[i] / std::sqrt(square_sum / n + eps) * weight[i];
}

void rope(const float* x, const float* angles, int32_t dim, int32_t head_dim, double* y) {
  const int32_t half = dim / 2;
  for (int32_t i = 0; i < head_dim; ++i) y[i] = x[i];
  for (int32_t i = 0; i < half; ++i) {
    const double cosine = angles[i], sine = angles[half + i];
    y[i] = x[i] * cosine - x[half + i] * sine;
    y[half + i] = x[half + i] * cosine + x[i] * sine;
  }
}

double activate(double x, Activation activation) {
  if (activation == Activation::silu) return x / (1.0 + std::exp(-x));
  // 0.5·(1 + tanh(u)) = 1 / (1 + e^-2u), which does not cancel for negative u.
  return x / (1.0 + std::exp(-2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

double softcap(double x, double cap) { return cap * std::tanh(x / cap); }

double half_to_double(uint16_t half) {
  const int32_t exponent = half >> 10 & 31, fraction = half & 1023;
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

void attention(const AttentionTask& task, int32_t token, int32_t head, double* out) {
  const int32_t width = (task.head_dim + 15) / 16 * 16, kv_head = head / (task.num_heads / task.num_kv_heads);
  const int32_t position = task.positions[token];
  const int32_t first = task.window > 0 ? std::max(0, position - task.window + 1) : 0;
  const auto block_of = [&](int32_t p) {
    return task.kv + task.block_table[p / kBlockSize] * task.block_stride + kv_head * kv_head_elements(task.head_dim);
  };
  std::vector<double> weights;
  double top = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (int32_t p = first; p <= position; ++p) {
    double score = 0.0;
    for (int32_t d = 0; d < task.head_dim; ++d) {
      score += task.q[token * task.q_stride + head * task.head_dim + d] *
               half_to_double(block_of(p)[d * kBlockSize + p % kBlockSize]);
    }
    score *= task.scale;
    if (task.softcap > 0.0f) score = softcap(score, task.softcap);
    weights.push_back(score);
    top = std::max(top, score);
  }
  for (double& weight : weights) sum += weight = std::exp(weight - top);
  for (int32_t d = 0; d < task.head_dim; ++d) out[d] = 0.0;
  for (int32_t p = first; p <= position; ++p) {
    const uint16_t* values = block_of(p) + kBlockSize * width + p % kBlockSize * width;
    for (int32_t d = 0; d < task.head_dim; ++d) out[d] += weights[p - first] / sum * half_to_double(values[d]);
  }
}

int32_t race(const float* logits, int32_t n, const Race& race) {
  int32_t winner = -1;
  double best = -std::numeric_limits<double>::infinity();
  for (int32_t id = 0; id < n; ++id) {
    const double scaled = logits[id] / race.temperature;
    const double score = scaled + gumbel(philox_word(id, {race.seed, race.seq_index, race.position}));
    if (std::exp(scaled - race.peak / race.temperature) < race.min_p || !(score > best)) continue;
    best = score;
    winner = id;
  }
  return winner;
}

}  // namespace paceline::reference

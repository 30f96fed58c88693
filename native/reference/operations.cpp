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

namespace {

template <class Element>
double element(const uint8_t* block, int64_t index) {
  return reinterpret_cast<const Element*>(block + kKvScaleBytes)[index];
}

double element(KvType type, const uint8_t* block, int64_t index) {
  return type == KvType::int16 ? element<int16_t>(block, index) : element<int8_t>(block, index);
}

double scale_of(const uint8_t* block, int32_t index) { return reinterpret_cast<const float*>(block)[index]; }

}  // namespace

double stored_key(KvType type, const uint8_t* block, int32_t channel, int32_t slot) {
  return element(type, block, channel / 2 * 32 + slot * 2 + channel % 2) * scale_of(block, slot);
}

double stored_value(KvType type, const uint8_t* block, int32_t head_dim, int32_t channel, int32_t slot) {
  const int64_t width = padded_head_dim(head_dim);
  return element(type, block, 16 * width + slot / 2 * 2 * width + channel * 2 + slot % 2) * scale_of(block, 16 + slot);
}

std::vector<double> rotated(KvType type, const float* x, int32_t head_dim) {
  std::vector<double> y(x, x + head_dim);
  if (type == KvType::int16 || (head_dim & (head_dim - 1)) != 0) return y;
  for (int32_t i = 0; i < head_dim; ++i) {
    y[i] = 0.0;
    for (int32_t j = 0; j < head_dim; ++j) y[i] += (__builtin_popcount(i & j) % 2 ? -x[j] : x[j]);
    y[i] /= std::sqrt(head_dim);
  }
  return y;
}

void attention(const AttentionTask& task, KvType type, int32_t token, int32_t head, double* out) {
  const int32_t position = task.positions[token], kv_head = head / task.heads_per_kv();
  const int32_t first = task.window > 0 ? std::max(0, position - task.window + 1) : 0;
  const auto block_of = [&](int32_t p) {
    return task.kv + task.block_table[p / kBlockSize] * task.block_stride +
           kv_head * kv_head_bytes(type, task.head_dim);
  };
  const std::vector<double> q = rotated(type, task.q + token * task.q_stride + head * task.head_dim, task.head_dim);
  std::vector<double> weights;
  double top = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (int32_t p = first; p <= position; ++p) {
    double score = 0.0;
    for (int32_t d = 0; d < task.head_dim; ++d) score += q[d] * stored_key(type, block_of(p), d, p % kBlockSize);
    score *= task.scale;
    if (task.softcap > 0.0f) score = softcap(score, task.softcap);
    weights.push_back(score);
    top = std::max(top, score);
  }
  for (double& weight : weights) sum += weight = std::exp(weight - top);
  for (int32_t d = 0; d < task.head_dim; ++d) {
    out[d] = 0.0;
    for (int32_t p = first; p <= position; ++p) {
      out[d] += weights[p - first] / sum * stored_value(type, block_of(p), task.head_dim, d, p % kBlockSize);
    }
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

// Every kernel of every target of this machine against the plain loops, with tolerances derived from the operations.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "paceline/kernels.h"
#include "reference/operations.h"
#include "runtime/dispatch.h"

namespace paceline {
namespace {

constexpr double kUlp = 0x1p-23;  // of a number in [1, 2)

int32_t num_failures = 0;

void claim(bool holds, const std::string& text) {
  if (holds) return;
  ++num_failures;
  if (num_failures < 20) std::printf("FAILED: %s\n", text.c_str());
}

void claim_near(double value, double expected, double tolerance, const std::string& text) {
  claim(std::abs(value - expected) <= tolerance,
        text + ": " + std::to_string(value) + ", expected " + std::to_string(expected));
}

std::vector<float> normals(size_t count, uint32_t seed, float spread = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

// Each output is x · factor · weight, three roundings, and factor's sum of squares n / 64 + 6 more, halved by the root.
void test_rms_norm(const Kernels& kernels) {
  for (const int32_t n : {1, 15, 16, 17, 64, 100, 576, 1536}) {
    const auto x = normals(n, n), weight = normals(n, n + 1);
    std::vector<float> y(n);
    std::vector<double> expected(n);
    kernels.rms_norm(x.data(), weight.data(), 1e-5f, n, y.data());
    reference::rms_norm(x.data(), weight.data(), 1e-5, n, expected.data());
    const double tolerance = (8 + n / 128.0) * kUlp;
    for (int32_t i = 0; i < n; ++i) {
      claim_near(y[i], expected[i], tolerance * std::abs(expected[i]) + 1e-30, std::string(kernels.name) + " rms_norm");
    }
  }
}

void test_rope(const Kernels& kernels) {
  for (const auto& [dim, head_dim] : std::vector<std::pair<int32_t, int32_t>>{{8, 8}, {20, 24}, {64, 64}, {32, 128}}) {
    auto x = normals(head_dim, dim);
    std::vector<float> angles(dim);
    for (int32_t i = 0; i < dim / 2; ++i) {
      angles[i] = std::cos(0.7f * i);
      angles[dim / 2 + i] = std::sin(0.7f * i);
    }
    std::vector<double> expected(head_dim);
    reference::rope(x.data(), angles.data(), dim, head_dim, expected.data());
    std::vector<float> y(head_dim);
    kernels.rope(x.data(), angles.data(), dim, head_dim, y.data());
    kernels.rope(x.data(), angles.data(), dim, head_dim, x.data());
    for (int32_t i = 0; i < head_dim; ++i) {
      claim_near(y[i], expected[i], 3 * kUlp * 4, std::string(kernels.name) + " rope");
      claim(x[i] == y[i], std::string(kernels.name) + " rope in place is the same");
    }
  }
}

// exp within 2 ulp; the logistic adds a sum and a quotient, the product with x and up two more roundings. gelu's inner
// argument u carries 4 roundings, which exp magnifies by |2u|; both vanish where the logistic is saturated.
void test_gated(const Kernels& kernels) {
  std::vector<float> gate;
  for (float x = -30.0f; x < 30.0f; x += 0.0137f) gate.push_back(x);
  const auto n = static_cast<int32_t>(gate.size());
  const std::vector<float> up(n, 1.0f);
  std::vector<float> y(n);
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    kernels.gated(gate.data(), up.data(), activation, n, y.data());
    for (int32_t i = 0; i < n; ++i) {
      const double expected = reference::activate(gate[i], activation);
      const double inner =
          activation == Activation::silu ? 0.0 : 1.6 * std::abs(gate[i]) * (1 + 0.05 * gate[i] * gate[i]);
      claim_near(y[i], expected, (8 + 4 * inner) * kUlp * std::abs(expected) + 1e-30,
                 std::string(kernels.name) + " gated at " + std::to_string(gate[i]));
    }
  }
}

void test_softcap(const Kernels& kernels) {
  std::vector<float> x;
  for (float v = -300.0f; v < 300.0f; v += 0.0731f) x.push_back(v);
  x.push_back(1e-6f);
  const auto n = static_cast<int32_t>(x.size());
  std::vector<float> y(n);
  kernels.softcap(x.data(), 30.0f, n, y.data());
  for (int32_t i = 0; i < n; ++i) {
    const double expected = reference::softcap(x[i], 30.0);
    claim_near(y[i], expected, 6 * kUlp * std::abs(expected), std::string(kernels.name) + " softcap");
  }
}

// A pool of random K and V, written by kv_write itself: its rounding is checked against the format's definition.
struct Cache {
  int32_t num_kv_heads, head_dim;
  std::vector<uint16_t> kv;
  std::vector<int32_t> table;

  ptrdiff_t stride() const { return num_kv_heads * kv_head_elements(head_dim); }
};

Cache make_cache(const Kernels& kernels, int32_t num_kv_heads, int32_t head_dim, int32_t num_tokens) {
  const int32_t num_blocks = (num_tokens + kBlockSize - 1) / kBlockSize;
  Cache cache{num_kv_heads, head_dim, {}, {}};
  cache.kv.assign(static_cast<size_t>(cache.stride()) * (num_blocks + 1), 0x7bff);  // stale: 65504 everywhere
  for (int32_t b = 0; b < num_blocks; ++b) cache.table.push_back(1 + (b * 7 + 3) % num_blocks);
  if (num_blocks % 7 == 0) {
    for (int32_t b = 0; b < num_blocks; ++b) cache.table[b] = 1 + b;
  }
  for (int32_t token = 0; token < num_tokens; ++token) {
    for (int32_t head = 0; head < num_kv_heads; ++head) {
      const auto k = normals(head_dim, 1000 + token * 8 + head), v = normals(head_dim, 900000 + token * 8 + head);
      uint16_t* block =
          cache.kv.data() + cache.table[token / kBlockSize] * cache.stride() + head * kv_head_elements(head_dim);
      kernels.kv_write(k.data(), v.data(), head_dim, token % kBlockSize, block);
      for (int32_t d = 0; d < head_dim; ++d) {
        const double stored = reference::half_to_double(block[d * kBlockSize + token % kBlockSize]);
        claim_near(stored, k[d], std::max(std::abs(k[d]) * 0x1p-11, 0x1p-25), std::string(kernels.name) + " kv_write");
      }
    }
  }
  return cache;
}

// Scores: head_dim products and sums; weights: exp magnifies a score's error; values: one sum over the positions.
void test_attention(const Kernels& kernels) {
  const struct {
    int32_t num_heads, num_kv_heads, head_dim, context, window;
    float softcap;
  } cases[] = {{3, 1, 64, 1, 0, 0.0f},    {4, 2, 16, 40, 0, 0.0f},    {9, 3, 64, 300, 0, 0.0f},
               {7, 1, 40, 530, 0, 0.0f},  {4, 1, 256, 90, 33, 0.0f},  {14, 2, 64, 270, 16, 0.0f},
               {16, 1, 32, 64, 0, 20.0f}, {1, 1, 128, 600, 257, 5.0f}};
  for (const auto& c : cases) {
    const Cache cache = make_cache(kernels, c.num_kv_heads, c.head_dim, c.context);
    const int32_t num_tokens = std::min(c.context, 5), width = c.num_heads * c.head_dim;
    const auto q = normals(static_cast<size_t>(num_tokens) * width, 5, 2.0f);
    std::vector<float> out(q.size());
    std::vector<int32_t> positions;
    for (int32_t t = 0; t < num_tokens; ++t) positions.push_back(c.context - num_tokens + t);
    const AttentionTask task{q.data(),
                             width,
                             out.data(),
                             width,
                             cache.kv.data(),
                             cache.stride(),
                             cache.table.data(),
                             positions.data(),
                             c.num_heads,
                             c.num_kv_heads,
                             c.head_dim,
                             c.window,
                             1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                             c.softcap};
    std::vector<float> scratch(attention_scratch_floats(c.head_dim));
    const int32_t group = c.num_heads / c.num_kv_heads;
    const auto run = [&](int32_t tokens_per_tile, int32_t heads_per_tile) {
      for (int32_t t = 0; t < num_tokens; t += tokens_per_tile) {
        for (int32_t head = 0; head < c.num_heads; head += heads_per_tile) {
          const int32_t end = std::min(head + heads_per_tile, (head / group + 1) * group);
          kernels.attention(task, {t, std::min(t + tokens_per_tile, num_tokens), head, end}, scratch.data());
        }
      }
      return out;
    };
    const std::vector<float> alone = run(1, 1);
    claim(alone == run(1, std::min(group, kMaxPairs)),
          std::string(kernels.name) + " attention: heads together, same bits");
    const int32_t tokens = std::max(1, kMaxPairs / group);
    if (group <= kMaxPairs)
      claim(alone == run(tokens, group), std::string(kernels.name) + " attention: tokens together, same bits");
    std::vector<double> expected(c.head_dim);
    for (int32_t t = 0; t < num_tokens; ++t) {
      for (int32_t head = 0; head < c.num_heads; ++head) {
        reference::attention(task, t, head, expected.data());
        for (int32_t d = 0; d < c.head_dim; ++d) {
          const double tolerance = (c.head_dim + c.context + 64) * kUlp * 2;
          claim_near(alone[t * width + head * c.head_dim + d], expected[d], tolerance,
                     std::string(kernels.name) + " attention");
        }
      }
    }
  }
}

void test_kv_write_is_always_finite(const Kernels& kernels) {
  const float wild[] = {1e30f, -1e30f, NAN, INFINITY, -INFINITY, 65520.0f, 1e-8f, -3e-7f};
  std::vector<uint16_t> block(kv_head_elements(8));
  kernels.kv_write(wild, wild, 8, 3, block.data());
  for (int32_t d = 0; d < 8; ++d) {
    const double key = reference::half_to_double(block[d * kBlockSize + 3]),
                 value = reference::half_to_double(block[16 * 16 + 3 * 16 + d]);
    claim(std::isfinite(key) && key == value, std::string(kernels.name) + " kv_write keeps the cache finite");
  }
  claim(reference::half_to_double(block[6 * kBlockSize + 3]) == 0.0, "1e-8 rounds to 0");
}

void test_sampling(const Kernels& kernels) {
  const int32_t n = 1003;
  auto logits = normals(n, 77, 3.0f);
  logits[500] = logits[900] = 40.0f;
  claim(kernels.argmax(logits.data(), 0, n).id == 500, std::string(kernels.name) + " argmax takes the lowest id");
  claim(kernels.argmax(logits.data(), 501, n).id == 900, std::string(kernels.name) + " argmax of a range");
  claim(kernels.argmax(logits.data(), 7, 7).id == 7, std::string(kernels.name) + " argmax of nothing");
  logits[500] = logits[900] = 0.0f;
  const Best top = kernels.argmax(logits.data(), 0, n);
  for (int32_t position = 0; position < 300; ++position) {
    for (const double temperature : {0.01, 1.0, 5.0}) {
      const Race race{top.value,    temperature, position % 3 == 0 ? 0.05 : 0.0, 0x123456789abcdefull,
                      position % 5, position};
      claim(kernels.race(logits.data(), n, race) == reference::race(logits.data(), n, race),
            std::string(kernels.name) + " race");
    }
  }
  std::vector<int32_t> ids(n);
  const int32_t count = kernels.collect(logits.data(), n, 1.0f, ids.data());
  int32_t expected = 0;
  double mass = 0.0;
  for (int32_t i = 0; i < n; ++i) {
    if (logits[i] >= 1.0f) claim(ids[expected++] == i, "collect ascends");
    if (logits[i] < 1.0f) mass += std::exp((logits[i] - top.value) * 0.5);
  }
  claim(count == expected, std::string(kernels.name) + " collect");
  claim_near(kernels.far_mass(logits.data(), n, 1.0f, top.value, 0.5f), mass, mass * 20 * kUlp, "far_mass");
}

}  // namespace
}  // namespace paceline

int main() {
  using namespace paceline;
  for (const TargetInfo& target : list_targets()) {
    if (target.kernels == nullptr) continue;
    const Kernels& kernels = *target.kernels;
    test_rms_norm(kernels);
    test_rope(kernels);
    test_gated(kernels);
    test_softcap(kernels);
    test_attention(kernels);
    test_kv_write_is_always_finite(kernels);
    test_sampling(kernels);
    std::printf("%s: done\n", target.name.c_str());
  }
  std::printf("%d failed\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}

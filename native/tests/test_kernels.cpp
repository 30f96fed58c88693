// Every kernel of every target of this machine against the plain loops, with tolerances derived from the operations.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "claims.h"
#include "paceline/kernels.h"
#include "reference/operations.h"
#include "runtime/dispatch.h"

namespace paceline {
namespace {

constexpr double kUlp = 0x1p-23;  // of a number in [1, 2)

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
    test_sampling(kernels);
    std::printf("%s: done\n", target.name.c_str());
  }
  std::printf("%d failed\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}

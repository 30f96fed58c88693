// What the tests of linear layers share: random GGUF tensors, layers made of them, and a run of a layer on a target.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "paceline/kernels.h"
#include "paceline/linear.h"
#include "paceline/types.h"
#include "reference/linear.h"
#include "runtime/dispatch.h"

namespace paceline::testing {

// The kernel tables that this machine can run.
inline std::vector<const Kernels*> targets() {
  std::vector<const Kernels*> all;
  for (const TargetInfo& target : list_targets()) {
    if (target.is_available) all.push_back(target.kernels);
  }
  return all;
}

inline constexpr GgmlType kTypes[] = {GgmlType::q4_0, GgmlType::q4_1, GgmlType::q4_k, GgmlType::q5_0,
                                      GgmlType::q5_1, GgmlType::q5_k, GgmlType::q6_k, GgmlType::q8_0,
                                      GgmlType::q3_k, GgmlType::f16,  GgmlType::bf16, GgmlType::f32};

struct Random {
  uint64_t state;
  uint32_t next() {  // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<uint32_t>((z ^ (z >> 31)) >> 16);
  }
  float unit() { return static_cast<float>(next()) * 0x1p-31f - 1.0f; }  // −1 … 1
  int32_t below(int32_t limit) { return static_cast<int32_t>(next() % static_cast<uint32_t>(limit)); }
};

struct AlignedDelete {
  void operator()(uint8_t* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<uint8_t[], AlignedDelete>;

inline AlignedBytes aligned(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  return AlignedBytes(static_cast<uint8_t*>(std::aligned_alloc(64, rounded == 0 ? 64 : rounded)));
}

inline int failures = 0;

inline void claim(bool holds, const std::string& text) {
  if (holds) return;
  ++failures;
  if (failures < 40) std::printf("FAILED: %s\n", text.c_str());
}

// f16 bits of a moderate number, now and then a subnormal.
inline uint16_t random_half(Random& random) {
  if (random.below(50) == 0) return static_cast<uint16_t>((random.next() & 0x8000) | random.below(1024));
  return static_cast<uint16_t>((random.next() & 0x83ff) | (8 + random.below(7)) << 10);
}

inline int32_t block_channels(GgmlType type) {
  switch (type) {
    case GgmlType::q3_k:
    case GgmlType::q4_k:
    case GgmlType::q5_k:
    case GgmlType::q6_k:
      return 256;
    case GgmlType::f16:
    case GgmlType::bf16:
    case GgmlType::f32:
      return 1;
    default:
      return 32;
  }
}

// Byte offsets of the f16 numbers in a block.
inline std::vector<int32_t> half_offsets(GgmlType type) {
  switch (type) {
    case GgmlType::q4_1:
    case GgmlType::q5_1:
    case GgmlType::q4_k:
    case GgmlType::q5_k:
      return {0, 2};
    case GgmlType::q3_k:
      return {108};
    case GgmlType::q6_k:
      return {208};
    case GgmlType::bf16:
    case GgmlType::f32:
      return {};
    default:
      return {0};
  }
}

// A GGUF tensor of random quants and moderate scales.
inline std::vector<uint8_t> random_tensor(GgmlType type, int32_t num_rows, int32_t num_cols, Random& random) {
  const int32_t number = static_cast<int32_t>(type);
  std::vector<uint8_t> bytes(reference::row_bytes(number, num_cols) * num_rows);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
  const size_t block_bytes = reference::row_bytes(number, block_channels(type));
  for (size_t at = 0; at < bytes.size(); at += block_bytes) {
    for (int32_t offset : half_offsets(type)) {
      const uint16_t half = random_half(random);
      std::memcpy(&bytes[at + offset], &half, 2);
    }
    if (type == GgmlType::bf16 || type == GgmlType::f32) {
      const float value = random.unit();
      std::memcpy(&bytes[at], reinterpret_cast<const char*>(&value) + (4 - block_bytes), block_bytes);
    }
  }
  return bytes;
}

// A packed tensor and where it came from.
struct Weights {
  GgmlType type;
  std::vector<uint8_t> source;
  AlignedBytes packed;
  MatrixPart part;
};

inline Weights make_weights(GgmlType type, int32_t num_rows, int32_t num_cols, Random& random) {
  Weights weights{type, random_tensor(type, num_rows, num_cols, random), nullptr, {}};
  const PackedType packed = static_cast<PackedType>(packed_type_for(static_cast<int32_t>(type)));
  weights.packed = aligned(packed_bytes(packed, num_rows, num_cols));
  weights.part = {packed, num_rows, num_cols, weights.packed.get()};
  const int32_t tiles = (num_rows + kRowTile - 1) / kRowTile;
  for (int32_t tile = tiles; tile-- > 0;) {  // any order must do
    pack_tiles(static_cast<int32_t>(type), weights.source.data(), num_rows, num_cols, weights.packed.get(), tile,
               tile + 1);
  }
  return weights;
}

inline bool same_bits(const float* a, const float* b, size_t count) { return std::memcmp(a, b, 4 * count) == 0; }

inline std::string name(GgmlType type) { return "ggml type " + std::to_string(static_cast<int32_t>(type)); }

inline void fill_activations(std::vector<float>& x, Random& random) {
  for (float& value : x) value = random.unit() * (random.below(20) == 0 ? 30.0f : 1.0f);
}

// One linear layer: parts, input, and how it is run.
struct Layer {
  std::vector<Weights> weights;
  std::vector<MatrixPart> parts;
  std::vector<float> bias;
  int32_t num_cols = 0;
  int32_t num_rows = 0;
  bool has_quantised = false;
};

inline Layer make_layer(const std::vector<std::pair<GgmlType, int32_t>>& parts, int32_t num_cols, bool has_bias,
                        Random& random) {
  Layer layer;
  layer.num_cols = num_cols;
  for (const auto& [type, num_rows] : parts) {
    layer.weights.push_back(make_weights(type, num_rows, num_cols, random));
    layer.parts.push_back(layer.weights.back().part);
    layer.num_rows += num_rows;
    layer.has_quantised = layer.has_quantised || block_channels(type) > 1;
  }
  for (int32_t n = 0; has_bias && n < layer.num_rows; ++n) layer.bias.push_back(random.unit());
  return layer;
}

inline constexpr float kGuard = 12345.0f;

// y [T, N] for tokens x [T, K], tiles computed in `cuts + 1` calls, last first; strides larger than needed, guarded.
inline std::vector<float> run(const Kernels& target, const Layer& layer, const std::vector<float>& x,
                              int32_t num_tokens, const std::vector<int32_t>& cuts = {}) {
  const int32_t x_stride = layer.num_cols + 3, y_stride = layer.num_rows + 5;
  std::vector<float> input(static_cast<size_t>(num_tokens) * x_stride, NAN);
  for (int32_t t = 0; t < num_tokens; ++t) {
    std::memcpy(&input[static_cast<size_t>(t) * x_stride], &x[static_cast<size_t>(t) * layer.num_cols],
                4u * layer.num_cols);
  }
  AlignedBytes activations = aligned(layer.has_quantised ? activation_bytes(num_tokens, layer.num_cols) : 0);
  if (layer.has_quantised) {
    target.quantize(input.data(), x_stride, num_tokens, layer.num_cols, activations.get(), 0, num_tokens);
  }
  std::vector<float> y(static_cast<size_t>(num_tokens) * y_stride, kGuard);
  const LinearTask task{layer.parts.data(), static_cast<int32_t>(layer.parts.size()),
                        num_tokens,         layer.num_cols,
                        activations.get(),  input.data(),
                        x_stride,           layer.bias.empty() ? nullptr : layer.bias.data(),
                        y.data(),           y_stride};
  int32_t end = num_tiles(task);
  for (size_t i = cuts.size(); i-- > 0;) {
    target.linear(task, cuts[i], end);
    end = cuts[i];
  }
  target.linear(task, 0, end);
  std::vector<float> tight;
  for (int32_t t = 0; t < num_tokens; ++t) {
    const float* row = &y[static_cast<size_t>(t) * y_stride];
    tight.insert(tight.end(), row, row + layer.num_rows);
    for (int32_t n = layer.num_rows; n < y_stride; ++n) claim(row[n] == kGuard, "nothing is written past a row of y");
  }
  return tight;
}

struct Test {
  const char* name;
  void (*run)();
};

// Runs every test, prints a line for each; 1 when a claim did not hold.
inline int run_tests(const std::vector<Test>& tests) {
  for (const Kernels* target : targets()) std::printf("target: %s\n", target->name);
  for (const Test& test : tests) {
    const int before = failures;
    test.run();
    std::printf("%s: %s\n", failures == before ? "ok" : "FAILED", test.name);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace paceline::testing

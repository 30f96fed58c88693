// Tests of packing, quantising and the linear layer on every target of this machine. Prints one line per claim; exit
// code 1 when one does not hold.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "paceline/linear.h"
#include "paceline/types.h"
#include "reference/linear.h"

namespace paceline {
namespace portable {
void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end);
void quantize(const float*, ptrdiff_t, int32_t, int32_t, uint8_t*, int32_t, int32_t);
}  // namespace portable
#ifdef __x86_64__
namespace avx512_vnni {
void linear(const LinearTask& task, int32_t tile_begin, int32_t tile_end);
void quantize(const float*, ptrdiff_t, int32_t, int32_t, uint8_t*, int32_t, int32_t);
}  // namespace avx512_vnni
#endif

namespace {

struct Target {
  const char* name;
  LinearFn linear;
  QuantizeFn quantize;
};

std::vector<Target> targets() {
  std::vector<Target> all{{"portable", portable::linear, portable::quantize}};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("gfni")) {
    all.push_back({"avx512_vnni", avx512_vnni::linear, avx512_vnni::quantize});
  }
#endif
  return all;
}

constexpr GgmlType kTypes[] = {GgmlType::q4_0, GgmlType::q4_1, GgmlType::q4_k, GgmlType::q5_0,
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

AlignedBytes aligned(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  return AlignedBytes(static_cast<uint8_t*>(std::aligned_alloc(64, rounded == 0 ? 64 : rounded)));
}

int failures = 0;

void claim(bool holds, const std::string& text) {
  if (holds) return;
  ++failures;
  if (failures < 40) std::printf("FAILED: %s\n", text.c_str());
}

// f16 bits of a moderate number, now and then a subnormal.
uint16_t random_half(Random& random) {
  if (random.below(50) == 0) return static_cast<uint16_t>((random.next() & 0x8000) | random.below(1024));
  return static_cast<uint16_t>((random.next() & 0x83ff) | (8 + random.below(7)) << 10);
}

int32_t block_channels(GgmlType type) {
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
std::vector<int32_t> half_offsets(GgmlType type) {
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
std::vector<uint8_t> random_tensor(GgmlType type, int32_t num_rows, int32_t num_cols, Random& random) {
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

Weights make_weights(GgmlType type, int32_t num_rows, int32_t num_cols, Random& random) {
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

bool same_bits(const float* a, const float* b, size_t count) { return std::memcmp(a, b, 4 * count) == 0; }

std::string name(GgmlType type) { return "ggml type " + std::to_string(static_cast<int32_t>(type)); }

// ---- packing

void test_packing_loses_nothing() {
  Random random{1};
  for (GgmlType type : kTypes) {
    for (int32_t num_rows : {1, 31, 32, 33, 70}) {
      const int32_t num_cols = block_channels(type) == 1 ? 37 : block_channels(type) * (1 + random.below(3));
      const Weights weights = make_weights(type, num_rows, num_cols, random);
      const size_t row_bytes = reference::row_bytes(static_cast<int32_t>(type), num_cols);
      std::vector<float> row(num_cols);
      for (int32_t r = 0; r < num_rows; ++r) {
        unpack_row(weights.part, r, row.data());
        const auto expected =
            reference::dequantise(static_cast<int32_t>(type), &weights.source[r * row_bytes], num_cols);
        // NaNs of random f16 bits do not occur: exponents are limited.
        claim(same_bits(row.data(), expected.value.data(), num_cols), "packing loses nothing, " + name(type));
      }
    }
  }
  claim(packed_type_for(static_cast<int32_t>(GgmlType::q2_k)) == -1, "Q2_K has no packed type");
  claim(packed_type_for(24) == -1, "I8 has no packed type");
}

// ---- quantising

void fill_activations(std::vector<float>& x, Random& random) {
  for (float& value : x) value = random.unit() * (random.below(20) == 0 ? 30.0f : 1.0f);
}

void check_token(const Target& target, const uint8_t* buffer, const std::vector<float>& x, int32_t num_tokens,
                 int32_t num_cols, int32_t token) {
  const auto expected = reference::quantise(&x[static_cast<size_t>(token) * num_cols], num_cols);
  for (int32_t block = 0; block < num_cols / kQuantBlock; ++block) {
    const ActivationBlock& found = activation_block(buffer, num_tokens, num_cols, token, block);
    int32_t halves[2] = {0, 0};
    for (int32_t k = 0; k < kQuantBlock; ++k) halves[k / 16] += expected.quants[block * kQuantBlock + k];
    const int32_t sum = halves[0] + halves[1];
    const bool is_same = std::memcmp(found.quants, &expected.quants[block * kQuantBlock], kQuantBlock) == 0 &&
                         found.sum == sum && found.correction[0] == -8 * sum && found.correction[1] == -16 * sum &&
                         found.correction[2] == -128 * sum && found.half_correction[0] == -32 * halves[0] &&
                         found.half_correction[1] == -32 * halves[1];
    const bool is_nan = std::isnan(expected.scale[block]);
    const bool is_scale_same = is_nan ? std::isnan(found.scale) : found.scale == expected.scale[block];
    claim(is_same && is_scale_same, std::string("activations are quantised as the contract says, ") + target.name);
    claim(is_nan || found.scale_sum == found.scale * static_cast<float>(sum), "scale_sum is scale · sum");
  }
}

void test_quantising() {
  Random random{2};
  const int32_t num_cols = 96;
  for (const Target& target : targets()) {
    for (int32_t num_tokens = 1; num_tokens <= 70; ++num_tokens) {
      std::vector<float> x(static_cast<size_t>(num_tokens) * num_cols);
      fill_activations(x, random);
      x[0] = random.below(2) ? 0x1p-110f : x[0];       // too small: zero
      x[33] = random.below(4) == 0 ? INFINITY : 0.5f;  // a fault in block 1
      x[70] = random.below(4) == 0 ? NAN : -0.25f;     // a fault in block 2
      for (int32_t k = 0; k < 32; ++k) x[x.size() - 1 - k] = k < 31 ? 0.0f : 2.5f * (127.0f / 2.5f);
      AlignedBytes buffer = aligned(activation_bytes(num_tokens, num_cols));
      const int32_t split = random.below(num_tokens + 1);
      target.quantize(x.data(), num_cols, num_tokens, num_cols, buffer.get(), split, num_tokens);
      target.quantize(x.data(), num_cols, num_tokens, num_cols, buffer.get(), 0, split);
      for (int32_t token = 0; token < num_tokens; ++token) {
        check_token(target, buffer.get(), x, num_tokens, num_cols, token);
      }
    }
  }
}

void test_halves_round_to_even() {
  for (const Target& target : targets()) {
    float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f, 126.5f};
    AlignedBytes buffer = aligned(activation_bytes(1, 32));
    target.quantize(x, 32, 1, 32, buffer.get(), 0, 1);
    const int8_t expected[8] = {127, 0, 2, 2, 0, -2, -126, 126};
    claim(std::memcmp(activation_block(buffer.get(), 1, 32, 0, 0).quants, expected, 8) == 0, "ties round to even");
  }
}

// ---- the product

// One linear layer: parts, input, and how it is run.
struct Layer {
  std::vector<Weights> weights;
  std::vector<MatrixPart> parts;
  std::vector<float> bias;
  int32_t num_cols = 0;
  int32_t num_rows = 0;
  bool has_quantised = false;
};

Layer make_layer(const std::vector<std::pair<GgmlType, int32_t>>& parts, int32_t num_cols, bool has_bias,
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

constexpr float kGuard = 12345.0f;

// y [T, N] for tokens x [T, K], tiles computed in `cuts + 1` calls, last first; strides larger than needed, guarded.
std::vector<float> run(const Target& target, const Layer& layer, const std::vector<float>& x, int32_t num_tokens,
                       const std::vector<int32_t>& cuts = {}) {
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

// What the contract's operations give, in plain loops.
std::vector<float> run_contract(const Layer& layer, const std::vector<float>& x, int32_t num_tokens) {
  std::vector<float> y;
  for (int32_t t = 0; t < num_tokens; ++t) {
    const float* row_x = &x[static_cast<size_t>(t) * layer.num_cols];
    reference::QuantisedRow quantised;
    if (layer.has_quantised) quantised = reference::quantise(row_x, layer.num_cols);
    size_t n = 0;
    for (const MatrixPart& part : layer.parts) {
      for (int32_t row = 0; row < part.num_rows; ++row, ++n) {
        const float value = reference::contract_product(part, row, quantised, row_x);
        y.push_back(layer.bias.empty() ? value : value + layer.bias[n]);
      }
    }
  }
  return y;
}

int32_t random_cols(GgmlType type, Random& random, int32_t max_blocks) {
  if (block_channels(type) == 1) return 1 + random.below(700);
  return block_channels(type) * (1 + random.below(block_channels(type) == 256 ? max_blocks : 4 * max_blocks));
}

void test_targets_keep_the_contract_bit_for_bit() {
  Random random{3};
  for (GgmlType type : kTypes) {
    for (int32_t num_tokens : {1, 2, 3, 4, 5, 6, 7, 9, 13}) {
      const Layer layer =
          make_layer({{type, 1 + random.below(70)}}, random_cols(type, random, 3), num_tokens % 2, random);
      std::vector<float> x(static_cast<size_t>(num_tokens) * layer.num_cols);
      fill_activations(x, random);
      const std::vector<float> expected = run_contract(layer, x, num_tokens);
      for (const Target& target : targets()) {
        const std::vector<float> y = run(target, layer, x, num_tokens);
        claim(same_bits(y.data(), expected.data(), y.size()), std::string(target.name) +
                                                                  " keeps the contract bit for bit, " + name(type) +
                                                                  ", tokens " + std::to_string(num_tokens));
      }
    }
  }
}

void test_parts_of_different_types_run_in_order() {
  Random random{4};
  const Layer layer = make_layer({{GgmlType::q4_k, 33}, {GgmlType::q6_k, 64}, {GgmlType::f32, 5}, {GgmlType::q8_0, 17}},
                                 512, true, random);
  for (int32_t num_tokens : {1, 6}) {
    std::vector<float> x(static_cast<size_t>(num_tokens) * layer.num_cols);
    fill_activations(x, random);
    const std::vector<float> expected = run_contract(layer, x, num_tokens);
    for (const Target& target : targets()) {
      for (const std::vector<int32_t>& cuts : {std::vector<int32_t>{}, {1}, {2, 3}, {1, 2, 3, 4, 5}}) {
        const std::vector<float> y = run(target, layer, x, num_tokens, cuts);
        claim(same_bits(y.data(), expected.data(), y.size()),
              std::string(target.name) + ": parts run in order, any cuts");
      }
    }
  }
}

// Every count of tokens, channels in one chunk and in several: token t's outputs are those of token t alone.
void test_rows_do_not_depend_on_other_rows() {
  Random random{5};
  for (const Target& target : targets()) {
    for (GgmlType type : kTypes) {
      const int32_t num_cols = block_channels(type) == 1 ? 1100 : 1792;
      const Layer layer = make_layer({{type, 40}}, num_cols, true, random);
      std::vector<float> x(static_cast<size_t>(70) * num_cols);
      fill_activations(x, random);
      std::vector<float> alone;
      for (int32_t t = 0; t < 70; ++t) {
        const std::vector<float> row(&x[static_cast<size_t>(t) * num_cols],
                                     &x[static_cast<size_t>(t) * num_cols] + num_cols);
        const std::vector<float> y = run(target, layer, row, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int32_t num_tokens = 2; num_tokens <= 70; num_tokens += num_tokens < 14 ? 1 : 1 + random.below(9)) {
        const std::vector<float> y = run(target, layer, x, num_tokens, {1});
        claim(same_bits(y.data(), alone.data(), y.size()), std::string(target.name) +
                                                               ": rows do not depend on others, " + name(type) +
                                                               ", tokens " + std::to_string(num_tokens));
      }
    }
  }
}

// Against the mathematics in double, from the GGUF bytes. Bound: every term takes part in at most one rounding of its
// scale, one product and one addition per block that follows (two with a min), each at most 2⁻²⁴ of the running
// magnitude.
void test_products_are_right() {
  Random random{6};
  for (GgmlType type : kTypes) {
    const int32_t num_tokens = 3, num_cols = block_channels(type) == 1 ? 300 : 768;
    const Layer layer = make_layer({{type, 37}}, num_cols, false, random);
    std::vector<float> x(static_cast<size_t>(num_tokens) * num_cols);
    fill_activations(x, random);
    const size_t row_bytes = reference::row_bytes(static_cast<int32_t>(type), num_cols);
    const double steps = block_channels(type) == 1 ? num_cols + 1.0 : 2.0 * num_cols / kQuantBlock + 4.0;
    for (const Target& target : targets()) {
      const std::vector<float> y = run(target, layer, x, num_tokens);
      for (int32_t i = 0; i < num_tokens * layer.num_rows; ++i) {
        const int32_t t = i / layer.num_rows, n = i % layer.num_rows;
        const auto row =
            reference::dequantise(static_cast<int32_t>(type), &layer.weights[0].source[n * row_bytes], num_cols);
        const float* row_x = &x[static_cast<size_t>(t) * num_cols];
        const auto expected = block_channels(type) == 1
                                  ? reference::exact_product(row, row_x)
                                  : reference::exact_product(row, reference::quantise(row_x, num_cols));
        // dequantised values of types with a min round once more: 2⁻²⁴ of the magnitude, inside the + 4
        claim(std::fabs(y[i] - expected.value) <= steps * 0x1p-24 * expected.magnitude,
              std::string(target.name) + " gives the right product, " + name(type));
      }
    }
  }
}

// Scales of 1 on both sides: y is the integer itself.
void test_integer_sums_are_exact() {
  Random random{7};
  const int32_t num_cols = 512, num_rows = 32, num_tokens = 7;
  Layer layer = make_layer({{GgmlType::q8_0, num_rows}}, num_cols, false, random);
  std::vector<uint8_t>& source = layer.weights[0].source;
  const uint16_t one = 0x3c00;
  for (size_t at = 0; at < source.size(); at += sizeof(BlockQ8_0)) {
    std::memcpy(&source[at], &one, 2);
    source[at + 2] = 0x80;  // −128 is a value, too
  }
  pack_tiles(static_cast<int32_t>(GgmlType::q8_0), source.data(), num_rows, num_cols, layer.weights[0].packed.get(), 0,
             1);
  std::vector<float> x(static_cast<size_t>(num_tokens) * num_cols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 32 == 0 ? -127.0f : static_cast<float>(random.below(255) - 127);
  for (const Target& target : targets()) {
    const std::vector<float> y = run(target, layer, x, num_tokens);
    for (int32_t t = 0; t < num_tokens; ++t) {
      for (int32_t n = 0; n < num_rows; ++n) {
        int64_t sum = 0;
        for (int32_t k = 0; k < num_cols; ++k) {
          const size_t at = (static_cast<size_t>(n) * (num_cols / 32) + k / 32) * sizeof(BlockQ8_0) + 2 + k % 32;
          sum += static_cast<int64_t>(x[static_cast<size_t>(t) * num_cols + k]) * static_cast<int8_t>(source[at]);
        }
        claim(static_cast<float>(sum) == y[static_cast<size_t>(t) * num_rows + n], "integer sums are exact");
      }
    }
  }
}

void test_a_fault_stays_in_its_row() {
  Random random{8};
  const Layer layer = make_layer({{GgmlType::q4_k, 32}, {GgmlType::q8_0, 32}}, 256, false, random);
  std::vector<float> x(7 * 256);
  fill_activations(x, random);
  x[3 * 256 + 100] = INFINITY;
  for (const Target& target : targets()) {
    const std::vector<float> y = run(target, layer, x, 7);
    for (int32_t i = 0; i < 7 * 64; ++i) claim(std::isnan(y[i]) == (i / 64 == 3), "a fault stays in its row");
  }
}

// The comparisons above can fail: a wrong zero point, swapped nibbles and a swapped scale all show.
void test_planted_bugs_are_found() {
  Random random{9};
  std::vector<float> x(256);
  fill_activations(x, random);
  for (GgmlType type :
       {GgmlType::q4_0, GgmlType::q4_1, GgmlType::q4_k, GgmlType::q5_0, GgmlType::q6_k, GgmlType::q8_0}) {
    Layer layer = make_layer({{type, 32}}, 256, false, random);
    const std::vector<float> expected = run_contract(layer, x, 1);
    uint8_t* packed = layer.weights[0].packed.get();
    const size_t bytes = packed_bytes(layer.parts[0].type, 32, 256);
    for (const Target& target : targets()) {
      for (size_t at : {size_t{0}, size_t{130}, bytes - 1}) {  // a header byte, an early and the last byte
        const uint8_t kept = packed[at];
        packed[at] = static_cast<uint8_t>(kept << 4 | kept >> 4) == kept ? kept ^ 1
                                                                         : static_cast<uint8_t>(kept << 4 | kept >> 4);
        const std::vector<float> y = run(target, layer, x, 1);
        claim(!same_bits(y.data(), expected.data(), y.size()), "swapped nibbles show, " + name(type));
        packed[at] = kept;
      }
      AlignedBytes activations = aligned(activation_bytes(1, 256));
      target.quantize(x.data(), 256, 1, 256, activations.get(), 0, 1);
      ActivationBlock& block = reinterpret_cast<ActivationBlock*>(activations.get())[2];
      for (int32_t& correction : block.correction) correction -= block.sum;  // zero point + 1
      for (int32_t& correction : block.half_correction) correction -= block.sum;
      block.scale_sum *= 1.5f;
      std::vector<float> y(32);
      target.linear({layer.parts.data(), 1, 1, 256, activations.get(), x.data(), 256, nullptr, y.data(), 32}, 0, 1);
      claim(!same_bits(y.data(), expected.data(), y.size()), "a wrong zero point or min shows, " + name(type));
    }
  }
}

}  // namespace
}  // namespace paceline

int main() {
  struct Test {
    const char* name;
    void (*run)();
  };
  using namespace paceline;
  const Test tests[] = {
      {"packing loses nothing", test_packing_loses_nothing},
      {"quantising keeps its contract", test_quantising},
      {"halves round to even", test_halves_round_to_even},
      {"targets keep the contract bit for bit", test_targets_keep_the_contract_bit_for_bit},
      {"parts of different types run in order", test_parts_of_different_types_run_in_order},
      {"rows do not depend on other rows", test_rows_do_not_depend_on_other_rows},
      {"products are right", test_products_are_right},
      {"integer sums are exact", test_integer_sums_are_exact},
      {"a fault stays in its row", test_a_fault_stays_in_its_row},
      {"planted bugs are found", test_planted_bugs_are_found},
  };
  for (const Target& target : targets()) std::printf("target: %s\n", target.name);
  for (const Test& test : tests) {
    const int before = failures;
    test.run();
    std::printf("%s: %s\n", failures == before ? "ok" : "FAILED", test.name);
  }
  return failures == 0 ? 0 : 1;
}

// The linear layer on every target of this machine: bit for bit as the contract says, and right within a derived bound.
#include "linear_case.h"

namespace paceline::testing {
namespace {

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
      for (const Kernels* target : targets()) {
        const std::vector<float> y = run(*target, layer, x, num_tokens);
        claim(same_bits(y.data(), expected.data(), y.size()), std::string(target->name) +
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
    for (const Kernels* target : targets()) {
      for (const std::vector<int32_t>& cuts : {std::vector<int32_t>{}, {1}, {2, 3}, {1, 2, 3, 4, 5}}) {
        const std::vector<float> y = run(*target, layer, x, num_tokens, cuts);
        claim(same_bits(y.data(), expected.data(), y.size()),
              std::string(target->name) + ": parts run in order, any cuts");
      }
    }
  }
}

// Every count of tokens, channels in one chunk and in several: token t's outputs are those of token t alone.
void test_rows_do_not_depend_on_other_rows() {
  Random random{5};
  for (const Kernels* target : targets()) {
    for (GgmlType type : kTypes) {
      const int32_t num_cols = block_channels(type) == 1 ? 1100 : 1792;
      const Layer layer = make_layer({{type, 40}}, num_cols, true, random);
      std::vector<float> x(static_cast<size_t>(70) * num_cols);
      fill_activations(x, random);
      std::vector<float> alone;
      for (int32_t t = 0; t < 70; ++t) {
        const std::vector<float> row(&x[static_cast<size_t>(t) * num_cols],
                                     &x[static_cast<size_t>(t) * num_cols] + num_cols);
        const std::vector<float> y = run(*target, layer, row, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int32_t num_tokens = 2; num_tokens <= 70; num_tokens += num_tokens < 14 ? 1 : 1 + random.below(9)) {
        const std::vector<float> y = run(*target, layer, x, num_tokens, {1});
        claim(same_bits(y.data(), alone.data(), y.size()), std::string(target->name) +
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
    for (const Kernels* target : targets()) {
      const std::vector<float> y = run(*target, layer, x, num_tokens);
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
              std::string(target->name) + " gives the right product, " + name(type));
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
  for (const Kernels* target : targets()) {
    const std::vector<float> y = run(*target, layer, x, num_tokens);
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
  for (const Kernels* target : targets()) {
    const std::vector<float> y = run(*target, layer, x, 7);
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
    for (const Kernels* target : targets()) {
      for (size_t at : {size_t{0}, size_t{130}, bytes - 1}) {  // a header byte, an early and the last byte
        const uint8_t kept = packed[at];
        packed[at] = static_cast<uint8_t>(kept << 4 | kept >> 4) == kept ? kept ^ 1
                                                                         : static_cast<uint8_t>(kept << 4 | kept >> 4);
        const std::vector<float> y = run(*target, layer, x, 1);
        claim(!same_bits(y.data(), expected.data(), y.size()), "swapped nibbles show, " + name(type));
        packed[at] = kept;
      }
      AlignedBytes activations = aligned(activation_bytes(1, 256));
      target->quantize(x.data(), 256, 1, 256, activations.get(), 0, 1);
      ActivationBlock& block = reinterpret_cast<ActivationBlock*>(activations.get())[2];
      for (int32_t& correction : block.correction) correction -= block.sum;  // zero point + 1
      for (int32_t& correction : block.half_correction) correction -= block.sum;
      block.scale_sum *= 1.5f;
      if (type == GgmlType::q8_0) block.quants[5] ^= 1;  // dots of signed bytes need no correction for 8 bits
      std::vector<float> y(32);
      target->linear({layer.parts.data(), 1, 1, 256, activations.get(), x.data(), 256, nullptr, y.data(), 32}, 0, 1);
      claim(!same_bits(y.data(), expected.data(), y.size()), "a wrong zero point or min shows, " + name(type));
    }
  }
}

}  // namespace
}  // namespace paceline::testing

int main() {
  using namespace paceline::testing;
  return run_tests({
      {"targets keep the contract bit for bit", test_targets_keep_the_contract_bit_for_bit},
      {"parts of different types run in order", test_parts_of_different_types_run_in_order},
      {"rows do not depend on other rows", test_rows_do_not_depend_on_other_rows},
      {"products are right", test_products_are_right},
      {"integer sums are exact", test_integer_sums_are_exact},
      {"a fault stays in its row", test_a_fault_stays_in_its_row},
      {"planted bugs are found", test_planted_bugs_are_found},
  });
}

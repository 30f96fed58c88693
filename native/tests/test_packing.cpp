// Packing weights and quantising activations: nothing is lost, every target gives the contract's bits.
#include "linear_case.h"

namespace paceline::testing {
namespace {

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

void check_token(const Kernels& target, const uint8_t* buffer, const std::vector<float>& x, int32_t num_tokens,
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
  for (const Kernels* target : targets()) {
    for (int32_t num_tokens = 1; num_tokens <= 70; ++num_tokens) {
      std::vector<float> x(static_cast<size_t>(num_tokens) * num_cols);
      fill_activations(x, random);
      x[0] = random.below(2) ? 0x1p-110f : x[0];       // too small: zero
      x[33] = random.below(4) == 0 ? INFINITY : 0.5f;  // a fault in block 1
      x[70] = random.below(4) == 0 ? NAN : -0.25f;     // a fault in block 2
      for (int32_t k = 0; k < 32; ++k) x[x.size() - 1 - k] = k < 31 ? 0.0f : 2.5f * (127.0f / 2.5f);
      AlignedBytes buffer = aligned(activation_bytes(num_tokens, num_cols));
      const int32_t split = random.below(num_tokens + 1);
      target->quantize(x.data(), num_cols, num_tokens, num_cols, buffer.get(), split, num_tokens);
      target->quantize(x.data(), num_cols, num_tokens, num_cols, buffer.get(), 0, split);
      for (int32_t token = 0; token < num_tokens; ++token) {
        check_token(*target, buffer.get(), x, num_tokens, num_cols, token);
      }
    }
  }
}

void test_halves_round_to_even() {
  for (const Kernels* target : targets()) {
    float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f, 126.5f};
    AlignedBytes buffer = aligned(activation_bytes(1, 32));
    target->quantize(x, 32, 1, 32, buffer.get(), 0, 1);
    const int8_t expected[8] = {127, 0, 2, 2, 0, -2, -126, 126};
    claim(std::memcmp(activation_block(buffer.get(), 1, 32, 0, 0).quants, expected, 8) == 0, "ties round to even");
  }
}

}  // namespace
}  // namespace paceline::testing

int main() {
  using namespace paceline::testing;
  return run_tests({
      {"packing loses nothing", test_packing_loses_nothing},
      {"quantising keeps its contract", test_quantising},
      {"halves round to even", test_halves_round_to_even},
  });
}

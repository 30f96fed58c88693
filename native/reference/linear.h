// The linear layer in plain loops: what a weight row's numbers are, what quantising does, what the product must be.
//
// The one idea: two oracles. `exact_product` is the mathematics in double, from the GGUF bytes alone, with the size of
// the terms so that a test can derive its tolerance. `contract_product` repeats the float operations that
// paceline/linear.h promises, in their order, so kernels are compared bit for bit.
#pragma once
#include <cstdint>
#include <vector>

#include "paceline/linear.h"

namespace paceline::reference {

// One weight row as numbers: value[k] = scale · quant (+ min); magnitude[k] = |scale · quant| + |min|.
struct WeightRow {
  std::vector<float> value;
  std::vector<float> magnitude;
};

// One token's activations: x[k] ≈ scale[k / 32] · quants[k].
struct QuantisedRow {
  std::vector<float> scale;
  std::vector<int8_t> quants;
};

struct Product {
  double value;
  double magnitude;  // Σ |terms|: rounding errors are proportional to it
};

// Bytes of one GGUF row.
int64_t row_bytes(int32_t ggml_type, int32_t num_cols);

// A GGUF row by the definition of its format, block by block.
WeightRow dequantise(int32_t ggml_type, const uint8_t* row, int32_t num_cols);

QuantisedRow quantise(const float* x, int32_t num_cols);

Product exact_product(const WeightRow& weights, const QuantisedRow& x);
Product exact_product(const WeightRow& weights, const float* x);

// y[row] for one token with the contract's operations in its order. `x` serves float types, `quantised` the others.
float contract_product(const MatrixPart& part, int32_t row, const QuantisedRow& quantised, const float* x);

}  // namespace paceline::reference

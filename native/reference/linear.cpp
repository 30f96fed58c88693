// Plain loops for quantising and for the product (see linear.h).
#include "reference/linear.h"

#include <cmath>

#include "kernels/quant/half.h"
#include "kernels/quant/row_block.h"

namespace paceline::reference {
namespace {

using quant::RowBlock;

// The row's block as the packed bytes hold it.
RowBlock packed_block(const MatrixPart& part, int32_t row, int32_t block) {
  RowBlock out;
  visit_quantised(part.type, [&]<PackedType kType>() {
    constexpr BlockLayout layout = layout_of<kType>();
    constexpr int32_t kPer = layout.blocks_per_super();
    const int64_t tile_bytes = int64_t{part.num_cols / (kQuantBlock * kPer)} * layout.super_stride();
    uint8_t* super =
        const_cast<uint8_t*>(part.data) + row / kRowTile * tile_bytes + block / kPer * layout.super_stride();
    uint8_t* at = super + layout.super_bytes + block % kPer * layout.block_bytes();
    quant::load_row_block<kType>({super, at, row % kRowTile}, out);
  });
  return out;
}

int32_t zero_point(PackedType type) {
  int32_t zero = 0;
  visit_quantised(type, [&]<PackedType kType>() { zero = layout_of<kType>().zero_point; });
  return zero;
}

// Σ (q_w − zero) · q_x over channels [begin, end) of the block.
int32_t dot(const RowBlock& block, const int8_t* x, int32_t zero, int32_t begin, int32_t end) {
  int32_t sum = 0;
  for (int32_t k = begin; k < end; ++k) sum += (block.quants[k] - zero) * x[k];
  return sum;
}

float add_block(float y, PackedType type, const RowBlock& block, const int8_t* x, float x_scale) {
  const float scale = quant::half_to_float(block.scale), min = quant::half_to_float(block.min);
  const int32_t zero = zero_point(type);
  if (type == PackedType::q6k) {
    const float low =
        static_cast<float>(dot(block, x, zero, 0, 16)) * (scale * static_cast<int8_t>(block.sub_scale[0]));
    const float high =
        static_cast<float>(dot(block, x, zero, 16, 32)) * (scale * static_cast<int8_t>(block.sub_scale[1]));
    return y + (low + high) * x_scale;
  }
  int32_t x_sum = 0;
  for (int32_t k = 0; k < kQuantBlock; ++k) x_sum += x[k];
  const float sum = static_cast<float>(dot(block, x, zero, 0, kQuantBlock));
  const float scale_sum = x_scale * static_cast<float>(x_sum);
  if (type == PackedType::q4k || type == PackedType::q5k) {
    y = y + sum * ((scale * block.sub_scale[0]) * x_scale);
    return y - (min * block.sub_min) * scale_sum;
  }
  y = y + sum * (scale * x_scale);
  return zero == 0 ? y + min * scale_sum : y;
}

}  // namespace

QuantisedRow quantise(const float* x, int32_t num_cols) {
  QuantisedRow row;
  for (int32_t begin = 0; begin < num_cols; begin += kQuantBlock) {
    float amax = 0;
    bool is_finite = true;
    for (int32_t k = begin; k < begin + kQuantBlock; ++k) {
      is_finite = is_finite && std::isfinite(x[k]);
      amax = std::fmax(amax, std::fabs(x[k]));
    }
    const bool has_quants = is_finite && amax >= 0x1p-100f;
    const float inverse = has_quants ? 127.0f / amax : 0.0f;
    row.scale.push_back(has_quants ? amax / 127.0f : (is_finite ? 0.0f : NAN));
    for (int32_t k = begin; k < begin + kQuantBlock; ++k) {
      row.quants.push_back(has_quants ? static_cast<int8_t>(std::nearbyint(x[k] * inverse)) : int8_t{0});
    }
  }
  return row;
}

Product exact_product(const WeightRow& weights, const QuantisedRow& x) {
  Product product{};
  for (size_t k = 0; k < weights.value.size(); ++k) {
    const double activation = static_cast<double>(x.scale[k / kQuantBlock]) * x.quants[k];
    product.value += weights.value[k] * activation;
    product.magnitude += weights.magnitude[k] * std::fabs(activation);
  }
  return product;
}

Product exact_product(const WeightRow& weights, const float* x) {
  Product product{};
  for (size_t k = 0; k < weights.value.size(); ++k) {
    product.value += static_cast<double>(weights.value[k]) * x[k];
    product.magnitude += static_cast<double>(weights.magnitude[k]) * std::fabs(x[k]);
  }
  return product;
}

float contract_product(const MatrixPart& part, int32_t row, const QuantisedRow& quantised, const float* x) {
  float y = 0;
  if (part.type >= PackedType::f16) {
    std::vector<float> weights(part.num_cols);
    unpack_row(part, row, weights.data());
    for (int32_t k = 0; k < part.num_cols; ++k) y = y + weights[k] * x[k];
    return y;
  }
  for (int32_t block = 0; block < part.num_cols / kQuantBlock; ++block) {
    const RowBlock row_block = packed_block(part, row, block);
    y = add_block(y, part.type, row_block, quantised.quants.data() + block * kQuantBlock, quantised.scale[block]);
  }
  return y;
}

}  // namespace paceline::reference

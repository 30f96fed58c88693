// A target's kernel table, made of its 16 lanes and its entry points of the linear layer. One place to add a kernel for
// all targets.
#pragma once
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/sampling.h"
#include "paceline/kernels.h"

namespace paceline::kernels {

template <class Lanes>
consteval Kernels make_table(const char* name, QuantizeFn quantize, LinearFn linear) {
  return {
      .name = name,
      .quantize = quantize,
      .linear = linear,
      .rms_norm = rms_norm<Lanes>,
      .rope = rope<Lanes>,
      .gated = gated<Lanes>,
      .add = add<Lanes>,
      .scale = scale<Lanes>,
      .softcap = softcap<Lanes>,
      .kv_write = {kv_write<Lanes, int16_t>, kv_write<Lanes, int8_t>},
      .attend = {attend<Lanes, int16_t>, attend<Lanes, int8_t>},
      .fold = fold<Lanes>,
      .argmax = argmax<Lanes>,
      .race = race<Lanes>,
      .collect = collect<Lanes>,
      .far_mass = far_mass<Lanes>,
  };
}

}  // namespace paceline::kernels

// The kernel table of the target `portable`.
#include "paceline/kernels.h"

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/sampling.h"
#include "targets/portable/math.h"

namespace paceline::portable {

const Kernels& kernels() {
  static constexpr Kernels table = {
      .name = "portable",
      .quantize = quantize,
      .linear = linear,
      .rms_norm = kernels::rms_norm<Lanes>,
      .rope = kernels::rope<Lanes>,
      .gated = kernels::gated<Lanes>,
      .add = kernels::add<Lanes>,
      .scale = kernels::scale<Lanes>,
      .softcap = kernels::softcap<Lanes>,
      .kv_write = {kernels::kv_write<Lanes, int16_t>, kernels::kv_write<Lanes, int8_t>},
      .attend = {kernels::attend<Lanes, int16_t>, kernels::attend<Lanes, int8_t>},
      .fold = kernels::fold<Lanes>,
      .argmax = kernels::argmax<Lanes>,
      .race = kernels::race<Lanes>,
      .collect = kernels::collect<Lanes>,
      .far_mass = kernels::far_mass<Lanes>,
  };
  return table;
}

}  // namespace paceline::portable

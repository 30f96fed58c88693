// The kernel table of the target `avx512_vnni`.
#include "paceline/kernels.h"

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/sampling.h"
#include "targets/avx512_vnni/math.h"

namespace paceline::avx512_vnni {

const Kernels& kernels() {
  static constexpr Kernels table = {
      .name = "avx512_vnni",
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

}  // namespace paceline::avx512_vnni

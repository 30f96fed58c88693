// The kernel table of the target `avx512_vnni`.
#include "kernels/table.h"
#include "targets/avx512_vnni/math.h"
#include "targets/linear.h"

namespace paceline::avx512_vnni {

const Kernels& kernels() {
  static constexpr Kernels table = kernels::make_table<Lanes>("avx512_vnni", quantize, linear);
  return table;
}

}  // namespace paceline::avx512_vnni

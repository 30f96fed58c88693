// The kernel table of the target `avx2_vnni`.
#include "kernels/table.h"
#include "targets/avx2/math.h"
#include "targets/linear.h"

namespace paceline::avx2_vnni {

const Kernels& kernels() {
  static constexpr Kernels table = kernels::make_table<Lanes>("avx2_vnni", quantize, linear);
  return table;
}

}  // namespace paceline::avx2_vnni

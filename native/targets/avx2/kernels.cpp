// The kernel table of the target `avx2`.
#include "kernels/table.h"
#include "targets/avx2/math.h"
#include "targets/linear.h"

namespace paceline::avx2 {

const Kernels& kernels() {
  static constexpr Kernels table = kernels::make_table<Lanes>("avx2", quantize, linear);
  return table;
}

}  // namespace paceline::avx2

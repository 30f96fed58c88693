// The kernel table of the target `portable`.
#include "kernels/table.h"
#include "targets/linear.h"
#include "targets/portable/math.h"

namespace paceline::portable {

const Kernels& kernels() {
  static constexpr Kernels table = kernels::make_table<Lanes>("portable", quantize, linear);
  return table;
}

}  // namespace paceline::portable

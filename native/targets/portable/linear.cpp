// The linear layer for any CPU.
#include "targets/portable/simd.h"
// after the target's instructions:
#include "targets/linear_points.h"

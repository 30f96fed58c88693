// The linear layer for x86-64 with AVX2.
#include "targets/avx2/simd.h"
// after the target's instructions:
#include "targets/linear_points.h"

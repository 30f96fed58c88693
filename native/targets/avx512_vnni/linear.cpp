// The linear layer for x86-64 with AVX-512 F/BW/DQ/VL and VNNI.
#include "targets/avx512_vnni/simd.h"
// after the target's instructions:
#include "targets/linear_points.h"

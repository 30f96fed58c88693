#include "runtime/cpu.h"

namespace paceline {

CpuFeatures detect_cpu() {
  CpuFeatures cpu;
#if PACELINE_X86
  // The compiler's builtins also check that the operating system saves the wide registers (XGETBV).
  __builtin_cpu_init();
  cpu.avx2 = __builtin_cpu_supports("avx2");
  cpu.fma = __builtin_cpu_supports("fma");
  cpu.f16c = __builtin_cpu_supports("f16c");
  cpu.avx512f = __builtin_cpu_supports("avx512f");
  cpu.avx512bw = __builtin_cpu_supports("avx512bw");
  cpu.avx512dq = __builtin_cpu_supports("avx512dq");
  cpu.avx512vl = __builtin_cpu_supports("avx512vl");
  cpu.avx512vnni = __builtin_cpu_supports("avx512vnni");
  cpu.avx512vbmi = __builtin_cpu_supports("avx512vbmi");
  cpu.avx512bf16 = __builtin_cpu_supports("avx512bf16");
  cpu.gfni = __builtin_cpu_supports("gfni");
#endif
  return cpu;
}

}  // namespace paceline

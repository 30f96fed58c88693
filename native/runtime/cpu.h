// What this CPU can do, asked from the CPU itself (CPUID and the saved register state), once.
#pragma once

namespace paceline {

struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512dq = false;
  bool avx512vl = false;
  bool avx512vnni = false;
  bool avx512vbmi = false;
  bool avx512bf16 = false;
  bool gfni = false;
};

CpuFeatures detect_cpu();

}  // namespace paceline

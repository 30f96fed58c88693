#include "runtime/dispatch.h"

#include "runtime/cpu.h"

namespace paceline {
namespace {

#if PACELINE_X86
TargetInfo describe_avx512_vnni() {
  const CpuFeatures cpu = detect_cpu();
  const struct {
    const char* name;
    bool is_present;
  } needed[] = {
      {"avx2", cpu.avx2},
      {"fma", cpu.fma},
      {"f16c", cpu.f16c},
      {"avx512f", cpu.avx512f},
      {"avx512bw", cpu.avx512bw},
      {"avx512dq", cpu.avx512dq},
      {"avx512vl", cpu.avx512vl},
      {"avx512_vnni", cpu.avx512vnni},
      {"avx512_vbmi", cpu.avx512vbmi},
      {"avx512_bf16", cpu.avx512bf16},
      {"gfni", cpu.gfni},
  };
  std::string missing;
  for (const auto& feature : needed) {
    if (!feature.is_present) missing += std::string(missing.empty() ? "" : ", ") + feature.name;
  }
  const bool is_available = missing.empty();
  return {"avx512_vnni", is_available,
          is_available ? "this CPU has AVX-512 with VNNI, VBMI, BF16 and GFNI" : "this CPU lacks " + missing,
          is_available ? &avx512_vnni::kernels() : nullptr};
}
#endif

}  // namespace

std::vector<TargetInfo> list_targets() {
  std::vector<TargetInfo> targets;
#if PACELINE_X86
  targets.push_back(describe_avx512_vnni());
#else
  targets.push_back({"avx512_vnni", false, "not an x86-64 CPU", nullptr});
#endif
  targets.push_back({"portable", true, "plain C++, runs on every CPU", &portable::kernels()});
  return targets;
}

}  // namespace paceline

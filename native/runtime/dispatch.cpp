#include "runtime/dispatch.h"

#include "runtime/cpu.h"

namespace paceline {
namespace {

// What a target is for, what it needs, and its table; a build has the tables of its own architecture only.
struct Target {
  const char* name;
  Architecture architecture;
  int32_t register_bits;
  std::vector<Feature> needs;
  const char* strength;  // of the target, on a CPU that has what it needs
  const Kernels& (*kernels)();
};

#if defined(__x86_64__)
#define PACELINE_X86_TABLE(target) target::kernels
#else
#define PACELINE_X86_TABLE(target) nullptr
#endif

// Best first. The needs are those of the flags in CMakeLists.txt: change both.
std::vector<Target> known_targets() {
  using enum Feature;
  return {
      {"avx512_vnni",
       Architecture::x86_64,
       512,
       {avx2, fma, f16c, avx512f, avx512bw, avx512dq, avx512vl, avx512_vnni},
       "dot products of 64 bytes in one instruction",
       PACELINE_X86_TABLE(avx512_vnni)},
      {"avx2_vnni",
       Architecture::x86_64,
       256,
       {avx2, fma, f16c, avx_vnni},
       "dot products of 32 bytes in one instruction",
       PACELINE_X86_TABLE(avx2_vnni)},
      {"avx2",
       Architecture::x86_64,
       256,
       {avx2, fma, f16c},
       "dot products of 32 bytes by 16-bit sums",
       PACELINE_X86_TABLE(avx2)},
  };
}

// Why `target` cannot run on `cpu`; empty when it can.
std::string refusal(const Target& target, const Cpu& cpu) {
  if (target.architecture != cpu.architecture) {
    return std::string("for ") + name_of(target.architecture) + ", and this CPU is " + name_of(cpu.architecture);
  }
  std::string missing;
  for (const Feature feature : target.needs) {
    if (!cpu.has(feature)) missing += std::string(missing.empty() ? "" : ", ") + name_of(feature);
  }
  if (!missing.empty()) return "this CPU lacks " + missing;
  const bool is_saved = target.register_bits <= 128 || (target.register_bits == 256 ? cpu.saves_ymm : cpu.saves_zmm);
  if (!is_saved) {
    return "the operating system does not save the registers of " + std::to_string(target.register_bits) + " bits";
  }
  return target.kernels == nullptr ? std::string("not in this build, which is for another architecture") : "";
}

}  // namespace

std::vector<TargetInfo> list_targets(const Cpu& cpu) {
  std::vector<TargetInfo> targets;
  for (const Target& target : known_targets()) {
    const std::string why_not = refusal(target, cpu);
    const bool is_available = why_not.empty();
    targets.push_back({target.name, is_available, is_available ? target.strength : why_not,
                       is_available ? &target.kernels() : nullptr});
  }
  targets.push_back({"portable", true, "plain C++, runs on every CPU", &portable::kernels()});
  return targets;
}

std::vector<TargetInfo> list_targets() { return list_targets(detect_cpu()); }

}  // namespace paceline

#include "runtime/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace paceline {
namespace {

#if defined(__x86_64__)
struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers ask(uint32_t leaf, uint32_t part) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx);  // leaves that do not exist stay 0
  return r;
}

// Source: Intel SDM volume 2, CPUID; volume 1, §13.3 (XCR0: bits 1-2 xmm and ymm, 5-7 masks and zmm).
Cpu detect() {
  Cpu cpu{.architecture = Architecture::x86_64};
  const Registers basic = ask(1, 0), extended = ask(7, 0), more = ask(7, 1);
  const bool has_xgetbv = basic.ecx >> 27 & 1;
  uint32_t saved = 0;
  if (has_xgetbv) {
    uint32_t high;
    asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  }
  cpu.saves_ymm = (saved & 0x06) == 0x06;
  cpu.saves_zmm = (saved & 0xe6) == 0xe6;
  const struct {
    Feature feature;
    uint32_t word;
    int32_t bit;
  } bits[] = {
      {Feature::fma, basic.ecx, 12},         {Feature::f16c, basic.ecx, 29},
      {Feature::avx2, extended.ebx, 5},      {Feature::avx512f, extended.ebx, 16},
      {Feature::avx512dq, extended.ebx, 17}, {Feature::avx512bw, extended.ebx, 30},
      {Feature::avx512vl, extended.ebx, 31}, {Feature::avx512_vnni, extended.ecx, 11},
      {Feature::avx_vnni, more.eax, 4},
  };
  for (const auto& [feature, word, bit] : bits) {
    if (word >> bit & 1) cpu.add(feature);
  }
  return cpu;
}
#elif defined(__aarch64__)
Cpu detect() { return {.architecture = Architecture::aarch64}; }
#else
Cpu detect() { return {}; }
#endif

}  // namespace

const char* name_of(Feature feature) {
  constexpr const char* kNames[] = {"avx2",     "fma",      "f16c",     "avx_vnni",   "avx512f",
                                    "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"};
  return kNames[static_cast<int32_t>(feature)];
}

const char* name_of(Architecture architecture) {
  constexpr const char* kNames[] = {"x86-64", "AArch64", "another architecture"};
  return kNames[static_cast<int32_t>(architecture)];
}

Cpu detect_cpu() { return detect(); }

}  // namespace paceline

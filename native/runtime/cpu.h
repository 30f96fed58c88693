// What this CPU can do, asked from the CPU itself: CPUID, and XGETBV for the registers that the operating system saves.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

namespace paceline {

enum class Architecture : int32_t { x86_64, aarch64, other };

// What a target may need, by the names that /proc/cpuinfo has.
enum class Feature : int32_t {
  avx2,
  fma,
  f16c,
  avx_vnni,
  avx512f,
  avx512bw,
  avx512dq,
  avx512vl,
  avx512_vnni,
};

const char* name_of(Feature feature);
const char* name_of(Architecture architecture);

// A CPU as far as targets care. Plain data, so that a choice can be explained for any CPU.
struct Cpu {
  Architecture architecture = Architecture::other;
  uint32_t features = 0;   // bit i: Feature(i)
  bool saves_ymm = false;  // the operating system keeps the 256-bit registers of a thread that is not running
  bool saves_zmm = false;  // the same of the 512-bit registers and masks

  bool has(Feature feature) const { return features >> static_cast<int32_t>(feature) & 1; }
  void add(Feature feature) { features |= 1u << static_cast<int32_t>(feature); }
};

Cpu detect_cpu();

}  // namespace paceline

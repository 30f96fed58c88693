// Which kernel tables run here: every known target, best first, each with the reason for or against it.
#pragma once
#include <string>
#include <vector>

#include "paceline/kernels.h"
#include "runtime/cpu.h"

namespace paceline {

// One target. `reason` says why it can or cannot run here.
struct TargetInfo {
  std::string name;
  bool is_available;
  std::string reason;
  const Kernels* kernels;  // nullptr when not available
};

// Every target as `cpu` allows, best first; the last (portable) always runs.
std::vector<TargetInfo> list_targets(const Cpu& cpu);

// The same for the CPU that this runs on.
std::vector<TargetInfo> list_targets();

}  // namespace paceline

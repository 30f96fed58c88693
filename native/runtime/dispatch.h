// Which kernel table runs here: the best target that this CPU has, or the one asked for by name, with the reason.
#pragma once
#include <string>
#include <vector>

#include "paceline/kernels.h"

namespace paceline {

// One target of this build. `reason` says why it can or cannot run here.
struct TargetInfo {
  std::string name;
  bool is_available;
  std::string reason;
  const Kernels* kernels;  // nullptr when not available
};

// Every target, best first; the last (portable) always runs.
std::vector<TargetInfo> list_targets();

}  // namespace paceline

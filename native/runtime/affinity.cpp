#include "runtime/affinity.h"

namespace paceline {

#ifdef __linux__

std::vector<int32_t> allowed_cpus() {
  std::vector<int32_t> cpus;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

Pin::Pin(int32_t cpu) {
  if (cpu < 0 || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  is_set_ = sched_setaffinity(0, sizeof only, &only) == 0;
}

Pin::~Pin() {
  if (is_set_) sched_setaffinity(0, sizeof before_, &before_);
}

#else

std::vector<int32_t> allowed_cpus() { return {}; }
Pin::Pin(int32_t) {}
Pin::~Pin() = default;

#endif

}  // namespace paceline

// Which CPUs this process may use, and keeping a thread on one of them for a while.
#pragma once
#include <cstdint>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace paceline {

// In ascending order; empty where the system does not say.
std::vector<int32_t> allowed_cpus();

// Keeps the calling thread on `cpu` until destroyed, then lets it run where it could before. -1, or a refusal: does
// nothing.
class Pin {
 public:
  explicit Pin(int32_t cpu);
  ~Pin();
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
#ifdef __linux__
  cpu_set_t before_;
#endif
  bool is_set_ = false;
};

}  // namespace paceline

// What every test program says and counts: claims that did not hold.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace paceline {

inline int32_t num_failures = 0;

inline void claim(bool holds, const std::string& text) {
  if (holds) return;
  ++num_failures;
  if (num_failures < 20) std::printf("FAILED: %s\n", text.c_str());
}

inline void claim_near(double value, double expected, double tolerance, const std::string& text) {
  claim(std::abs(value - expected) <= tolerance,
        text + ": " + std::to_string(value) + ", expected " + std::to_string(expected));
}

inline std::vector<float> normals(size_t count, uint32_t seed, float spread = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

}  // namespace paceline

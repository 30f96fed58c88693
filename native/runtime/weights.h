// Every weight of a model, repacked once into one region of memory; known by small ids from then on.
#pragma once
#include <cstdint>
#include <vector>

#include "paceline/linear.h"
#include "runtime/memory.h"
#include "runtime/threads.h"

namespace paceline {

// One row range of a matrix as its file stores it.
struct SourcePart {
  int32_t ggml_type;
  int32_t num_rows;
  int32_t num_cols;
  const uint8_t* data;
};

struct Matrix {
  std::vector<MatrixPart> parts;
  int32_t num_rows = 0;
  int32_t num_cols = 0;
};

class Weights {
 public:
  // Room for matrices of `total_bytes` (sum of packed_bytes of their parts).
  explicit Weights(size_t total_bytes) : region_(total_bytes) {}

  // Packs a matrix with all threads. Throws std::invalid_argument on a type without packed form, or when out of room.
  int32_t add_matrix(ThreadPool& pool, const std::vector<SourcePart>& parts);
  int32_t add_vector(const float* values, size_t count);
  int32_t add_frequencies(const double* values, size_t count);

  const std::vector<Matrix>& matrices() const { return matrices_; }
  const std::vector<std::vector<float>>& vectors() const { return vectors_; }
  const std::vector<std::vector<double>>& frequencies() const { return frequencies_; }

 private:
  Mapping region_;
  size_t used_ = 0;
  std::vector<Matrix> matrices_;
  std::vector<std::vector<float>> vectors_;
  std::vector<std::vector<double>> frequencies_;
};

}  // namespace paceline

#include "runtime/weights.h"

#include <stdexcept>

namespace paceline {
namespace {

struct PackTask {
  const SourcePart* source;
  uint8_t* packed;
  int32_t num_threads;
};

void pack_share(void* context, int32_t thread) {
  const auto& task = *static_cast<const PackTask*>(context);
  const SourcePart& source = *task.source;
  const int32_t num_tiles = (source.num_rows + kRowTile - 1) / kRowTile;
  const Range tiles = share(num_tiles, thread, task.num_threads);
  pack_tiles(source.ggml_type, source.data, source.num_rows, source.num_cols, task.packed, tiles.begin, tiles.end);
}

}  // namespace

int32_t Weights::add_matrix(ThreadPool& pool, const std::vector<SourcePart>& parts) {
  Matrix matrix;
  for (const SourcePart& source : parts) {
    const int32_t packed_type = packed_type_for(source.ggml_type);
    if (packed_type < 0) throw std::invalid_argument("a matrix part's type has no packed form");
    const auto type = static_cast<PackedType>(packed_type);
    const size_t bytes = packed_bytes(type, source.num_rows, source.num_cols);
    if (bytes > region_.bytes() - used_) throw std::invalid_argument("the weight region is full");
    PackTask task{&source, region_.data() + used_, pool.num_threads()};
    pool.run(pack_share, &task);
    matrix.parts.push_back({type, source.num_rows, source.num_cols, task.packed});
    matrix.num_rows += source.num_rows;
    matrix.num_cols = source.num_cols;
    used_ += bytes;
  }
  matrices_.push_back(std::move(matrix));
  return static_cast<int32_t>(matrices_.size()) - 1;
}

int32_t Weights::add_vector(const float* values, size_t count) {
  vectors_.emplace_back(values, values + count);
  return static_cast<int32_t>(vectors_.size()) - 1;
}

int32_t Weights::add_frequencies(const double* values, size_t count) {
  frequencies_.emplace_back(values, values + count);
  return static_cast<int32_t>(frequencies_.size()) - 1;
}

}  // namespace paceline

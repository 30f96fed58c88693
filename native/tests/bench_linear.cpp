// Measures the linear kernels: GB/s of weights for one token, TOPS for several.
//
//   bench_linear [--target name] [type …]     the best target and all types unless named; K = 1536
//
// A time is the median of the calls of 0.2 s, in CPU time of the slowest thread, so that other work on the machine
// disturbs less (it still takes bandwidth). Two sizes: `memory` has more weights than any cache, `cache` fits the L2
// cache of a core and shows the kernel alone. The first lines say how fast plain reading of the same memory is.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "paceline/kernels.h"
#include "runtime/dispatch.h"

namespace paceline {
namespace {

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr int32_t kCols = 1536;
constexpr size_t kMemoryBytes = size_t{256} << 20;
constexpr size_t kCacheBytes = size_t{512} << 10;

struct NamedType {
  const char* name;
  PackedType type;
};
constexpr NamedType kTypes[] = {{"q4s", PackedType::q4s},   {"q4a", PackedType::q4a}, {"q4k", PackedType::q4k},
                                {"q5s", PackedType::q5s},   {"q5a", PackedType::q5a}, {"q5k", PackedType::q5k},
                                {"q6k", PackedType::q6k},   {"q8s", PackedType::q8s}, {"f16", PackedType::f16},
                                {"bf16", PackedType::bf16}, {"f32", PackedType::f32}};

uint8_t* huge_pages(size_t bytes) {
  const size_t page = size_t{2} << 20;
  const size_t rounded = (bytes + page - 1) / page * page;
  void* memory = std::aligned_alloc(page, rounded);
#ifdef __linux__
  madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0x2c, rounded);  // f16 0x2c2c = 0.065: no subnormals anywhere
  return static_cast<uint8_t*>(memory);
}

// Seconds of one call of work(thread, num_threads), as said above.
template <class Work>
double median_s(int num_threads, Work work) {
  std::vector<double> medians(num_threads);
  std::vector<std::thread> threads;
  const auto repeat = [&](int index) {
    std::vector<double> times;
    const double start = now_s();
    while (times.size() < 3 || now_s() - start < 0.2) {
      const double before = now_s();
      work(index, num_threads);
      times.push_back(now_s() - before);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    medians[index] = times[times.size() / 2];
  };
  for (int index = 1; index < num_threads; ++index) threads.emplace_back(repeat, index);
  repeat(0);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(medians.begin(), medians.end());
}

void measure_reading(const uint8_t* memory, int num_threads) {
  volatile uint64_t sink = 0;
  const double seconds = median_s(num_threads, [&](int index, int count) {
    const auto* words = reinterpret_cast<const uint64_t*>(memory);
    const size_t begin = kMemoryBytes / 8 * index / count, end = kMemoryBytes / 8 * (index + 1) / count;
    uint64_t sum = 0;
    for (size_t i = begin; i < end; ++i) sum += words[i];
    sink = sum;
  });
  std::printf("read  memory  threads %d          %9.1f us  %6.1f GB/s\n", num_threads, seconds * 1e6,
              kMemoryBytes / seconds * 1e-9);
}

struct Size {
  const char* name;
  size_t bytes;
  std::vector<int32_t> tokens;
};

void measure(const Kernels& kernels, const NamedType& type, const Size& size, const uint8_t* weights, int num_threads) {
  const size_t tile_bytes = packed_bytes(type.type, kRowTile, kCols);
  const int32_t rows = static_cast<int32_t>(size.bytes / tile_bytes) * kRowTile;
  const MatrixPart part{type.type, rows, kCols, weights};
  const int32_t max_tokens = size.tokens.back();
  std::vector<float> x(static_cast<size_t>(max_tokens) * kCols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7919 % 255) - 127);
  uint8_t* activations = huge_pages(activation_bytes(max_tokens, kCols));
  float* y = reinterpret_cast<float*>(huge_pages(static_cast<size_t>(max_tokens) * rows * sizeof(float)));
  for (int32_t tokens : size.tokens) {
    kernels.quantize(x.data(), kCols, tokens, kCols, activations, 0, tokens);
    const LinearTask task{&part, 1, tokens, kCols, activations, x.data(), kCols, nullptr, y, rows};
    const int32_t tiles = num_tiles(task);
    const double seconds = median_s(num_threads, [&](int index, int count) {
      kernels.linear(task, tiles * index / count, tiles * (index + 1) / count);
    });
    const double bytes = static_cast<double>(tile_bytes) * (rows / kRowTile);
    std::printf("%-5s %-7s threads %d  M %4d  %9.1f us  %6.1f GB/s  %6.3f TOPS\n", type.name, size.name, num_threads,
                tokens, seconds * 1e6, bytes / seconds * 1e-9, 2.0 * rows * kCols * tokens / seconds * 1e-12);
    std::fflush(stdout);
  }
  std::free(activations);
  std::free(y);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  using namespace paceline;
  std::vector<std::string> wanted(argv + 1, argv + argc);
  std::string target_name;
  if (wanted.size() >= 2 && wanted[0] == "--target") {
    target_name = wanted[1];
    wanted.erase(wanted.begin(), wanted.begin() + 2);
  }
  const Kernels* kernels = nullptr;
  for (const TargetInfo& target : list_targets()) {
    if (kernels == nullptr && target.is_available && (target_name.empty() || target.name == target_name)) {
      kernels = target.kernels;
    }
  }
  if (kernels == nullptr) {
    std::fprintf(stderr, "This machine has no target `%s`.\n", target_name.c_str());
    return 1;
  }
  std::printf("target %s\n", kernels->name);
  const uint8_t* weights = huge_pages(kMemoryBytes + (size_t{1} << 20));
  const std::vector<Size> sizes = {{"memory", kMemoryBytes, {1, 2, 4, 5, 8}},
                                   {"cache", kCacheBytes, {1, 4, 5, 8, 16, 64, 512}}};
  for (int num_threads : {1, 2}) measure_reading(weights, num_threads);
  for (const NamedType& type : kTypes) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), type.name) == wanted.end()) continue;
    for (int num_threads : {1, 2}) {
      for (const Size& size : sizes) measure(*kernels, type, size, weights, num_threads);
    }
  }
  return 0;
}

// The thread pool: the caller is worker 0, the others wait for its next call.
//
// The one idea: a step is one call. Inside it all workers run the same function and meet at barriers of a few hundred
// nanoseconds; between calls a worker spins for a moment (the next step usually follows at once), then sleeps in the
// kernel, so that an idle engine burns no CPU.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace paceline {

class ThreadPool {
 public:
  using Task = void (*)(void* context, int32_t thread);

  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const { return num_threads_; }

  // Runs task(context, i) on every worker i, on the caller as worker 0; returns when all are done. One caller at a
  // time.
  void run(Task task, void* context);

  // All workers meet; only inside a task.
  void barrier();

 private:
  void work(int32_t thread);
  void stop();

  // Barrier state: one line, shared on purpose; a waiting core sees the release with a single miss.
  struct alignas(64) Meeting {
    std::atomic<int32_t> num_arrived{0};
    std::atomic<uint32_t> epoch{0};
  };
  struct alignas(64) Call {
    std::atomic<uint32_t> epoch{0};
    std::atomic<bool> is_stopping{false};
    Task task = nullptr;
    void* context = nullptr;
  };

  Meeting meeting_;
  Call call_;
  int32_t num_threads_;
  std::vector<int32_t> cpus_;  // of each worker, or empty: wherever the system likes
  std::vector<std::thread> workers_;
};

// The range of `count` items that thread `thread` of `num_threads` takes: contiguous, equal to within one.
struct Range {
  int32_t begin;
  int32_t end;
};
inline Range share(int32_t count, int32_t thread, int32_t num_threads) {
  const auto at = [&](int64_t t) { return static_cast<int32_t>(count * t / num_threads); };
  return {at(thread), at(thread + 1)};
}

}  // namespace paceline

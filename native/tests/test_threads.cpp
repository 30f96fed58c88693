// The thread pool: every worker runs, barriers hold, an idle pool sleeps and wakes.
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <vector>

#include "runtime/threads.h"

namespace paceline {
namespace {

int32_t num_failures = 0;

void claim(bool holds, const char* text) {
  if (holds) return;
  ++num_failures;
  std::printf("FAILED: %s\n", text);
}

struct Relay {
  ThreadPool& pool;
  std::vector<int64_t> sums;
  int32_t num_rounds;
  std::atomic<int32_t> num_wrong{0};
};

// Round r: everyone adds r to its own sum, meets, and must see every other sum complete.
void run_relay(void* context, int32_t thread) {
  auto& relay = *static_cast<Relay*>(context);
  int64_t expected = 0;
  for (int32_t round = 1; round <= relay.num_rounds; ++round) {
    relay.sums[static_cast<size_t>(thread)] += round;
    expected += round;
    relay.pool.barrier();
    for (const int64_t sum : relay.sums) relay.num_wrong += sum != expected;
    relay.pool.barrier();
  }
}

void test_barriers_hold() {
  for (const int32_t num_threads : {1, 2, 3, 5}) {
    ThreadPool pool(num_threads);
    for (int32_t call = 0; call < 20; ++call) {
      Relay relay{pool, std::vector<int64_t>(static_cast<size_t>(num_threads)), 50};
      pool.run(run_relay, &relay);
      claim(relay.num_wrong == 0, "a barrier lets nobody pass early");
      claim(relay.sums[static_cast<size_t>(num_threads) - 1] == 50 * 51 / 2, "every worker ran");
    }
  }
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void test_idle_pool_sleeps_and_wakes() {
  ThreadPool pool(3);
  Relay relay{pool, std::vector<int64_t>(3), 3};
  pool.run(run_relay, &relay);
  const double before = cpu_seconds();
  const timespec rest{0, 300'000'000};
  nanosleep(&rest, nullptr);
  claim(cpu_seconds() - before < 0.02, "an idle pool uses no CPU");
  relay.sums.assign(3, 0);
  pool.run(run_relay, &relay);
  claim(relay.sums[2] == 6 && relay.num_wrong == 0, "a sleeping pool wakes");
}

void test_shares_cover_everything_once() {
  for (int32_t count = 0; count < 40; ++count) {
    int32_t next = 0;
    for (int32_t thread = 0; thread < 7; ++thread) {
      const Range range = share(count, thread, 7);
      claim(range.begin == next && range.end >= range.begin, "shares are adjacent");
      next = range.end;
    }
    claim(next == count, "shares cover everything");
  }
}

}  // namespace
}  // namespace paceline

int main() {
  paceline::test_barriers_hold();
  paceline::test_idle_pool_sleeps_and_wakes();
  paceline::test_shares_cover_everything_once();
  std::printf("%d failed\n", paceline::num_failures);
  return paceline::num_failures == 0 ? 0 : 1;
}

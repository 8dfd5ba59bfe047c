#include "kernels/base/thread_pool.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::base {
namespace {

TEST(ThreadPoolTest, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> visits(count);
        pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end, int worker) {
          EXPECT_LT(begin, end);
          EXPECT_LE(end - begin, grain);
          EXPECT_TRUE(worker >= 0 && worker < threads);
          for (int64_t i = begin; i < end; ++i) visits[i].fetch_add(1);
        });
        for (int64_t i = 0; i < count; ++i) EXPECT_EQ(visits[i].load(), 1) << i << " of " << count;
      }
    }
  }
}

// After a loop, the caller sees the plain writes of the workers. In a loop, the workers see the
// writes of the caller. A race detector checks this in each loop.
TEST(ThreadPoolTest, PublishesPlainMemoryBothWays) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  constexpr int kLoops = 3000;
  for (int loop = 0; loop < kLoops; ++loop) {
    const int64_t step = loop % 7;
    pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[i] += step;
    });
    for (const int64_t value : values) ASSERT_EQ(value, values[0]);
  }
  int64_t expected = 0;
  for (int loop = 0; loop < kLoops; ++loop) expected += loop % 7;
  EXPECT_EQ(values[0], expected);
}

TEST(ThreadPoolTest, WorkerIndexesScratchAlone) {
  ThreadPool pool(3);
  std::vector<int64_t> scratch(3, 0);  // not atomic: two bodies with one worker number would race
  for (int loop = 0; loop < 200; ++loop) {
    pool.ParallelFor(
        50, 1, [&](int64_t begin, int64_t end, int worker) { scratch[worker] += end - begin; });
  }
  EXPECT_EQ(scratch[0] + scratch[1] + scratch[2], 200 * 50);
}

// Two ranges wait for each other, so they end only if two threads run them. The pool must also be
// parallel after a pause in which the worker slept.
TEST(ThreadPoolTest, RunsRangesAtTheSameTime) {
  ThreadPool pool(2);
  volatile uint64_t busy = 0;
  for (int loop = 0; loop < 20; ++loop) {
    for (int i = 0; i < loop * 100000; ++i) busy = busy * 3 + 1;
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, 1, [&](int64_t, int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(ThreadPoolTest, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(1 + i % 5);
}

TEST(ThreadPoolDeathTest, RejectsNoThreads) { EXPECT_DEATH(ThreadPool(0), "a pool of 0 threads"); }

}  // namespace
}  // namespace tidepool::base

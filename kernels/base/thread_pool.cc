#include "kernels/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/mutex.h"

namespace tidepool::base {
namespace {

// How long a worker spins before it sleeps. A forward pass has hundreds of loops, which take 20 to
// 200 us each, with short gaps. A worker that spins during the gap joins the next loop within a
// microsecond, while waking up takes tens of microseconds. A worker of an idle process sleeps, and
// uses no CPU.
constexpr auto kSpinTime = std::chrono::microseconds(150);
constexpr int kSpinsPerClockRead = 64;
// Number of spins after which the caller yields its core while it waits for the last range of a
// worker. On a busy machine, that worker may need the core.
constexpr int kSpinsBeforeYield = 2000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The gate contains the number of the loop, whether workers may join the loop, and the number of
// workers in the loop: number << 17 | open << 16 | inside. Because it is a single word, joining and
// closing a loop cannot race.
constexpr uint64_t kInsideMask = 0xffff;
constexpr uint64_t kOpen = 1 << 16;
constexpr uint64_t kNumberUnit = 1 << 17;

constexpr uint64_t LoopNumber(uint64_t gate) { return gate / kNumberUnit; }

}  // namespace

struct ThreadPool::State {
  using Body = absl::FunctionRef<void(int64_t, int64_t, int)>;

  // Runs ranges of the current loop, until there are no more.
  void RunRanges(int worker) {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(count, begin + grain), worker);
    }
  }

  bool HasNewLoop(uint64_t seen) const {
    const uint64_t now = gate.load(std::memory_order_seq_cst);
    return (now & kOpen) != 0 && LoopNumber(now) != seen;
  }

  // Returns when a loop other than `seen` is open, or when the pool stops.
  void AwaitLoop(uint64_t seen) {
    const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
    while (std::chrono::steady_clock::now() < deadline) {
      for (int i = 0; i < kSpinsPerClockRead; ++i) {
        if (HasNewLoop(seen) || stopping.load(std::memory_order_relaxed)) return;
        Pause();
      }
    }
    MutexLock lock(&mutex);
    // This is sequentially consistent with ParallelFor, which opens the gate and then reads
    // `sleepers`. At least one of the two threads sees what the other wrote, so no loop is missed.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (!HasNewLoop(seen) && !stopping.load(std::memory_order_relaxed)) wake.Wait(&mutex);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  void RunWorker(int worker) {
    uint64_t seen = 0;
    while (!stopping.load(std::memory_order_relaxed)) {
      uint64_t now = gate.load(std::memory_order_acquire);
      if ((now & kOpen) == 0 || LoopNumber(now) == seen) {
        AwaitLoop(seen);
        continue;
      }
      if (!gate.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) continue;
      seen = LoopNumber(now);
      RunRanges(worker);
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<uint64_t> gate{0};
  // The current loop. It is only written while the gate is closed and no worker is in the loop. It
  // is in the cache line of the gate, so that a worker that joins gets both together.
  const Body* body = nullptr;
  int64_t count = 0;
  int64_t grain = 1;
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};
  Mutex mutex;
  CondVar wake;
  std::vector<std::thread> workers;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  CHECK(threads >= 1 && threads <= 1024) << "a pool of " << threads << " threads";
  for (int worker = 1; worker < threads; ++worker) {
    state_->workers.emplace_back([state = state_.get(), worker] { state->RunWorker(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&state_->mutex);
    state_->stopping.store(true, std::memory_order_relaxed);
  }
  state_->wake.NotifyAll();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             absl::FunctionRef<void(int64_t, int64_t, int)> body) {
  CHECK(grain >= 1) << "grain " << grain;
  if (count <= 0) return;
  State& state = *state_;
  state.body = &body;
  state.count = count;
  state.grain = grain;
  state.next.store(0, std::memory_order_relaxed);
  if (state.workers.empty() || count <= grain) {
    state.RunRanges(0);
    return;
  }
  const uint64_t shut = state.gate.load(std::memory_order_relaxed);
  state.gate.store(shut + kNumberUnit + kOpen, std::memory_order_seq_cst);
  if (state.sleepers.load(std::memory_order_seq_cst) > 0) {
    // A worker may be between its last look at the gate and its sleep. Locking and unlocking makes
    // sure that it also gets the notification.
    { MutexLock lock(&state.mutex); }
    state.wake.NotifyAll();
  }
  state.RunRanges(0);
  // No range is left, so no more workers may join. The workers in the loop finish their last
  // ranges.
  state.gate.fetch_and(~kOpen, std::memory_order_relaxed);
  for (int spins = 0; (state.gate.load(std::memory_order_acquire) & kInsideMask) != 0; ++spins) {
    if (spins < kSpinsBeforeYield) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace tidepool::base

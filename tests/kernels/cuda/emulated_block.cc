#include "tests/kernels/cuda/emulated_block.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "tests/kernels/cuda/fiber_pool.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kWordBytes = 4;
constexpr int16_t kManyWarps = -1;
constexpr int16_t kLanesOfWarp = -2;  // the number of the warp is subtracted from this

thread_local EmulatedBlock* running_block = nullptr;

int WarpOf(int thread) { return thread / kWarpLanes; }

}  // namespace

EmulatedBlock::EmulatedBlock(uint64_t seed)
    : random_(seed),
      fibers_(std::make_unique<FiberPool>([this](int thread) { RunThread(thread); })) {}

EmulatedBlock::~EmulatedBlock() = default;

EmulatedBlock& EmulatedBlock::Current() {
  CHECK(running_block != nullptr) << "device code outside of a kernel";
  return *running_block;
}

// splitmix64
uint64_t EmulatedBlock::Random() {
  uint64_t z = random_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void EmulatedBlock::Shuffle() {
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[Random() % i]);
}

void EmulatedBlock::RunThread(int thread) {
  (*kernel_)();
  slots_[thread].reset();
  states_[thread] = State::kDone;
  ++done_;
}

std::string EmulatedBlock::Run(const std::function<void()>& kernel, const LaunchShape& shape,
                               const Grid& block) {
  const auto [grid, threads, shared_bytes] = shape;
  kernel_ = &kernel;
  grid_ = grid;
  block_ = block;
  threads_ = threads;
  arrived_ = done_ = 0;
  error_.clear();
  if (order_.size() != static_cast<size_t>(threads)) {
    order_.resize(threads);
    std::iota(order_.begin(), order_.end(), 0);
  }
  Shuffle();
  states_.assign(threads, State::kReady);
  slots_.assign(threads, std::any());
  warps_.assign(threads / kWarpLanes, Warp());
  shared_.assign(shared_bytes, std::byte{0xff});
  shadow_.resize((shared_bytes + kWordBytes - 1) / kWordBytes * kWordBytes);
  first_clock_ = ++clock_;
  EmulatedBlock* const outer = std::exchange(running_block, this);
  while (done_ < threads && error_.empty()) {
    bool ran = false;
    for (const int thread : order_) {
      if (states_[thread] != State::kReady) continue;
      ran = true;
      thread_ = thread;
      fibers_->Resume(thread);
      if (!error_.empty()) break;
    }
    if (!ran) error_ = Stuck();
  }
  running_block = outer;
  if (!error_.empty()) {
    for (int t = 0; t < threads; ++t) {
      if (states_[t] != State::kDone) fibers_->Abandon(t);
    }
  }
  return error_;
}

std::string EmulatedBlock::Place() const {
  return absl::StrCat("block ", block_.x, ",", block_.y, ",", block_.z, " thread ", thread_);
}

void EmulatedBlock::Fail(std::string message) {
  {
    // The stack is never unwound after this block. So objects that are still on it must own no
    // memory.
    const std::string moved = std::move(message);
    error_ = absl::StrCat(moved, " (", Place(), ")");
  }
  fibers_->Pause();
  CHECK(false) << "a failed block was resumed";
  abort();
}

std::string EmulatedBlock::Stuck() const {
  int at_barrier = 0;
  std::string exchanges;
  for (int t = 0; t < threads_; ++t) at_barrier += states_[t] == State::kAtBarrier ? 1 : 0;
  for (size_t w = 0; w < warps_.size(); ++w) {
    if (warps_[w].arrived == 0) continue;
    absl::StrAppend(&exchanges, "; ", warps_[w].arrived, " lanes of warp ", w,
                    " wait for the others");
  }
  return absl::StrCat("divergence: ", done_, " of ", threads_, " threads ended, ", at_barrier,
                      " wait at a barrier", exchanges, " (block ", block_.x, ",", block_.y, ",",
                      block_.z, ")");
}

void EmulatedBlock::Barrier() {
  if (++arrived_ < threads_) {
    states_[thread_] = State::kAtBarrier;
    fibers_->Pause();
    return;
  }
  arrived_ = 0;
  ++clock_;
  std::fill(states_.begin(), states_.end(), State::kReady);
}

void EmulatedBlock::MakeExchange(Exchange exchange, LaneSlot* slot) {
  Warp& warp = warps_[WarpOf(thread_)];
  if (warp.arrived > 0 && warp.exchange != exchange) {
    Fail("divergence: lanes of a warp make different exchanges");
  }
  warp.exchange = exchange;
  warp.slots[thread_ % kWarpLanes] = slot;
  if (++warp.arrived < kWarpLanes) {
    states_[thread_] = State::kAtExchange;
    fibers_->Pause();
    return;
  }
  warp.arrived = 0;
  exchange(warp.slots);
  const int first = thread_ / kWarpLanes * kWarpLanes;
  for (int t = first; t < first + kWarpLanes; ++t) states_[t] = State::kReady;
}

void EmulatedBlock::BarrierOfWarp() {
  LaneSlot slot;
  MakeExchange([](LaneSlot* const*) { ++Current().warps_[WarpOf(Current().thread_)].clock; },
               &slot);
}

void EmulatedBlock::CheckRange(int first, int bytes, int alignment) {
  if (first < 0 || first + bytes > static_cast<int>(shared_.size())) {
    Fail(absl::StrCat("access to bytes ", first, " to ", first + bytes, " of ", shared_.size(),
                      " bytes of shared memory"));
  }
  if (first % alignment != 0) {
    Fail(absl::StrCat("misaligned access to byte ", first, " of shared memory"));
  }
}

// Returns whether an access of thread `other` (or of lanes of a warp) is ordered before the next
// access of this thread.
bool EmulatedBlock::Ordered(int other, uint32_t clock, uint32_t warp_clock) const {
  if (clock < clock_ || other == thread_) return true;
  if (other == kManyWarps) return false;
  const int warp = other >= 0 ? WarpOf(other) : kLanesOfWarp - other;
  return warp == WarpOf(thread_) && warp_clock < warps_[warp].clock;
}

template <typename Visit>
void EmulatedBlock::VisitShadow(int first, int bytes, Visit visit) {
  if (first % kWordBytes == 0 && bytes % kWordBytes == 0) {
    for (int i = first; i < first + bytes; i += kWordBytes) {
      if (shadow_[i].whole) {
        visit(i, shadow_[i]);
      } else {
        for (int j = i; j < i + kWordBytes; ++j) visit(j, shadow_[j]);
      }
    }
    return;
  }
  for (int i = first; i < first + bytes; ++i) {
    ByteShadow* const word = &shadow_[i - i % kWordBytes];
    if (word->whole) {
      word->whole = false;
      for (int j = 1; j < kWordBytes; ++j) word[j] = word[0];
    }
    visit(i, shadow_[i]);
  }
}

std::byte* EmulatedBlock::Read(int first, int bytes, int alignment) {
  CheckRange(first, bytes, alignment);
  const int warp = WarpOf(thread_);
  const uint32_t warp_clock = warps_[warp].clock;
  VisitShadow(first, bytes, [&](int i, ByteShadow& s) {
    if (s.write_clock < first_clock_) {
      Fail(absl::StrCat("byte ", i, " of shared memory is read before it is written"));
    }
    if (!Ordered(s.writer, s.write_clock, s.write_warp_clock)) {
      Fail(absl::StrCat("race: byte ", i, " of shared memory was written by thread ", s.writer,
                        " and is read without a barrier in between"));
    }
    // Reads before the last barrier of the block or of the warp cannot race any more, so their
    // threads are forgotten.
    const int other = s.reader >= 0            ? WarpOf(s.reader)
                      : s.reader == kManyWarps ? -1
                                               : kLanesOfWarp - s.reader;
    if (s.read_clock != clock_ || (other == warp && s.read_warp_clock < warp_clock)) {
      s.reader = static_cast<int16_t>(thread_);
    } else if (s.reader != thread_) {
      s.reader = other == warp ? static_cast<int16_t>(kLanesOfWarp - warp) : kManyWarps;
    }
    s.read_clock = clock_;
    s.read_warp_clock = warp_clock;
  });
  return shared_.data() + first;
}

std::byte* EmulatedBlock::Write(int first, int bytes, int alignment) {
  CheckRange(first, bytes, alignment);
  VisitShadow(first, bytes, [&](int i, ByteShadow& s) {
    if (!Ordered(s.writer, s.write_clock, s.write_warp_clock) ||
        !Ordered(s.reader, s.read_clock, s.read_warp_clock)) {
      Fail(absl::StrCat("race: byte ", i, " of shared memory is written, but thread ", s.writer,
                        " wrote it, or another thread read it, without a barrier in between"));
    }
    s.write_clock = clock_;
    s.writer = static_cast<int16_t>(thread_);
    s.write_warp_clock = warps_[WarpOf(thread_)].clock;
  });
  return shared_.data() + first;
}

}  // namespace tidepool::kernels::cuda

// Runs the blocks of a kernel on the host. Each thread of the block is a fiber, and one fiber runs
// at a time. A fiber runs until it reaches a barrier, an exchange of its warp, or the end of the
// kernel.
#ifndef TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_BLOCK_H_
#define TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_BLOCK_H_

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device_types.h"

namespace tidepool::kernels::cuda {

class FiberPool;

struct LaunchShape {
  Grid grid;
  int threads = 0;
  int shared_bytes = 0;
};

// The inputs and outputs of one lane in an exchange of its warp.
struct LaneSlot {
  uint64_t in[4] = {};
  uint64_t out[4] = {};
};

// Computes the `out` of all 32 slots from their `in`.
using Exchange = void (*)(LaneSlot* const* lanes);

// The last accesses to one byte of shared memory. Clocks count barriers; 0 is "never". If an
// aligned word of four bytes is `whole`, the entry of its first byte is valid for all four.
struct ByteShadow {
  uint32_t write_clock = 0;
  uint32_t read_clock = 0;
  uint32_t write_warp_clock = 0;
  uint32_t read_warp_clock = 0;
  int16_t writer = 0;
  int16_t reader = 0;  // a thread, kLanesOfWarp - warp, or kManyWarps
  bool whole = true;   // only used in the first byte of a word
};

// Thread-compatible. A process thread may run only one block at a time. Large because a block has
// many parts.
class EmulatedBlock {
 public:
  explicit EmulatedBlock(uint64_t seed);
  ~EmulatedBlock();

  // Runs one block of `kernel`. Returns an empty string, or the first error.
  std::string Run(const std::function<void()>& kernel, const LaunchShape& shape, const Grid& block);

  // Returns the block that runs now. Only kernels may call this method and the methods below.
  static EmulatedBlock& Current();

  int thread() const { return thread_; }
  int threads() const { return threads_; }
  const Grid& block() const { return block_; }
  const Grid& grid() const { return grid_; }
  // Storage for one value of the running thread. It is destroyed when the thread ends.
  std::any* slot() { return &slots_[thread_]; }

  void Barrier();
  // Waits for the other lanes of the warp, all of which must make the same exchange.
  void MakeExchange(Exchange exchange, LaneSlot* slot);
  // Waits like MakeExchange, and orders the warp's accesses to shared memory.
  void BarrierOfWarp();

  // Checks an access to the bytes [first, first + bytes) of shared memory, which must have this
  // alignment.
  std::byte* Read(int first, int bytes, int alignment);
  std::byte* Write(int first, int bytes, int alignment);

  // Ends the block with an error. Does not return to the kernel.
  [[noreturn]] void Fail(std::string message);

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kAtExchange, kDone };
  struct Warp {
    int arrived = 0;
    uint32_t clock = 1;
    Exchange exchange = nullptr;
    LaneSlot* slots[kWarpLanes] = {};
  };

  void RunThread(int thread);
  void Shuffle();
  uint64_t Random();
  std::string Stuck() const;
  void CheckRange(int first, int bytes, int alignment);
  // Calls visit(byte, shadow) for the bytes of a range, or once for a word that is whole.
  template <typename Visit>
  void VisitShadow(int first, int bytes, Visit visit);
  bool Ordered(int other, uint32_t clock, uint32_t warp_clock) const;
  std::string Place() const;

  const std::function<void()>* kernel_ = nullptr;
  uint64_t random_;
  std::unique_ptr<FiberPool> fibers_;
  Grid grid_, block_;
  int threads_ = 0, thread_ = 0, arrived_ = 0, done_ = 0;
  uint32_t clock_ = 0, first_clock_ = 0;
  std::vector<State> states_;
  std::vector<Warp> warps_;
  std::vector<std::any> slots_;
  std::vector<int> order_;
  std::vector<std::byte> shared_;
  std::vector<ByteShadow> shadow_;
  std::string error_;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_BLOCK_H_

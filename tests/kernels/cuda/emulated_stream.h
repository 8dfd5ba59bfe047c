// The stream of the emulated device, and the settings of the device.
#ifndef TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_STREAM_H_
#define TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "tests/kernels/cuda/emulated_block.h"

namespace tidepool::kernels::cuda {

// Sets the seed for the order in which blocks, threads and streams run. It is used by streams that
// are created later.
void SetEmulationSeed(uint64_t seed);

// Thread-safe, because any thread may free memory, and then waits for all streams.
class Stream {
 public:
  explicit Stream(uint64_t seed) : seed_(seed), block_(seed) {}

  void Add(std::function<void()> work);
  void AddKernel(const LaunchShape& shape, std::function<void()> kernel);

  // Returns the number of work items that were ever added.
  uint64_t added() const;
  // Runs work until `count` work items are done. After an error, the other work is dropped.
  void RunUntil(uint64_t count);
  uint64_t done() const;  // number of work items that have run
  std::string error() const;
  // This stream waits for the other one, and fails if that one has failed.
  void TakeError(const Stream& other) { error_ = other.error_; }

 private:
  void RunKernel(const LaunchShape& shape, const std::function<void()>& kernel);

  uint64_t seed_;
  EmulatedBlock block_;
  uint64_t done_ = 0;
  std::deque<std::function<void()>> work_;
  std::string error_;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_TESTS_KERNELS_CUDA_EMULATED_STREAM_H_

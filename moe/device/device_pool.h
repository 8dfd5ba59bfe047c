// DevicePool: memory of a device for experts, divided into equal buffers. Each buffer has room for
// one record. A buffer is settled if no op that was called since the last Settle uses it.
#ifndef TIDEPOOL_MOE_DEVICE_DEVICE_POOL_H_
#define TIDEPOOL_MOE_DEVICE_DEVICE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/memory.h"
#include "kernels/tensor.h"

namespace tidepool::moe {

struct DevicePoolOptions {
  int64_t buffer_bytes = 0;
  int32_t limit = 0;        // initial limit
  int64_t chunk_bytes = 0;  // approximate size of an allocation; at least one buffer
};

// Thread-compatible. At most limit() buffers may be in use at the same time. The memory is
// allocated in chunks of several buffers.
class DevicePool {
 public:
  // Requires: the limit is above 0. Returns RESOURCE_EXHAUSTED if the memory is too small.
  static absl::StatusOr<DevicePool> Create(const DevicePoolOptions& options,
                                           kernels::Memory* memory);

  // Returns a free buffer, or -1 if limit() buffers are in use: a settled one if there is one, and
  // of several the one with the lowest number.
  int32_t Take();
  // Returns the free buffer with the lowest number, even if it is not settled. Requires: a buffer
  // is free.
  int32_t TakeLowest();
  // Requires: the buffer is in use.
  void GiveBack(int32_t buffer);
  // All buffers that are free now become settled. GiveBack ends this state. A buffer that was never
  // used is settled. Returns whether any buffer became settled.
  bool Settle();
  bool IsSettled(int32_t buffer) const { return settled_[buffer]; }

  // Changes the maximum number of buffers in use. If the limit grows, allocates memory. If there is
  // not enough, returns RESOURCE_EXHAUSTED and changes nothing. If the limit shrinks, frees the
  // chunks that are not needed. The rest then exceeds the limit by less than one chunk. Requires:
  // all buffers in use are below SizeFor(limit), and there are at most `limit` of them.
  absl::Status SetLimit(int32_t limit);
  // Returns the number of buffers that have memory after SetLimit(limit) has reduced the limit.
  int32_t SizeFor(int32_t limit) const;

  // The address is in the device's memory.
  std::byte* data(int32_t buffer) const { return data_[buffer]; }
  int64_t buffer_bytes() const { return options_.buffer_bytes; }
  int32_t limit() const { return options_.limit; }
  int32_t in_use() const { return in_use_; }
  int32_t available() const { return options_.limit - in_use_; }

 private:
  struct Chunk {
    kernels::Buffer memory;
    int32_t end = 0;  // the chunk has the buffers from the end of the previous chunk to this number
  };

  DevicePool(const DevicePoolOptions& options, kernels::Memory* memory)
      : options_(options), memory_(memory) {}
  // The order in which Take prefers free buffers.
  bool IsBefore(int32_t a, int32_t b) const {
    return settled_[a] != settled_[b] ? settled_[a] : a < b;
  }
  void OrderFree();
  absl::Status Grow(int32_t limit);
  void Shrink(int32_t limit);

  DevicePoolOptions options_;
  kernels::Memory* memory_;
  std::vector<Chunk> chunks_;
  std::vector<std::byte*> data_;  // addresses of all buffers that have memory
  std::vector<bool> settled_;     // of all these buffers
  std::vector<int32_t> free_;     // a heap; the buffer for Take is on top
  bool all_settled_ = true;       // of the free buffers
  int32_t in_use_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_DEVICE_POOL_H_

// StagingRing: copies the arguments of kernels (ids, spans, block tables and so on) from host
// memory to the device. The copies run in the order of the stream. The host waits only if the ring
// has no free segment.
#ifndef TIDEPOOL_KERNELS_CUDA_STAGING_H_
#define TIDEPOOL_KERNELS_CUDA_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/runtime.h"

namespace tidepool::kernels::cuda {

// Thread-compatible. A ring of segments in pinned memory, with the same segments in device memory.
class StagingRing {
 public:
  static absl::StatusOr<std::unique_ptr<StagingRing>> Create(int device, Stream* stream);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // Copies `values` to the device and returns their device address. The copy is valid for all
  // kernels of the current op. One op may carry up to kOpBytes, including 16 bytes of alignment for
  // each call.
  template <typename T>
  const T* Carry(absl::Span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return reinterpret_cast<const T*>(
        CarryBytes({reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)}));
  }
  template <typename T>
  const T* Carry(const std::vector<T>& values) {
    return Carry(absl::MakeConstSpan(values));
  }

  static constexpr size_t kOpBytes = size_t{4} << 20;

 private:
  StagingRing(int device, Stream* stream) : device_(device), stream_(stream) {}
  const std::byte* CarryBytes(absl::Span<const std::byte> bytes);
  void EnterNextSegment();

  // An op may use two neighbouring segments. So the event that frees a segment is recorded when the
  // ring leaves the segment after it.
  static constexpr int kSegments = 4;

  int device_;
  Stream* stream_;
  std::byte* host_ = nullptr;
  std::byte* on_device_ = nullptr;
  Event* left_[kSegments] = {};
  int segment_ = 0;
  size_t used_ = 0;  // used bytes of the current segment
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_STAGING_H_

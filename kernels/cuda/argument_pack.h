// ArgumentPack: carries several host arrays to the device with one copy. A copy costs some
// microseconds, and many ops need several arrays in every layer.
//
//   ArgumentPack pack;
//   const auto spans = pack.Add(host_spans);
//   const auto tasks = pack.Add(host_tasks);
//   const std::byte* data = pack.Carry(context.staging);
//   Launch(..., spans.In(data), tasks.In(data));
#ifndef TIDEPOOL_KERNELS_CUDA_ARGUMENT_PACK_H_
#define TIDEPOOL_KERNELS_CUDA_ARGUMENT_PACK_H_

#include <cstddef>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/staging.h"

namespace tidepool::kernels::cuda {

// An array of a pack. `data` is what Carry returns.
template <typename T>
struct PackedArray {
  size_t offset = 0;
  const T* In(const std::byte* data) const { return reinterpret_cast<const T*>(data + offset); }
};

// Thread-compatible.
class ArgumentPack {
 public:
  template <typename T>
  PackedArray<T> Add(absl::Span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kArrayAlignment);
    const PackedArray<T> array = {bytes_.size()};
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    bytes_.insert(bytes_.end(), begin, begin + values.size() * sizeof(T));
    bytes_.resize((bytes_.size() + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment);
    return array;
  }
  template <typename T>
  PackedArray<T> Add(const std::vector<T>& values) {
    return Add(absl::MakeConstSpan(values));
  }

  // The arrays on the device. They are valid for all kernels of the current op.
  const std::byte* Carry(StagingRing* staging) const { return staging->Carry(bytes_); }

 private:
  static constexpr size_t kArrayAlignment = 16;
  std::vector<std::byte> bytes_;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_ARGUMENT_PACK_H_

// The memory of recurrent states for tests. It is filled with NaNs, and the states are spread over
// blocks.
#ifndef TIDEPOOL_TESTS_KERNELS_STATE_MEMORY_H_
#define TIDEPOOL_TESTS_KERNELS_STATE_MEMORY_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/check.h"
#include "kernels/recurrent_state.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

// Memory for recurrent states 0 to states - 1. All states use one StateArray, and each has its own
// block table. A block holds up to three units, and the blocks of different states alternate. The
// memory is that of `backend`, or of the host if `backend` is null.
class StateMemory {
 public:
  StateMemory(int64_t units, int64_t unit_bytes, int states, KernelBackend* backend = nullptr)
      : backend_(backend), tables_(states) {
    constexpr int kPerPart = 3;
    const size_t stride = (unit_bytes + kAlignment - 1) / kAlignment * kAlignment;
    array_.unit_bytes = unit_bytes;
    array_.block_bytes = kAlignment * 2 + kPerPart * stride;
    for (int64_t unit = 0; unit < units; ++unit) {
      array_.units.push_back(
          {static_cast<int32_t>(unit / kPerPart), kAlignment + unit % kPerPart * stride});
    }
    const int64_t parts = (units + kPerPart - 1) / kPerPart;
    auto block = static_cast<int32_t>(parts * states);
    for (int64_t part = 0; part < parts; ++part) {
      for (std::vector<int32_t>& table : tables_) table.push_back(--block);
    }
    buffer_ = Buffer(parts * states * array_.block_bytes,
                     backend == nullptr ? HostMemory() : backend->memory());
    const std::vector<std::byte> nans(buffer_.size(), std::byte{0xff});
    CopyIn(nans.data(), buffer_.size(), buffer_.data());
    array_.arena = buffer_.data();
  }

  const StateArray& array() const { return array_; }
  absl::Span<const int32_t> Table(int state) const { return tables_[state]; }
  int64_t UnitFloats() const { return static_cast<int64_t>(array_.unit_bytes / sizeof(float)); }
  int64_t StateFloats() const { return static_cast<int64_t>(array_.units.size()) * UnitFloats(); }

  // Returns all units of a state, in order.
  std::vector<float> Read(int state) const {
    std::vector<float> values(StateFloats());
    for (size_t unit = 0; unit < array_.units.size(); ++unit) {
      CopyOut(array_.Unit(Table(state), unit), values.data() + unit * UnitFloats());
    }
    return values;
  }
  void Write(int state, const std::vector<float>& values) {
    for (size_t unit = 0; unit < array_.units.size(); ++unit) {
      CopyIn(values.data() + unit * UnitFloats(), array_.unit_bytes,
             array_.Unit(Table(state), unit));
    }
  }

 private:
  void CopyIn(const void* from, size_t bytes, std::byte* to) {
    if (bytes == 0) return;
    if (backend_ == nullptr) {
      std::memcpy(to, from, bytes);
    } else {
      backend_->CopyIn({static_cast<const std::byte*>(from), bytes}, to);
    }
  }
  void CopyOut(const std::byte* unit, float* to) const {
    if (backend_ == nullptr) {
      std::memcpy(to, unit, array_.unit_bytes);
      return;
    }
    const absl::Status copied =
        backend_->CopyOut(unit, {reinterpret_cast<std::byte*>(to), array_.unit_bytes});
    CHECK(copied.ok()) << copied;
  }

  KernelBackend* const backend_;
  StateArray array_;
  std::vector<std::vector<int32_t>> tables_;
  Buffer buffer_;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_STATE_MEMORY_H_

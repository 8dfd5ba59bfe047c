// The states of recurrent ops, for kernels (recurrent_state.h describes them).
#ifndef TIDEPOOL_KERNELS_CUDA_RECURRENT_STATE_CU_H_
#define TIDEPOOL_KERNELS_CUDA_RECURRENT_STATE_CU_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/argument_pack.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/recurrent_state.h"

namespace tidepool::kernels::cuda {

// A StateSnapshot. `state` is the number of the state's first unit in DeviceStates::units.
struct DeviceSnapshot {
  int64_t rows;
  int64_t state;
};

// A StateSpan that has rows.
struct DeviceStateSpan {
  int64_t first_row;
  int64_t rows;
  int64_t in;  // like DeviceSnapshot::state; -1: the state is zero
  int64_t out;
  int64_t first_snapshot;
  int64_t snapshots;
};

struct DeviceStates {
  const DeviceStateSpan* spans;
  const DeviceSnapshot* snapshots;
  float* const* units;  // addresses of the units of all states
  int64_t count;        // number of spans
};

// Copies the addresses of all states of an op to the device. Leaves out spans without rows.
inline DeviceStates CarryStates(const CudaContext& context, const StateArray& array,
                                absl::Span<const StateSpan> spans) {
  std::vector<DeviceStateSpan> device_spans;
  std::vector<DeviceSnapshot> snapshots;
  std::vector<float*> units;
  const auto add = [&](absl::Span<const int32_t> blocks) {
    const auto first = static_cast<int64_t>(units.size());
    for (size_t unit = 0; unit < array.units.size(); ++unit) {
      units.push_back(reinterpret_cast<float*>(array.Unit(blocks, static_cast<int64_t>(unit))));
    }
    return first;
  };
  for (const StateSpan& span : spans) {
    if (span.rows == 0) continue;
    DeviceStateSpan added = {.first_row = span.first_row, .rows = span.rows};
    added.in = span.in.empty() ? -1 : add(span.in);
    added.out = add(span.out);
    added.first_snapshot = static_cast<int64_t>(snapshots.size());
    added.snapshots = static_cast<int64_t>(span.snapshots.size());
    for (const StateSnapshot& snapshot : span.snapshots) {
      snapshots.push_back({snapshot.rows, add(snapshot.blocks)});
    }
    device_spans.push_back(added);
  }
  ArgumentPack pack;
  const auto span_array = pack.Add(device_spans);
  const auto snapshot_array = pack.Add(snapshots);
  const auto unit_array = pack.Add(units);
  const std::byte* const packed = pack.Carry(context.staging);
  return {span_array.In(packed), snapshot_array.In(packed), unit_array.In(packed),
          static_cast<int64_t>(device_spans.size())};
}

// Walks through the snapshots of a span.
class SnapshotWalk {
 public:
  TIDEPOOL_DEVICE SnapshotWalk(const DeviceStates& states, const DeviceStateSpan& span)
      : next_(states.snapshots + span.first_snapshot), left_(span.snapshots) {}

  // Calls store(state) for each snapshot after `rows` rows. Must be called for ascending rows.
  template <typename Store>
  TIDEPOOL_DEVICE void Reach(int64_t rows, Store store) {
    for (; left_ > 0 && next_->rows == rows; --left_, ++next_) store(next_->state);
  }

 private:
  const DeviceSnapshot* next_;
  int64_t left_;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_RECURRENT_STATE_CU_H_

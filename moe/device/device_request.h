// DeviceRequest: the experts that one MoE layer has requested from DeviceExperts, and the state of
// each expert. An expert that is on the device is given out at once. The states of the others are:
//
//   awaited from the host > waiting for a buffer > being copied > given out > released
//   awaited from the host > for the CPU > given out > released
//
// A postponed expert is then waiting for a buffer again, or awaited from the host. This class only
// stores expert numbers, which count over all layers. It owns no memory and no copies.
#ifndef TIDEPOOL_MOE_DEVICE_DEVICE_REQUEST_H_
#define TIDEPOOL_MOE_DEVICE_DEVICE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/expert_source.h"
#include "moe/policy/placement.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// A copy that has not begun. The host tier keeps the record for it.
struct WaitingCopy {
  int64_t expert = 0;
  const std::byte* from = nullptr;  // the record in the host's memory
};

// Engine thread only.
class DeviceRequest {
 public:
  // An expert of the layer.
  struct Entry {
    Found found = Found::kResident;  // set by SetLookups
    int64_t rows = 0;                // number of rows that need it; set by SetLookups
    bool is_given_out = false;
    bool was_postponed = false;
    Place place = Place::kBackend;                      // set when it is given out
    const kernels::FfnWeights* host_weights = nullptr;  // set if it is for the CPU
  };
  // The experts that were not given out yet, by state.
  struct Lists {
    int64_t awaited = 0;                // number of experts that the host tier has to give out
    std::vector<WaitingCopy> waiting;   // for a buffer; in ascending order of expert
    std::vector<int64_t> on_device;     // their copies may be in flight
    std::vector<int64_t> being_copied;  // in the order of the copies
    std::vector<int64_t> for_cpu;
    std::vector<int32_t> postponed;  // the host tier must be asked for these again; ascending
  };

  explicit DeviceRequest(int experts_per_layer) : entries_(experts_per_layer) {}

  // Begins the request of a layer. The arguments' memory must be valid until the request is done.
  // Requires: done(), or this is the first call.
  void Begin(const LayerRouting& routing, absl::Span<const int32_t> experts);
  const LayerRouting& routing() const { return routing_; }
  absl::Span<const int32_t> experts() const { return experts_; }
  int64_t IndexOf(int32_t expert) const { return first_ + expert; }

  // Records the decision of the placement about this layer.
  void SetLookups(absl::Span<const Lookup> lookups);
  bool has_lookups() const { return has_lookups_; }
  const Entry& of(int64_t expert) const { return entries_[expert - first_]; }

  // Returns the layer's routing with kNoExpert for all choices except `experts`, which are in
  // ascending order. It is valid until the next call.
  LayerRouting Reduced(absl::Span<const int32_t> experts);

  // The caller moves experts between the lists.
  Lists& lists() { return lists_; }
  const Lists& lists() const { return lists_; }
  void AddWaiting(const WaitingCopy& copy);
  void AddForCpu(int64_t expert, const kernels::FfnWeights* weights);

  // The caller has removed the expert from its list.
  void GiveOut(int64_t expert, Place place);
  // Both functions require that the expert was given out. A postponed expert must be added to a
  // list again.
  void Release(int64_t expert);
  void Postpone(int64_t expert);
  // Ends the request without giving out more experts.
  void Abandon();

  // Returns whether some experts were not given out yet.
  bool has_left() const { return left_ > 0; }
  // Returns whether all experts were given out and released.
  bool done() const { return left_ == 0 && given_out_ == 0; }

 private:
  LayerRouting routing_;
  absl::Span<const int32_t> experts_;
  int64_t first_ = 0;  // number of the layer's first expert
  bool has_lookups_ = true;
  int64_t left_ = 0;  // number of experts that were not given out yet
  int64_t given_out_ = 0;
  std::vector<Entry> entries_;  // [experts_per_layer]
  Lists lists_;
  std::vector<int32_t> reduced_ids_;  // ids of the last Reduced
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_DEVICE_REQUEST_H_

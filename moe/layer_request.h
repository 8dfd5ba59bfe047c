// LayerRequest: the experts that one MoE layer has requested, and the state of each:
//
//   waiting for a buffer > arriving > ready > given out > released
//
// A postponed expert goes back from "given out" to "waiting". This class only keeps expert numbers,
// which count over all layers. It neither owns memory nor reads.
#ifndef TIDEPOOL_MOE_LAYER_REQUEST_H_
#define TIDEPOOL_MOE_LAYER_REQUEST_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "moe/expert_source.h"

namespace tidepool::moe {

// Engine thread only.
class LayerRequest {
 public:
  explicit LayerRequest(int experts_per_layer) : entries_(experts_per_layer) {}

  // Requires: done(), or this is the first call.
  void Begin(int layer);
  // Adds an expert with its state at the time of the request. Call it in ascending order.
  enum class Start : uint8_t {
    kWaiting,   // it needs a buffer
    kArriving,  // a read is in flight
    kReady,
  };
  void Add(int64_t expert, Start start);
  // Sets how the expert was found. Call it after all experts were added.
  void SetFound(int64_t expert, Found found) { At(expert).found = found; }

  // The first expert that waits for a buffer. Requires: has_waiting().
  bool has_waiting() const { return !waiting_.empty(); }
  int64_t next_waiting() const { return waiting_.back(); }
  // Removes that expert from the waiting ones and returns it. Its read is in flight from now on.
  int64_t TakeWaiting();
  // The arriving expert is ready now.
  void SetReady(int64_t expert) { ready_.push_back(expert); }

  bool has_ready() const { return !ready_.empty(); }
  // Gives out all ready experts, in the order in which they became ready.
  std::vector<int64_t> TakeReady();
  Found found(int64_t expert) const { return entries_[expert - first_].found; }
  bool IsGivenOut(int64_t expert) const { return entries_[expert - first_].given_out; }
  // Requires: the expert was given out.
  void Release(int64_t expert);
  void Postpone(int64_t expert);

  // The first error ends the request. Later errors are dropped.
  void Fail(absl::Status error) { error_.Update(std::move(error)); }
  bool failed() const { return !error_.ok(); }
  // Drops the request and returns its error.
  absl::Status Abandon();

  int layer() const { return layer_; }
  // All experts that were added.
  absl::Span<const int64_t> experts() const { return experts_; }
  // All experts that wait for a buffer.
  absl::Span<const int64_t> waiting() const { return waiting_; }
  // True if some experts were not given out yet.
  bool has_left() const { return left_ > 0; }
  // True if all experts were given out and released.
  bool done() const { return left_ == 0 && given_out_ == 0; }

 private:
  struct Entry {
    bool given_out = false;
    Found found = Found::kResident;
  };
  Entry& At(int64_t expert) { return entries_[expert - first_]; }

  int layer_ = 0;
  int64_t first_ = 0;  // the layer's first expert
  int64_t left_ = 0;   // not yet given out
  int64_t given_out_ = 0;
  std::vector<Entry> entries_;  // [experts_per_layer]
  std::vector<int64_t> experts_;
  std::vector<int64_t> waiting_;  // descending, so the next one is last
  std::vector<int64_t> ready_;    // not given out yet
  absl::Status error_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_LAYER_REQUEST_H_

// LayerRequest: the experts that one MoE layer has requested, and the state of each expert:
//
//   waiting for a buffer > arriving > ready > given out > released
//
// A postponed expert changes from "given out" back to "waiting". This class only stores expert
// numbers, which count over all layers. It owns no memory and no reads.
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

  // Begins the request of a layer. Requires: done(), or this is the first call.
  void Begin(int layer);
  // Adds an expert with its state at the time of the request. Must be called in ascending order of
  // experts.
  enum class Start : uint8_t {
    kWaiting,   // needs a buffer
    kArriving,  // its read is in flight
    kReady,
  };
  void Add(int64_t expert, Start start);
  // Sets where the expert was found. Must be called after all experts were added.
  void SetFound(int64_t expert, Found found) { At(expert).found = found; }

  // next_waiting() is the first expert that waits for a buffer. It requires has_waiting().
  bool has_waiting() const { return !waiting_.empty(); }
  int64_t next_waiting() const { return waiting_.back(); }
  // Returns next_waiting() and changes its state to arriving. The caller must begin its read.
  int64_t TakeWaiting();
  // Changes the state of an arriving expert to ready.
  void SetReady(int64_t expert) { ready_.push_back(expert); }

  bool has_ready() const { return !ready_.empty(); }
  // Returns all ready experts in the order in which they became ready. Their state is then "given
  // out".
  std::vector<int64_t> TakeReady();
  Found found(int64_t expert) const { return entries_[expert - first_].found; }
  bool IsGivenOut(int64_t expert) const { return entries_[expert - first_].given_out; }
  // Both functions require that the expert was given out.
  void Release(int64_t expert);
  void Postpone(int64_t expert);

  // Ends the request with an error. Only the first error is kept.
  void Fail(absl::Status error) { error_.Update(std::move(error)); }
  bool failed() const { return !error_.ok(); }
  // Ends the request without waiting for more experts, and returns its error.
  absl::Status Abandon();

  int layer() const { return layer_; }
  // All experts that were added, in ascending order.
  absl::Span<const int64_t> experts() const { return experts_; }
  // All experts that wait for a buffer, in descending order.
  absl::Span<const int64_t> waiting() const { return waiting_; }
  // Returns whether some experts were not given out yet.
  bool has_left() const { return left_ > 0; }
  // Returns whether all experts were given out and released.
  bool done() const { return left_ == 0 && given_out_ == 0; }

 private:
  struct Entry {
    bool given_out = false;
    Found found = Found::kResident;
  };
  Entry& At(int64_t expert) { return entries_[expert - first_]; }

  int layer_ = 0;
  int64_t first_ = 0;  // number of the layer's first expert
  int64_t left_ = 0;   // number of experts that were not given out yet
  int64_t given_out_ = 0;
  std::vector<Entry> entries_;  // [experts_per_layer]
  std::vector<int64_t> experts_;
  std::vector<int64_t> waiting_;  // in descending order, so the next expert is the last element
  std::vector<int64_t> ready_;    // experts that are ready and were not given out yet
  absl::Status error_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_LAYER_REQUEST_H_

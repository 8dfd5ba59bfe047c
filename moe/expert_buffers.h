// ExpertBuffers: records which expert uses which buffer of a pool, and who still needs the expert.
//
//   const int32_t buffer = buffers.Take();
//   if (buffer >= 0) reads->Begin(buffers.BeginRead(expert, buffer), ReadPriority::kDemand);
//   ... when that read has ended:
//   buffers.EndRead(expert);
//   Compute(buffers.weights(expert));
//
// An expert keeps its buffer while a read writes into the buffer or a holder needs the expert.
// After that, the buffer returns to the pool. Experts are numbered over all layers.
#ifndef TIDEPOOL_MOE_EXPERT_BUFFERS_H_
#define TIDEPOOL_MOE_EXPERT_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "moe/expert_pool.h"
#include "moe/expert_record.h"
#include "moe/record_reader.h"

namespace tidepool::moe {

// The reasons to keep an expert in its buffer. Each is one bit of a set.
enum class Holder : uint8_t {
  kPlacement = 1,  // the placement has given it a slot: it is resident
  kRequest = 2,    // the current layer has requested it and has not released it yet
  kPrefetch = 4,   // it was read ahead, and no layer has requested it yet
  kCopy = 8,       // a copy to a device reads its buffer; only BeginCopy sets this
};

// Engine thread only.
class ExpertBuffers {
 public:
  // `records` must outlive this object. Requires: each buffer is at least as large as the largest
  // record.
  ExpertBuffers(const ExpertRecords* records, ExpertPool pool);

  // Returns a free buffer for BeginRead, or -1 if none is free.
  int32_t Take() { return pool_.Take(); }
  // Assigns the buffer to the expert, and returns the read to begin. Requires: the expert has no
  // buffer, and the buffer comes from Take.
  RecordRead BeginRead(int64_t expert, int32_t buffer);
  // Records that the expert's read has ended, so that weights() are valid. Requires: a read of this
  // expert was in progress.
  void EndRead(int64_t expert);
  // Removes the buffer from the expert and frees it, even if the expert has holders. Requires: the
  // expert has a buffer.
  void Vacate(int64_t expert);

  void Hold(int64_t expert, Holder holder);
  void Drop(int64_t expert, Holder holder);
  bool IsHeld(int64_t expert, Holder holder) const;

  // Keeps the expert in its buffer until EndCopy, and returns its record. Each call needs its own
  // EndCopy. Requires: the expert is ready.
  const std::byte* BeginCopy(int64_t expert);
  void EndCopy(int64_t expert);
  // Returns whether copies keep any expert.
  bool has_copies() const { return copies_ > 0; }

  bool IsAbsent(int64_t expert) const { return entries_[expert].state == State::kAbsent; }
  bool IsReady(int64_t expert) const { return entries_[expert].state == State::kReady; }
  // The expert's weights. Valid while the expert is ready.
  const kernels::FfnWeights* weights(int64_t expert) const { return &entries_[expert].weights; }

  int64_t RecordBytes(int64_t expert) const { return records_.At(expert).layout.bytes(); }
  int64_t experts() const { return static_cast<int64_t>(entries_.size()); }

  // See ExpertPool.
  absl::Status SetLimit(int32_t limit) { return pool_.SetLimit(limit); }
  const ExpertPool& pool() const { return pool_; }

 private:
  enum class State : uint8_t {
    kAbsent,   // it has no buffer
    kReading,  // a read writes into its buffer
    kReady,    // its buffer contains the record
  };
  struct Entry {
    int32_t buffer = -1;
    State state = State::kAbsent;
    uint8_t holders = 0;
    int32_t copies = 0;           // calls of BeginCopy without EndCopy
    kernels::FfnWeights weights;  // valid in the state kReady
  };

  void GiveBackIfIdle(int64_t expert);

  const ExpertRecords& records_;
  ExpertPool pool_;
  std::vector<Entry> entries_;  // [layers, experts]
  int64_t copies_ = 0;          // sum over all entries
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_BUFFERS_H_

// DeviceBuffers: records which expert uses which buffer of a DevicePool, and who still needs the
// expert. It does for a device what ExpertBuffers does for the host, with copies instead of reads.
//
// A buffer may be used again before the copy into it has ended, because the device runs copies into
// the same memory in order. Ops may still use a buffer that was just freed, so a copy into it must
// run after these ops (see Settle).
#ifndef TIDEPOOL_MOE_DEVICE_DEVICE_BUFFERS_H_
#define TIDEPOOL_MOE_DEVICE_DEVICE_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "moe/device/device_pool.h"
#include "moe/expert_buffers.h"
#include "moe/expert_record.h"

namespace tidepool::moe {

// Engine thread only. Experts are numbered over all layers.
class DeviceBuffers {
 public:
  // `records` must outlive this object. Requires: each buffer is at least as large as the largest
  // record.
  DeviceBuffers(const ExpertRecords* records, DevicePool pool);

  // Returns a free buffer for Assign, or -1 if none is free.
  int32_t Take() { return pool_.Take(); }
  // See DevicePool. If the result is true, the caller must mark the ops before it calls another op.
  // Then a copy into a settled buffer only has to wait for the ops before the last such mark.
  bool Settle() { return pool_.Settle(); }
  // Assigns the buffer to the expert. `copy` copies the record into pool().data(buffer). Requires:
  // the expert has no buffer, and the buffer comes from Take.
  void Assign(int64_t expert, int32_t buffer, kernels::CopyTicket copy);
  // Records that ops may use the expert, because its copy has ended or the device waits for it.
  // Does nothing if the expert has lost the copy's buffer.
  void SetReady(int64_t expert, kernels::CopyTicket copy);
  // Removes the buffer from the expert and frees it, even if the expert has holders. Requires: the
  // expert has a buffer.
  void Vacate(int64_t expert);

  // See Holder. Holder::kPrefetch is for experts that were copied ahead. Holder::kCopy is not used.
  // When an expert loses its last holder, its buffer is freed.
  void Hold(int64_t expert, Holder holder);
  void Drop(int64_t expert, Holder holder);
  bool IsHeld(int64_t expert, Holder holder) const;

  bool IsAbsent(int64_t expert) const { return entries_[expert].buffer < 0; }
  // Whether ops may use the expert.
  bool IsReady(int64_t expert) const { return !IsAbsent(expert) && entries_[expert].copy == 0; }
  // The copy into the expert's buffer, or 0 if the expert is absent or ready.
  kernels::CopyTicket copy(int64_t expert) const { return entries_[expert].copy; }
  // The expert's weights, in the device's memory. Valid until the expert loses its buffer.
  const kernels::FfnWeights* weights(int64_t expert) const { return &entries_[expert].weights; }

  int64_t RecordBytes(int64_t expert) const { return records_.At(expert).layout.bytes(); }
  int64_t experts() const { return static_cast<int64_t>(entries_.size()); }

  // See DevicePool. If the limit shrinks, the backend moves experts to other buffers first.
  // Requires: no copy is in flight if the limit shrinks.
  absl::Status SetLimit(int32_t limit, kernels::KernelBackend* backend);
  const DevicePool& pool() const { return pool_; }

 private:
  struct Entry {
    int32_t buffer = -1;
    uint8_t holders = 0;
    kernels::CopyTicket copy = 0;
    kernels::FfnWeights weights;  // valid if there is a buffer
  };

  const ExpertRecords& records_;
  DevicePool pool_;
  std::vector<Entry> entries_;  // [layers, experts]
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_DEVICE_BUFFERS_H_

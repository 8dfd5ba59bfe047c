#include "moe/device/device_buffers.h"

#include <utility>

#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

uint8_t Bit(Holder holder) { return static_cast<uint8_t>(holder); }

}  // namespace

DeviceBuffers::DeviceBuffers(const ExpertRecords* records, DevicePool pool)
    : records_(*records),
      pool_(std::move(pool)),
      entries_(records->layers.size() * records->layers.front().size()) {}

void DeviceBuffers::Assign(int64_t expert, int32_t buffer, kernels::CopyTicket copy) {
  Entry& entry = entries_[expert];
  CHECK(buffer >= 0 && entry.buffer < 0) << "expert " << expert << " has a buffer";
  entry.buffer = buffer;
  entry.copy = copy;
  entry.weights = records_.At(expert).layout.At(pool_.data(buffer));
}

void DeviceBuffers::SetReady(int64_t expert, kernels::CopyTicket copy) {
  if (entries_[expert].copy == copy) entries_[expert].copy = 0;
}

void DeviceBuffers::Vacate(int64_t expert) {
  Entry& entry = entries_[expert];
  CHECK(entry.buffer >= 0) << "expert " << expert << " has no buffer";
  pool_.GiveBack(std::exchange(entry.buffer, -1));
  entry.copy = 0;
}

void DeviceBuffers::Hold(int64_t expert, Holder holder) { entries_[expert].holders |= Bit(holder); }

void DeviceBuffers::Drop(int64_t expert, Holder holder) {
  Entry& entry = entries_[expert];
  entry.holders &= static_cast<uint8_t>(~Bit(holder));
  if (entry.holders == 0 && entry.buffer >= 0) Vacate(expert);
}

bool DeviceBuffers::IsHeld(int64_t expert, Holder holder) const {
  return (entries_[expert].holders & Bit(holder)) != 0;
}

absl::Status DeviceBuffers::SetLimit(int32_t limit, kernels::KernelBackend* backend) {
  if (limit < pool_.limit()) {
    const int32_t size = pool_.SizeFor(limit);
    for (int64_t expert = 0; expert < experts(); ++expert) {
      Entry& entry = entries_[expert];
      if (entry.buffer < size) continue;
      CHECK_EQ(entry.copy, 0);
      const int32_t to = pool_.TakeLowest();
      CHECK(to < size);
      backend->CopyWithin(pool_.data(entry.buffer), pool_.data(to), RecordBytes(expert));
      pool_.GiveBack(std::exchange(entry.buffer, to));
      entry.weights = records_.At(expert).layout.At(pool_.data(to));
    }
  }
  return pool_.SetLimit(limit);
}

}  // namespace tidepool::moe

#include "moe/expert_buffers.h"

#include <utility>

#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

uint8_t Bit(Holder holder) { return static_cast<uint8_t>(holder); }

}  // namespace

ExpertBuffers::ExpertBuffers(const ExpertRecords* records, ExpertPool pool)
    : records_(*records),
      pool_(std::move(pool)),
      entries_(records->layers.size() * records->layers.front().size()) {}

RecordRead ExpertBuffers::BeginRead(int64_t expert, int32_t buffer) {
  Entry& entry = entries_[expert];
  CHECK(buffer >= 0 && entry.state == State::kAbsent) << "expert " << expert << " has a buffer";
  entry.buffer = buffer;
  entry.state = State::kReading;
  const ExpertRecord& record = records_.At(expert);
  return {.ticket = expert,
          .offset = record.offset,
          .bytes = record.layout.bytes(),
          .into = pool_.data(buffer),
          .hash = record.hash};
}

void ExpertBuffers::EndRead(int64_t expert) {
  Entry& entry = entries_[expert];
  CHECK(entry.state == State::kReading) << "expert " << expert << " is not being read";
  entry.state = State::kReady;
  entry.weights = records_.At(expert).layout.At(pool_.data(entry.buffer));
  GiveBackIfIdle(expert);
}

void ExpertBuffers::Vacate(int64_t expert) {
  Entry& entry = entries_[expert];
  CHECK(entry.buffer >= 0) << "expert " << expert << " has no buffer";
  pool_.GiveBack(std::exchange(entry.buffer, -1));
  entry.state = State::kAbsent;
}

void ExpertBuffers::Hold(int64_t expert, Holder holder) { entries_[expert].holders |= Bit(holder); }

void ExpertBuffers::Drop(int64_t expert, Holder holder) {
  entries_[expert].holders &= static_cast<uint8_t>(~Bit(holder));
  GiveBackIfIdle(expert);
}

const std::byte* ExpertBuffers::BeginCopy(int64_t expert) {
  Entry& entry = entries_[expert];
  CHECK(entry.state == State::kReady) << "expert " << expert << " is not in memory";
  ++copies_;
  ++entry.copies;
  Hold(expert, Holder::kCopy);
  return pool_.data(entry.buffer);
}

void ExpertBuffers::EndCopy(int64_t expert) {
  CHECK_GT(entries_[expert].copies, 0) << "expert " << expert;
  --copies_;
  if (--entries_[expert].copies == 0) Drop(expert, Holder::kCopy);
}

bool ExpertBuffers::IsHeld(int64_t expert, Holder holder) const {
  return (entries_[expert].holders & Bit(holder)) != 0;
}

void ExpertBuffers::GiveBackIfIdle(int64_t expert) {
  const Entry& entry = entries_[expert];
  if (entry.state == State::kReady && entry.holders == 0) Vacate(expert);
}

}  // namespace tidepool::moe

#include "moe/tiered_experts.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::moe {

absl::StatusOr<std::unique_ptr<TieredExperts>> TieredExperts::Create(
    ExpertRecords records, std::unique_ptr<RecordReader> reader, TieredOptions options) {
  CHECK(!records.layers.empty() && options.staging > 0);
  const PoolShape shape = {.layers = static_cast<int>(records.layers.size()),
                           .experts = static_cast<int>(records.layers.front().size()),
                           .top_k = options.top_k,
                           .slots = options.slots,
                           .miss_cost = MissCosts(records.layer_bytes())};
  ASSIGN_OR_RETURN(std::unique_ptr<Placement> placement, Placement::Create(shape, options.policy));
  ASSIGN_OR_RETURN(ExpertPool pool,
                   ExpertPool::Create(records.largest_bytes(),
                                      static_cast<int32_t>(options.slots + options.staging),
                                      static_cast<int32_t>(shape.all_experts() + options.staging)));
  auto experts = std::unique_ptr<TieredExperts>(
      new TieredExperts(std::move(records), std::move(reader), std::move(options), std::move(pool),
                        std::move(placement)));
  experts->reader_->Start(
      [self = experts.get()](const RecordRead& read, const absl::Status& status) {
        self->OnRead(read, status);
      });
  return experts;
}

TieredExperts::TieredExperts(ExpertRecords records, std::unique_ptr<RecordReader> reader,
                             TieredOptions options, ExpertPool pool,
                             std::unique_ptr<Placement> placement)
    : records_(std::move(records)),
      options_(std::move(options)),
      pool_(std::move(pool)),
      placement_(std::move(placement)),
      entries_(placement_->shape().all_experts()),
      uses_(placement_->shape().all_experts(), 0),
      waste_(pool_.buffer_bytes()),
      repair_(records_.path, options_.repair),
      reader_(std::move(reader)) {
  stats_.reader = reader_->Description();
  for (const ExpertRef ref : placement_->residents()) {
    entries_[placement_->residency().IndexOf(ref)].resident = true;
  }
}

const ExpertRecord& TieredExperts::RecordOf(int64_t index) const {
  const ExpertRef ref = placement_->residency().At(index);
  return records_.layers[ref.layer][ref.expert];
}

absl::Status TieredExperts::Named(int64_t index, const absl::Status& status) const {
  const ExpertRef ref = placement_->residency().At(index);
  const absl::string_view remedy =
      absl::IsDataLoss(status) ? "; restore the model file, and start the server again" : "";
  return absl::Status(status.code(),
                      absl::StrCat(records_.path, ": layer ", options_.layer_numbers[ref.layer],
                                   ", expert ", ref.expert, " ", status.message(), remedy));
}

void TieredExperts::LoadResidents(const std::function<void(double fraction)>& progress) {
  const std::vector<ExpertRef> residents = placement_->residents();
  // Few at a time, so that the reader's order is the file's.
  constexpr int64_t kInWork = 32;
  int64_t begun = 0;
  int64_t in_work = 0;
  const auto total = static_cast<int64_t>(residents.size());
  while (begun < total || in_work > 0) {
    while (begun < total && in_work < kInWork) {
      const int64_t index = placement_->residency().IndexOf(residents[begun++]);
      BeginRead(index, TakeBuffer(), ReadPriority::kDemand);
      ++in_work;
    }
    if (AwaitReads(ReadPatience()) == Wait::kInVain) {
      NoteLate();
      break;
    }
    std::vector<Arrival> arrivals;
    {
      base::MutexLock lock(&mutex_);
      arrivals.swap(arrivals_);
    }
    in_work -= static_cast<int64_t>(arrivals.size());
    for (const Arrival& arrival : arrivals) Arrived(arrival);
    if (progress) {
      progress(static_cast<double>(begun - in_work) / static_cast<double>(total));
    }
  }
  base::MutexLock lock(&mutex_);
  busy_time_ = absl::ZeroDuration();
}

// On a thread of the reader's, so that the engine does not spend its time on hashes.
void TieredExperts::OnRead(const RecordRead& read, const absl::Status& status) {
  Arrival arrival = {read, status};
  if (status.ok() && RecordHash(read.into, read.bytes) != read.hash) {
    arrival.status = absl::DataLossError("is damaged: its checksum does not match");
  }
  base::MutexLock lock(&mutex_);
  if (--in_flight_ == 0) busy_time_ += options_.clock->Monotonic() - busy_since_;
  arrivals_.push_back(std::move(arrival));
  arrived_.NotifyAll();
}

void TieredExperts::BeginRead(int64_t index, int32_t buffer, ReadPriority priority) {
  CHECK(buffer >= 0);
  Entry& entry = entries_[index];
  entry.buffer = buffer;
  entry.state = State::kReading;
  const ExpertRecord& record = RecordOf(index);
  {
    base::MutexLock lock(&mutex_);
    if (in_flight_++ == 0) busy_since_ = options_.clock->Monotonic();
  }
  reader_->Read({.ticket = index,
                 .offset = record.offset,
                 .bytes = record.layout.bytes(),
                 .into = pool_.data(buffer),
                 .hash = record.hash},
                priority);
}

void TieredExperts::Request(const LayerRouting& routing, absl::Span<const int32_t> experts) {
  CHECK(left_ == 0 && lent_ == 0) << "layer " << routing.layer
                                  << " was asked for before the last was drained";
  TakeArrivals();
  WithdrawSpeculative();
  layer_ = routing.layer;
  AskFor(experts);
  // A layer that will not run takes nobody's place.
  if (!error_.ok()) return;
  // While the disk is at work.
  const absl::Span<const Lookup> lookups = placement_->Decide(routing);
  CHECK_EQ(lookups.size(), experts.size());
  for (const Lookup& lookup : lookups) {
    const int64_t index = IndexOf(layer_, lookup.expert);
    ++uses_[index];
    entries_[index].found =
        lookup.action == LookupAction::kHit ? Found::kResident : Found::kFetched;
  }
  for (const Lookup& lookup : lookups) {
    if (lookup.action != LookupAction::kInsert) continue;
    if (lookup.victim.valid()) {
      const int64_t victim = IndexOf(lookup.victim.layer, lookup.victim.expert);
      entries_[victim].resident = false;
      GiveBackIfIdle(victim);
    }
    entries_[IndexOf(layer_, lookup.expert)].resident = true;
  }
  BeginWaiting();
}

// Which experts are there is known before it is decided which ones stay.
void TieredExperts::AskFor(absl::Span<const int32_t> experts) {
  left_ = static_cast<int64_t>(experts.size());
  requested_.clear();
  for (const int32_t expert : experts) {
    const int64_t index = IndexOf(layer_, expert);
    requested_.push_back(index);
    Entry& entry = entries_[index];
    entry.wanted = true;
    if (entry.speculative) {
      DropSpeculative(index);
      stats_.prefetch_used_bytes += RecordOf(index).layout.bytes();
      waste_.AddUsed(RecordOf(index).layout.bytes());
    }
    if (entry.state == State::kReady) ready_.push_back(index);
    // Each request of a batch may come back for it alone: they must not wait in turn.
    if (entry.late && error_.ok()) FailLate(index, options_.read_patience);
    if (entry.state != State::kAbsent) continue;
    entry.state = State::kWaiting;
    waiting_.push_back(index);
  }
  DropDisappointments();
  std::reverse(waiting_.begin(), waiting_.end());
  BeginWaiting();
}

void TieredExperts::BeginWaiting() {
  while (!waiting_.empty() && error_.ok()) {
    const int32_t buffer = TakeBuffer();
    if (buffer < 0) return;
    const int64_t index = waiting_.back();
    waiting_.pop_back();
    ++stats_.demand_reads;
    stats_.demand_bytes += RecordOf(index).layout.bytes();
    waste_.AddUsed(RecordOf(index).layout.bytes());
    BeginRead(index, buffer, ReadPriority::kDemand);
  }
}

// A free buffer, or that of the oldest expectation that has not come true; -1: none now.
int32_t TieredExperts::TakeBuffer() {
  const int32_t buffer = pool_.Take();
  if (buffer >= 0) return buffer;
  for (const int64_t index : speculative_) {
    if (entries_[index].state != State::kReady) continue;
    DropWasted(index);
    GiveBackIfIdle(index);
    return pool_.Take();
  }
  return -1;
}

absl::StatusOr<std::vector<ReadyExpert>> TieredExperts::NextReady(Patience patience) {
  TakeArrivals();
  BeginWaiting();
  if (patience == Patience::kUntilOne && left_ > 0 && ready_.empty() && error_.ok()) {
    const absl::Duration start = options_.clock->Monotonic();
    while (ready_.empty() && error_.ok() && AwaitArrivals()) BeginWaiting();
    stats_.stall_time += options_.clock->Monotonic() - start;
  }
  if (!error_.ok()) return Abandon();
  std::vector<ReadyExpert> wave;
  for (const int64_t index : ready_) {
    Entry& entry = entries_[index];
    entry.lent = true;
    wave.push_back({.expert = placement_->residency().At(index).expert,
                    .found = entry.found,
                    .leaves = !entry.resident,
                    .weights = &entry.weights});
  }
  left_ -= static_cast<int64_t>(ready_.size());
  lent_ += static_cast<int64_t>(ready_.size());
  ready_.clear();
  return wave;
}

void TieredExperts::Release(int32_t expert) {
  const int64_t index = IndexOf(layer_, expert);
  Entry& entry = entries_[index];
  CHECK(entry.lent) << "expert " << expert << " was not given out";
  entry.lent = false;
  entry.wanted = false;
  --lent_;
  GiveBackIfIdle(index);
  BeginWaiting();
}

void TieredExperts::Postpone(int32_t expert) {
  const int64_t index = IndexOf(layer_, expert);
  Entry& entry = entries_[index];
  CHECK(entry.lent && !entry.resident) << "expert " << expert << " was not given out, or stays";
  entry.lent = false;
  --lent_;
  ++left_;
  pool_.GiveBack(std::exchange(entry.buffer, -1));
  entry.state = State::kWaiting;
  // The lowest stands last.
  waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), index, std::greater<>()),
                  index);
  BeginWaiting();
}

void TieredExperts::TakeArrivals() {
  std::vector<Arrival> arrivals;
  {
    base::MutexLock lock(&mutex_);
    arrivals.swap(arrivals_);
  }
  for (const Arrival& arrival : arrivals) Arrived(arrival);
}

TieredExperts::Wait TieredExperts::AwaitReads(absl::Duration patience) {
  // A clock that a test drives wakes nobody.
  constexpr absl::Duration kLook = absl::Milliseconds(20);
  base::MutexLock lock(&mutex_);
  const absl::Duration until = options_.clock->Monotonic() + patience;
  while (arrivals_.empty()) {
    if (in_flight_ == late_) return Wait::kNothing;
    const absl::Duration left = until - options_.clock->Monotonic();
    if (left <= absl::ZeroDuration()) return Wait::kInVain;
    arrived_.WaitFor(&mutex_, std::min(left, kLook));
  }
  return Wait::kCame;
}

// Returns when something has come; false: an expert that is wanted does not come in time, or
// nothing will before one that is lent gives its memory back.
bool TieredExperts::AwaitArrivals() {
  const absl::Duration patience = ReadPatience();
  const Wait wait = AwaitReads(patience);
  if (wait == Wait::kCame) {
    TakeArrivals();
    return true;
  }
  if (wait == Wait::kInVain) NoteLate();
  for (const int64_t index : requested_) {
    if (!entries_[index].wanted || !entries_[index].late) continue;
    FailLate(index, patience);
    return false;
  }
  const bool one_can_leave = std::any_of(
      requested_.begin(), requested_.end(),
      [this](int64_t index) { return entries_[index].lent && !entries_[index].resident; });
  if (one_can_leave) return false;
  CHECK(late_ > 0 && !waiting_.empty()) << "no memory for a layer that holds none";
  error_ = Named(waiting_.back(),
                 absl::UnavailableError(absl::StrCat(
                     "cannot be read, for reads that do not end hold the memory; see to the disk, "
                     "and retry (reads that do not end: ",
                     late_, ")")));
  return false;
}

// All that are on their way have been so since before a wait that was in vain.
void TieredExperts::NoteLate() {
  silent_ = true;
  for (Entry& entry : entries_) {
    if (entry.state != State::kReading || entry.late) continue;
    entry.late = true;
    ++late_;
  }
}

void TieredExperts::ClearLate(Entry* entry) {
  if (std::exchange(entry->late, false)) --late_;
}

void TieredExperts::FailLate(int64_t index, absl::Duration waited) {
  error_ = Named(index, absl::UnavailableError(absl::StrCat(
                            "has not been read for ", absl::FormatDuration(waited),
                            "; see to the disk, and retry (reads that do not end: ", late_, ")")));
}

// A disk that has answered nothing for that long is asked again, for other experts, and not given
// as long each time.
absl::Duration TieredExperts::ReadPatience() const {
  return silent_ ? options_.read_patience / 10 : options_.read_patience;
}

void TieredExperts::Arrived(const Arrival& arrival) {
  const int64_t index = arrival.read.ticket;
  Entry& entry = entries_[index];
  CHECK(entry.state == State::kReading);
  silent_ = false;
  ClearLate(&entry);
  absl::Status status = arrival.status;
  if (status.ok()) repair_.NoteSound(index);
  if (absl::IsDataLoss(status)) {
    status = repair_.Repair(placement_->residency().At(index), arrival.read, status);
  }
  if (status.ok()) {
    entry.state = State::kReady;
    entry.weights = RecordOf(index).layout.At(pool_.data(entry.buffer));
    if (entry.wanted) ready_.push_back(index);
  } else {
    entry.state = State::kAbsent;
    ++stats_.failed_reads;
    if (entry.wanted && error_.ok()) error_ = Named(index, status);
    if (entry.resident) placement_->Forget(placement_->residency().At(index));
    entry.resident = false;
    entry.wanted = false;
    if (entry.speculative) DropWasted(index);
  }
  GiveBackIfIdle(index);
}

// The request ends; what is on its way arrives later.
absl::Status TieredExperts::Abandon() {
  for (const int64_t index : requested_) {
    Entry& entry = entries_[index];
    entry.wanted = false;
    entry.lent = false;
    if (entry.state == State::kWaiting) {
      entry.state = State::kAbsent;
      if (entry.resident) placement_->Forget(placement_->residency().At(index));
      entry.resident = false;
    }
    GiveBackIfIdle(index);
  }
  waiting_.clear();
  ready_.clear();
  left_ = 0;
  lent_ = 0;
  return std::exchange(error_, absl::OkStatus());
}

void TieredExperts::GiveBackIfIdle(int64_t index) {
  Entry& entry = entries_[index];
  if (entry.buffer < 0 || entry.state == State::kReading) return;
  if (entry.resident || entry.wanted || entry.speculative) return;
  pool_.GiveBack(std::exchange(entry.buffer, -1));
  entry.state = State::kAbsent;
}

void TieredExperts::DropSpeculative(int64_t index) {
  entries_[index].speculative = false;
  speculative_.erase(std::find(speculative_.begin(), speculative_.end(), index));
}

// What this layer was expected to ask for, and did not.
void TieredExperts::DropDisappointments() {
  for (size_t i = speculative_.size(); i-- > 0;) {
    const int64_t index = speculative_[i];
    if (placement_->residency().At(index).layer != layer_) continue;
    DropWasted(index);
    GiveBackIfIdle(index);
  }
}

void TieredExperts::DropWasted(int64_t index) {
  stats_.prefetch_wasted_bytes += RecordOf(index).layout.bytes();
  waste_.AddWasted(RecordOf(index).layout.bytes());
  DropSpeculative(index);
}

// Expectations whose reads have not begun; what they were for is known better now.
void TieredExperts::WithdrawSpeculative() {
  if (speculative_.empty()) return;
  for (const RecordRead& read : reader_->Withdraw()) {
    Entry& entry = entries_[read.ticket];
    stats_.prefetch_bytes -= read.bytes;
    ClearLate(&entry);
    entry.state = State::kAbsent;
    pool_.GiveBack(std::exchange(entry.buffer, -1));
    DropSpeculative(read.ticket);
    base::MutexLock lock(&mutex_);
    if (--in_flight_ == 0) busy_time_ += options_.clock->Monotonic() - busy_since_;
  }
}

bool TieredExperts::WantsExpectations() const {
  if (options_.prefetch == Prefetch::kOff) return false;
  // A buffer is one expert's: they are all there.
  if (pool_.in_use() >= placement_->shape().all_experts()) return false;
  // Where expectations come true too seldom, reading ahead takes bandwidth from what is needed.
  return !waste_.IsTooMuch();
}

void TieredExperts::Expect(int moe_layer, absl::Span<const int32_t> experts) {
  if (!WantsExpectations()) return;
  // Half of the staging buffers at most, so that what passes through finds its own.
  const size_t most = static_cast<size_t>(options_.staging) / 2;
  for (const int32_t expert : experts) {
    const int64_t index = IndexOf(moe_layer, expert);
    if (entries_[index].state != State::kAbsent) continue;
    if (speculative_.size() >= most || !waiting_.empty()) return;
    const int32_t buffer = pool_.Take();
    if (buffer < 0) return;
    entries_[index].speculative = true;
    speculative_.push_back(index);
    stats_.prefetch_bytes += RecordOf(index).layout.bytes();
    BeginRead(index, buffer, ReadPriority::kSpeculative);
  }
}

std::optional<OffloadStats> TieredExperts::Stats() const {
  OffloadStats stats = stats_;
  stats.slots = placement_->shape().slots;
  stats.staging = options_.staging;
  stats.experts = placement_->shape().all_experts();
  stats.capacity_bytes = pool_.limit() * pool_.buffer_bytes();
  stats.resident_bytes = pool_.in_use() * pool_.buffer_bytes();
  stats.policy = std::string(placement_->policy_name());
  stats.refresh_interval = options_.policy.refresh_interval;
  stats.prefetch = options_.prefetch;
  stats.record_bytes = pool_.buffer_bytes();
  const RepairStats repairs = repair_.stats();
  stats.rebuilt_records = repairs.rebuilt;
  stats.failed_record_writes = repairs.failed_writes;
  stats.lost_records = repairs.lost;
  stats.placement = placement_->Total();
  for (size_t i = 0; i < options_.layer_numbers.size(); ++i) {
    stats.layers.push_back({options_.layer_numbers[i], placement_->counters()[i]});
  }
  base::MutexLock lock(&mutex_);
  absl::Duration busy = busy_time_;
  if (in_flight_ > 0) busy += options_.clock->Monotonic() - busy_since_;
  stats.hidden_time = std::max(absl::ZeroDuration(), busy - stats_.stall_time);
  return stats;
}

}  // namespace tidepool::moe

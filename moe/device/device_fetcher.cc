#include "moe/device/device_fetcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::moe {

DeviceFetcher::DeviceFetcher(const Parts& parts, DevicePool pool, const DeviceFetchOptions& options)
    : options_(options),
      host_(*parts.host),
      placement_(*parts.placement),
      request_(placement_.shape().experts),
      buffers_(&host_.records(), std::move(pool)),
      copies_(parts.backend, &costs_, options_.clock),
      ahead_(&buffers_, {.prefetch = options_.prefetch, .limit = options_.ahead_buffers}) {
  for (const ExpertRef ref : placement_.residents()) {
    buffers_.Hold(placement_.residency().IndexOf(ref), Holder::kPlacement);
  }
}

// The host's memory must not be freed while copies read it.
DeviceFetcher::~DeviceFetcher() { EndCopies(copies_.AwaitAll()); }

absl::Status DeviceFetcher::LoadResidents() {
  // Limits the copies in flight at the start, because each copy needs memory of the driver.
  constexpr int kMaxInFlight = 64;
  int in_flight = 0;
  for (const ExpertRef ref : placement_.residents()) {
    const int64_t expert = placement_.residency().IndexOf(ref);
    const std::byte* const from = host_.BeginCopy(ref);
    if (from == nullptr) {
      Evict(expert);
      continue;
    }
    CHECK(BeginCopy({expert, from})) << "fewer buffers than slots";
    if (++in_flight < kMaxInFlight) continue;
    RETURN_IF_ERROR(AwaitCopies());
    in_flight = 0;
  }
  return AwaitCopies();
}

void DeviceFetcher::Begin(const LayerRouting& routing, absl::Span<const int32_t> experts) {
  EndCopies(copies_.Poll());
  CancelLaterCopies();
  if (buffers_.Settle()) settled_after_ = copies_.MarkOps();
  hint_ = Hint();
  request_.Begin(routing, experts);
  for (const int32_t id : experts) buffers_.Hold(request_.IndexOf(id), Holder::kRequest);
}

std::vector<ReadyExpert> DeviceFetcher::TakeHits() {
  std::vector<ReadyExpert> hits;
  // After RequestMissing, hits are in the lists of the request.
  if (request_.has_lookups()) return hits;
  for (const int32_t id : request_.experts()) {
    const int64_t expert = request_.IndexOf(id);
    if (WasGivenOut(expert) || !buffers_.IsReady(expert)) continue;
    if (buffers_.IsHeld(expert, Holder::kPlacement)) hits.push_back(GiveOutOnDevice(expert));
  }
  return hits;
}

void DeviceFetcher::RequestMissing(absl::Span<const Lookup> lookups) {
  request_.SetLookups(lookups);
  missing_.clear();
  for (const int32_t id : request_.experts()) {
    const int64_t expert = request_.IndexOf(id);
    if (WasGivenOut(expert)) continue;
    ahead_.UseIfAhead(expert);
    if (buffers_.IsAbsent(expert)) {
      missing_.push_back(id);
    } else {
      request_.lists().on_device.push_back(expert);
    }
  }
  // Drop the experts of this layer that were copied ahead and are not needed.
  ahead_.DropRange(request_.IndexOf(0), request_.IndexOf(placement_.shape().experts));
  request_.lists().awaited = static_cast<int64_t>(missing_.size());
  // The host tier's policy sees every forward pass, even if nothing is missing.
  host_.Request(request_.Reduced(missing_), missing_);
}

absl::StatusOr<std::vector<ReadyExpert>> DeviceFetcher::NextReady(Patience patience) {
  EndCopies(copies_.Poll());
  absl::Status status = TakeFromHost(Patience::kNone);
  std::vector<ReadyExpert> wave;
  while (true) {
    status.Update(std::exchange(copy_error_, absl::OkStatus()));
    if (!status.ok()) return Abandon(status);
    BeginCopies();
    wave = GiveOut();
    if (!wave.empty() || patience == Patience::kNone || !request_.has_left()) break;
    const absl::StatusOr<bool> more = AwaitMore();
    if (more.ok() && !*more) break;
    status = more.status();
  }
  UseHint();
  return wave;
}

absl::Status DeviceFetcher::TakeFromHost(Patience patience) {
  if (request_.lists().awaited == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<ReadyExpert> wave, host_.NextReady(patience));
  request_.lists().awaited -= static_cast<int64_t>(wave.size());
  Divide(wave);
  return absl::OkStatus();
}

// Chooses a lane for each expert that is ready in the host's memory.
void DeviceFetcher::Divide(absl::Span<const ReadyExpert> wave) {
  std::vector<LaneMiss> misses;
  for (const ReadyExpert& ready : wave) {
    const int64_t expert = request_.IndexOf(ready.expert);
    misses.push_back({.expert = expert,
                      .bytes = buffers_.RecordBytes(expert),
                      .rows = request_.of(expert).rows,
                      .is_kept = buffers_.IsHeld(expert, Holder::kPlacement)});
  }
  size_t copies = misses.size();
  if (request_.routing().host_lane == HostLane::kOn) {
    // Allow only copies that can begin now.
    const auto buffers = static_cast<size_t>(buffers_.pool().available()) + ahead_.size();
    const size_t taken = std::min(buffers, request_.lists().waiting.size());
    copies =
        costs_.Split({.seconds_ahead = SecondsAhead(), .max_copies = buffers - taken}, &misses);
  }
  for (size_t i = 0; i < misses.size(); ++i) {
    const int64_t expert = misses[i].expert;
    const auto ready = std::find_if(wave.begin(), wave.end(), [&](const ReadyExpert& other) {
      return request_.IndexOf(other.expert) == expert;
    });
    const DeviceRequest::Entry& entry = request_.of(expert);
    const int64_t counted = entry.found == Found::kFetched && !entry.was_postponed ? 1 : 0;
    if (i >= copies) {
      counters_.computed_on_cpu += counted;
      GiveToCpu(*ready);
      continue;
    }
    counters_.copied += counted;
    ahead_.NoteDemand(misses[i].bytes);
    request_.AddWaiting({expert, host_.BeginCopy(RefOf(expert))});
    host_.Release(ready->expert);
  }
}

// The host keeps the expert until its release. If the placement wants the expert on the device, a
// copy for later requests begins when a buffer is free. No such copy begins while other copies take
// too long, or if the host's memory is needed for other experts.
void DeviceFetcher::GiveToCpu(const ReadyExpert& ready) {
  const int64_t expert = request_.IndexOf(ready.expert);
  request_.AddForCpu(expert, ready.weights);
  if (!buffers_.IsHeld(expert, Holder::kPlacement)) return;
  if (ready.leaves || !costs_.MayCopyForLater(buffers_.RecordBytes(expert), SecondsAhead())) {
    return Evict(expert);
  }
  ++counters_.copied_for_later;
  later_.push_back({expert, host_.BeginCopy(RefOf(expert))});
}

// Returns the estimated time until all copies have ended, including the copies that have not begun.
double DeviceFetcher::SecondsAhead() const {
  const auto waiting = static_cast<double>(request_.lists().waiting.size() + later_.size());
  return copies_.SecondsAhead() + waiting * costs_.CopySeconds(buffers_.pool().buffer_bytes());
}

void DeviceFetcher::BeginCopies() {
  DeviceRequest::Lists& lists = request_.lists();
  while (!lists.waiting.empty() && BeginCopy(lists.waiting.front())) {
    lists.being_copied.push_back(lists.waiting.front().expert);
    lists.waiting.erase(lists.waiting.begin());
  }
  while (lists.waiting.empty() && !later_.empty() && BeginCopy(later_.front())) {
    later_.erase(later_.begin());
  }
}

// Returns false if no buffer is free. Most copies need not wait for the experts that the device
// computes now, because they go to buffers that were freed in earlier layers.
bool DeviceFetcher::BeginCopy(const WaitingCopy& copy) {
  int32_t buffer = buffers_.Take();
  if (buffer < 0 && ahead_.DropOldest()) buffer = buffers_.Take();
  if (buffer < 0) return false;
  const DevicePool& pool = buffers_.pool();
  const auto bytes = static_cast<size_t>(buffers_.RecordBytes(copy.expert));
  buffers_.Assign(
      copy.expert, buffer,
      copies_.Begin({.expert = copy.expert,
                     .from = {copy.from, bytes},
                     .to = pool.data(buffer),
                     .after = pool.IsSettled(buffer) ? settled_after_ : copies_.MarkOps()}));
  return true;
}

// Gives out all experts that can be computed now. If copies wait for buffers, gives out only the
// older half of the experts whose copies are in flight. The device then computes these while the
// others are copied.
std::vector<ReadyExpert> DeviceFetcher::GiveOut() {
  DeviceRequest::Lists& lists = request_.lists();
  std::vector<ReadyExpert> wave;
  for (const int64_t expert : lists.on_device) wave.push_back(GiveOutOnDevice(expert));
  lists.on_device.clear();
  const size_t copies = lists.being_copied.size();
  const auto end = lists.being_copied.begin() +
                   static_cast<int64_t>(lists.waiting.empty() ? copies : (copies + 1) / 2);
  for (auto expert = lists.being_copied.begin(); expert != end; ++expert) {
    wave.push_back(GiveOutOnDevice(*expert));
  }
  lists.being_copied.erase(lists.being_copied.begin(), end);
  for (const int64_t expert : lists.for_cpu) {
    request_.GiveOut(expert, Place::kHost);
    wave.push_back({.expert = RefOf(expert).expert,
                    .found = request_.of(expert).found,
                    .place = Place::kHost,
                    .weights = request_.of(expert).host_weights});
  }
  lists.for_cpu.clear();
  return wave;
}

ReadyExpert DeviceFetcher::GiveOutOnDevice(int64_t expert) {
  if (!buffers_.IsReady(expert)) {
    copies_.Await(buffers_.copy(expert));
    buffers_.SetReady(expert, buffers_.copy(expert));
  }
  request_.GiveOut(expert, Place::kBackend);
  return {.expert = RefOf(expert).expert,
          .found = request_.of(expert).found,
          .leaves = !buffers_.IsHeld(expert, Holder::kPlacement),
          .weights = buffers_.weights(expert)};
}

// Waits until more experts are in the host's memory. Returns false if the caller must release an
// expert first.
absl::StatusOr<bool> DeviceFetcher::AwaitMore() {
  DeviceRequest::Lists& lists = request_.lists();
  if (!lists.waiting.empty()) return false;
  if (const int64_t before = lists.awaited; before > 0) {
    RETURN_IF_ERROR(TakeFromHost(Patience::kUntilOne));
    if (lists.awaited < before) return true;
    // The host tier needs memory.
    if (copies_.idle()) return false;
    EndCopies(copies_.AwaitAll());
    return true;
  }
  if (lists.postponed.empty()) return false;
  missing_ = std::exchange(lists.postponed, {});
  lists.awaited = static_cast<int64_t>(missing_.size());
  host_.Request(request_.Reduced(missing_), missing_);
  return true;
}

void DeviceFetcher::Release(int32_t expert) {
  const int64_t index = request_.IndexOf(expert);
  request_.Release(index);
  if (request_.of(index).place == Place::kHost) host_.Release(expert);
  buffers_.Drop(index, Holder::kRequest);
  BeginCopies();
}

// If the host tier has given out all other experts that are left, the expert is copied again.
// Otherwise it is requested from the host tier again, after the experts that now wait for buffers.
// Experts that wait keep the host's memory. If this expert waited too, the host tier might never
// have memory for the expert that the caller needs next.
void DeviceFetcher::Postpone(int32_t expert) {
  const int64_t index = request_.IndexOf(expert);
  CHECK(request_.of(index).place == Place::kBackend && !buffers_.IsHeld(index, Holder::kPlacement))
      << "expert " << expert << " is resident";
  request_.Postpone(index);
  buffers_.Vacate(index);
  std::vector<int32_t>& postponed = request_.lists().postponed;
  const bool host_has_others = request_.lists().awaited == 0 && postponed.empty();
  const std::byte* const from = host_has_others ? host_.BeginCopy(RefOf(index)) : nullptr;
  if (from != nullptr) {
    request_.AddWaiting({index, from});
  } else {
    postponed.insert(std::lower_bound(postponed.begin(), postponed.end(), expert), expert);
  }
  BeginCopies();
}

// The expert loses its slot.
void DeviceFetcher::Evict(int64_t expert) {
  placement_.Forget(RefOf(expert));
  buffers_.Drop(expert, Holder::kPlacement);
}

void DeviceFetcher::CancelLaterCopies() {
  for (const WaitingCopy& copy : std::exchange(later_, {})) {
    host_.EndCopy(RefOf(copy.expert));
    if (buffers_.IsHeld(copy.expert, Holder::kPlacement)) Evict(copy.expert);
    --counters_.copied_for_later;
  }
}

void DeviceFetcher::EndCopies(absl::Span<const CopyLane::Ended> ended) {
  for (const CopyLane::Ended& copy : ended) {
    host_.EndCopy(RefOf(copy.expert));
    if (copy.status.ok()) {
      buffers_.SetReady(copy.expert, copy.copy);
    } else {
      FailCopy(copy);
    }
  }
}

// The expert loses all its holders, unless its buffer was already replaced.
void DeviceFetcher::FailCopy(const CopyLane::Ended& ended) {
  const int64_t expert = ended.expert;
  const ExpertRef ref = RefOf(expert);
  copy_error_.Update(absl::Status(
      ended.status.code(),
      absl::StrCat(host_.records().path, ": layer ", options_.layer_numbers[ref.layer], ", expert ",
                   ref.expert, " was not copied to the device: ", ended.status.message())));
  if (buffers_.copy(expert) != ended.copy) return;
  buffers_.Vacate(expert);
  ahead_.DropIfAhead(expert);
  if (buffers_.IsHeld(expert, Holder::kPlacement)) Evict(expert);
}

// Ends the request. Its copies that are in flight end later.
absl::Status DeviceFetcher::Abandon(const absl::Status& error) {
  host_.CancelRequest();
  CancelLaterCopies();
  for (const WaitingCopy& copy : request_.lists().waiting) host_.EndCopy(RefOf(copy.expert));
  for (const int32_t id : request_.experts()) {
    const int64_t expert = request_.IndexOf(id);
    if (buffers_.IsHeld(expert, Holder::kPlacement) && buffers_.IsAbsent(expert)) Evict(expert);
    buffers_.Drop(expert, Holder::kRequest);
  }
  request_.Abandon();
  hint_ = Hint();
  return error;
}

void DeviceFetcher::PrefetchHint(int layer, absl::Span<const int32_t> experts) {
  hint_ = {layer, {experts.begin(), experts.end()}};
  if (request_.done()) UseHint();
}

// Copies the experts of the hint ahead if the host has them in memory. Passes the other experts to
// the host tier. The copies of the current layer have precedence.
void DeviceFetcher::UseHint() {
  if (hint_.layer < 0 || !request_.lists().waiting.empty()) return;
  const Hint hint = std::exchange(hint_, Hint());
  std::vector<int32_t> rest;
  for (const int32_t id : hint.experts) {
    const ExpertRef ref = {hint.layer, id};
    const int64_t expert = placement_.residency().IndexOf(ref);
    if (!buffers_.IsAbsent(expert) || buffers_.IsHeld(expert, Holder::kRequest)) continue;
    const bool may_copy = ahead_.WantsHints() && ahead_.HasRoom() &&
                          buffers_.pool().available() > 0 &&
                          costs_.MayCopyForLater(buffers_.RecordBytes(expert), SecondsAhead());
    const std::byte* const from = may_copy ? host_.BeginCopy(ref) : nullptr;
    if (from == nullptr) {
      rest.push_back(id);
      continue;
    }
    CHECK(BeginCopy({expert, from}));
    ahead_.Add(expert);
  }
  if (!rest.empty()) host_.PrefetchHint(hint.layer, rest);
}

void DeviceFetcher::NoteHostWork(const HostWork& work) {
  counters_.cpu_time += work.time;
  costs_.NoteHostWork(work.bytes, work.row_bytes, absl::ToDoubleSeconds(work.time));
}

absl::Status DeviceFetcher::AwaitCopies() {
  EndCopies(copies_.AwaitAll());
  return std::exchange(copy_error_, absl::OkStatus());
}

LaneCounters DeviceFetcher::counters() const {
  LaneCounters counters = counters_;
  counters.copied_ahead = ahead_.used();
  counters.copies = copies_.counters();
  return counters;
}

}  // namespace tidepool::moe

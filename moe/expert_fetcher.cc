#include "moe/expert_fetcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"

namespace tidepool::moe {

ExpertFetcher::ExpertFetcher(Parts parts, ExpertPool pool, const FetchOptions& options)
    : options_(options),
      records_(*parts.records),
      placement_(*parts.placement),
      request_(placement_.shape().experts),
      repair_(records_.path, options_.repair),
      buffers_(&records_, std::move(pool)),
      reads_(std::move(parts.reader),
             {.patience = options_.read_patience, .clock = options_.clock}),
      prefetcher_(&buffers_, &reads_,
                  {.prefetch = options_.prefetch, .limit = options_.prefetch_buffers}) {
  for (const ExpertRef ref : placement_.residents()) {
    buffers_.Hold(IndexOf(ref.layer, ref.expert), Holder::kPlacement);
  }
}

absl::Status ExpertFetcher::Named(int64_t expert, const absl::Status& status) const {
  const ExpertRef ref = RefOf(expert);
  const absl::string_view remedy =
      absl::IsDataLoss(status) ? "; restore the model file and restart the server" : "";
  return absl::Status(status.code(),
                      absl::StrCat(records_.path, ": layer ", options_.layer_numbers[ref.layer],
                                   ", expert ", ref.expert, " ", status.message(), remedy));
}

void ExpertFetcher::LoadResidents(const std::function<void(double fraction)>& progress) {
  const std::vector<ExpertRef> residents = placement_.residents();
  // Limits the reads in flight at the start, so that records are read in the order of the file.
  constexpr int64_t kMaxInFlight = 32;
  int64_t begun = 0;
  int64_t in_flight = 0;
  const auto total = static_cast<int64_t>(residents.size());
  while (begun < total || in_flight > 0) {
    while (begun < total && in_flight < kMaxInFlight) {
      const int64_t expert = IndexOf(residents[begun].layer, residents[begun].expert);
      ++begun;
      reads_.Begin(buffers_.BeginRead(expert, buffers_.Take()), ReadPriority::kDemand);
      ++in_flight;
    }
    if (reads_.Await() == ReadQueue::Wait::kTimedOut) break;
    const std::vector<ReadQueue::Arrival> arrivals = reads_.TakeArrivals();
    in_flight -= static_cast<int64_t>(arrivals.size());
    for (const ReadQueue::Arrival& arrival : arrivals) Arrive(arrival);
    if (progress) {
      progress(static_cast<double>(begun - in_flight) / static_cast<double>(total));
    }
  }
  reads_.ResetBusyTime();
}

// Determines which experts are in memory now. Only afterwards, the placement decides which experts
// stay.
void ExpertFetcher::Begin(int layer, absl::Span<const int32_t> experts) {
  TakeArrivals();
  // The needed experts are known now, so reads for hints that have not begun are cancelled.
  prefetcher_.Withdraw();
  request_.Begin(layer);
  for (const int32_t id : experts) {
    const int64_t expert = IndexOf(layer, id);
    buffers_.Hold(expert, Holder::kRequest);
    prefetcher_.UseIfHinted(expert);
    if (buffers_.IsReady(expert)) {
      request_.Add(expert, LayerRequest::Start::kReady);
    } else if (buffers_.IsAbsent(expert)) {
      request_.Add(expert, LayerRequest::Start::kWaiting);
    } else {
      request_.Add(expert, LayerRequest::Start::kArriving);
      // Fail at once. Otherwise each request of a batch would wait the full time for the same
      // expert.
      if (reads_.IsLate(expert)) FailLate(expert, options_.read_patience);
    }
  }
  // Drop the experts of this layer that were read ahead and are not needed.
  prefetcher_.DropRange(IndexOf(layer, 0), IndexOf(layer + 1, 0));
  ReadWaiting();
}

void ExpertFetcher::ReadWaiting() {
  while (request_.has_waiting() && !request_.failed()) {
    const int32_t buffer = TakeBuffer();
    if (buffer < 0) return;
    const int64_t expert = request_.TakeWaiting();
    const int64_t bytes = buffers_.RecordBytes(expert);
    ++counters_.demand_reads;
    counters_.demand_bytes += bytes;
    prefetcher_.NoteDemand(bytes);
    reads_.Begin(buffers_.BeginRead(expert, buffer), ReadPriority::kDemand);
  }
}

// Returns a free buffer. If there is none, returns the buffer of the oldest expert that was read
// ahead and not used, or -1.
int32_t ExpertFetcher::TakeBuffer() {
  const int32_t buffer = buffers_.Take();
  if (buffer >= 0 || !prefetcher_.DropOldest()) return buffer;
  return buffers_.Take();
}

absl::StatusOr<std::vector<ReadyExpert>> ExpertFetcher::NextReady(Patience patience) {
  TakeArrivals();
  ReadWaiting();
  if (patience == Patience::kUntilOne && request_.has_left() && !request_.has_ready() &&
      !request_.failed()) {
    const absl::Duration start = options_.clock->Monotonic();
    while (!request_.has_ready() && !request_.failed() && AwaitArrivals()) ReadWaiting();
    counters_.stall_time += options_.clock->Monotonic() - start;
  }
  if (request_.failed()) return Abandon();
  std::vector<ReadyExpert> wave;
  for (const int64_t expert : request_.TakeReady()) {
    wave.push_back({.expert = RefOf(expert).expert,
                    .found = request_.found(expert),
                    .leaves = !buffers_.IsHeld(expert, Holder::kPlacement),
                    .weights = buffers_.weights(expert)});
  }
  return wave;
}

void ExpertFetcher::Release(int32_t expert) {
  const int64_t index = IndexOf(request_.layer(), expert);
  request_.Release(index);
  buffers_.Drop(index, Holder::kRequest);
  ReadWaiting();
}

void ExpertFetcher::Postpone(int32_t expert) {
  const int64_t index = IndexOf(request_.layer(), expert);
  CHECK(!buffers_.IsHeld(index, Holder::kPlacement)) << "expert " << expert << " is resident";
  request_.Postpone(index);
  buffers_.Vacate(index);
  ReadWaiting();
}

void ExpertFetcher::PrefetchHint(int layer, absl::Span<const int32_t> experts) {
  // Reads for the current layer have precedence over hints.
  if (!prefetcher_.WantsHints() || request_.has_waiting()) return;
  std::vector<int64_t> hinted;
  for (const int32_t expert : experts) hinted.push_back(IndexOf(layer, expert));
  prefetcher_.Hint(hinted);
}

void ExpertFetcher::TakeArrivals() {
  for (const ReadQueue::Arrival& arrival : reads_.TakeArrivals()) Arrive(arrival);
}

void ExpertFetcher::Arrive(const ReadQueue::Arrival& arrival) {
  const int64_t expert = arrival.read.ticket;
  absl::Status status = arrival.status;
  if (status.ok()) repair_.NoteSound(expert);
  if (absl::IsDataLoss(status)) status = repair_.Repair(RefOf(expert), arrival.read, status);
  if (!status.ok()) return FailRead(expert, status);
  if (buffers_.IsHeld(expert, Holder::kRequest)) request_.SetReady(expert);
  buffers_.EndRead(expert);
}

// A read has failed. The expert loses all its holders.
void ExpertFetcher::FailRead(int64_t expert, const absl::Status& status) {
  ++counters_.failed_reads;
  if (buffers_.IsHeld(expert, Holder::kRequest)) request_.Fail(Named(expert, status));
  if (buffers_.IsHeld(expert, Holder::kPlacement)) placement_.Forget(RefOf(expert));
  buffers_.Drop(expert, Holder::kRequest);
  buffers_.Drop(expert, Holder::kPlacement);
  prefetcher_.DropIfHinted(expert);
  buffers_.Vacate(expert);
}

// Waits until a read has ended. Returns false if the read of a requested expert is late, or if no
// read can end before a buffer is released.
bool ExpertFetcher::AwaitArrivals() {
  const absl::Duration patience = reads_.patience();
  if (reads_.Await() == ReadQueue::Wait::kArrived) {
    TakeArrivals();
    return true;
  }
  // Whether the caller can free memory by releasing an expert or by ending copies.
  bool one_can_leave = buffers_.has_copies();
  for (const int64_t expert : request_.experts()) {
    if (buffers_.IsHeld(expert, Holder::kRequest) && reads_.IsLate(expert)) {
      FailLate(expert, patience);
      return false;
    }
    one_can_leave |= request_.IsGivenOut(expert) && !buffers_.IsHeld(expert, Holder::kPlacement);
  }
  if (one_can_leave) return false;
  CHECK(reads_.late() > 0 && request_.has_waiting()) << "no memory for a layer that holds none";
  request_.Fail(Named(request_.next_waiting(),
                      absl::UnavailableError(absl::StrCat(
                          "cannot be read: stuck reads hold all buffers; check the disk, "
                          "and retry (stuck reads: ",
                          reads_.late(), ")"))));
  return false;
}

void ExpertFetcher::FailLate(int64_t expert, absl::Duration waited) {
  request_.Fail(
      Named(expert, absl::UnavailableError(absl::StrCat(
                        "has not been read for ", absl::FormatDuration(waited),
                        "; check the disk, and retry (stuck reads: ", reads_.late(), ")"))));
}

// Ends the request. Its reads that are in flight may end later.
absl::Status ExpertFetcher::Abandon() {
  const absl::Span<const int64_t> waiting = request_.waiting();
  for (auto expert = waiting.rbegin(); expert != waiting.rend(); ++expert) {
    if (!buffers_.IsHeld(*expert, Holder::kPlacement)) continue;
    placement_.Forget(RefOf(*expert));
    buffers_.Drop(*expert, Holder::kPlacement);
  }
  for (const int64_t expert : request_.experts()) buffers_.Drop(expert, Holder::kRequest);
  return request_.Abandon();
}

int64_t ExpertFetcher::AwaitAllReads(absl::Duration patience) {
  prefetcher_.Withdraw();
  const int64_t left = reads_.AwaitAll(patience);
  if (left == 0) TakeArrivals();
  return left;
}

FetchCounters ExpertFetcher::counters() const {
  FetchCounters counters = counters_;
  counters.busy_time = reads_.BusyTime();
  counters.prefetch = prefetcher_.counters();
  counters.repairs = repair_.stats();
  return counters;
}

}  // namespace tidepool::moe

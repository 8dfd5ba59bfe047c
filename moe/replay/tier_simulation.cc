#include "moe/replay/tier_simulation.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "moe/device/lane_costs.h"
#include "moe/expert_scheduler.h"

namespace tidepool::moe {
namespace {

constexpr double kMicrosecond = 1e-6;

// The experts of one layer that were not given out yet. See DeviceRequest::Lists.
struct LayerLists {
  std::vector<int64_t> waiting;  // for a buffer; in ascending order
  std::vector<int64_t> on_device;
  std::vector<int64_t> being_copied;  // in the order of the copies
  std::vector<int64_t> for_cpu;

  bool empty() const {
    return waiting.empty() && on_device.empty() && being_copied.empty() && for_cpu.empty();
  }
};

// Returns the number of rows in the phase decode.
int64_t DecodeRows(const LayerRouting& routing) {
  if (routing.phases.empty()) return routing.tokens;
  const int64_t decoding = std::count(routing.phases.begin(), routing.phases.end(), Phase::kDecode);
  return routing.phases.size() == 1 ? decoding * routing.tokens : decoding;
}

// The names of the functions are those of DeviceExperts, DeviceFetcher and ExpertScheduler. Times
// are seconds since the start.
class TierSimulation {
 public:
  TierSimulation(const TierOptions& options, Placement* placement);

  void BeginForward(int64_t decode_rows);
  void EndForward();
  void RunLayer(const LayerRouting& routing);
  TierResult Result() const;

 private:
  struct Expert {
    bool has_buffer = false;
    bool is_ready = false;      // ops may use the buffer
    bool is_requested = false;  // the current layer has requested the expert and not released it
    int64_t rows = 0;           // in the current layer
    int64_t copy = 0;           // number of the last copy
    double copied_at = 0;       // when this copy ends
  };
  struct Copy {
    int64_t expert = 0;
    int64_t number = 0;
    double end = 0;
  };

  bool IsKept(int64_t expert) const { return residency().resident()[expert] != 0; }
  const Residency& residency() const { return placement_.residency(); }
  double CopyTime() const;
  size_t FreeBuffers() const;
  void FreeIfUnused(int64_t expert);
  void Evict(int64_t expert);
  void PollCopies();
  void CancelLaterCopies();
  double SecondsAhead() const;
  bool BeginCopy(int64_t expert);
  void BeginCopies();
  double RunOnDevice(double seconds);
  void CountNeeds(const LayerRouting& routing);
  void TakeHits();
  void Decide(const LayerRouting& routing);
  void Divide(const std::vector<int64_t>& missing, HostLane host_lane);
  void RunWave();
  void ComputeOnDevice(const std::vector<int64_t>& experts);
  void ComputeOnCpu(const std::vector<int64_t>& experts);
  void Release(const std::vector<int64_t>& experts);

  const TierCosts costs_;
  const size_t buffers_;  // of the device
  Placement& placement_;
  LaneCosts lanes_;
  std::vector<Expert> experts_;  // [layers, experts]
  size_t used_buffers_ = 0;
  size_t settled_buffers_ = 0;   // free buffers that were freed before the current layer
  std::vector<int64_t> needed_;  // of the current layer, in ascending order
  LayerLists lists_;
  std::vector<int64_t> later_;  // copies that no layer waits for, and that need a buffer
  std::deque<Copy> in_flight_;  // also has copies that have ended since the last PollCopies
  int64_t copies_ = 0;          // number of copies so far

  double now_ = 0;          // the time of the thread that calls ops, which is also the CPU lane
  double device_free_ = 0;  // when all ops that were called have run
  double lane_free_ = 0;    // when all copies that have begun have ended
  double lane_guess_ = 0;   // the same time, as LaneCosts estimates it
  double forward_begin_ = 0;
  int64_t forward_decode_rows_ = 0;
  TierResult result_;
};

TierSimulation::TierSimulation(const TierOptions& options, Placement* placement)
    : costs_(options.costs),
      buffers_(static_cast<size_t>(placement->residency().slots() + options.staging)),
      placement_(*placement),
      experts_(placement->shape().all_experts()) {
  CHECK_GT(options.staging, 0);
  // DeviceFetcher::LoadResidents.
  for (const ExpertRef ref : placement_.residents()) {
    Expert& expert = experts_[residency().IndexOf(ref)];
    expert.has_buffer = expert.is_ready = true;
    ++used_buffers_;
    lanes_.NoteCopy(costs_.expert_bytes, CopyTime());
  }
}

double TierSimulation::CopyTime() const {
  return costs_.copy_latency_us * kMicrosecond +
         static_cast<double>(costs_.expert_bytes) / costs_.copy_bytes_per_s;
}

size_t TierSimulation::FreeBuffers() const { return buffers_ - used_buffers_; }

// Frees the expert's buffer if neither the placement nor the current layer needs it.
void TierSimulation::FreeIfUnused(int64_t expert) {
  Expert& entry = experts_[expert];
  if (!entry.has_buffer || entry.is_requested || IsKept(expert)) return;
  entry.has_buffer = entry.is_ready = false;
  --used_buffers_;
}

void TierSimulation::Evict(int64_t expert) {
  placement_.Forget(residency().At(expert));
  FreeIfUnused(expert);
}

// Reports the copies that have ended to LaneCosts.
void TierSimulation::PollCopies() {
  while (!in_flight_.empty() && in_flight_.front().end <= now_) {
    const Copy copy = in_flight_.front();
    in_flight_.pop_front();
    lanes_.NoteCopy(costs_.expert_bytes, CopyTime());
    Expert& expert = experts_[copy.expert];
    if (expert.has_buffer && expert.copy == copy.number) expert.is_ready = true;
  }
  if (in_flight_.empty()) lane_guess_ = 0;
}

void TierSimulation::CancelLaterCopies() {
  for (const int64_t expert : std::exchange(later_, {})) {
    if (IsKept(expert)) Evict(expert);
    --result_.copied_for_later;
  }
}

double TierSimulation::SecondsAhead() const {
  const double in_flight = in_flight_.empty() ? 0 : std::max(0.0, lane_guess_ - now_);
  const auto waiting = static_cast<double>(lists_.waiting.size() + later_.size());
  return in_flight + waiting * lanes_.CopySeconds(costs_.expert_bytes);
}

// Returns false if no buffer is free.
bool TierSimulation::BeginCopy(int64_t expert) {
  if (FreeBuffers() == 0) return false;
  ++used_buffers_;
  lane_guess_ = std::max(lane_guess_, now_) + lanes_.CopySeconds(costs_.expert_bytes);
  double begin = std::max(lane_free_, now_);
  if (settled_buffers_ > 0) {
    --settled_buffers_;
  } else {
    begin = std::max(begin, device_free_);
  }
  lane_free_ = begin + CopyTime();
  result_.copy_seconds += CopyTime();
  Expert& entry = experts_[expert];
  entry.has_buffer = true;
  entry.copy = ++copies_;
  entry.copied_at = lane_free_;
  in_flight_.push_back({expert, entry.copy, lane_free_});
  return true;
}

void TierSimulation::BeginCopies() {
  while (!lists_.waiting.empty() && BeginCopy(lists_.waiting.front())) {
    lists_.being_copied.push_back(lists_.waiting.front());
    lists_.waiting.erase(lists_.waiting.begin());
  }
  while (lists_.waiting.empty() && !later_.empty() && BeginCopy(later_.front())) {
    later_.erase(later_.begin());
  }
}

// Simulates an op that runs after all earlier ops. Returns the time at which the op ends.
double TierSimulation::RunOnDevice(double seconds) {
  device_free_ = std::max(device_free_, now_) + seconds;
  result_.device_seconds += seconds;
  return device_free_;
}

void TierSimulation::BeginForward(int64_t decode_rows) {
  forward_begin_ = now_;
  forward_decode_rows_ = decode_rows;
  ++result_.forwards;
}

void TierSimulation::EndForward() {
  now_ = RunOnDevice(costs_.device_step_us * kMicrosecond);
  result_.decode_rows += forward_decode_rows_;
  if (forward_decode_rows_ > 0) result_.decode_seconds += now_ - forward_begin_;
}

void TierSimulation::CountNeeds(const LayerRouting& routing) {
  needed_.clear();
  for (const int32_t id : routing.ids) {
    const int64_t expert = residency().IndexOf({routing.layer, id});
    Expert& entry = experts_[expert];
    if (!std::exchange(entry.is_requested, true)) {
      entry.rows = 0;
      needed_.push_back(expert);
    }
    ++entry.rows;
  }
  std::sort(needed_.begin(), needed_.end());
}

// The order of the calls is that of ExpertScheduler with this source: hits are computed before the
// placement decides, unless the layer has many rows.
void TierSimulation::RunLayer(const LayerRouting& routing) {
  now_ = RunOnDevice(costs_.device_layer_us * kMicrosecond);
  PollCopies();
  CancelLaterCopies();
  settled_buffers_ = FreeBuffers();
  CountNeeds(routing);
  const HostLane host_lane = routing.tokens <= kHostLaneRows ? HostLane::kOn : HostLane::kOff;
  if (host_lane == HostLane::kOn) TakeHits();
  Decide(routing);
  std::vector<int64_t> missing;
  for (const int64_t expert : needed_) {
    if (!experts_[expert].is_requested) continue;  // a hit that was released already
    (experts_[expert].has_buffer ? lists_.on_device : missing).push_back(expert);
  }
  PollCopies();
  Divide(missing, host_lane);
  while (!lists_.empty()) RunWave();
}

void TierSimulation::TakeHits() {
  std::vector<int64_t> hits;
  for (const int64_t expert : needed_) {
    if (experts_[expert].is_ready && IsKept(expert)) hits.push_back(expert);
  }
  ComputeOnDevice(hits);
  Release(hits);
}

void TierSimulation::Decide(const LayerRouting& routing) {
  for (const Lookup& lookup : placement_.Decide(routing)) {
    if (lookup.victim.valid()) FreeIfUnused(residency().IndexOf(lookup.victim));
  }
}

// Chooses a lane for each missing expert.
void TierSimulation::Divide(const std::vector<int64_t>& missing, HostLane host_lane) {
  std::vector<LaneMiss> misses;
  for (const int64_t expert : missing) {
    misses.push_back({.expert = expert,
                      .bytes = costs_.expert_bytes,
                      .rows = experts_[expert].rows,
                      .is_kept = IsKept(expert)});
  }
  size_t copies = misses.size();
  if (host_lane == HostLane::kOn) {
    copies = lanes_.Split({.seconds_ahead = SecondsAhead(), .max_copies = FreeBuffers()}, &misses);
  }
  for (size_t i = 0; i < misses.size(); ++i) {
    const int64_t expert = misses[i].expert;
    if (i < copies) {
      ++result_.copied;
      lists_.waiting.push_back(expert);
      continue;
    }
    ++result_.computed_on_cpu;
    lists_.for_cpu.push_back(expert);
    if (!IsKept(expert)) continue;
    if (lanes_.MayCopyForLater(costs_.expert_bytes, SecondsAhead())) {
      ++result_.copied_for_later;
      later_.push_back(expert);
    } else {
      Evict(expert);
    }
  }
  std::sort(lists_.waiting.begin(), lists_.waiting.end());
}

// Gives out all experts that can be computed now, and computes them. If copies wait for buffers,
// gives out only the older half of the experts whose copies are in flight.
void TierSimulation::RunWave() {
  PollCopies();
  BeginCopies();
  std::vector<int64_t> wave = std::exchange(lists_.on_device, {});
  const size_t copies = lists_.being_copied.size();
  const auto end = lists_.being_copied.begin() +
                   static_cast<int64_t>(lists_.waiting.empty() ? copies : (copies + 1) / 2);
  wave.insert(wave.end(), lists_.being_copied.begin(), end);
  lists_.being_copied.erase(lists_.being_copied.begin(), end);
  const std::vector<int64_t> for_cpu = std::exchange(lists_.for_cpu, {});
  CHECK(!wave.empty() || !for_cpu.empty()) << "no buffer is free";
  ComputeOnDevice(wave);
  ComputeOnCpu(for_cpu);
  Release(wave);
  Release(for_cpu);
  BeginCopies();
}

// Simulates one op that computes all these experts. The op waits until they are copied.
void TierSimulation::ComputeOnDevice(const std::vector<int64_t>& experts) {
  if (experts.empty()) return;
  double copied_at = 0;
  double us = costs_.device_call_us;
  for (const int64_t expert : experts) {
    Expert& entry = experts_[expert];
    if (!entry.is_ready) copied_at = std::max(copied_at, entry.copied_at);
    entry.is_ready = true;
    us += costs_.device_expert_us + static_cast<double>(entry.rows) * costs_.device_expert_row_us;
  }
  const double begin = std::max(device_free_, now_);
  if (copied_at > begin) {
    result_.copy_wait_seconds += copied_at - begin;
    device_free_ = copied_at;
  }
  RunOnDevice(us * kMicrosecond);
}

void TierSimulation::ComputeOnCpu(const std::vector<int64_t>& experts) {
  if (experts.empty()) return;
  int64_t rows = 0;
  for (const int64_t expert : experts) rows += experts_[expert].rows;
  const auto count = static_cast<int64_t>(experts.size());
  const double seconds =
      kMicrosecond * (costs_.cpu_call_us + static_cast<double>(count) * costs_.cpu_expert_us +
                      static_cast<double>(rows) * costs_.cpu_expert_row_us);
  now_ += seconds;
  result_.cpu_seconds += seconds;
  lanes_.NoteHostWork(count * costs_.expert_bytes, rows * costs_.expert_bytes, seconds);
}

void TierSimulation::Release(const std::vector<int64_t>& experts) {
  for (const int64_t expert : experts) {
    experts_[expert].is_requested = false;
    FreeIfUnused(expert);
  }
}

TierResult TierSimulation::Result() const {
  TierResult result = result_;
  result.policy = std::string(placement_.policy_name());
  result.slots = residency().slots();
  result.counters = placement_.Total();
  // The last copies for later have begun and may not have ended.
  result.seconds = std::max(now_, lane_free_);
  return result;
}

}  // namespace

TierResult SimulateTier(const Trace& trace, const TierOptions& options, Placement* placement) {
  TierSimulation simulation(options, placement);
  const TraceEntry* last = nullptr;
  for (const TraceEntry& entry : trace.entries) {
    const LayerRouting routing = entry.routing(trace.header.top_k);
    if (BeginsForward(last, entry)) {
      if (last != nullptr) simulation.EndForward();
      simulation.BeginForward(DecodeRows(routing));
    }
    last = &entry;
    simulation.RunLayer(routing);
  }
  if (last != nullptr) simulation.EndForward();
  return simulation.Result();
}

}  // namespace tidepool::moe

#include "moe/bounded_moe_layer.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops.h"

namespace tidepool::moe {

using kernels::MatrixView;

int64_t CallRows(int64_t call_bytes, int64_t width) {
  constexpr int64_t kMin = 16;
  constexpr int64_t kMany = 1024;
  const auto bytes = static_cast<int64_t>(kernels::ActivationBytes(kMany, width));
  return std::max(kMin, call_bytes * kMany / bytes);
}

BoundedMoeLayer::BoundedMoeLayer(const Parts& parts)
    : parts_(parts),
      plan_(*parts.plan),
      experts_(plan_.experts.size()),
      row_of_(plan_.tokens.size(), -1) {
  CHECK_GT(parts.kept.rows, 0);
  for (int64_t row = parts.kept.rows; row-- > 0;) free_rows_.push_back(static_cast<int32_t>(row));
}

absl::Status BoundedMoeLayer::Run(MatrixView sum) {
  while (next_ < experts_.size()) {
    if (ComputeAhead(/*leaving_hits_only=*/true) || TakeTurn(sum)) continue;
    ASSIGN_OR_RETURN(bool came, Await(Patience::kNone));
    if (came || ComputeAhead(/*leaving_hits_only=*/false)) continue;
    ASSIGN_OR_RETURN(came, Await(Patience::kUntilOne));
    if (!came) Postpone();
  }
  ASSIGN_OR_RETURN(const bool more, Await(Patience::kUntilOne));
  CHECK(!more) << "the source returned more than was requested";
  return absl::OkStatus();
}

absl::StatusOr<bool> BoundedMoeLayer::Await(Patience patience) {
  ASSIGN_OR_RETURN(const std::vector<ReadyExpert> wave, parts_.source->NextReady(patience));
  if (!wave.empty()) ++*parts_.heartbeat;
  for (const ReadyExpert& ready : wave) {
    const size_t i = plan_.Find(ready.expert);
    CHECK(i < experts_.size() && i >= next_ && experts_[i].state == State::kAway)
        << "the source returned expert " << ready.expert
        << ", which was not requested or was already returned";
    CHECK(ready.place == Place::kBackend) << "expert " << ready.expert;
    if (!experts_[i].seen) ++(ready.found == Found::kResident ? hits_ : misses_);
    experts_[i] = {State::kHeld, true, ready};
    call_rows_ = CallRows(parts_.call_bytes, ready.weights->gate.rows);
  }
  return !wave.empty();
}

// Adds the outputs of the next expert, or of the next few experts. Returns false if the next expert
// is not ready.
bool BoundedMoeLayer::TakeTurn(MatrixView sum) {
  switch (experts_[next_].state) {
    case State::kAway:
      return false;
    case State::kKept:
      Sum(Whole(next_++), sum);
      return true;
    case State::kHeld:
      RunInTurn(sum);
      return true;
  }
  return false;
}

// Computes the next experts that are held, as many as fit into one call. If the first expert alone
// is too large for a call, it is computed in parts.
void BoundedMoeLayer::RunInTurn(MatrixView sum) {
  const int64_t most = std::min(call_rows_, free_rows());
  CHECK_GT(most, 0);
  std::vector<Part> parts;
  int64_t rows = 0;
  const size_t first = next_;
  for (; next_ < experts_.size() && experts_[next_].state == State::kHeld; ++next_) {
    rows += plan_.RowsOf(next_);
    if (rows > most) break;
    parts.push_back(Whole(next_));
  }
  if (!parts.empty()) {
    Compute(parts);
    for (const Part& part : parts) Sum(part, sum);
  } else {
    const Part whole = Whole(next_++);
    for (Part part = whole; part.begin < whole.end; part.begin = part.end) {
      part.end = static_cast<int32_t>(std::min<int64_t>(whole.end, part.begin + most));
      Compute({&part, 1});
      Sum(part, sum);
    }
  }
  for (size_t i = first; i < next_; ++i) Release(i);
}

// Computes one expert before its turn, if there is room to keep its outputs. Prefers an expert
// whose memory other experts need.
bool BoundedMoeLayer::ComputeAhead(bool leaving_hits_only) {
  // This number of rows is reserved for the experts that are computed in order.
  const int64_t reserve = std::min(call_rows_, parts_.kept.rows / 4 + 1);
  size_t found = experts_.size();
  for (size_t i = next_; i < experts_.size(); ++i) {
    const Expert& expert = experts_[i];
    if (expert.state != State::kHeld || plan_.RowsOf(i) > free_rows() - reserve) continue;
    if (leaving_hits_only && (!expert.ready.leaves || expert.ready.found != Found::kResident)) {
      continue;
    }
    if (found == experts_.size()) found = i;
    if (!expert.ready.leaves) continue;
    found = i;
    break;
  }
  if (found == experts_.size()) return false;
  const Part whole = Whole(found);
  for (Part part = whole; part.begin < whole.end; part.begin = part.end) {
    part.end = static_cast<int32_t>(std::min<int64_t>(whole.end, part.begin + call_rows_));
    Compute({&part, 1});
  }
  Release(found);
  experts_[found].state = State::kKept;
  return true;
}

// Called if the source has no free memory for the next expert. Returns the memory of the last
// expert in order. That expert must be read again later.
void BoundedMoeLayer::Postpone() {
  for (size_t i = experts_.size(); i-- > next_;) {
    Expert& expert = experts_[i];
    if (expert.state != State::kHeld || !expert.ready.leaves) continue;
    parts_.source->Postpone(expert.ready.expert);
    expert.state = State::kAway;
    return;
  }
  CHECK(false) << "experts that the source never returned";
}

void BoundedMoeLayer::Compute(absl::Span<const Part> parts) {
  std::vector<kernels::ExpertGroup> groups;
  for (const Part& part : parts) {
    for (int32_t pair = part.begin; pair < part.end; ++pair) {
      row_of_[pair] = free_rows_.back();
      free_rows_.pop_back();
    }
    const auto count = static_cast<size_t>(part.end - part.begin);
    groups.push_back({experts_[part.expert].ready.weights, plan_.tokens.subspan(part.begin, count),
                      absl::MakeConstSpan(row_of_).subspan(part.begin, count)});
  }
  parts_.backend->GroupedFfn(parts_.x, groups, parts_.kept, parts_.arena);
}

void BoundedMoeLayer::Sum(const Part& part, MatrixView sum) {
  const auto count = static_cast<size_t>(part.end - part.begin);
  const absl::Span<const int32_t> rows = absl::MakeConstSpan(row_of_).subspan(part.begin, count);
  parts_.backend->AccumulateExpert(parts_.kept,
                                   {.rows = rows,
                                    .tokens = plan_.tokens.subspan(part.begin, count),
                                    .weights = plan_.weights.subspan(part.begin, count)},
                                   sum);
  free_rows_.insert(free_rows_.end(), rows.begin(), rows.end());
}

void BoundedMoeLayer::Release(size_t expert) {
  parts_.source->Release(experts_[expert].ready.expert);
}

}  // namespace tidepool::moe

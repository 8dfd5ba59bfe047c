#include "engine/scheduler/admission_turns.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {

Sequence* AdmissionTurns::Next() {
  if (claims_.empty() && !FormLines()) return nullptr;
  const Line& line = lines_[claims_.top().line];
  return line.sequences[line.at];
}

void AdmissionTurns::Pass() {
  const size_t line = claims_.top().line;
  claims_.pop();
  ++looks_;
  if (++lines_[line].at < lines_[line].sequences.size()) Queue(line);
}

void AdmissionTurns::PassOver() {
  Line& line = lines_[claims_.top().line];
  if (++line.passed_over == kMaxPassedOver) return PassLine();
  Pass();
}

void AdmissionTurns::PassLine() {
  Line& line = lines_[claims_.top().line];
  line.at = line.sequences.size() - 1;
  Pass();
}

// Of the remaining sequences with credit, takes those with the highest priority, and groups them
// into lines.
bool AdmissionTurns::FormLines() {
  const SequenceQueue& queue = queue_->sequences();
  auto at = std::partition_point(queue.begin(), queue.end(), [this](const auto& sequence) {
    return sequence->request.priority >= priority_;
  });
  lines_.clear();
  absl::flat_hash_map<absl::string_view, size_t> line_of;  // index of each principal's line
  for (; at != queue.end(); ++at) {
    Sequence* sequence = at->get();
    if (!lines_.empty() && sequence->request.priority < priority_) break;
    priority_ = sequence->request.priority;
    ++looks_;
    if (!sequence->has_credit) continue;
    const auto [found, added] = line_of.try_emplace(sequence->request.principal, lines_.size());
    if (added) lines_.emplace_back();
    lines_[found->second].sequences.push_back(sequence);
  }
  for (size_t line = 0; line < lines_.size(); ++line) Queue(line);
  return !lines_.empty();
}

void AdmissionTurns::Queue(size_t line) {
  const Sequence& first = *lines_[line].sequences[lines_[line].at];
  claims_.push({queue_->Served(first), first.arrival, line});
}

int64_t QueueAheadCounter::Of(const Sequence& sequence) {
  Reach(sequence.request.priority);
  const auto own = own_.find(sequence.request.principal);
  if (own == own_.end()) return above_;
  const std::vector<int64_t>& tokens = own->second;
  const auto longer =
      std::upper_bound(tokens.begin(), tokens.end(), static_cast<int64_t>(sequence.tokens.size()));
  return above_ + (longer - tokens.begin());
}

void QueueAheadCounter::Show(const Sequence& sequence) {
  Reach(sequence.request.priority);
  if (!sequence.has_credit) return;
  ++level_;
  std::vector<int64_t>& tokens = own_[sequence.request.principal];
  const auto count = static_cast<int64_t>(sequence.tokens.size());
  tokens.insert(std::upper_bound(tokens.begin(), tokens.end(), count), count);
}

void QueueAheadCounter::Reach(int32_t priority) {
  CHECK_LE(priority, priority_) << "out of the queue's order";
  if (priority == priority_) return;
  priority_ = priority;
  above_ += std::exchange(level_, 0);
  own_.clear();
}

}  // namespace tidepool::engine

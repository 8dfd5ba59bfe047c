#include "engine/scheduler/admission_queue.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {

bool GoesBefore(const Sequence& a, const Sequence& b) {
  if (a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
  return a.arrival < b.arrival;
}

void Insert(std::unique_ptr<Sequence> sequence, SequenceQueue* queue) {
  const auto place = std::upper_bound(
      queue->begin(), queue->end(), sequence,
      [](const auto& added, const auto& queued) { return GoesBefore(*added, *queued); });
  queue->insert(place, std::move(sequence));
}

std::unique_ptr<Sequence> Take(const Sequence* sequence, SequenceQueue* queue) {
  const auto found = std::lower_bound(
      queue->begin(), queue->end(), sequence,
      [](const auto& held, const Sequence* wanted) { return GoesBefore(*held, *wanted); });
  CHECK(found != queue->end() && found->get() == sequence)
      << "sequence " << sequence->arrival << " is not in the queue";
  std::unique_ptr<Sequence> taken = std::move(*found);
  queue->erase(found);
  return taken;
}

std::vector<EndedSequence> TakeFailed(absl::FunctionRef<absl::Status(Sequence*)> judge,
                                      SequenceQueue* queue) {
  std::vector<EndedSequence> failed;
  size_t kept = 0;
  for (std::unique_ptr<Sequence>& sequence : *queue) {
    absl::Status status = judge(sequence.get());
    if (status.ok()) {
      std::swap((*queue)[kept++], sequence);
    } else {
      failed.push_back({std::move(sequence), std::move(status)});
    }
  }
  queue->resize(kept);
  return failed;
}

void AdmissionQueue::Add(std::unique_ptr<Sequence> sequence) {
  share_.BeginWaiting(sequence->request.principal);
  Insert(std::move(sequence), &waiting_);
}

std::unique_ptr<Sequence> AdmissionQueue::Take(const Sequence* sequence) {
  std::unique_ptr<Sequence> taken = engine::Take(sequence, &waiting_);
  share_.EndWaiting(taken->request.principal);
  return taken;
}

std::vector<EndedSequence> AdmissionQueue::TakeFailed(
    absl::FunctionRef<absl::Status(Sequence*)> judge) {
  std::vector<EndedSequence> failed = engine::TakeFailed(judge, &waiting_);
  for (const EndedSequence& ended : failed) share_.EndWaiting(ended.sequence->request.principal);
  return failed;
}

void AdmissionQueue::ChargePrompt(const Sequence& sequence, int64_t tokens) {
  share_.Charge(sequence.request.principal, FairShare::kPromptCost * tokens);
}

void AdmissionQueue::ChargeOutput(const Sequence& sequence, int64_t tokens) {
  share_.Charge(sequence.request.principal, FairShare::kOutputCost * tokens);
}

}  // namespace tidepool::engine

#include "engine/admission_queue.h"

#include <algorithm>
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
  const auto found = std::find_if(queue->begin(), queue->end(),
                                  [sequence](const auto& held) { return held.get() == sequence; });
  CHECK(found != queue->end()) << "sequence " << sequence->arrival << " is not in the queue";
  std::unique_ptr<Sequence> taken = std::move(*found);
  queue->erase(found);
  return taken;
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

Sequence* AdmissionQueue::Next() const {
  Sequence* next = nullptr;
  int64_t least = 0;
  for (const auto& sequence : waiting_) {
    if (next != nullptr && sequence->request.priority < next->request.priority) break;
    if (!sequence->has_credit || sequence->held_back) continue;
    const int64_t served = share_.served(sequence->request.principal);
    if (next != nullptr && served >= least) continue;
    next = sequence.get();
    least = served;
  }
  return next;
}

int64_t AdmissionQueue::CertainlyAhead(const Sequence& sequence) const {
  return std::count_if(waiting_.begin(), waiting_.end(), [&](const auto& other) {
    return other->has_credit && (other->request.priority > sequence.request.priority ||
                                 (other->request.principal == sequence.request.principal &&
                                  GoesBefore(*other, sequence)));
  });
}

void AdmissionQueue::ChargePrompt(const Sequence& sequence, int64_t tokens) {
  share_.Charge(sequence.request.principal, FairShare::kPromptCost * tokens);
}

void AdmissionQueue::ChargeOutput(const Sequence& sequence, int64_t tokens) {
  share_.Charge(sequence.request.principal, FairShare::kOutputCost * tokens);
}

}  // namespace tidepool::engine

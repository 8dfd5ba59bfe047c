#include "engine/scheduler/fair_preemption.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace tidepool::engine {
namespace {

int64_t MadeSinceAdmission(const Sequence& sequence) {
  return sequence.outputs() - sequence.admission.outputs_before;
}

class Holders {
 public:
  Holders(const SequenceQueue& running, absl::Span<const Sequence* const> restoring,
          const Sequence& for_whom) {
    held_[for_whom.request.principal] = 0;
    for (const auto& sequence : running) {
      ++held_[sequence->request.principal];
      if (sequence->request.priority == for_whom.request.priority &&
          sequence->request.principal != for_whom.request.principal &&
          MadeSinceAdmission(*sequence) >= PlaceQuantum(*sequence)) {
        eligible_.push_back(sequence.get());
      }
    }
    for (const Sequence* sequence : restoring) ++held_[sequence->request.principal];
    own_ = held_[for_whom.request.principal];
    total_ = static_cast<int64_t>(running.size() + restoring.size());
  }

  std::vector<Sequence*> Victims() {
    std::vector<Sequence*> victims;
    while (Sequence* next = Next()) {
      victims.push_back(next);
      eligible_.erase(std::find(eligible_.begin(), eligible_.end(), next));
      --held_[next->request.principal];
      --total_;
    }
    return victims;
  }

 private:
  int64_t HeldBy(const Sequence* sequence) const { return held_.at(sequence->request.principal); }

  // Returns the next sequence that loses its place, or null if there is none.
  Sequence* Next() const {
    Sequence* best = nullptr;
    for (Sequence* sequence : eligible_) {
      if (MayLose(*sequence) && (best == nullptr || GoesFirst(*sequence, *best))) best = sequence;
    }
    return best;
  }

  bool MayLose(const Sequence& sequence) const {
    const int64_t held = HeldBy(&sequence);
    // The average includes the waiting principal.
    const bool above_average = held * static_cast<int64_t>(held_.size()) > total_;
    if (held > own_ + 1 && above_average) return true;
    return own_ == 0 && held == 1 &&
           MadeSinceAdmission(sequence) >= kOnlyPlaceQuanta * PlaceQuantum(sequence);
  }

  // Returns whether `a` loses its place before `b`. The newest sequence of the principal with the
  // most places is the first. If every principal has only one place, the sequence that has held its
  // place longest is the first.
  bool GoesFirst(const Sequence& a, const Sequence& b) const {
    if (HeldBy(&a) != HeldBy(&b)) return HeldBy(&a) > HeldBy(&b);
    if (HeldBy(&a) > 1) return a.arrival > b.arrival;
    return MadeSinceAdmission(a) > MadeSinceAdmission(b);
  }

  absl::flat_hash_map<absl::string_view, int64_t> held_;  // number of places of each principal
  int64_t own_ = 0;  // number of places of the waiting principal
  int64_t total_ = 0;
  std::vector<Sequence*> eligible_;
};

}  // namespace

int64_t PlaceQuantum(const Sequence& sequence) {
  return std::max(kPlaceQuantum, sequence.admission.left_to_compute / kRecomputeShare);
}

std::vector<Sequence*> FairVictims(const SequenceQueue& running,
                                   absl::Span<const Sequence* const> restoring,
                                   const Sequence& for_whom) {
  return Holders(running, restoring, for_whom).Victims();
}

}  // namespace tidepool::engine

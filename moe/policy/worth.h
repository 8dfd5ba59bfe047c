// For policies that rank all experts by one number: the residents of least worth leave.
#ifndef TIDEPOOL_MOE_POLICY_WORTH_H_
#define TIDEPOOL_MOE_POLICY_WORTH_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/residency.h"
#include "moe/policy/vec4.h"

namespace tidepool::moe {

// Layers in turn take experts 0, 1, 2 ... until the slots are full.
std::vector<ExpertRef> FillEvenly(const PoolShape& shape);

// Whether any of four is `bound` at most.
template <typename T>
bool AnyAtMost4(const T* values, T bound) {
  return values[0] <= bound || values[1] <= bound || values[2] <= bound || values[3] <= bound;
}
inline bool AnyAtMost4(const float* values, float bound) { return AnyOf4(Load4(values) <= bound); }

template <typename T>
struct Ranked {
  T worth;
  int64_t index;  // in [layers, experts]

  bool operator<(const Ranked& other) const {
    return worth != other.worth ? worth < other.worth : index < other.index;
  }
};

// Thread-compatible. The residents that are worth least, at most `count`, collected layer by layer
// in any order of the layers.
template <typename T>
class LeastWorthy {
 public:
  explicit LeastWorthy(int64_t count) : count_(count) {}

  // Whether nothing that is worth more than worst() can be among them.
  bool full() const { return static_cast<int64_t>(heap_.size()) >= count_; }
  // The one of most worth so far. Requires: there is one.
  const Ranked<T>& worst() const { return heap_.front(); }

  // Residents of `layer` that are not pinned, `limit` of them at most. worth: [layers, experts].
  void Add(const Residency& residency, absl::Span<const T> worth, int layer, int64_t limit) {
    limit = std::min(limit, count_);
    if (limit <= 0) return;
    of_layer_.clear();
    const bool was_full = full();
    const int64_t end = (int64_t{layer} + 1) * residency.shape().experts;
    for (int64_t index = end - residency.shape().experts; index < end; ++index) {
      // Most are skipped, four at a time. Ties are broken by index.
      if (was_full && index + 4 <= end && !AnyAtMost4(&worth[index], worst().worth)) {
        index += 3;
        continue;
      }
      if (residency.resident()[index] == 0) continue;
      const Ranked<T> ranked{worth[index], index};
      if (was_full && !(ranked < worst())) continue;
      if (residency.IsPinned(residency.At(index))) continue;
      Keep(&of_layer_, limit, ranked);
    }
    for (const Ranked<T>& ranked : of_layer_) Keep(&heap_, count_, ranked);
  }

  // The least worthy first, ties to the lower index. Nothing is left.
  std::vector<Ranked<T>> Take() {
    std::sort_heap(heap_.begin(), heap_.end());
    return std::move(heap_);
  }

 private:
  static void Keep(std::vector<Ranked<T>>* heap, int64_t limit, const Ranked<T>& ranked) {
    if (static_cast<int64_t>(heap->size()) == limit) {
      if (!(ranked < heap->front())) return;
      std::pop_heap(heap->begin(), heap->end());
      heap->back() = ranked;
    } else {
      heap->push_back(ranked);
    }
    std::push_heap(heap->begin(), heap->end());
  }

  const int64_t count_;
  std::vector<Ranked<T>> heap_;  // the one of most worth on top
  std::vector<Ranked<T>> of_layer_;
};

// How many residents of a layer may leave when `running`'s routing is known (-1: none's is): those
// above the floor, and all of its own.
inline int64_t MayLeave(const Residency& residency, int layer, int running) {
  return residency.residents_of(layer) - (layer == running ? 0 : residency.shape().floor);
}

// At most `count` residents that may leave, the least worthy first, ties to the lower index.
template <typename T>
std::vector<Ranked<T>> FindLeastWorthy(const Residency& residency, absl::Span<const T> worth,
                                       int running, int64_t count) {
  LeastWorthy<T> least(count);
  for (int layer = 0; layer < residency.shape().layers; ++layer) {
    least.Add(residency, worth, layer, MayLeave(residency, layer, running));
  }
  return least.Take();
}

// Decide by worth: free slots first, then victims that are worth less than what replaces them.
// missing: the missing experts of `layer`; sorted by worth, the highest first.
template <typename T>
void SwapByWorth(const Residency& residency, absl::Span<const T> worth, int layer,
                 std::vector<Ranked<T>>* missing, std::vector<Swap>* swaps) {
  std::sort(missing->begin(), missing->end(), [](const Ranked<T>& a, const Ranked<T>& b) {
    return a.worth != b.worth ? a.worth > b.worth : a.index < b.index;
  });
  const auto count = static_cast<int64_t>(missing->size());
  const int64_t free = std::min(residency.free_slots(), count);
  const auto expert = [&](int64_t i) { return residency.At((*missing)[i].index).expert; };
  for (int64_t i = 0; i < free; ++i) swaps->push_back({expert(i), ExpertRef()});
  const auto victims = FindLeastWorthy(residency, worth, layer, count - free);
  for (size_t i = 0; i < victims.size(); ++i) {
    if (!((*missing)[free + i].worth > victims[i].worth)) break;
    swaps->push_back({expert(free + i), residency.At(victims[i].index)});
  }
}

// Shed by worth.
template <typename T>
std::vector<ExpertRef> ShedByWorth(const Residency& residency, absl::Span<const T> worth,
                                   int64_t slots) {
  std::vector<ExpertRef> shed;
  for (const Ranked<T>& ranked :
       FindLeastWorthy(residency, worth, -1, residency.residents() - slots)) {
    shed.push_back(residency.At(ranked.index));
  }
  return shed;
}

// The missing experts of `needs` with their worths.
template <typename T>
void CollectMissing(const LayerNeeds& needs, const Residency& residency, absl::Span<const T> worth,
                    std::vector<Ranked<T>>* missing) {
  missing->clear();
  for (const ExpertNeed& need : needs.experts) {
    const ExpertRef ref{needs.routing.layer, need.expert};
    if (residency.IsResident(ref)) continue;
    const int64_t index = residency.IndexOf(ref);
    missing->push_back({worth[index], index});
  }
}

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_WORTH_H_

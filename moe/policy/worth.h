// What policies that rank all experts by one number share: the least worthy residents make way.
#ifndef TIDEPOOL_MOE_POLICY_WORTH_H_
#define TIDEPOOL_MOE_POLICY_WORTH_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/residency.h"
#include "moe/policy/vec4.h"

namespace tidepool::moe {

// Layers in turn take experts 0, 1, 2 ... until the slots are full.
std::vector<ExpertRef> FillEvenly(const PoolShape& shape);

// Whether any of four is less than `bound`.
template <typename T>
bool AnyLess4(const T* values, T bound) {
  return values[0] < bound || values[1] < bound || values[2] < bound || values[3] < bound;
}
inline bool AnyLess4(const float* values, float bound) {
  const Int4 less = Load4(values) < bound;
  int64_t halves[2];
  std::memcpy(halves, &less, sizeof less);
  return (halves[0] | halves[1]) != 0;
}

template <typename T>
struct Ranked {
  T worth;
  int64_t index;  // in [layers, experts]

  bool operator<(const Ranked& other) const {
    return worth != other.worth ? worth < other.worth : index < other.index;
  }
};

// At most `count` residents that may leave, the least worthy first, ties to the lower index: not
// pinned, and no layer but `layer` (-1: none is spared) loses more than its residents above the
// floor. worth: [layers, experts].
template <typename T>
std::vector<Ranked<T>> LeastWorthy(const Residency& residency, absl::Span<const T> worth, int layer,
                                   int64_t count) {
  std::vector<Ranked<T>> worst;  // a heap, the worthiest on top, when it is full
  std::vector<Ranked<T>> of_layer;
  if (count <= 0) return worst;
  const int experts = residency.shape().experts;
  const auto keep = [](std::vector<Ranked<T>>* heap, size_t limit, const Ranked<T>& ranked) {
    if (heap->size() == limit) {
      if (!(ranked < heap->front())) return;
      std::pop_heap(heap->begin(), heap->end());
      heap->back() = ranked;
    } else {
      heap->push_back(ranked);
    }
    std::push_heap(heap->begin(), heap->end());
  };
  for (int l = 0; l < residency.shape().layers; ++l) {
    int64_t limit = residency.residents_of(l);
    if (l != layer) limit -= residency.shape().floor;
    limit = std::min(limit, count);
    if (limit <= 0) continue;
    of_layer.clear();
    const bool full = static_cast<int64_t>(worst.size()) == count;
    const int64_t end = (int64_t{l} + 1) * experts;
    for (int64_t index = end - experts; index < end; ++index) {
      // Most are passed over, four at a time. Of equals the first stays.
      if (full && index + 4 <= end && !AnyLess4(&worth[index], worst.front().worth)) {
        index += 3;
        continue;
      }
      const Ranked<T> ranked{worth[index], index};
      if (full && !(ranked < worst.front())) continue;
      const ExpertRef expert = residency.At(index);
      if (!residency.IsResident(expert) || residency.IsPinned(expert)) continue;
      keep(&of_layer, limit, ranked);
    }
    for (const Ranked<T>& ranked : of_layer) keep(&worst, count, ranked);
  }
  std::sort_heap(worst.begin(), worst.end());
  return worst;
}

// Decide by worth: free slots first, then victims worth less than what comes in their place.
// `missing`: worths of missing experts of the layer; reordered.
template <typename T>
void SwapByWorth(const Residency& residency, absl::Span<const T> worth, int layer,
                 std::vector<Ranked<T>>* missing, std::vector<Swap>* swaps) {
  std::sort(missing->begin(), missing->end(), [](const Ranked<T>& a, const Ranked<T>& b) {
    return a.worth != b.worth ? a.worth > b.worth : a.index < b.index;
  });
  const int64_t free =
      std::min<int64_t>(residency.free_slots(), static_cast<int64_t>(missing->size()));
  const auto expert = [&](int64_t i) { return residency.At((*missing)[i].index).expert; };
  for (int64_t i = 0; i < free; ++i) swaps->push_back({expert(i), ExpertRef()});
  const std::vector<Ranked<T>> victims =
      LeastWorthy(residency, worth, layer, static_cast<int64_t>(missing->size()) - free);
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
  for (const Ranked<T>& ranked : LeastWorthy(residency, worth, -1, residency.residents() - slots)) {
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

// Functions for policies that rank all experts by one number, their value. The residents with the
// lowest values are evicted.
#ifndef TIDEPOOL_MOE_POLICY_RANKING_H_
#define TIDEPOOL_MOE_POLICY_RANKING_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/residency.h"
#include "moe/policy/vec4.h"

namespace tidepool::moe {

// Returns the experts that fill all slots: expert 0 of each layer, then expert 1 of each layer, and
// so on.
std::vector<ExpertRef> FillEvenly(const PoolShape& shape);

// Returns whether any of four values is at most `bound`.
template <typename T>
bool AnyAtMost4(const T* values, T bound) {
  return values[0] <= bound || values[1] <= bound || values[2] <= bound || values[3] <= bound;
}
inline bool AnyAtMost4(const float* values, float bound) { return AnyOf4(Load4(values) <= bound); }

template <typename T>
struct Ranked {
  T value;
  int64_t index;  // index of the expert in [layers, experts]

  bool operator<(const Ranked& other) const {
    return value != other.value ? value < other.value : index < other.index;
  }
};

// Thread-compatible. Finds the `count` residents with the lowest values. Layers may be added in any
// order.
template <typename T>
class LeastValuable {
 public:
  explicit LeastValuable(int64_t count) : count_(count) {}

  // Returns whether `count` residents were found. If so, residents with values above worst() can be
  // skipped.
  bool full() const { return static_cast<int64_t>(heap_.size()) >= count_; }
  // The resident with the highest value among those found. Requires: there is one.
  const Ranked<T>& worst() const { return heap_.front(); }

  // Considers the residents of `layer` that are not pinned. values: [layers, experts].
  void Add(const Residency& residency, absl::Span<const T> values, int layer) {
    if (count_ <= 0) return;
    const int64_t end = (int64_t{layer} + 1) * residency.shape().experts;
    for (int64_t index = end - residency.shape().experts; index < end; ++index) {
      // Most residents are skipped, four at a time.
      if (full() && index + 4 <= end && !AnyAtMost4(&values[index], worst().value)) {
        index += 3;
        continue;
      }
      if (residency.resident()[index] == 0) continue;
      const Ranked<T> ranked{values[index], index};
      if (full() && !(ranked < worst())) continue;
      if (residency.IsPinned(residency.At(index))) continue;
      if (full()) {
        std::pop_heap(heap_.begin(), heap_.end());
        heap_.back() = ranked;
      } else {
        heap_.push_back(ranked);
      }
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  // Returns the residents that were found, and removes them from this object. The lowest value is
  // first; if values are equal, the lower index is first.
  std::vector<Ranked<T>> Take() {
    std::sort_heap(heap_.begin(), heap_.end());
    return std::move(heap_);
  }

 private:
  const int64_t count_;
  std::vector<Ranked<T>> heap_;  // the highest value is on top
};

// Returns the `count` residents with the lowest values among those that are not pinned. If there
// are fewer, returns all of these. The lowest value is first; if values are equal, the lower index
// is first.
template <typename T>
std::vector<Ranked<T>> FindLeastValuable(const Residency& residency, absl::Span<const T> values,
                                         int64_t count) {
  LeastValuable<T> least(count);
  for (int layer = 0; layer < residency.shape().layers; ++layer) {
    least.Add(residency, values, layer);
  }
  return least.Take();
}

// Implements PlacementPolicy::Decide: misses get free slots first, then the slots of residents with
// lower values. `missing` must be from CollectMissing. It is sorted, so that the misses that become
// resident are first. find_victims(count, value) returns what FindLeastValuable returns. It may
// omit residents whose value is not below `value`, or return other values for them that are not
// below `value`.
template <typename T, typename FindVictims>
void SwapByValue(const Residency& residency, const FindVictims& find_victims,
                 std::vector<Ranked<T>>* missing, std::vector<Swap>* swaps) {
  std::sort(missing->begin(), missing->end(), [](const Ranked<T>& a, const Ranked<T>& b) {
    return a.value != b.value ? a.value > b.value : a.index < b.index;
  });
  const auto count = static_cast<int64_t>(missing->size());
  const int64_t free = std::min(residency.free_slots(), count);
  const auto expert = [&](int64_t i) { return residency.At((*missing)[i].index).expert; };
  for (int64_t i = 0; i < free; ++i) swaps->push_back({expert(i), ExpertRef()});
  if (free == count) return;
  const std::vector<Ranked<T>> victims = find_victims(count - free, (*missing)[free].value);
  for (size_t i = 0; i < victims.size(); ++i) {
    if (!((*missing)[free + i].value > victims[i].value)) break;
    swaps->push_back({expert(free + i), residency.At(victims[i].index)});
  }
}

template <typename T>
void SwapByValue(const Residency& residency, absl::Span<const T> values,
                 std::vector<Ranked<T>>* missing, std::vector<Swap>* swaps) {
  const auto find_victims = [&](int64_t count, T) {
    return FindLeastValuable(residency, values, count);
  };
  SwapByValue(residency, find_victims, missing, swaps);
}

// Implements PlacementPolicy::Shed.
template <typename T>
std::vector<ExpertRef> ShedByValue(const Residency& residency, absl::Span<const T> values,
                                   int64_t slots) {
  std::vector<ExpertRef> shed;
  for (const Ranked<T>& ranked :
       FindLeastValuable(residency, values, residency.residents() - slots)) {
    shed.push_back(residency.At(ranked.index));
  }
  return shed;
}

// Sets `missing` to the experts of `needs` that are not resident.
template <typename T>
void CollectMissing(const LayerNeeds& needs, const Residency& residency, absl::Span<const T> values,
                    std::vector<Ranked<T>>* missing) {
  missing->clear();
  for (const ExpertNeed& need : needs.experts) {
    const ExpertRef ref{needs.routing.layer, need.expert};
    if (residency.IsResident(ref)) continue;
    const int64_t index = residency.IndexOf(ref);
    missing->push_back({values[index], index});
  }
}

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_RANKING_H_

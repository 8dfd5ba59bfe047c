#include "moe/replay/oracles.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "moe/policy/ranking.h"
#include "moe/policy/static_policy.h"

namespace tidepool::moe {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Thread-compatible.
class BeladyPolicy final : public PlacementPolicy {
 public:
  explicit BeladyPolicy(const Trace& trace) : uses_(trace.header.all_experts()) {
    for (size_t i = 0; i < trace.entries.size(); ++i) {
      const TraceEntry& entry = trace.entries[i];
      for (const int32_t expert : entry.ids) {
        auto& uses = uses_[int64_t{entry.layer} * trace.header.experts + expert];
        if (uses.empty() || uses.back() != static_cast<int64_t>(i)) uses.push_back(i);
      }
    }
    next_.assign(uses_.size(), 0);
    for (size_t index = 0; index < uses_.size(); ++index) values_.push_back(-NextUse(index));
  }

  absl::string_view name() const override { return "belady"; }

  std::vector<ExpertRef> Fill(const Residency& residency) override {
    std::vector<Ranked<int64_t>> experts;
    for (size_t index = 0; index < values_.size(); ++index) {
      experts.push_back({-values_[index], static_cast<int64_t>(index)});
    }
    std::sort(experts.begin(), experts.end());
    std::vector<ExpertRef> first;
    for (int64_t i = 0; i < residency.slots(); ++i) first.push_back(residency.At(experts[i].index));
    return first;
  }

  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override {
    for (const ExpertNeed& need : needs.experts) {
      const int64_t index = residency.IndexOf({needs.routing.layer, need.expert});
      CHECK_EQ(NextUse(index), now_) << "belady was created for another trace";
      ++next_[index];
      values_[index] = -NextUse(index);
    }
    ++now_;
    const absl::Span<const int64_t> values = values_;
    CollectMissing(needs, residency, values, &missing_);
    SwapByValue(residency, values, &missing_, swaps);
  }

  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override {
    return ShedByValue(residency, absl::Span<const int64_t>(values_), slots);
  }

 private:
  int64_t NextUse(int64_t index) const {
    return next_[index] < uses_[index].size() ? uses_[index][next_[index]] : kNever;
  }

  // [layers, experts]: indices of the trace entries that need the expert
  std::vector<std::vector<int64_t>> uses_;
  std::vector<size_t> next_;  // [layers, experts]: index into uses_ of the next use
  // [layers, experts]: minus the index of the entry with the next use
  std::vector<int64_t> values_;
  int64_t now_ = 0;  // index of the next entry
  std::vector<Ranked<int64_t>> missing_;
};

}  // namespace

std::unique_ptr<PlacementPolicy> MakeBelady(const Trace& trace) {
  return std::make_unique<BeladyPolicy>(trace);
}

std::unique_ptr<PlacementPolicy> MakeHindsight(const Trace& trace) {
  const TraceHeader& header = trace.header;
  return std::make_unique<StaticPolicy>(
      PoolShape{.layers = header.layers, .experts = header.experts, .top_k = header.top_k},
      CountUses(trace), "hindsight");
}

}  // namespace tidepool::moe

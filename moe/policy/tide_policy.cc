#include "moe/policy/tide_policy.h"

#include <algorithm>

namespace tidepool::moe {
namespace {

// Returns B (see the header), but at most the number of experts.
int SlotsPerLayer(const PoolShape& shape, int64_t slots) {
  return static_cast<int>(std::min<int64_t>(slots / shape.layers, shape.experts));
}

}  // namespace

std::vector<ExpertRef> TidePolicy::Fill(const Residency& residency) {
  std::vector<ExpertRef> experts;
  const int per_layer = SlotsPerLayer(residency.shape(), residency.slots());
  for (int layer = 0; layer < residency.shape().layers; ++layer) {
    for (int expert = 0; expert < per_layer; ++expert) experts.push_back({layer, expert});
  }
  return experts;
}

void TidePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                        std::vector<Swap>* swaps) {
  const int layer = needs.routing.layer;
  if (needs.routing.step % refresh_interval_ != 0 && !refresh_soon_[layer]) return;
  refresh_soon_[layer] = false;
  const int per_layer = SlotsPerLayer(residency.shape(), residency.slots());
  targets_.assign(needs.experts.begin(), needs.experts.end());
  std::stable_sort(targets_.begin(), targets_.end(),
                   [](const ExpertNeed& a, const ExpertNeed& b) { return a.tokens > b.tokens; });
  if (static_cast<int>(targets_.size()) > per_layer) targets_.resize(per_layer);
  is_target_.assign(residency.shape().experts, false);
  for (const ExpertNeed& target : targets_) is_target_[target.expert] = true;

  int64_t free =
      std::min<int64_t>(per_layer - residency.residents_of(layer), residency.free_slots());
  int32_t victim = 0;
  for (const ExpertNeed& target : targets_) {
    if (residency.IsResident({layer, target.expert})) continue;
    if (free > 0) {
      --free;
      swaps->push_back({target.expert, ExpertRef()});
      continue;
    }
    const auto may_leave = [&](int32_t expert) {
      const ExpertRef ref{layer, expert};
      return residency.IsResident(ref) && !is_target_[expert] && !residency.IsPinned(ref);
    };
    while (victim < residency.shape().experts && !may_leave(victim)) ++victim;
    if (victim == residency.shape().experts) return;
    swaps->push_back({target.expert, ExpertRef{layer, victim}});
    ++victim;
  }
}

std::vector<ExpertRef> TidePolicy::Shed(const Residency& residency, int64_t slots) {
  int per_layer = SlotsPerLayer(residency.shape(), slots);
  std::vector<ExpertRef> experts = ShedTo(residency, per_layer);
  const auto fits = [&] {
    return residency.residents() - static_cast<int64_t>(experts.size()) <= slots;
  };
  while (!fits() && per_layer > 0) experts = ShedTo(residency, --per_layer);
  return experts;
}

// Returns the experts to evict so that each layer has at most `per_layer` residents. Pinned experts
// stay, so a layer may keep more.
std::vector<ExpertRef> TidePolicy::ShedTo(const Residency& residency, int per_layer) {
  std::vector<ExpertRef> experts;
  for (int layer = 0; layer < residency.shape().layers; ++layer) {
    int excess = residency.residents_of(layer) - per_layer;
    for (int32_t expert = 0; expert < residency.shape().experts && excess > 0; ++expert) {
      const ExpertRef ref{layer, expert};
      if (!residency.IsResident(ref) || residency.IsPinned(ref)) continue;
      experts.push_back(ref);
      --excess;
    }
  }
  return experts;
}

void TidePolicy::RefreshSoon() { refresh_soon_.assign(refresh_soon_.size(), true); }

}  // namespace tidepool::moe

#include "moe/policy/tide_policy.h"

#include <algorithm>

namespace tidepool::moe {
namespace {

// B: also the most that a layer has experts for.
int SlotsOfLayer(const PoolShape& shape, int64_t slots) {
  return static_cast<int>(std::min<int64_t>(slots / shape.layers, shape.experts));
}

}  // namespace

std::vector<ExpertRef> TidePolicy::Fill(const Residency& residency) {
  std::vector<ExpertRef> experts;
  const int of_layer = SlotsOfLayer(residency.shape(), residency.slots());
  for (int layer = 0; layer < residency.shape().layers; ++layer) {
    for (int expert = 0; expert < of_layer; ++expert) experts.push_back({layer, expert});
  }
  return experts;
}

void TidePolicy::Decide(const LayerNeeds& needs, const Residency& residency,
                        std::vector<Swap>* swaps) {
  const int layer = needs.routing.layer;
  if (needs.routing.step % refresh_interval_ != 0 && !refresh_soon_[layer]) return;
  refresh_soon_[layer] = false;
  const int of_layer = SlotsOfLayer(residency.shape(), residency.slots());
  targets_.assign(needs.experts.begin(), needs.experts.end());
  std::stable_sort(targets_.begin(), targets_.end(),
                   [](const ExpertNeed& a, const ExpertNeed& b) { return a.tokens > b.tokens; });
  if (static_cast<int>(targets_.size()) > of_layer) targets_.resize(of_layer);
  is_target_.assign(residency.shape().experts, false);
  for (const ExpertNeed& target : targets_) is_target_[target.expert] = true;

  int64_t free =
      std::min<int64_t>(of_layer - residency.residents_of(layer), residency.free_slots());
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
  int of_layer = SlotsOfLayer(residency.shape(), slots);
  std::vector<ExpertRef> experts = ShedTo(residency, of_layer);
  const auto fits = [&] {
    return residency.residents() - static_cast<int64_t>(experts.size()) <= slots;
  };
  while (!fits() && of_layer > residency.shape().floor) experts = ShedTo(residency, --of_layer);
  return experts;
}

// Who leaves so that each layer has so many, but for pinned experts.
std::vector<ExpertRef> TidePolicy::ShedTo(const Residency& residency, int of_layer) {
  std::vector<ExpertRef> experts;
  for (int layer = 0; layer < residency.shape().layers; ++layer) {
    int surplus = residency.residents_of(layer) - of_layer;
    for (int32_t expert = 0; expert < residency.shape().experts && surplus > 0; ++expert) {
      const ExpertRef ref{layer, expert};
      if (!residency.IsResident(ref) || residency.IsPinned(ref)) continue;
      experts.push_back(ref);
      --surplus;
    }
  }
  return experts;
}

void TidePolicy::RefreshSoon() { refresh_soon_.assign(refresh_soon_.size(), true); }

}  // namespace tidepool::moe

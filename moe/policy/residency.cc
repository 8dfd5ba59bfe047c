#include "moe/policy/residency.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace tidepool::moe {

absl::Status PoolShape::Validate() const {
  if (layers < 1 || layers > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d layers of experts; 1 to %d are possible", layers, kMaxLayers));
  }
  if (experts < 1 || experts > kMaxExperts) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d experts in a layer; 1 to %d are possible", experts, kMaxExperts));
  }
  if (all_experts() > kMaxAllExperts) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d layers of %d experts are more than the %d experts that are managed",
                        layers, experts, kMaxAllExperts));
  }
  if (top_k < 1 || top_k > experts) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a top-k of %d of %d experts", top_k, experts));
  }
  if (floor < 0 || floor > experts) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a floor of %d of %d experts", floor, experts));
  }
  const int64_t least = std::max<int64_t>(1, int64_t{floor} * layers);
  if (slots < least || slots > all_experts()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d slots; %d layers of %d experts can use %d to %d", slots, layers,
                        experts, least, all_experts()));
  }
  return absl::OkStatus();
}

Residency::Residency(const PoolShape& shape)
    : shape_(shape),
      slot_of_(shape.all_experts(), -1),
      pins_(shape.all_experts(), 0),
      residents_of_(shape.layers, 0) {
  CHECK_OK(shape.Validate());
  free_.reserve(shape.slots);
  for (int64_t slot = 0; slot < shape.slots; ++slot) free_.push_back(static_cast<int32_t>(slot));
}

int32_t Residency::Insert(ExpertRef ref) {
  CHECK(!IsResident(ref) && !free_.empty());
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const int32_t slot = free_.back();
  free_.pop_back();
  slot_of_[IndexOf(ref)] = slot;
  ++residents_;
  ++residents_of_[ref.layer];
  return slot;
}

int32_t Residency::Remove(ExpertRef ref) {
  CHECK(IsResident(ref) && !IsPinned(ref)) << "layer " << ref.layer << " expert " << ref.expert;
  int32_t& entry = slot_of_[IndexOf(ref)];
  const int32_t slot = entry;
  entry = -1;
  free_.push_back(slot);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  --residents_;
  --residents_of_[ref.layer];
  return slot;
}

void Residency::Replace(ExpertRef victim, ExpertRef newcomer) {
  CHECK(IsResident(victim) && !IsPinned(victim) && !IsResident(newcomer))
      << "layer " << victim.layer << " expert " << victim.expert;
  slot_of_[IndexOf(newcomer)] = slot_of_[IndexOf(victim)];
  slot_of_[IndexOf(victim)] = -1;
  --residents_of_[victim.layer];
  ++residents_of_[newcomer.layer];
}

void Residency::Pin(ExpertRef ref) {
  CHECK(IsResident(ref));
  if (pins_[IndexOf(ref)]++ == 0) ++pinned_;
}

void Residency::Unpin(ExpertRef ref) {
  CHECK(IsPinned(ref));
  if (--pins_[IndexOf(ref)] == 0) --pinned_;
}

std::vector<Residency::Move> Residency::Resize(int64_t slots) {
  CHECK_LE(residents_, slots);
  std::vector<Move> moves;
  std::erase_if(free_, [&](int32_t slot) { return slot >= slots; });
  for (int64_t slot = shape_.slots; slot < slots; ++slot) {
    free_.push_back(static_cast<int32_t>(slot));
  }
  std::make_heap(free_.begin(), free_.end(), std::greater<>());
  for (int64_t index = 0; index < shape_.all_experts(); ++index) {
    const int32_t from = slot_of_[index];
    if (from < slots) continue;
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    slot_of_[index] = free_.back();
    free_.pop_back();
    moves.push_back({At(index), from, slot_of_[index]});
  }
  shape_.slots = slots;
  return moves;
}

}  // namespace tidepool::moe

#include "moe/policy/row_history.h"

#include <algorithm>

namespace tidepool::moe {
namespace {

constexpr float kMinUnusedChance = 1e-3f;  // for one row

template <typename T>
T EntryOf(absl::Span<const T> entries, int64_t token, T otherwise) {
  if (entries.empty()) return otherwise;
  return entries.size() == 1 ? entries[0] : entries[token];
}

// Returns whether more than kBits bits are set. This is faster than counting all bits, because the
// baseline of x86 has no instruction to count them.
template <int kBits>
int HasMoreThan(uint32_t bits) {
  for (int i = 0; i < kBits; ++i) bits &= bits - 1;  // clears the lowest bit that is set
  return bits != 0 ? 1 : 0;
}

}  // namespace

// A case has three parts: which of the last 4 steps used the expert; a class of the number of uses
// in the 12 steps before (0, 1, 2, up to 4, or more); and whether there were no uses, up to two, or
// more in the 16 steps before those.
int RowHistory::CaseOf(uint32_t uses) {
  if (uses == 0) return 0;
  const uint32_t middle = uses >> 4 & 0xfff;
  const uint32_t early = uses >> 16;
  const int middle_class = HasMoreThan<0>(middle) + HasMoreThan<1>(middle) +
                           HasMoreThan<2>(middle) + HasMoreThan<4>(middle);
  const int early_class = HasMoreThan<0>(early) + HasMoreThan<2>(early);
  return (static_cast<int>(uses & 15) * 5 + middle_class) * 3 + early_class;
}

void RowHistory::Add(const LayerRouting& routing, FrequencyTable* table) {
  ++now_;
  active_.clear();
  for (int64_t token = 0; token < routing.tokens; ++token) {
    const auto request = EntryOf<int64_t>(routing.requests, token, 0);
    const bool is_prompt = EntryOf(routing.phases, token, Phase::kDecode) == Phase::kPrefill;
    if (is_prompt && token + kSteps < routing.tokens &&
        EntryOf(routing.phases, token + kSteps, Phase::kDecode) == Phase::kPrefill &&
        EntryOf<int64_t>(routing.requests, token + kSteps, 0) == request) {
      continue;
    }
    const int position = FindRow(request, is_prompt ? 0 : CountActive(request));
    if (position < 0) continue;
    Row& row = rows_[position];
    const int32_t* ids = routing.ids.data() + token * top_k_;
    if (row.has_steps && !is_prompt) Count(row, ids, table);
    for (uint32_t& uses : row.uses) uses <<= 1;
    for (int k = 0; k < top_k_; ++k) {
      if (ids[k] != LayerRouting::kNoExpert) row.uses[ids[k]] |= 1;
    }
    row.has_steps = true;
    if (row.last < now_) active_.push_back(position);
    row.last = now_;
  }
}

void RowHistory::UseChances(absl::Span<const int32_t> experts, int32_t idle,
                            absl::Span<const float> rates, float* chances) const {
  std::fill_n(chances, experts.size(), 1.0f);  // chances that the expert is not used
  for (const int position : active_) {
    const std::vector<uint32_t>& uses = rows_[position].uses;
    for (size_t i = 0; i < experts.size(); ++i) {
      const uint32_t recent = idle < 32 ? uses[experts[i]] << idle : 0;
      chances[i] *= std::max(1 - rates[CaseOf(recent)], kMinUnusedChance);
    }
  }
  for (size_t i = 0; i < experts.size(); ++i) chances[i] = 1 - chances[i];
}

int RowHistory::FindRow(int64_t request, int number) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].request == request && rows_[i].number == number) return static_cast<int>(i);
  }
  if (rows_.size() < kMaxRows) rows_.emplace_back();
  // A new row had no forward pass yet, so it is treated as the oldest.
  const auto oldest = std::min_element(rows_.begin(), rows_.end(),
                                       [](const Row& a, const Row& b) { return a.last < b.last; });
  if (oldest->last == now_) return -1;
  *oldest = {.request = request, .number = number, .uses = std::vector<uint32_t>(experts_)};
  return static_cast<int>(oldest - rows_.begin());
}

int RowHistory::CountActive(int64_t request) const {
  return static_cast<int>(std::count_if(active_.begin(), active_.end(), [&](int position) {
    return rows_[position].request == request;
  }));
}

void RowHistory::Count(const Row& row, const int32_t* ids, FrequencyTable* table) {
  SetWanted(ids, true);
  int idle = 0;         // number of experts that the row did not use so far
  int idle_wanted = 0;  // number of these experts that it uses now
  for (int e = 0; e < experts_; ++e) {
    if (row.uses[e] != 0) {
      table->Add(CaseOf(row.uses[e]), 1, wanted_[e] ? 1 : 0);
    } else {
      ++idle;
      idle_wanted += wanted_[e] ? 1 : 0;
    }
  }
  table->Add(CaseOf(0), idle, idle_wanted);
  SetWanted(ids, false);
}

void RowHistory::SetWanted(const int32_t* ids, bool wanted) {
  for (int k = 0; k < top_k_; ++k) {
    if (ids[k] != LayerRouting::kNoExpert) wanted_[ids[k]] = wanted;
  }
}

}  // namespace tidepool::moe

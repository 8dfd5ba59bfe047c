#include "moe/policy/row_history.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

// The last 4 steps one by one; of the 12 and of the 16 before, how many.
constexpr int kRecent = 16;
constexpr int kMiddle[] = {0, 1, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4};
// By the bits: counting them takes a call where the processor need not have an instruction for it.
constexpr auto kMiddleClassOf = [] {
  std::array<uint8_t, 1 << 12> classes{};
  for (uint32_t uses = 0; uses < classes.size(); ++uses) {
    classes[uses] = static_cast<uint8_t>(kMiddle[std::popcount(uses)]);
  }
  return classes;
}();
constexpr int kMiddleClasses = 5;
constexpr int kEarlyClasses = 3;
constexpr int kCells = kRecent * kMiddleClasses * kEarlyClasses;

constexpr float kPriorSamples = 1.5f;
// What a cell remembers.
constexpr float kMaxSamples = 5000;
constexpr float kMinUnused = 1e-3f;  // chance

template <typename T>
T EntryOf(absl::Span<const T> entries, int64_t token, T otherwise) {
  if (entries.empty()) return otherwise;
  return entries.size() == 1 ? entries[0] : entries[token];
}

}  // namespace

RowTable::RowTable(float prior)
    : cells_(kCells, {kPriorSamples * prior, kPriorSamples,
                      std::log2(std::max(1 - prior, kMinUnused)), false}) {}

int RowTable::CellOf(uint32_t uses) {
  if (uses == 0) return 0;
  // With its lowest two bits cleared, what is left of three or more is not 0.
  const uint32_t early = uses >> 16;
  const uint32_t all_but_one = early & (early - 1);
  const int early_class = early == 0 ? 0 : (all_but_one & (all_but_one - 1)) == 0 ? 1 : 2;
  const int middle_class = kMiddleClassOf[uses >> 4 & 0xfff];
  return (static_cast<int>(uses & 15) * kMiddleClasses + middle_class) * kEarlyClasses +
         early_class;
}

void RowTable::Count(int cell, int samples, int used) {
  Cell& counted = cells_[cell];
  counted.seen += static_cast<float>(samples);
  counted.used += static_cast<float>(used);
  if (!counted.changed) changed_.push_back(cell);
  counted.changed = true;
}

void RowTable::Settle() {
  for (size_t begin = 0; begin < changed_.size(); begin += kLanes) {
    const auto lanes = static_cast<int>(std::min<size_t>(kLanes, changed_.size() - begin));
    Vec4 used = Vec4{};
    Vec4 seen = Vec4{} + 1.0f;
    for (int i = 0; i < lanes; ++i) {
      Cell& cell = cells_[changed_[begin + i]];
      if (cell.seen > kMaxSamples) {
        cell.used *= kMaxSamples / cell.seen;
        cell.seen = kMaxSamples;
      }
      used[i] = cell.used;
      seen[i] = cell.seen;
      cell.changed = false;
    }
    const Vec4 unused = Log4(Max4(1.0f - used / seen, Vec4{} + kMinUnused));
    for (int i = 0; i < lanes; ++i) cells_[changed_[begin + i]].unused = unused[i];
  }
  changed_.clear();
}

void RowHistory::Add(const LayerRouting& routing, RowTable* table) {
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
    if (row.known && !is_prompt) Learn(row, ids, table);
    for (uint32_t& uses : row.uses) uses <<= 1;
    for (int k = 0; k < top_k_; ++k) row.uses[ids[k]] |= 1;
    row.known = true;
    if (row.last < now_) active_.push_back(position);
    row.last = now_;
  }
  table->Settle();
}

float RowHistory::Unused(int32_t expert, int32_t silence, const RowTable& table) const {
  float unused = 0;
  for (const int position : active_) {
    const uint32_t uses = rows_[position].uses[expert];
    unused += table.unused(silence < 32 ? RowTable::CellOf(uses << silence) : 0);
  }
  return unused;
}

int RowHistory::FindRow(int64_t request, int number) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].request == request && rows_[i].number == number) return static_cast<int>(i);
  }
  if (rows_.size() < kMaxRows) rows_.emplace_back();
  // A new row is the oldest.
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

void RowHistory::Learn(const Row& row, const int32_t* ids, RowTable* table) {
  for (int k = 0; k < top_k_; ++k) wanted_[ids[k]] = true;
  int idle = 0;
  for (const uint32_t uses : row.uses) idle += uses == 0;
  int idle_wanted = 0;
  for (int e = 0; e < experts_; ++e) {
    if (row.uses[e] != 0) table->Count(RowTable::CellOf(row.uses[e]), 1, wanted_[e] ? 1 : 0);
  }
  for (int k = 0; k < top_k_; ++k) {
    idle_wanted += row.uses[ids[k]] == 0;
    wanted_[ids[k]] = false;
  }
  table->Count(0, idle, idle_wanted);
}

}  // namespace tidepool::moe

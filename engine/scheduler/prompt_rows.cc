#include "engine/scheduler/prompt_rows.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <tuple>

#include "kernels/backend.h"

namespace tidepool::engine {
namespace {

// The oldest prompt of a principal gets 1 / kOldestShare of the principal's rows.
constexpr int64_t kOldestShare = 4;
// If prompts end in a step, the other prompts together may have 1 / kEndingShare of the rows of the
// ending prompts.
constexpr int64_t kEndingShare = 3;

// The minimum rows of a prompt at any depth. A step with fewer rows takes almost as long, because
// it reads all weights anyway.
constexpr int64_t kMinDeepRows = 128;

class RowShares {
 public:
  RowShares(absl::Span<const PromptInPrefill> prompts, const PromptRowLimits& limits)
      : prompts_(prompts), limits_(limits), rows_(prompts.size(), 0), order_(prompts.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::sort(order_.begin(), order_.end(), [this](size_t a, size_t b) {
      const auto key = [this](size_t i) {
        const PromptInPrefill& prompt = prompts_[i];
        return std::tuple(-int64_t{prompt.priority}, prompt.principal, prompt.left, prompt.arrival);
      };
      return key(a) < key(b);
    });
  }

  std::vector<int64_t> Share() {
    int64_t rows = limits_.step;
    for (size_t begin = 0; begin < order_.size();) {
      const size_t end = EndOfPriority(begin);
      rows -= ShareAmongPrincipals(begin, end, rows);
      begin = end;
    }
    BoundBesideEnding();
    return rows_;
  }

 private:
  // The prompts [begin, end) of order_. They belong to one principal, and those with the fewest
  // rows left are first.
  struct Group {
    size_t begin = 0;
    size_t end = 0;
    int64_t wanted = 0;
    uint64_t oldest = std::numeric_limits<uint64_t>::max();
  };

  int64_t Wanted(size_t prompt) const {
    return std::min(prompts_[prompt].left, RowsAtDepth(prompts_[prompt].depth, limits_));
  }

  size_t EndOfPriority(size_t begin) const {
    size_t end = begin;
    while (end < order_.size() &&
           prompts_[order_[end]].priority == prompts_[order_[begin]].priority) {
      ++end;
    }
    return end;
  }

  std::vector<Group> GroupsOf(size_t begin, size_t end) const {
    std::vector<Group> groups;
    for (size_t i = begin; i < end; ++i) {
      const PromptInPrefill& prompt = prompts_[order_[i]];
      if (i == begin || prompt.principal != prompts_[order_[i - 1]].principal) {
        groups.push_back({.begin = i});
      }
      Group& group = groups.back();
      group.end = i + 1;
      group.wanted += Wanted(order_[i]);
      group.oldest = std::min(group.oldest, prompt.arrival);
    }
    return groups;
  }

  // Max-min fairness: principals that need few rows are first, and leave the rows that they do not
  // need to the others. If rows cannot be divided evenly, earlier principals get one row more.
  int64_t ShareAmongPrincipals(size_t begin, size_t end, int64_t rows) {
    std::vector<Group> groups = GroupsOf(begin, end);
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
      return std::tuple(a.wanted, b.oldest) < std::tuple(b.wanted, a.oldest);
    });
    int64_t given = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      const int64_t share = (rows - given) / static_cast<int64_t>(groups.size() - i);
      const int64_t quota = std::min(groups[i].wanted, share);
      ShareWithin(groups[i], quota);
      given += quota;
    }
    return given;
  }

  void ShareWithin(const Group& group, int64_t quota) {
    const int64_t reserve = (quota + kOldestShare - 1) / kOldestShare;
    bool oldest_served = false;
    for (size_t i = group.begin; i < group.end; ++i) {
      const size_t prompt = order_[i];
      const bool oldest = prompts_[prompt].arrival == group.oldest;
      const int64_t kept = oldest || oldest_served ? 0 : std::min(reserve, OldestWants(group));
      oldest_served |= oldest;
      rows_[prompt] = std::clamp<int64_t>(quota - kept, 0, Wanted(prompt));
      quota -= rows_[prompt];
    }
  }

  int64_t OldestWants(const Group& group) const {
    for (size_t i = group.begin; i < group.end; ++i) {
      if (prompts_[order_[i]].arrival == group.oldest) return Wanted(order_[i]);
    }
    return 0;
  }

  void BoundBesideEnding() {
    int64_t ending = 0;
    int64_t others = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      (rows_[i] == prompts_[i].left ? ending : others) += rows_[i];
    }
    const int64_t most = std::max(limits_.beside_ending, ending / kEndingShare);
    if (ending == 0 || others <= most) return;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i] < prompts_[i].left) rows_[i] = rows_[i] * most / others;
    }
  }

  const absl::Span<const PromptInPrefill> prompts_;
  const PromptRowLimits limits_;
  std::vector<int64_t> rows_;
  std::vector<size_t> order_;  // sorted by priority, then principal, then rows left
};

int64_t CountUnfinished(absl::Span<const PromptInPrefill> prompts, absl::Span<const int64_t> rows) {
  int64_t unfinished = 0;
  for (size_t i = 0; i < prompts.size(); ++i) unfinished += rows[i] < prompts[i].left;
  return unfinished;
}

}  // namespace

PromptInPrefill PromptOf(const Sequence& sequence, int64_t left) {
  return {.arrival = sequence.arrival,
          .priority = sequence.request.priority,
          .principal = sequence.request.principal,
          .left = left,
          .depth = static_cast<int64_t>(sequence.tokens.size()) - left};
}

int64_t RowsAtDepth(int64_t depth, const PromptRowLimits& limits) {
  if (limits.attention_depth <= 0) return limits.prompt;
  const int64_t rows = limits.prompt * limits.attention_depth / (limits.attention_depth + depth);
  const int64_t whole = rows - rows % kernels::kKvBlockTokens;
  return std::max(whole, std::min(limits.prompt, kMinDeepRows));
}

std::vector<int64_t> SharePromptRows(absl::Span<const PromptInPrefill> prompts,
                                     const PromptRowLimits& limits) {
  return RowShares(prompts, limits).Share();
}

void PromptRows::Begin(const PromptRowLimits& limits) {
  limits_ = limits;
  prompts_.clear();
}

void PromptRows::Remove(uint64_t arrival) {
  prompts_.erase(
      std::remove_if(prompts_.begin(), prompts_.end(),
                     [arrival](const auto& prompt) { return prompt.arrival == arrival; }),
      prompts_.end());
}

bool PromptRows::Has(uint64_t arrival) const {
  return std::any_of(prompts_.begin(), prompts_.end(),
                     [arrival](const auto& prompt) { return prompt.arrival == arrival; });
}

PromptRows::Turn PromptRows::Judge(const PromptInPrefill& prompt) const {
  if (limits_.step <= 0) return Turn::kNoRows;
  std::vector<PromptInPrefill> all = prompts_;
  all.push_back(prompt);
  const std::vector<int64_t> rows = SharePromptRows(all, limits_);
  if (rows.back() == 0) return Turn::kNoRows;
  const int64_t unfinished = CountUnfinished(all, rows);
  if (unfinished > limits_.unfinished &&
      unfinished > CountUnfinished(prompts_, SharePromptRows(prompts_, limits_))) {
    return Turn::kNoSlot;
  }
  if (rows.back() == prompt.left || unfinished < limits_.unfinished || unfinished == 1) {
    return Turn::kNow;
  }
  // The last slot is only for a prompt that has fewer rows left than the others.
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const PromptInPrefill& other = prompts_[i];
    if (rows[i] < other.left && other.priority >= prompt.priority && other.left <= prompt.left) {
      return Turn::kNoSlot;
    }
  }
  return Turn::kNow;
}

absl::flat_hash_map<uint64_t, int64_t> PromptRows::Share() const {
  const std::vector<int64_t> rows = SharePromptRows(prompts_, limits_);
  absl::flat_hash_map<uint64_t, int64_t> by_arrival;
  for (size_t i = 0; i < rows.size(); ++i) by_arrival[prompts_[i].arrival] = rows[i];
  return by_arrival;
}

}  // namespace tidepool::engine

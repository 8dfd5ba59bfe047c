#include "moe/policy/outlook_walk.h"

#include <algorithm>
#include <limits>

#include "moe/policy/vec4.h"

namespace tidepool::moe {

OutlookWalk::OutlookWalk(int stride)
    : due_(stride),
      due_chances_(stride),
      usual_(stride),
      unused_(stride),
      waited_(stride),
      best_(stride),
      chance_(stride),
      forwards_(stride) {}

void OutlookWalk::Begin(int count, float price, absl::Span<const int32_t> due,
                        absl::Span<const float> due_chances) {
  count_ = count;
  price_ = price;
  std::copy(due.begin(), due.end(), due_.begin());
  std::copy(due_chances.begin(), due_chances.end(), due_chances_.begin());
  std::fill(unused_.begin(), unused_.end(), 1.0f);
  std::fill(waited_.begin(), waited_.end(), 0.0f);
  std::fill(best_.begin(), best_.end(), -std::numeric_limits<float>::infinity());
  std::fill(chance_.begin(), chance_.end(), 0.0f);
  std::fill(forwards_.begin(), forwards_.end(), 0.0f);
}

void OutlookWalk::Advance(int begin, int end, absl::Span<const float> chances) {
  for (size_t i = 0; i < count_; i += kLanes) {
    const Vec4 due = Load4(&due_[i]);
    const Vec4 due_chance = Load4(&due_chances_[i]);
    Vec4 usual = Load4(&chances[i]);
    if (end - begin > 1) usual = due == static_cast<float>(begin) ? Load4(&usual_[i]) : usual;
    Store4(usual, &usual_[i]);
    Vec4 unused = Load4(&unused_[i]);
    Vec4 waited = Load4(&waited_[i]);
    Vec4 best = Load4(&best_[i]);
    Vec4 chance = Load4(&chance_[i]);
    Vec4 forwards = Load4(&forwards_[i]);
    // How things stand after the due forward, or as long as it has not come, after all.
    Vec4 unused_then = unused;
    Vec4 waited_then = waited;
    const auto compare = [&](Vec4 unused_at, Vec4 waited_at) {
      // The next forward is waited for in any case.
      const Vec4 after_next = Max4(waited_at - 1.0f, Vec4{});
      const Vec4 gain = 1.0f - unused_at - price_ * after_next;
      const Int4 better = gain > best;
      best = better ? gain : best;
      chance = better ? 1.0f - unused_at : chance;
      forwards = better ? after_next : forwards;
    };
    for (int forward = begin; forward < end; ++forward) {
      const Int4 is_due = due == static_cast<float>(forward);
      waited += unused;
      unused *= 1.0f - (end - begin > 1 ? (is_due ? due_chance : usual) : usual);
      unused_then = is_due ? unused : unused_then;
      waited_then = is_due ? waited : waited_then;
    }
    compare(unused_then, waited_then);
    compare(unused, waited);
    Store4(unused, &unused_[i]);
    Store4(waited, &waited_[i]);
    Store4(best, &best_[i]);
    Store4(chance, &chance_[i]);
    Store4(forwards, &forwards_[i]);
  }
}

}  // namespace tidepool::moe

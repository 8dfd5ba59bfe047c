#include "engine/scheduler/reasoning_tracker.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidepool::engine {

ReasoningTracker::ReasoningTracker(ReasoningLimit limit,
                                   std::shared_ptr<const grammar::TokenTrie> trie)
    : limit_(std::move(limit)),
      trie_(std::move(trie)),
      phase_(limit_.open ? Phase::kInside : Phase::kBefore) {}

std::optional<int32_t> ReasoningTracker::forced() const {
  if (phase_ != Phase::kInside || count_ < limit_.max_tokens) return std::nullopt;
  return limit_.end_tokens[forced_];
}

void ReasoningTracker::Add(int32_t token) {
  if (phase_ == Phase::kBefore) {
    AddBefore(token);
  } else if (phase_ == Phase::kInside) {
    AddInside(token);
  }
}

// Before the reasoning there is at most white space.
void ReasoningTracker::AddBefore(int32_t token) {
  const bool continues = token == limit_.begin_tokens[begun_];
  begun_ = continues ? begun_ + 1 : 0;
  absl::StrAppend(&text_, trie_->text(token));
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(text_);
  if (begun_ == limit_.begin_tokens.size()) {
    text_.clear();
    phase_ = Phase::kInside;
  } else if (absl::StartsWith(text, limit_.begin)) {
    text_ = std::string(text.substr(limit_.begin.size()));
    phase_ = Phase::kInside;
  } else if (!continues && !absl::StartsWith(limit_.begin, text)) {
    phase_ = Phase::kAfter;
  }
}

void ReasoningTracker::AddInside(int32_t token) {
  const std::optional<int32_t> forced = this->forced();
  ++count_;
  bool ends = limit_.end.token >= 0 && token == limit_.end.token;
  if (limit_.end.token < 0) {
    absl::StrAppend(&text_, trie_->text(token));
    ends = absl::StrContains(text_, limit_.end.text);
    const size_t kept = limit_.end.text.size() - 1;
    if (text_.size() > kept) text_.erase(0, text_.size() - kept);
  }
  if (forced.has_value()) {
    forced_ = token == *forced ? forced_ + 1 : 0;
    ends = ends || forced_ == limit_.end_tokens.size();
  }
  if (ends) phase_ = Phase::kAfter;
}

}  // namespace tidepool::engine

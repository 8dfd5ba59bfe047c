#include "service/http/stream_position.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

constexpr absl::string_view kUsageTail = "/usage";
constexpr absl::string_view kDoneTail = "/done";

// Parses a number of tokens. Only digits are accepted, while SimpleAtoi also accepts signs and
// spaces.
bool ParseTokens(absl::string_view text, int64_t* tokens) {
  return !text.empty() && text.find_first_not_of("0123456789") == absl::string_view::npos &&
         absl::SimpleAtoi(text, tokens) && *tokens <= StreamPosition::kMaxTokens;
}

}  // namespace

absl::StatusOr<StreamPosition> StreamPosition::Parse(absl::string_view last_event_id,
                                                     size_t choices) {
  const absl::Status refusal = absl::InvalidArgumentError(absl::StrCat(
      "Last-Event-ID is ", base::Quoted(std::string(last_event_id.substr(0, 64))),
      ", which is not the id of an event of a stream with ", choices,
      choices == 1 ? " choice" : " choices", "; send the last id of the stream, or none"));
  StreamPosition position(choices);
  absl::string_view rest = last_event_id;
  if (absl::ConsumeSuffix(&rest, kDoneTail)) {
    position.tail_ = Tail::kDone;
  } else if (absl::ConsumeSuffix(&rest, kUsageTail)) {
    position.tail_ = Tail::kUsage;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, ',');
  if (parts.size() != choices) return refusal;
  for (size_t i = 0; i < choices; ++i) {
    absl::string_view part = parts[i];
    position.choices_[i].finished = absl::ConsumeSuffix(&part, "f");
    if (!ParseTokens(part, &position.choices_[i].tokens)) return refusal;
    if (position.tail_ != Tail::kNone && !position.choices_[i].finished) return refusal;
  }
  return position;
}

void StreamPosition::Take(size_t choice, const v1::GenerateResponse& message) {
  Choice& one = choices_[choice];
  one.tokens =
      std::max(one.tokens, static_cast<int64_t>(message.position()) + message.token_ids_size());
  one.finished = message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
}

std::string StreamPosition::Id() const {
  const std::string ids = absl::StrJoin(choices_, ",", [](std::string* out, const Choice& choice) {
    absl::StrAppend(out, choice.tokens, choice.finished ? "f" : "");
  });
  switch (tail_) {
    case Tail::kNone:
      return ids;
    case Tail::kUsage:
      return absl::StrCat(ids, kUsageTail);
    case Tail::kDone:
      return absl::StrCat(ids, kDoneTail);
  }
  return ids;
}

bool StreamPosition::Covers(size_t choice, const StreamPosition& other) const {
  const Choice& here = choices_[choice];
  const Choice& there = other.choices_[choice];
  // All events before the first token have the same id, so the client may not have this one.
  if (here.tokens == 0 && !here.finished) return false;
  return there.tokens <= here.tokens && (here.finished || !there.finished);
}

}  // namespace tidepool::service

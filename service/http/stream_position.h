// StreamPosition: how far a stream of server-sent events has come: the `id:` of its events, and
// what Last-Event-ID names when a client comes back.
//
// The tokens of each choice, with commas between them, "f" after those of a choice whose finish was
// sent: "17", "60f", "12,60f". "/usage" and "/done" follow after the event with the usage and after
// [DONE].
#ifndef TIDEPOOL_SERVICE_HTTP_STREAM_POSITION_H_
#define TIDEPOOL_SERVICE_HTTP_STREAM_POSITION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-compatible.
class StreamPosition {
 public:
  // More tokens than any context holds.
  static constexpr int64_t kMaxTokens = int64_t{1} << 40;

  // What is sent after the last token.
  enum class Tail : uint8_t { kNone, kUsage, kDone };

  // The start of a stream with this number of choices.
  explicit StreamPosition(size_t choices) : choices_(choices) {}
  // INVALID_ARGUMENT: the text is not the id of an event of such a stream.
  static absl::StatusOr<StreamPosition> Parse(absl::string_view last_event_id, size_t choices);

  // This message of a choice was sent.
  void Take(size_t choice, const v1::GenerateResponse& message);
  void TakeTail(Tail tail) { tail_ = tail; }

  int64_t tokens(size_t choice) const { return choices_[choice].tokens; }
  std::string Id() const;

  // Whether a client that is here has had an event of `choice` that leaves its stream at `other`.
  // One that has no token of the choice yet has had nothing, for events before the first token,
  // such as an echo, have the same id.
  bool Covers(size_t choice, const StreamPosition& other) const;
  // And the event with the usage, or [DONE].
  bool Covers(Tail tail) const { return tail_ >= tail; }
  // Whether this has more tokens of the choice than `other`.
  bool IsPast(size_t choice, const StreamPosition& other) const {
    return tokens(choice) > other.tokens(choice);
  }

 private:
  struct Choice {
    int64_t tokens = 0;
    bool finished = false;
  };
  std::vector<Choice> choices_;
  Tail tail_ = Tail::kNone;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_STREAM_POSITION_H_

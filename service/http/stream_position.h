// StreamPosition: a position in a stream of server-sent events. Its text form is the `id:` of each
// event. A client that reconnects sends the id of its last event as Last-Event-ID.
//
// The text form contains the number of tokens of each choice, separated by commas. After the
// number, an "f" means that the choice's last event (with its finish reason) was sent. Examples:
// "17", "60f", "12,60f". At the end of the text, "/usage" means that the event with the usage was
// sent, and "/done" means that [DONE] was sent.
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
  // This is larger than any context.
  static constexpr int64_t kMaxTokens = int64_t{1} << 40;

  // The events that follow the last token.
  enum class Tail : uint8_t { kNone, kUsage, kDone };

  // The position at the beginning of a stream that has this number of choices.
  explicit StreamPosition(size_t choices) : choices_(choices) {}
  // INVALID_ARGUMENT if the text is not the id of an event of a stream with this number of choices.
  static absl::StatusOr<StreamPosition> Parse(absl::string_view last_event_id, size_t choices);

  // Moves this position to the end of this message of the choice.
  void Take(size_t choice, const v1::GenerateResponse& message);
  void TakeTail(Tail tail) { tail_ = tail; }

  int64_t tokens(size_t choice) const { return choices_[choice].tokens; }
  std::string Id() const;

  // Requires: this is the position of a client. Returns whether the client already has the event of
  // `choice` that moves the stream to `other`. If the client has no token of the choice, returns
  // false. All events before the first token, for example the echo, have the same id, so the client
  // may not have all of them.
  bool Covers(size_t choice, const StreamPosition& other) const;
  // Like the function above, for the event `tail`.
  bool Covers(Tail tail) const { return tail_ >= tail; }
  // Returns whether this position has more tokens of the choice than `other`.
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

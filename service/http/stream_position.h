// StreamPosition: a position in a stream of server-sent events. It is the `id:` of each event, and
// the value of Last-Event-ID when a client reconnects.
//
// It lists the number of tokens of each choice, separated by commas. A choice whose finish was sent
// has an "f" after its number: "17", "60f", "12,60f". The suffix "/usage" or "/done" means that the
// event with the usage, or [DONE], was sent.
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
  // Larger than any context.
  static constexpr int64_t kMaxTokens = int64_t{1} << 40;

  // Events after the last token.
  enum class Tail : uint8_t { kNone, kUsage, kDone };

  // The start of a stream with this number of choices.
  explicit StreamPosition(size_t choices) : choices_(choices) {}
  // INVALID_ARGUMENT if the text is not the id of an event of such a stream.
  static absl::StatusOr<StreamPosition> Parse(absl::string_view last_event_id, size_t choices);

  // Records that this message of a choice was sent.
  void Take(size_t choice, const v1::GenerateResponse& message);
  void TakeTail(Tail tail) { tail_ = tail; }

  int64_t tokens(size_t choice) const { return choices_[choice].tokens; }
  std::string Id() const;

  // True if a client at this position already has an event of `choice` that moves the stream to
  // `other`. A client without any token of the choice has no event of it, because all events before
  // the first token, such as an echo, share one id.
  bool Covers(size_t choice, const StreamPosition& other) const;
  // True if the client also has the event with the usage, or [DONE].
  bool Covers(Tail tail) const { return tail_ >= tail; }
  // True if this position has more tokens of the choice than `other`.
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

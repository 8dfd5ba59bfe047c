// EventStream: a response of server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
#ifndef TIDEPOOL_SERVICE_HTTP_EVENT_STREAM_H_
#define TIDEPOOL_SERVICE_HTTP_EVENT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/base/event_loop.h"
#include "service/http/http_exchange.h"
#include "service/http/request_key.h"
#include "service/http/stream_position.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Used on the exchange's executor only. If the request has a key, each event has an id, and events
// that a reconnecting client already has are not sent. The response begins with the first event.
class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  // `headers` are sent in addition to those of every event stream.
  EventStream(std::shared_ptr<HttpExchange> exchange, RequestKey key, size_t choices,
              HttpHeaders headers);

  // Writes a comment whenever nothing was written for a while, so that proxies and clients keep the
  // connection open. Call it once. `loop` is the timer's, and outlives the stream's end.
  void KeepAlive(Executor* loop, absl::Duration every);

  // Moves the stream's position past a choice's message. INVALID_ARGUMENT if the client's position
  // is past the choice's last token.
  absl::Status Advance(size_t choice, const v1::GenerateResponse& message);
  // True if the client already has the choice's event at this position.
  bool Has(size_t choice) const;
  // Writes an event, and calls `taken` when the socket has taken it.
  void Write(absl::string_view json, std::function<void()> taken);
  // Moves the position past an event that follows the last token. Writes the event, unless the
  // client already has it.
  void WriteTail(StreamPosition::Tail tail, const std::string& event);

  // Ends the response.
  void End();
  // Ends the response with an event for the error, because its status line was sent. Returns false
  // if it was not: then the caller must respond, and the stream writes nothing more.
  bool Fail(const absl::Status& status);
  // The client has disconnected. Writes no more comments.
  void Stop() { ended_ = true; }

 private:
  void Begin();
  void CommentLater();
  void CommentIfSilent(int64_t written);
  // Writes an event or comment, and counts it until the socket has taken it.
  void WriteCounted(std::string bytes, std::function<void()> taken);
  // Adds an id to `event` if the request has a key.
  std::string WithId(std::string event) const;

  const std::shared_ptr<HttpExchange> exchange_;
  const RequestKey key_;
  const HttpHeaders headers_;
  StreamPosition position_;  // the end of what was written
  Executor* loop_ = nullptr;
  absl::Duration comment_every_;
  int64_t written_ = 0;  // events and comments
  int64_t untaken_ = 0;  // those that the socket has not taken yet
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_EVENT_STREAM_H_

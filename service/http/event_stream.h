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

// Use it on the exchange's executor only. If the request has a key, each event has an id. Then a
// client that reconnects gets only the events that it does not have yet. The response's header is
// sent with the first event.
class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  // `headers` are sent in addition to the headers that every event stream has.
  EventStream(std::shared_ptr<HttpExchange> exchange, RequestKey key, size_t choices,
              HttpHeaders headers);

  // Sends a comment whenever nothing was sent for the time `every`. Comments keep proxies and
  // clients from closing the connection. Call this function once. `loop` runs the timer, and must
  // live until the stream has ended.
  void KeepAlive(Executor* loop, absl::Duration every);

  // Call it with each message of a choice, before the event for that message. Moves the stream's
  // position to the end of the message. INVALID_ARGUMENT if the choice is finished, and the
  // client's position (Last-Event-ID) is after the choice's last token.
  absl::Status Advance(size_t choice, const v1::GenerateResponse& message);
  // Returns whether the client already has the choice's event at the stream's current position.
  bool Has(size_t choice) const;
  // Sends an event. Calls `taken` when the socket has taken all its bytes.
  void Write(absl::string_view json, std::function<void()> taken);
  // Handles an event that follows the last token. Moves the stream's position past the event. Sends
  // the event unless the client already has it.
  void WriteTail(StreamPosition::Tail tail, const std::string& event);

  // Ends the response.
  void End();
  // If the response's header was sent, ends the response with an event that describes the error,
  // and returns true. Otherwise returns false. The caller must then send the error as a normal
  // response, and this stream sends nothing more.
  bool Fail(const absl::Status& status);
  // Call it when the client has disconnected. No more comments are sent.
  void Stop() { ended_ = true; }

 private:
  void Begin();
  void CommentLater();
  void CommentIfSilent(int64_t written);
  // Sends an event or a comment. Counts it in untaken_ until the socket has taken it.
  void WriteCounted(std::string bytes, std::function<void()> taken);
  // Adds an id to `event` if the request has a key.
  std::string WithId(std::string event) const;

  const std::shared_ptr<HttpExchange> exchange_;
  const RequestKey key_;
  const HttpHeaders headers_;
  StreamPosition position_;  // the position after the last event
  Executor* loop_ = nullptr;
  absl::Duration comment_every_;
  int64_t written_ = 0;  // number of events and comments that were sent
  int64_t untaken_ = 0;  // how many of them the socket has not taken yet
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_EVENT_STREAM_H_

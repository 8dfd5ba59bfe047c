// NamedRequest: one request for which the client has set a request_id, with its response so far and
// its readers. A client that has lost its connection sends the same request again, and resumes
// reading.
#ifndef TIDEPOOL_SERVICE_FRONT_NAMED_REQUEST_H_
#define TIDEPOOL_SERVICE_FRONT_NAMED_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/base/event_loop.h"
#include "service/front/generation.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Use it on the loop only. It is the sink of a generation: it keeps the generation's messages and
// passes them to its readers. There may be any number of readers. The generation runs as fast as
// the fastest reader reads. Without a reader, the generation pauses when its credit window is full,
// and is cancelled after FrontLimits::orphan_ttl. If a response is long, only its newest messages
// are kept.
class NamedRequest final : public GenerationSink,
                           public std::enable_shared_from_this<NamedRequest> {
 public:
  // Maximum size of the messages that are kept. The newest message is kept even if it is larger.
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  // `begin` is the output token at which the first reader resumes. No message of the generation
  // contains tokens both before and after this position. The loop must outlive this object.
  NamedRequest(Executor* loop, absl::Duration orphan_ttl, int64_t begin);

  // Call it before the first message.
  void Attach(std::weak_ptr<ResponseStream> generation) { generation_ = std::move(generation); }

  // Returns whether a reader can resume after the first `after` output tokens. A message must end
  // there, because text cannot be divided between the tokens of one message.
  bool Holds(int64_t after) const;
  // Returns the position of the first output token that is kept. Returns 0 if there are no
  // messages.
  int64_t kept_from() const;
  // Adds a reader. Requires: Holds(after). The caller owns the result. The sink gets its first
  // message later, on the loop. The stream ends with INVALID_ARGUMENT if the response is shorter
  // than `after`. It ends with ABORTED if another reader is so far ahead that this reader's next
  // message is no longer kept.
  std::shared_ptr<ResponseStream> Read(int64_t after, GenerationSink* sink);

  // Ends the generation. Its readers end with it.
  void Cancel(const absl::Status& why);
  // Ends all readers. The generation continues, as if they had disconnected.
  void EndReaders(const absl::Status& status);

  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

  bool finished() const { return status_.has_value(); }
  // Returns the size of the kept messages.
  size_t bytes() const { return bytes_; }
  size_t readers() const { return readers_.size(); }

 private:
  // A client that reads the response, and its position.
  class Reader final : public ResponseStream, public std::enable_shared_from_this<Reader> {
   public:
    Reader(std::shared_ptr<NamedRequest> request, int64_t after, GenerationSink* sink)
        : request_(std::move(request)), after_(after), sink_(sink) {}
    ~Reader() override;
    void OnWritten() override;
    void Cancel(absl::Status why) override;
    // Sends the next message, or ends the stream.
    void Advance();

   private:
    void End(absl::Status status);

    const std::shared_ptr<NamedRequest> request_;
    const int64_t after_;
    GenerationSink* sink_;  // null after Finish
    size_t next_ = 0;  // number of the next message, counted from the generation's first message
    int64_t position_ = -1;  // position of the next output token; -1: nothing was sent
    bool writing_ = false;
  };

  size_t made() const { return dropped_ + messages_.size(); }
  // Returns the number of output tokens that were generated until now.
  int64_t end() const;
  // A reader has received the first `count` messages. The generation may continue after them.
  void OnTaken(size_t count);
  void Advance();
  // `reader` may be in its destructor.
  void OnReaderGone(const Reader* reader);

  Executor* loop_;
  const absl::Duration orphan_ttl_;
  const int64_t begin_;
  std::weak_ptr<ResponseStream> generation_;
  std::deque<v1::GenerateResponse> messages_;
  size_t dropped_ = 0;  // number of old messages that were dropped
  size_t bytes_ = 0;
  size_t taken_ = 0;  // number of messages that the generation counts as received
  std::optional<absl::Status> status_;
  std::vector<std::weak_ptr<Reader>> readers_;  // the clients own them
  // How often the last reader has left. If the number has changed after orphan_ttl_, a new reader
  // has come and left in the meantime.
  int64_t departures_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_NAMED_REQUEST_H_

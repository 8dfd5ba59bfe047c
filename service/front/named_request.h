// NamedRequest: one request with a client-set request_id: its response so far, and its readers. A
// client that lost its connection sends the same request again and resumes.
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

// Loop only. The sink of a generation. It keeps the messages and passes them to any number of
// readers. The generation runs as fast as the fastest reader. Without a reader it stops at its
// credit window, and is cancelled after the orphan TTL. Of a long response, only the newest
// messages are kept.
class NamedRequest final : public GenerationSink,
                           public std::enable_shared_from_this<NamedRequest> {
 public:
  // Maximum size of the kept messages, unless the newest one alone is larger.
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  // `begin` is the output token at which a first reader resumes. No message of the generation spans
  // it. The loop outlives this object.
  NamedRequest(Executor* loop, absl::Duration orphan_ttl, int64_t begin);

  // Call before the first message.
  void Attach(std::weak_ptr<AnswerStream> generation) { generation_ = std::move(generation); }

  // True if a reader can resume after the first `after` output tokens. A message must end there,
  // because text belongs to whole messages.
  bool Holds(int64_t after) const;
  // Position of the first kept output token. 0 if there are no messages.
  int64_t kept_from() const;
  // Requires: Holds(after). The client owns the result. The sink gets its first message later, from
  // the loop. The stream ends with INVALID_ARGUMENT if the response is shorter than `after`, and
  // with ABORTED if another reader is so far ahead that the next message is no longer kept.
  std::shared_ptr<AnswerStream> Read(int64_t after, GenerationSink* sink);

  // Ends the generation, and thereby its readers.
  void Cancel(const absl::Status& why);
  // The generation continues, as if all readers had left.
  void EndReaders(const absl::Status& status);

  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

  bool finished() const { return status_.has_value(); }
  // Size of the kept messages.
  size_t bytes() const { return bytes_; }
  size_t readers() const { return readers_.size(); }

 private:
  // A client's position in the response.
  class Reader final : public AnswerStream, public std::enable_shared_from_this<Reader> {
   public:
    Reader(std::shared_ptr<NamedRequest> request, int64_t after, GenerationSink* sink)
        : request_(std::move(request)), after_(after), sink_(sink) {}
    ~Reader() override;
    void OnWritten() override;
    void Cancel(absl::Status why) override;
    // Writes the next message, or ends.
    void Advance();

   private:
    void End(absl::Status status);

    const std::shared_ptr<NamedRequest> request_;
    const int64_t after_;
    GenerationSink* sink_;   // null after Finish
    size_t next_ = 0;        // index of the next message, counted from the first that was generated
    int64_t position_ = -1;  // of the next output token; -1: nothing was written
    bool writing_ = false;
  };

  size_t made() const { return dropped_ + messages_.size(); }
  // Number of output tokens generated so far.
  int64_t end() const;
  // A reader has taken `count` messages: the generation may continue with the next.
  void OnTaken(size_t count);
  void Advance();
  // May be called in the destructor of `reader`.
  void OnReaderGone(const Reader* reader);

  Executor* loop_;
  const absl::Duration orphan_ttl_;
  const int64_t begin_;
  std::weak_ptr<AnswerStream> generation_;
  std::deque<v1::GenerateResponse> messages_;
  size_t dropped_ = 0;  // messages that were dropped before the kept ones
  size_t bytes_ = 0;
  size_t taken_ = 0;  // messages that the generation knows to be taken
  std::optional<absl::Status> status_;
  std::vector<std::weak_ptr<Reader>> readers_;  // owned by their clients
  // number of readers that left; shows whether a new reader came meanwhile
  int64_t departures_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_NAMED_REQUEST_H_

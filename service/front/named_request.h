// NamedRequest: one request that its client gave a request_id: what was answered so far, and who
// reads it. A client that was cut off sends the same request again and reads on.
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

// Loop only. The sink of a generation, whose messages it keeps and gives to any number of readers;
// the generation goes on as fast as the fastest of them takes. With no reader it stops at its
// window, and is cancelled when that lasts for the orphan TTL. Of a long answer the newest messages
// are kept.
class NamedRequest final : public GenerationSink,
                           public std::enable_shared_from_this<NamedRequest> {
 public:
  // Of messages that are kept, unless the newest alone is longer.
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  // `begin`: the output token that a first reader wants first; the generation's messages do not
  // reach over it. The loop outlives this.
  NamedRequest(Executor* loop, absl::Duration orphan_ttl, int64_t begin);

  // Before the first message.
  void Attach(std::weak_ptr<AnswerStream> generation) { generation_ = std::move(generation); }

  // Whether what lies behind the first `after` output tokens can be read: text belongs to whole
  // messages, so a message ends there.
  bool Holds(int64_t after) const;
  // The first output token of the messages that are kept; 0 while there are none.
  int64_t kept_from() const;
  // Requires: Holds(after). What comes back is the client's to keep. The sink's first message comes
  // later, from the loop. INVALID_ARGUMENT ends it when the answer turns out to be shorter than
  // `after`; ABORTED when another reader is so far ahead that what comes next is kept no more.
  std::shared_ptr<AnswerStream> Read(int64_t after, GenerationSink* sink);

  // Ends the generation, and with it the readers.
  void Cancel(const absl::Status& why);
  // The generation goes on, as when they leave.
  void EndReaders(const absl::Status& status);

  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

  bool finished() const { return status_.has_value(); }
  // Of the messages that are kept.
  size_t bytes() const { return bytes_; }
  size_t readers() const { return readers_.size(); }

 private:
  // A client's place in the answer.
  class Reader final : public AnswerStream, public std::enable_shared_from_this<Reader> {
   public:
    Reader(std::shared_ptr<NamedRequest> request, int64_t after, GenerationSink* sink)
        : request_(std::move(request)), after_(after), sink_(sink) {}
    ~Reader() override;
    void OnWritten() override;
    void Cancel(absl::Status why) override;
    // Writes what there is, or ends.
    void Advance();

   private:
    void End(absl::Status status);

    const std::shared_ptr<NamedRequest> request_;
    const int64_t after_;
    GenerationSink* sink_;   // null once finished
    size_t next_ = 0;        // message, of all that were made
    int64_t position_ = -1;  // of the output token that comes next; -1: none was written
    bool writing_ = false;
  };

  size_t made() const { return dropped_ + messages_.size(); }
  // Output tokens up to the end of what was made.
  int64_t end() const;
  // A reader is behind message `count` - 1: the generation may go on to the next.
  void OnTaken(size_t count);
  void Advance();
  // `reader` may be in its destructor.
  void OnReaderGone(const Reader* reader);

  Executor* loop_;
  const absl::Duration orphan_ttl_;
  const int64_t begin_;
  std::weak_ptr<AnswerStream> generation_;
  std::deque<v1::GenerateResponse> messages_;
  size_t dropped_ = 0;  // messages in front of them
  size_t bytes_ = 0;
  size_t taken_ = 0;  // messages that the generation was told are taken
  std::optional<absl::Status> status_;
  std::vector<std::weak_ptr<Reader>> readers_;  // their clients own them
  int64_t departures_ = 0;  // of readers: tells an orphan that found one meanwhile
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_NAMED_REQUEST_H_

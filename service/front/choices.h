// Choices: the answers of one request with n above 1, as one stream.
#ifndef TIDEPOOL_SERVICE_FRONT_CHOICES_H_
#define TIDEPOOL_SERVICE_FRONT_CHOICES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "service/base/event_loop.h"
#include "service/front/generation.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Loop only. Each answer is a generation of its own, with its own name and seed, under the same
// rules as any other: it fails over, and comes again for a request_id that comes again. The first
// one computes the prompt, and the others find it in the KV cache. One message of each is on its
// way at a time. If one fails, all end with its status.
class Choices final : public AnswerStream, public std::enable_shared_from_this<Choices> {
 public:
  // Begins one generation, as FrontCore::Generate.
  using Begin =
      std::function<std::shared_ptr<AnswerStream>(GenerationInput input, GenerationSink* sink)>;

  // Requires: input.request.n() is above 1. `begin` is called later, from the loop, which outlives
  // this. The sink may go when it is finished.
  static std::shared_ptr<AnswerStream> Start(Executor* loop, GenerationInput input,
                                             GenerationSink* sink, Begin begin);

  void OnWritten() override;
  void Cancel(absl::Status why) override;

 private:
  // Where one answer's messages go.
  struct Choice final : GenerationSink {
    void Write(v1::GenerateResponse response) override {
      all->OnMessage(index, std::move(response));
    }
    void Finish(absl::Status status) override { all->OnEnd(index, std::move(status)); }

    Choices* all = nullptr;
    int32_t index = 0;
    std::shared_ptr<AnswerStream> stream;
    bool ended = false;
  };

  Choices(Executor* loop, std::string name, int32_t count, GenerationSink* sink);

  void BeginAll(const GenerationInput& input, const Begin& begin);
  void OnMessage(int32_t index, v1::GenerateResponse response);
  void OnEnd(int32_t index, absl::Status status);
  // The client has, or needs not, this answer's message.
  void Acknowledge(int32_t index);
  void SendNext();
  void End(absl::Status status);

  Executor* const loop_;
  const std::string name_;  // the client's name of the request
  GenerationSink* sink_;    // null once finished
  std::vector<Choice> choices_;
  std::deque<v1::GenerateResponse> queue_;
  int32_t writing_ = -1;           // the answer whose message is on its way; -1: none is
  int32_t unfinished_;             // answers whose last message has not come
  int32_t open_;                   // answers that can still call
  v1::Usage usage_;                // of those whose last message has come
  std::shared_ptr<Choices> self_;  // while an answer can call
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CHOICES_H_

// Choices: sends the n choices of one request (n > 1) as one stream.
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

// Use it on the loop only. Each choice is a generation with its own name and its own seed. A choice
// behaves like any other generation: if its worker fails, another worker continues it. If the
// client repeats the request_id, the choice is returned again. The first choice computes the
// prompt, and the other choices find it in the KV cache. Each choice has at most one message that
// waits for the client. If one choice fails, all choices end with its status.
class Choices final : public ResponseStream, public std::enable_shared_from_this<Choices> {
 public:
  // Begins the generation of one choice, as FrontCore::Generate does.
  using Begin =
      std::function<std::shared_ptr<ResponseStream>(GenerationInput input, GenerationSink* sink)>;

  // Requires: input.request.n() > 1. `begin` is called later, on the loop. The loop must outlive
  // this object. The sink may be destroyed after its Finish was called.
  static std::shared_ptr<ResponseStream> Start(Executor* loop, GenerationInput input,
                                               GenerationSink* sink, Begin begin);

  void OnWritten() override;
  void Cancel(absl::Status why) override;

 private:
  // Receives the messages of one choice.
  struct Choice final : GenerationSink {
    void Write(v1::GenerateResponse response) override {
      all->OnMessage(index, std::move(response));
    }
    void Finish(absl::Status status) override { all->OnEnd(index, std::move(status)); }

    Choices* all = nullptr;
    int32_t index = 0;
    std::shared_ptr<ResponseStream> stream;
    bool ended = false;
  };

  Choices(Executor* loop, std::string name, int32_t count, GenerationSink* sink);

  void BeginAll(const GenerationInput& input, const Begin& begin);
  void OnMessage(int32_t index, v1::GenerateResponse response);
  void OnEnd(int32_t index, absl::Status status);
  // Call it when the client has received this choice's message, or when the message is dropped.
  void Acknowledge(int32_t index);
  void SendNext();
  void End(absl::Status status);

  Executor* const loop_;
  const std::string name_;  // the client's request_id
  GenerationSink* sink_;    // null after Finish
  std::vector<Choice> choices_;
  std::deque<v1::GenerateResponse> queue_;
  int32_t writing_ = -1;           // index of the choice whose message is being sent; -1: none
  int32_t unfinished_;             // number of choices that have not sent their last message
  int32_t open_;                   // number of choices that may still call this object
  v1::Usage usage_;                // sum over the choices that have sent their last message
  std::shared_ptr<Choices> self_;  // set while a choice may still call this object
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CHOICES_H_

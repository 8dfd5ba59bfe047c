// ChoiceGenerations: the generations of one HTTP request, one for each choice. It passes their
// messages from the front (service/front) to the HTTP code.
#ifndef TIDEPOOL_SERVICE_HTTP_CHOICE_GENERATIONS_H_
#define TIDEPOOL_SERVICE_HTTP_CHOICE_GENERATIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/auth/caller.h"
#include "service/base/trace_context.h"
#include "service/front/front_core.h"
#include "service/http/openai_request.h"
#include "service/http/request_key.h"

namespace tidepool::service {

// Who sent a request, the name (key) that the client gave to the request, and the request's trace.
struct HttpAsker {
  Caller caller;
  std::optional<TraceContext> trace;
  RequestKey key = {};
};

// Returns the requests to the front, one for each choice. Each contains the names and digests by
// which the front recognises a repeated request. `id` is the id of the HTTP response. Thread-safe.
std::vector<GenerationInput> InputsOf(const OpenAiRequest& request, const HttpAsker& asker,
                                      const std::string& id);

// The model that generates the response.
struct ServedModel {
  std::string name;  // the model's alias, if it has one
  bool has_experts = false;
  bool has_reasoning = false;
};

// Use it on the front's loop only, except for the constructor and the destructor.
class ChoiceGenerations {
 public:
  // Its functions are called on the front's loop.
  class Listener {
   public:
    virtual ~Listener() = default;
    // Receives a choice's next message. The choice sends its next message only after OnWritten was
    // called. `model` is set in the messages at position 0: these are all messages up to the
    // choice's first token.
    virtual void OnMessage(int64_t choice, std::optional<ServedModel> model,
                           v1::GenerateResponse message) = 0;
    // The choice will send no more messages.
    virtual void OnFinish(int64_t choice, absl::Status status) = 0;
    // The request has tools, but the model does not support tools.
    virtual void OnRefused(absl::Status status) = 0;
  };

  // `tools`: whether the request has tools. `core` outlives this object.
  ChoiceGenerations(FrontCore* core, std::vector<GenerationInput> inputs, bool tools);

  // Starts the generations, unless Cancel was called before. Call it once. `listener` must own this
  // object. This object keeps the listener alive until all generations have finished.
  void Begin(const std::shared_ptr<Listener>& listener);
  // Call it when the client has received the choice's last message.
  void OnWritten(int64_t choice);
  // Cancels all generations. Only the first call has an effect.
  void Cancel(const absl::Status& why);

 private:
  // Receives the messages of one choice from the front.
  struct Choice final : GenerationSink {
    void Write(v1::GenerateResponse message) override { all->OnWrite(index, std::move(message)); }
    void Finish(absl::Status status) override { all->OnFinish(index, std::move(status)); }

    ChoiceGenerations* all = nullptr;
    int64_t index = 0;
    std::shared_ptr<ResponseStream> generation;
    bool finished = false;
  };

  void OnWrite(int64_t index, v1::GenerateResponse message);
  void OnFinish(int64_t index, absl::Status status);
  // Returns the model that serves the request. If no worker serves the model now, sets only its
  // name. INVALID_ARGUMENT if the request has tools and the model does not support tools.
  absl::StatusOr<ServedModel> FindServedModel() const;

  FrontCore* const core_;
  const std::string model_;  // the model's name in the request
  const bool tools_;
  std::vector<GenerationInput> inputs_;  // empty after Begin
  std::vector<Choice> choices_;
  std::shared_ptr<Listener> listener_;  // set until all generations have finished
  int64_t open_ = 0;
  bool cancelled_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CHOICE_GENERATIONS_H_

// ChoiceGenerations: the front's side of one HTTP request. Runs one generation for each choice.
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

// The caller of a request, its name for the request, and its trace.
struct HttpAsker {
  Caller caller;
  std::optional<TraceContext> trace;
  RequestKey key = {};
};

// The front's request for each choice, with the names and digests that identify repeated requests.
// `id` is the response's id. Thread-safe.
std::vector<GenerationInput> InputsOf(const OpenAiRequest& request, const HttpAsker& asker,
                                      const std::string& id);

// The model that responds.
struct ServedModel {
  std::string name;  // its alias, if it has one
  bool has_experts = false;
  v1::ToolSyntax tool_syntax = v1::TOOL_SYNTAX_UNSPECIFIED;  // unspecified without tools
};

// Front's loop only, except for the constructor and destructor.
class ChoiceGenerations {
 public:
  // Called on the front's loop.
  class Listener {
   public:
    virtual ~Listener() = default;
    // A choice's next message. The one after it comes after OnWritten. `model` is set before the
    // choice's first token.
    virtual void OnMessage(int64_t choice, std::optional<ServedModel> model,
                           v1::GenerateResponse message) = 0;
    // The choice sends no more messages.
    virtual void OnFinish(int64_t choice, absl::Status status) = 0;
    // The request has tools, and the model does not support them.
    virtual void OnRefused(absl::Status status) = 0;
  };

  // `tools`: the request has tools. `core` outlives this object.
  ChoiceGenerations(FrontCore* core, std::vector<GenerationInput> inputs, bool tools);

  // Starts the generations, unless they were cancelled. Call it once. The listener, which must own
  // this object, lives until all of them have finished.
  void Begin(const std::shared_ptr<Listener>& listener);
  // The client has taken the choice's last message.
  void OnWritten(int64_t choice);
  // Later calls do nothing.
  void Cancel(const absl::Status& why);

 private:
  // Receives a choice's messages from the front.
  struct Choice final : GenerationSink {
    void Write(v1::GenerateResponse message) override { all->OnWrite(index, std::move(message)); }
    void Finish(absl::Status status) override { all->OnFinish(index, std::move(status)); }

    ChoiceGenerations* all = nullptr;
    int64_t index = 0;
    std::shared_ptr<AnswerStream> generation;
    bool finished = false;
  };

  void OnWrite(int64_t index, v1::GenerateResponse message);
  void OnFinish(int64_t index, absl::Status status);
  // If no worker serves the model now, only its name is known. INVALID_ARGUMENT if the request has
  // tools, and the model does not support them.
  absl::StatusOr<ServedModel> FindServedModel() const;

  FrontCore* const core_;
  const std::string model_;  // as in the request
  const bool tools_;
  std::vector<GenerationInput> inputs_;  // empty after Begin
  std::vector<Choice> choices_;
  std::shared_ptr<Listener> listener_;  // set while a generation may call this object
  int64_t open_ = 0;
  bool cancelled_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CHOICE_GENERATIONS_H_

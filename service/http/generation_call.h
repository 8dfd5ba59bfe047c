// GenerationCall: one completion request: it starts the generations at the front and sends their
// messages to the client, as a stream or as one response.
#ifndef TIDEPOOL_SERVICE_HTTP_GENERATION_CALL_H_
#define TIDEPOOL_SERVICE_HTTP_GENERATION_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "service/auth/caller.h"
#include "service/base/active_calls.h"
#include "service/base/response_budget.h"
#include "service/base/trace_context.h"
#include "service/front/front_core.h"
#include "service/http/http_exchange.h"
#include "service/http/openai_request.h"
#include "service/http/openai_response.h"
#include "service/http/request_key.h"
#include "service/http/stream_position.h"

namespace tidepool::service {

// Parts of the server that calls use. All outlive the calls.
struct HttpFront {
  FrontCore* core = nullptr;
  ActiveCalls* calls = nullptr;
  // A stream that was silent for this time gets a comment, so that proxies and clients keep the
  // connection open.
  absl::Duration comment_every = absl::Seconds(15);
};

// The caller of a request, its name for the request, and its trace.
struct HttpAsker {
  Caller caller;
  std::optional<TraceContext> trace;
  RequestKey key = {};
};

// Lives until the client has the response or has disconnected, and all generations have ended.
// Rendering runs on the exchange's executor, generation on the front's loop. They post tasks to
// each other; at most one message of each generation is in flight.
class GenerationCall : public std::enable_shared_from_this<GenerationCall> {
 public:
  // Call it on the exchange's executor.
  static void Start(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                    std::shared_ptr<HttpExchange> exchange);
  ~GenerationCall();

 private:
  // Receives a choice's messages from the front.
  struct Choice final : GenerationSink {
    void Write(v1::GenerateResponse response) override {
      call->OnWrite(index, std::move(response));
    }
    void Finish(absl::Status status) override { call->OnFinish(index, std::move(status)); }

    GenerationCall* call = nullptr;
    int64_t index = 0;
    std::shared_ptr<AnswerStream> generation;
    bool finished = false;
  };

  GenerationCall(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                 std::shared_ptr<HttpExchange> exchange);

  // Runs on the front's loop.
  void Begin();
  // Returns the model's syntax of tool calls. Fails if the model does not support tools.
  absl::StatusOr<v1::ToolSyntax> FindToolSyntax() const;
  // Returns the model that responds. If no worker serves it now, only its name is set.
  v1::Model ServedModel() const;
  void OnWrite(int64_t index, v1::GenerateResponse response);
  void OnFinish(int64_t index, absl::Status status);
  void CancelAll(const absl::Status& status);

  // Runs on the exchange's executor.
  void OnMessage(int64_t index, v1::GenerateResponse message);
  // The choices of a prompt share the prompt's log-probabilities, which the first choice reports.
  // So the others wait until all of them have arrived.
  bool WaitsForPrompt(int64_t index, const v1::GenerateResponse& message) const;
  void SharePrompt(int64_t index, const v1::GenerateResponse& message);
  void Render(int64_t index, const v1::GenerateResponse& message);
  void WriteDelta(int64_t index, const v1::GenerateResponse& message);
  std::string EventUsage(int64_t index) const;
  void AddUsage(int64_t index, const v1::Usage& usage);
  // Writes a comment whenever nothing was written for a while.
  void CommentLater();
  void CommentIfSilent(int64_t events);
  void OnEnd(int64_t index, const absl::Status& status);
  void Acknowledge(int64_t index);
  void BeginStream();
  void WriteEvent(const std::string& chunk, std::function<void()> taken);
  void Fail(const absl::Status& status,
            HttpResponse::FailureLog log = HttpResponse::FailureLog::kHere);
  void Complete();
  // Counts bytes of JSON of a response without streaming. While the JSON becomes one text, up to
  // three times as many bytes are in memory.
  void GrowWhole(size_t bytes);
  // The front's request for a choice, with the name and digests that identify repeated requests.
  GenerationInput InputOf(size_t choice) const;
  // Adds an id to `event` if the request has a key.
  std::string WithId(std::string event) const;
  // True if a reconnecting client already has the event that ends at position_.
  bool Has(size_t choice) const;
  // Sends the event that follows the last token, unless the client already has it.
  void WriteTail(StreamPosition::Tail tail, const std::string& event);
  // Adds the request's id, unless the client set it: then CommonHeaders adds it.
  HttpResponse HeadOf(int status, std::string content_type) const;

  const HttpFront front_;
  const OpenAiRequest request_;
  const Caller caller_;
  const std::optional<TraceContext> trace_;
  const RequestKey key_;
  const std::shared_ptr<HttpExchange> exchange_;
  bool entered_ = false;

  // Used on the front's loop only.
  std::vector<Choice> choices_;
  std::shared_ptr<GenerationCall> self_;  // set while a generation may call this object
  int64_t open_ = 0;
  bool cancelled_ = false;

  // Used on the exchange's executor only.
  AnswerHead head_;
  StreamPosition position_;  // the end of what was rendered
  std::vector<ChoiceRenderer> renderers_;
  std::shared_ptr<WholeAnswer> whole_;  // null if streaming
  AnswerUsage usage_;
  int64_t left_ = 0;
  struct SharedPrompt {
    bool told = false;                       // all log-probabilities of the prompt have arrived
    std::vector<v1::GenerateResponse> held;  // messages of choices that wait for them
  };
  std::vector<SharedPrompt> prompts_;
  int64_t finished_ = 0;  // choices that sent their last message
  int64_t events_ = 0;    // events written
  int64_t untaken_ = 0;   // events that the socket has not taken yet
  bool stream_begun_ = false;
  bool failed_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_GENERATION_CALL_H_

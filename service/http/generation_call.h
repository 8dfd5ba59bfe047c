// GenerationCall: one completion request of a client: its generations at the front, their messages
// to the client, as a stream or as one answer.
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

// What calls need of the server; outlives them.
struct HttpFront {
  FrontCore* core = nullptr;
  ActiveCalls* calls = nullptr;
  // A stream of which nothing has come for this long gets a comment, so that proxies and clients
  // know that it lives.
  absl::Duration comment_every = absl::Seconds(15);
};

// Who asks, and as which part of what.
struct HttpAsker {
  Caller caller;
  std::optional<TraceContext> trace;
  RequestKey key = {};
};

// Lives until its client has the answer or is gone, and its generations have ended. What renders
// belongs to the exchange's executor, what generates to the front's loop; they send each other
// messages, of which each generation has one on its way.
class GenerationCall : public std::enable_shared_from_this<GenerationCall> {
 public:
  // On the exchange's executor.
  static void Start(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                    std::shared_ptr<HttpExchange> exchange);
  ~GenerationCall();

 private:
  // The front's side of a choice.
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

  // Loop.
  void Begin();
  // How this model writes calls of tools; an error if it has no place for tools.
  absl::StatusOr<v1::ToolSyntax> FindToolSyntax() const;
  // The one that answers; nothing but the name that was asked for where no worker serves it now.
  v1::Model ServedModel() const;
  void OnWrite(int64_t index, v1::GenerateResponse response);
  void OnFinish(int64_t index, absl::Status status);
  void CancelAll(const absl::Status& status);

  // The exchange's executor.
  void OnMessage(int64_t index, v1::GenerateResponse message);
  // Choices of one prompt whose log-probabilities are asked for share those of the first one: they
  // wait until it has them all.
  bool WaitsForPrompt(int64_t index, const v1::GenerateResponse& message) const;
  void SharePrompt(int64_t index, const v1::GenerateResponse& message);
  void Render(int64_t index, const v1::GenerateResponse& message);
  void WriteDelta(int64_t index, const v1::GenerateResponse& message);
  std::string EventUsage(int64_t index) const;
  void AddUsage(int64_t index, const v1::Usage& usage);
  // Writes a comment when nothing was written for a while, and again.
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
  // What the front calls a choice's request, and which other requests of this name are the same.
  GenerationInput InputOf(size_t choice) const;
  // `event` with its id, where the request has a key.
  std::string WithId(std::string event) const;
  // Of a client that comes back: it has had the event after which the stream is at position_.
  bool Has(size_t choice) const;
  // Sends what follows the last token, unless its client has had it.
  void WriteTail(StreamPosition::Tail tail, const std::string& event);
  // Adds the request's id, unless its client named it: then CommonHeaders adds the name.
  HttpResponse HeadOf(int status, std::string content_type) const;

  const HttpFront front_;
  const OpenAiRequest request_;
  const Caller caller_;
  const std::optional<TraceContext> trace_;
  const RequestKey key_;
  const std::shared_ptr<HttpExchange> exchange_;
  bool entered_ = false;

  // Loop only.
  std::vector<Choice> choices_;
  std::shared_ptr<GenerationCall> self_;  // while a generation can call
  int64_t open_ = 0;
  bool cancelled_ = false;

  // The exchange's executor only.
  AnswerHead head_;
  StreamPosition position_;  // after what was rendered
  std::vector<ChoiceRenderer> renderers_;
  std::shared_ptr<WholeAnswer> whole_;  // null: it is a stream
  AnswerUsage usage_;
  int64_t left_ = 0;
  struct SharedPrompt {
    bool told = false;                       // all of its log-probabilities have come
    std::vector<v1::GenerateResponse> held;  // of choices that wait for it
  };
  std::vector<SharedPrompt> prompts_;
  int64_t finished_ = 0;  // choices whose last message has come
  int64_t events_ = 0;    // that were written
  int64_t untaken_ = 0;   // of these, not yet taken by the socket
  bool stream_begun_ = false;
  bool failed_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_GENERATION_CALL_H_

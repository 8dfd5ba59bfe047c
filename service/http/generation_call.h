// GenerationCall: one HTTP request that generates text. It converts the messages of its generations
// to JSON and sends them to the client, as a stream or as one response.
#ifndef TIDEPOOL_SERVICE_HTTP_GENERATION_CALL_H_
#define TIDEPOOL_SERVICE_HTTP_GENERATION_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/base/active_calls.h"
#include "service/base/response_budget.h"
#include "service/front/front_core.h"
#include "service/http/choice_generations.h"
#include "service/http/event_stream.h"
#include "service/http/http_exchange.h"
#include "service/http/openai_request.h"
#include "service/http/openai_response.h"
#include "service/http/shared_prompts.h"

namespace tidepool::service {

// The parts of the server that a GenerationCall uses. All of them outlive the calls.
struct HttpFront {
  FrontCore* core = nullptr;
  ActiveCalls* calls = nullptr;
  // A stream that sends nothing for this time sends a comment. Comments keep proxies and clients
  // from closing the connection.
  absl::Duration comment_every = absl::Seconds(15);
};

// The object lives until all generations have ended, and the client has the response or has
// disconnected. JSON is made on the exchange's executor. Generations run on the front's loop. The
// executor and the loop post tasks to each other. At most one message of each generation is on its
// way between them.
class GenerationCall final : public ChoiceGenerations::Listener,
                             public std::enable_shared_from_this<GenerationCall> {
 public:
  // Call it on the exchange's executor.
  static void Start(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                    std::shared_ptr<HttpExchange> exchange);
  ~GenerationCall() override;

 private:
  GenerationCall(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                 std::shared_ptr<HttpExchange> exchange);

  // These run on the front's loop.
  void OnMessage(int64_t index, std::optional<ServedModel> model,
                 v1::GenerateResponse message) override;
  void OnFinish(int64_t index, absl::Status status) override;
  void OnRefused(absl::Status status) override;

  // The functions below run on the exchange's executor.
  void TakeModel(const ServedModel& model);
  void TakeMessage(int64_t index, v1::GenerateResponse message);
  // Passes the log-probabilities of a prompt from its first choice to its other choices.
  void SharePrompt(int64_t index, const v1::GenerateResponse& message);
  void Render(int64_t index, const v1::GenerateResponse& message);
  void WriteDelta(int64_t index, const v1::GenerateResponse& message);
  std::string EventUsage(int64_t index) const;
  void AddUsage(int64_t index, const v1::Usage& usage);
  void TakeEnd(const absl::Status& status);
  void Acknowledge(int64_t index);
  void Fail(const absl::Status& status,
            HttpResponse::FailureLog log = HttpResponse::FailureLog::kHere);
  void Complete();
  // Counts bytes of JSON that a response without streaming keeps in memory. When the whole JSON
  // text is made at the end, up to three times as many bytes are in memory.
  void GrowWhole(size_t bytes);

  const HttpFront front_;
  const OpenAiRequest request_;
  const std::shared_ptr<HttpExchange> exchange_;
  bool entered_ = false;

  // Used on the front's loop only.
  std::optional<ChoiceGenerations> generations_;

  // Used on the exchange's executor only.
  ResponseHead head_;
  // A header with the response's id. Empty if the client has set an id, because CommonHeaders
  // already adds that id.
  HttpHeaders id_headers_;
  std::vector<ChoiceRenderer> renderers_;
  SharedPrompts prompts_;
  std::shared_ptr<WholeResponse> whole_;  // null if the response is streamed
  std::shared_ptr<EventStream> events_;   // null if the response is not streamed
  ResponseUsage usage_;
  int64_t left_ = 0;
  int64_t finished_ = 0;  // number of choices that have sent their last message
  bool failed_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_GENERATION_CALL_H_

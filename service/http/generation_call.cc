#include "service/http/generation_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/random_hex.h"
#include "service/http/http_error.h"

namespace tidepool::service {
namespace {

// Returns the response's id. A repeated request gets the same id.
std::string IdOf(const RequestKey& key, const Caller& caller) {
  if (key.id.empty()) return base::RandomHex();
  return absl::StrCat(absl::Hex(SeedOf({caller.principal, key.id}), absl::kZeroPad16));
}

}  // namespace

GenerationCall::GenerationCall(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                               std::shared_ptr<HttpExchange> exchange)
    : front_(front),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      prompts_(
          static_cast<int64_t>(request_.choices.size()), request_.n,
          request_.prompt.echo_logprobs.has_value() || request_.prompt.prompt_logprobs.has_value()),
      left_(static_cast<int64_t>(request_.choices.size())) {
  const bool chat = request_.endpoint == OpenAiEndpoint::kChat;
  head_ = {.endpoint = request_.endpoint,
           .id = absl::StrCat(chat ? "chatcmpl-" : "cmpl-", IdOf(asker.key, asker.caller)),
           .model = request_.choices[0].model(),
           .created = absl::ToUnixSeconds(absl::Now())};
  if (asker.key.id.empty()) id_headers_ = {{"x-request-id", head_.id}};
  for (size_t i = 0; i < request_.choices.size(); ++i) {
    renderers_.emplace_back(head_, i, request_.prompt);
  }
  generations_.emplace(front_.core, InputsOf(request_, asker, head_.id), request_.tools);
  if (request_.stream) {
    events_ = std::make_shared<EventStream>(exchange_, std::move(asker.key),
                                            request_.choices.size(), id_headers_);
  } else {
    whole_ = std::make_shared<WholeResponse>(
        front_.core->response_budget().Begin(std::move(asker.caller.principal)));
  }
}

GenerationCall::~GenerationCall() {
  if (entered_) front_.calls->Leave();
}

void GenerationCall::Start(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                           std::shared_ptr<HttpExchange> exchange) {
  auto call = std::shared_ptr<GenerationCall>(
      new GenerationCall(front, std::move(request), std::move(asker), std::move(exchange)));
  const absl::Status entered = front.calls->Enter();
  call->entered_ = entered.ok();
  if (!entered.ok()) return call->Fail(entered);
  call->exchange_->OnGone([weak = call->weak_from_this()] {
    const auto live = weak.lock();
    if (live == nullptr) return;
    live->failed_ = true;
    if (live->events_ != nullptr) live->events_->Stop();
    live->front_.core->loop()->Post(
        [live] { live->generations_->Cancel(absl::CancelledError("the client disconnected")); });
  });
  if (call->events_ != nullptr) call->events_->KeepAlive(front.core->loop(), front.comment_every);
  front.core->loop()->Post([call] { call->generations_->Begin(call); });
}

void GenerationCall::OnMessage(int64_t index, std::optional<ServedModel> model,
                               v1::GenerateResponse message) {
  exchange_->Post([self = shared_from_this(), index, model = std::move(model),
                   message = std::move(message)]() mutable {
    if (model.has_value()) self->TakeModel(*model);
    self->TakeMessage(index, std::move(message));
  });
}

void GenerationCall::OnFinish(int64_t index, absl::Status status) {
  static_cast<void>(index);
  exchange_->Post(
      [self = shared_from_this(), status = std::move(status)] { self->TakeEnd(status); });
}

void GenerationCall::OnRefused(absl::Status status) {
  exchange_->Post([self = shared_from_this(), status = std::move(status)] { self->Fail(status); });
}

void GenerationCall::TakeModel(const ServedModel& model) {
  if (head_.model.empty()) head_.model = model.name;
  if (model.has_experts) usage_.has_experts = true;
  if (model.has_reasoning) usage_.has_reasoning = true;
}

void GenerationCall::TakeMessage(int64_t index, v1::GenerateResponse message) {
  if (failed_ || prompts_.Hold(index, &message)) return;
  Render(index, message);
  if (prompts_.IsFirst(index)) SharePrompt(index, message);
}

void GenerationCall::SharePrompt(int64_t index, const v1::GenerateResponse& message) {
  for (int64_t other = index + 1; other < index + request_.n && !failed_; ++other) {
    const size_t before = renderers_[other].bytes();
    renderers_[other].TakePromptLogprobs(message);
    if (!request_.stream) GrowWhole(renderers_[other].bytes() - before);
  }
  if (failed_) return;
  for (const v1::GenerateResponse& held : prompts_.Release(index, message)) {
    if (!failed_) Render(held.index(), held);
  }
}

void GenerationCall::Render(int64_t index, const v1::GenerateResponse& message) {
  ChoiceRenderer& renderer = renderers_[index];
  const size_t before = renderer.bytes();
  renderer.Take(message);
  if (message.has_usage()) AddUsage(index, message.usage());
  if (request_.stream) return WriteDelta(index, message);
  GrowWhole(renderer.bytes() - before);
  Acknowledge(index);
}

void GenerationCall::AddUsage(int64_t index, const v1::Usage& usage) {
  if (prompts_.IsFirst(index)) {
    usage_.prompt_tokens += usage.prompt_tokens();
    usage_.cached_tokens += usage.cached_tokens();
    usage_.prefill_seconds += usage.prefill_seconds();
  }
  usage_.completion_tokens += usage.completion_tokens();
  usage_.reasoning_tokens += usage.reasoning_tokens();
  usage_.decode_seconds += usage.decode_seconds();
  usage_.expert_hits += usage.expert_hits();
  usage_.expert_misses += usage.expert_misses();
  usage_.expert_demand_bytes += usage.expert_demand_bytes();
  usage_.expert_stall_seconds += usage.expert_stall_seconds();
}

// Returns the usage for an event that has text.
std::string GenerationCall::EventUsage(int64_t index) const {
  if (!request_.include_usage) return "";
  if (!request_.continuous_usage) return "null";
  const ChoiceRenderer& renderer = renderers_[index];
  return DumpJson(TokensJson(renderer.prompt_tokens(), renderer.completion_tokens()));
}

void GenerationCall::WriteDelta(int64_t index, const v1::GenerateResponse& message) {
  ResponseExtras extras;
  if (message.has_progress()) extras.prompt_progress = DumpJson(ProgressJson(message.progress()));
  const bool chat = request_.endpoint == OpenAiEndpoint::kChat;
  if (chat) extras.prompt_token_ids = renderers_[index].GivePromptIds();
  const bool ends = message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  if (ends && ++finished_ == static_cast<int64_t>(renderers_.size())) {
    extras.timings = DumpJson(TimingsJson(usage_));
  }
  if (const absl::Status advanced = events_->Advance(static_cast<size_t>(index), message);
      !advanced.ok()) {
    return Fail(advanced);
  }
  const std::optional<std::string> delta = renderers_[index].TakeDelta();
  const bool empty =
      !delta.has_value() && extras.prompt_progress.empty() && extras.prompt_token_ids.empty();
  if (empty || events_->Has(static_cast<size_t>(index))) return Acknowledge(index);
  events_->Write(ChunkText(head_, delta.value_or(""), EventUsage(index), extras),
                 [self = shared_from_this(), index] { self->Acknowledge(index); });
}

void GenerationCall::GrowWhole(size_t bytes) {
  const absl::Status room = whole_->Grow(static_cast<int64_t>(bytes));
  if (whole_->IsTooLong()) {
    Fail(FieldError(
        "stream", absl::StrCat("is required: the response exceeds ", WholeResponse::kMaxBytes >> 20,
                               " MiB, the limit without streaming; set it to true, or request "
                               "fewer tokens, choices or logprobs")));
  } else if (!room.ok()) {
    Fail(room);
  }
}

void GenerationCall::Acknowledge(int64_t index) {
  front_.core->loop()->Post(
      [self = shared_from_this(), index] { self->generations_->OnWritten(index); });
}

void GenerationCall::TakeEnd(const absl::Status& status) {
  if (failed_) return;
  if (!status.ok()) return Fail(status, HttpResponse::FailureLog::kElsewhere);
  if (--left_ == 0) Complete();
}

void GenerationCall::Fail(const absl::Status& status, HttpResponse::FailureLog log) {
  if (std::exchange(failed_, true)) return;
  if (events_ == nullptr || !events_->Fail(status)) {
    HttpResponse response = ErrorResponse(status);
    response.failure_log = log;
    response.headers.insert(response.headers.end(), id_headers_.begin(), id_headers_.end());
    exchange_->Answer(std::move(response));
  }
  front_.core->loop()->Post([self = shared_from_this()] {
    self->generations_->Cancel(absl::CancelledError("another choice of the request failed"));
  });
}

void GenerationCall::Complete() {
  failed_ = true;  // nothing is written after this
  if (request_.stream) {
    if (request_.include_usage) {
      events_->WriteTail(StreamPosition::Tail::kUsage,
                         SseEvent(ChunkText(head_, "", DumpJson(UsageJson(usage_)))));
    }
    events_->WriteTail(StreamPosition::Tail::kDone, kSseDone);
    return events_->End();
  }
  ResponseExtras extras = {.timings = DumpJson(TimingsJson(usage_))};
  if (request_.endpoint == OpenAiEndpoint::kChat) {
    extras.prompt_token_ids = renderers_[0].GivePromptIds();
    extras.prompt_logprobs = renderers_[0].GivePromptLogprobs();
  }
  std::vector<std::string> choices;
  for (ChoiceRenderer& renderer : renderers_) choices.push_back(renderer.TakeWhole());
  HttpResponse response;
  response.headers = id_headers_;
  response.body = ResponseText(head_, std::move(choices), usage_, extras);
  response.held = whole_;
  exchange_->Answer(std::move(response));
}

}  // namespace tidepool::service

#include "service/http/generation_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/random_hex.h"
#include "service/http/http_error.h"

namespace tidepool::service {

GenerationCall::GenerationCall(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                               std::shared_ptr<HttpExchange> exchange)
    : front_(front),
      request_(std::move(request)),
      caller_(std::move(asker.caller)),
      trace_(std::move(asker.trace)),
      exchange_(std::move(exchange)),
      choices_(request_.choices.size()),
      left_(static_cast<int64_t>(request_.choices.size())) {
  const bool chat = request_.endpoint == OpenAiEndpoint::kChat;
  head_ = {.endpoint = request_.endpoint,
           .id = absl::StrCat(chat ? "chatcmpl-" : "cmpl-", base::RandomHex()),
           .model = request_.choices[0].model(),
           .created = absl::ToUnixSeconds(absl::Now())};
  for (size_t i = 0; i < request_.choices.size(); ++i) {
    renderers_.emplace_back(head_, i, request_.echo.empty() ? "" : request_.echo[i]);
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
    live->front_.core->loop()->Post(
        [live] { live->CancelAll(absl::CancelledError("the client left")); });
  });
  if (!call->request_.stream) {
    call->whole_ = std::make_shared<WholeAnswer>(
        front.core->whole_answers().Begin(call->caller_.principal));
    size_t echoed = 0;
    for (const ChoiceRenderer& renderer : call->renderers_) echoed += renderer.bytes();
    call->GrowWhole(echoed);
    if (call->failed_) return;
  }
  front.core->loop()->Post([call] { call->Begin(); });
}

void GenerationCall::Begin() {
  if (cancelled_) return;
  if (absl::StatusOr<v1::ToolSyntax> syntax = FindToolSyntax(); !syntax.ok()) {
    exchange_->Post([self = shared_from_this(), status = syntax.status()] { self->Fail(status); });
    return;
  }
  self_ = shared_from_this();
  open_ = static_cast<int64_t>(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].call = this;
    choices_[i].index = static_cast<int64_t>(i);
  }
  // Choices of one request belong to one trace.
  const std::optional<TraceContext> trace =
      trace_.has_value() || choices_.size() == 1 ? trace_ : BeginSpan(std::nullopt).context;
  const auto keep = self_;  // a generation that is refused ends at once
  for (size_t i = 0; i < choices_.size(); ++i) {
    GenerationInput input = {
        .request = request_.choices[i],
        .own_id = choices_.size() == 1 ? head_.id : absl::StrCat(head_.id, "-", i),
        .principal = caller_.principal,
        .role = caller_.role,
        .limits = caller_.limits,
        .span = BeginSpan(trace),
        .deadline = absl::InfiniteDuration(),
        .checked = absl::OkStatus()};
    choices_[i].generation = front_.core->Generate(std::move(input), &choices_[i]);
  }
}

absl::StatusOr<v1::ToolSyntax> GenerationCall::FindToolSyntax() const {
  if (!request_.tools) return v1::TOOL_SYNTAX_UNSPECIFIED;
  const absl::StatusOr<v1::Model> model =
      front_.core->workers()->FindModel(request_.choices[0].model());
  // The generation waits for its worker, and for its errors.
  if (!model.ok()) return v1::OTHER_TOOL_SYNTAX;
  if (model->tool_syntax() == v1::TOOL_SYNTAX_UNSPECIFIED) {
    return FieldError("tools",
                      absl::StrCat("has no effect: the chat template of model '", model->name(),
                                   "' has no place for them; leave it out"));
  }
  return model->tool_syntax();
}

v1::Model GenerationCall::ServedModel() const {
  absl::StatusOr<v1::Model> model = front_.core->workers()->FindModel(request_.choices[0].model());
  if (model.ok()) return *std::move(model);
  v1::Model unknown;
  unknown.set_name(request_.choices[0].model());
  return unknown;
}

void GenerationCall::OnWrite(int64_t index, v1::GenerateResponse response) {
  // The worker that made the first message told of its model before.
  absl::StatusOr<v1::ToolSyntax> syntax = v1::TOOL_SYNTAX_UNSPECIFIED;
  v1::Model model;
  if (response.position() == 0) {
    syntax = FindToolSyntax();
    model = ServedModel();
  }
  exchange_->Post([self = shared_from_this(), index, syntax, model = std::move(model),
                   response = std::move(response)] {
    if (!syntax.ok()) return self->Fail(syntax.status());
    if (self->head_.model.empty()) self->head_.model = model.name();
    if (model.experts() > 0) self->usage_.has_experts = true;
    if (*syntax != v1::TOOL_SYNTAX_UNSPECIFIED) self->renderers_[index].LookForCalls(*syntax);
    self->OnMessage(index, response);
  });
}

void GenerationCall::OnFinish(int64_t index, absl::Status status) {
  choices_[index].finished = true;
  exchange_->Post([self = shared_from_this(), index, status = std::move(status)] {
    self->OnEnd(index, status);
  });
  if (--open_ == 0) self_.reset();
}

void GenerationCall::CancelAll(const absl::Status& status) {
  if (std::exchange(cancelled_, true)) return;
  const auto keep = shared_from_this();
  for (Choice& choice : choices_) {
    if (choice.generation != nullptr && !choice.finished) choice.generation->Cancel(status);
  }
}

void GenerationCall::OnMessage(int64_t index, const v1::GenerateResponse& message) {
  if (failed_) return;
  ChoiceRenderer& renderer = renderers_[index];
  const size_t before = renderer.bytes();
  renderer.Take(message);
  if (message.has_usage()) {
    if (index % request_.n == 0) {
      usage_.prompt_tokens += message.usage().prompt_tokens();
      usage_.cached_tokens += message.usage().cached_tokens();
    }
    usage_.completion_tokens += message.usage().completion_tokens();
    usage_.expert_hits += message.usage().expert_hits();
    usage_.expert_misses += message.usage().expert_misses();
    usage_.expert_demand_bytes += message.usage().expert_demand_bytes();
    usage_.expert_stall_seconds += message.usage().expert_stall_seconds();
  }
  if (!request_.stream) {
    GrowWhole(renderer.bytes() - before);
    return Acknowledge(index);
  }
  const std::optional<std::string> delta = renderer.TakeDelta();
  if (!delta.has_value()) return Acknowledge(index);
  WriteEvent(ChunkText(head_, *delta, request_.include_usage ? "null" : ""),
             [self = shared_from_this(), index] { self->Acknowledge(index); });
}

void GenerationCall::GrowWhole(size_t bytes) {
  const absl::Status room = whole_->Grow(static_cast<int64_t>(bytes));
  if (whole_->IsTooLong()) {
    Fail(FieldError("stream",
                    absl::StrCat("is needed: the answer is past ", WholeAnswer::kMostBytes >> 20,
                                 " MiB, the most that is sent as one; set it to true, or ask for "
                                 "fewer tokens, choices or logprobs")));
  } else if (!room.ok()) {
    Fail(room);
  }
}

void GenerationCall::Acknowledge(int64_t index) {
  front_.core->loop()->Post([self = shared_from_this(), index] {
    if (self->choices_[index].generation != nullptr) self->choices_[index].generation->OnWritten();
  });
}

void GenerationCall::OnEnd(int64_t index, const absl::Status& status) {
  static_cast<void>(index);
  if (failed_) return;
  if (!status.ok()) return Fail(status);
  if (--left_ == 0) Complete();
}

HttpResponse GenerationCall::HeadOf(int status, std::string content_type) const {
  HttpResponse response;
  response.status = status;
  response.content_type = std::move(content_type);
  response.headers = {{"x-request-id", head_.id}};
  return response;
}

void GenerationCall::BeginStream() {
  if (std::exchange(stream_begun_, true)) return;
  HttpResponse head = HeadOf(200, "text/event-stream; charset=utf-8");
  // Proxies that collect what they pass on would make one answer of a stream.
  head.headers.insert(head.headers.end(),
                      {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  exchange_->BeginStream(std::move(head));
}

void GenerationCall::WriteEvent(const std::string& chunk, std::function<void()> taken) {
  BeginStream();
  exchange_->Write(SseEvent(chunk), std::move(taken));
}

void GenerationCall::Fail(const absl::Status& status) {
  if (std::exchange(failed_, true)) return;
  if (stream_begun_) {
    // The status line has left: the error is an event, and no [DONE] follows.
    exchange_->Write(SseEvent(DumpJson(ErrorJson(ToHttpError(status)))), nullptr);
    exchange_->EndStream();
  } else {
    HttpResponse response = ErrorResponse(status);
    response.headers.emplace_back("x-request-id", head_.id);
    exchange_->Answer(std::move(response));
  }
  front_.core->loop()->Post([self = shared_from_this()] {
    self->CancelAll(absl::CancelledError("another choice of the request failed"));
  });
}

void GenerationCall::Complete() {
  failed_ = true;  // nothing is said after this
  if (request_.stream) {
    if (request_.include_usage) {
      WriteEvent(ChunkText(head_, "", DumpJson(UsageJson(usage_))), nullptr);
    }
    BeginStream();
    exchange_->Write(kSseDone, nullptr);
    return exchange_->EndStream();
  }
  std::vector<std::string> choices;
  for (ChoiceRenderer& renderer : renderers_) choices.push_back(renderer.TakeWhole());
  HttpResponse response = HeadOf(200, "application/json");
  response.body = AnswerText(head_, std::move(choices), usage_);
  response.held = whole_;
  exchange_->Answer(std::move(response));
}

}  // namespace tidepool::service

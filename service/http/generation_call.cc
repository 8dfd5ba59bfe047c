#include "service/http/generation_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/random_hex.h"
#include "service/front/served_models.h"
#include "service/http/http_error.h"

namespace tidepool::service {
namespace {

// The same for a repeated request, so that its response has the same id.
std::string IdOf(const RequestKey& key, const Caller& caller) {
  if (key.id.empty()) return base::RandomHex();
  return absl::StrCat(absl::Hex(SeedOf({caller.principal, key.id}), absl::kZeroPad16));
}

}  // namespace

GenerationCall::GenerationCall(const HttpFront& front, OpenAiRequest request, HttpAsker asker,
                               std::shared_ptr<HttpExchange> exchange)
    : front_(front),
      request_(std::move(request)),
      caller_(std::move(asker.caller)),
      trace_(std::move(asker.trace)),
      key_(std::move(asker.key)),
      exchange_(std::move(exchange)),
      choices_(request_.choices.size()),
      position_(request_.choices.size()),
      left_(static_cast<int64_t>(request_.choices.size())) {
  const bool chat = request_.endpoint == OpenAiEndpoint::kChat;
  head_ = {.endpoint = request_.endpoint,
           .id = absl::StrCat(chat ? "chatcmpl-" : "cmpl-", IdOf(key_, caller_)),
           .model = request_.choices[0].model(),
           .created = absl::ToUnixSeconds(absl::Now())};
  for (size_t i = 0; i < request_.choices.size(); ++i) {
    renderers_.emplace_back(head_, i, request_.prompt);
  }
  prompts_.resize(request_.choices.size() / request_.n);
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
        [live] { live->CancelAll(absl::CancelledError("the client disconnected")); });
  });
  if (!call->request_.stream) {
    call->whole_ =
        std::make_shared<WholeAnswer>(front.core->whole_answers().Begin(call->caller_.principal));
  } else {
    call->CommentLater();
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
  // All choices of a request belong to one trace.
  const std::optional<TraceContext> trace =
      trace_.has_value() || choices_.size() == 1 ? trace_ : BeginSpan(std::nullopt).context;
  const auto keep = self_;  // a refused generation ends at once
  for (size_t i = 0; i < choices_.size(); ++i) {
    GenerationInput input = InputOf(i);
    input.span = BeginSpan(trace);
    choices_[i].generation = front_.core->Generate(std::move(input), &choices_[i]);
  }
}

GenerationInput GenerationCall::InputOf(size_t choice) const {
  const size_t count = choices_.size();
  GenerationInput input = {.request = request_.choices[choice],
                           .own_id = count == 1 ? head_.id : absl::StrCat(head_.id, "-", choice),
                           .principal = caller_.principal,
                           .role = caller_.role,
                           .limits = caller_.limits,
                           .deadline = absl::InfiniteDuration(),
                           .checked = absl::OkStatus()};
  if (key_.id.empty()) return input;
  input.request.set_request_id(key_.ChoiceId(choice, count));
  // Events that the client already has are rendered again but not sent, because later events depend
  // on them.
  input.replay = true;
  if (key_.resume.has_value()) input.request.set_resume_after(key_.resume->tokens(choice));
  input.digests = DigestsOf(input.request);
  if (count > 1) absl::StrAppend(&input.digests->body, " ", choice, " of ", count);
  return input;
}

absl::StatusOr<v1::ToolSyntax> GenerationCall::FindToolSyntax() const {
  if (!request_.tools) return v1::TOOL_SYNTAX_UNSPECIFIED;
  const absl::StatusOr<v1::Model> model =
      FindModel(*front_.core->workers(), request_.choices[0].model());
  // Without a model, the generation waits for a worker and reports its errors.
  if (!model.ok()) return v1::OTHER_TOOL_SYNTAX;
  if (model->tool_syntax() == v1::TOOL_SYNTAX_UNSPECIFIED) {
    return FieldError("tools",
                      absl::StrCat("has no effect: the chat template of model '", model->name(),
                                   "' does not support them; leave it out"));
  }
  return model->tool_syntax();
}

v1::Model GenerationCall::ServedModel() const {
  absl::StatusOr<v1::Model> model = FindModel(*front_.core->workers(), request_.choices[0].model());
  if (model.ok()) return *std::move(model);
  v1::Model unknown;
  unknown.set_name(request_.choices[0].model());
  return unknown;
}

void GenerationCall::OnWrite(int64_t index, v1::GenerateResponse response) {
  // Normally known: the worker reported its model before the first message.
  absl::StatusOr<v1::ToolSyntax> syntax = v1::TOOL_SYNTAX_UNSPECIFIED;
  v1::Model model;
  if (response.position() == 0) {
    syntax = FindToolSyntax();
    model = ServedModel();
  }
  exchange_->Post([self = shared_from_this(), index, syntax, model = std::move(model),
                   response = std::move(response)]() mutable {
    if (!syntax.ok()) return self->Fail(syntax.status());
    if (self->head_.model.empty()) {
      self->head_.model = model.aliases().empty() ? model.name() : model.aliases(0);
    }
    if (model.experts() > 0) self->usage_.has_experts = true;
    if (*syntax != v1::TOOL_SYNTAX_UNSPECIFIED) self->renderers_[index].LookForCalls(*syntax);
    self->OnMessage(index, std::move(response));
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

void GenerationCall::OnMessage(int64_t index, v1::GenerateResponse message) {
  if (failed_) return;
  if (WaitsForPrompt(index, message)) {
    message.set_index(static_cast<int32_t>(index));
    prompts_[index / request_.n].held.push_back(std::move(message));
    return;
  }
  Render(index, message);
  SharePrompt(index, message);
}

bool GenerationCall::WaitsForPrompt(int64_t index, const v1::GenerateResponse& message) const {
  const bool shares =
      request_.prompt.echo_logprobs.has_value() || request_.prompt.prompt_logprobs.has_value();
  const bool answers =
      message.token_ids_size() > 0 || message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  return shares && answers && index % request_.n > 0 && !prompts_[index / request_.n].told;
}

void GenerationCall::SharePrompt(int64_t index, const v1::GenerateResponse& message) {
  if (index % request_.n > 0 || failed_) return;
  for (int64_t other = index + 1; other < index + request_.n; ++other) {
    const size_t before = renderers_[other].bytes();
    renderers_[other].TakePromptLogprobs(message);
    if (!request_.stream) GrowWhole(renderers_[other].bytes() - before);
    if (failed_) return;
  }
  SharedPrompt& prompt = prompts_[index / request_.n];
  if (message.token_ids_size() == 0 && message.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) {
    return;
  }
  prompt.told = true;
  for (const v1::GenerateResponse& held : std::exchange(prompt.held, {})) {
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
  if (index % request_.n == 0) {
    usage_.prompt_tokens += usage.prompt_tokens();
    usage_.cached_tokens += usage.cached_tokens();
    usage_.prefill_seconds += usage.prefill_seconds();
  }
  usage_.completion_tokens += usage.completion_tokens();
  usage_.decode_seconds += usage.decode_seconds();
  usage_.expert_hits += usage.expert_hits();
  usage_.expert_misses += usage.expert_misses();
  usage_.expert_demand_bytes += usage.expert_demand_bytes();
  usage_.expert_stall_seconds += usage.expert_stall_seconds();
}

// Usage for an event that has text.
std::string GenerationCall::EventUsage(int64_t index) const {
  if (!request_.include_usage) return "";
  if (!request_.continuous_usage) return "null";
  const ChoiceRenderer& renderer = renderers_[index];
  return DumpJson(TokensJson(renderer.prompt_tokens(), renderer.completion_tokens()));
}

void GenerationCall::WriteDelta(int64_t index, const v1::GenerateResponse& message) {
  AnswerExtras extras;
  if (message.has_progress()) extras.prompt_progress = DumpJson(ProgressJson(message.progress()));
  const bool chat = request_.endpoint == OpenAiEndpoint::kChat;
  if (chat) extras.prompt_token_ids = renderers_[index].GivePromptIds();
  const bool ends = message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  if (ends && ++finished_ == static_cast<int64_t>(renderers_.size())) {
    extras.timings = DumpJson(TimingsJson(usage_));
  }
  position_.Take(static_cast<size_t>(index), message);
  if (ends && key_.resume.has_value() &&
      key_.resume->IsPast(static_cast<size_t>(index), position_)) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("Last-Event-ID is ", key_.resume->Id(), ", and the response of choice ", index,
                     " ends at ", position_.Id(), "; send an id of this stream")));
  }
  const std::optional<std::string> delta = renderers_[index].TakeDelta();
  const bool empty =
      !delta.has_value() && extras.prompt_progress.empty() && extras.prompt_token_ids.empty();
  if (empty || Has(static_cast<size_t>(index))) return Acknowledge(index);
  WriteEvent(ChunkText(head_, delta.value_or(""), EventUsage(index), extras),
             [self = shared_from_this(), index] { self->Acknowledge(index); });
}

void GenerationCall::CommentLater() {
  front_.core->loop()->PostAfter(front_.comment_every, [weak = weak_from_this(), events = events_] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->exchange_->Post([self, events] { self->CommentIfSilent(events); });
  });
}

void GenerationCall::CommentIfSilent(int64_t events) {
  if (failed_) return;
  if (events == events_ && untaken_ == 0) {
    BeginStream();
    ++events_, ++untaken_;
    exchange_->Write(kSseComment, [self = shared_from_this()] { --self->untaken_; });
  }
  CommentLater();
}

void GenerationCall::GrowWhole(size_t bytes) {
  const absl::Status room = whole_->Grow(static_cast<int64_t>(bytes));
  if (whole_->IsTooLong()) {
    Fail(FieldError("stream",
                    absl::StrCat("is required: the response exceeds ", WholeAnswer::kMaxBytes >> 20,
                                 " MiB, the limit without streaming; set it to true, or request "
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
  if (!status.ok()) return Fail(status, HttpResponse::FailureLog::kElsewhere);
  if (--left_ == 0) Complete();
}

HttpResponse GenerationCall::HeadOf(int status, std::string content_type) const {
  HttpResponse response;
  response.status = status;
  response.content_type = std::move(content_type);
  if (key_.id.empty()) response.headers = {{"x-request-id", head_.id}};
  return response;
}

void GenerationCall::BeginStream() {
  if (std::exchange(stream_begun_, true)) return;
  HttpResponse head = HeadOf(200, "text/event-stream; charset=utf-8");
  // Tells proxies not to buffer the stream.
  head.headers.insert(head.headers.end(),
                      {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  exchange_->BeginStream(std::move(head));
}

void GenerationCall::WriteEvent(const std::string& chunk, std::function<void()> taken) {
  BeginStream();
  ++events_, ++untaken_;
  exchange_->Write(WithId(SseEvent(chunk)), [self = shared_from_this(), taken = std::move(taken)] {
    --self->untaken_;
    if (taken) taken();
  });
}

std::string GenerationCall::WithId(std::string event) const {
  return key_.id.empty() ? event : absl::StrCat("id: ", position_.Id(), "\n", event);
}

bool GenerationCall::Has(size_t choice) const {
  return key_.resume.has_value() && key_.resume->Covers(choice, position_);
}

void GenerationCall::WriteTail(StreamPosition::Tail tail, const std::string& event) {
  position_.TakeTail(tail);
  BeginStream();
  const bool has = key_.resume.has_value() && key_.resume->Covers(tail);
  if (!has) exchange_->Write(WithId(event), nullptr);
}

void GenerationCall::Fail(const absl::Status& status, HttpResponse::FailureLog log) {
  if (std::exchange(failed_, true)) return;
  if (stream_begun_) {
    // The status line was sent. So the error is an event, and no [DONE] follows.
    exchange_->Write(WithId(SseEvent(DumpJson(ErrorJson(ToHttpError(status))))), nullptr);
    exchange_->EndStream();
  } else {
    HttpResponse response = ErrorResponse(status);
    response.failure_log = log;
    if (key_.id.empty()) response.headers.emplace_back("x-request-id", head_.id);
    exchange_->Answer(std::move(response));
  }
  front_.core->loop()->Post([self = shared_from_this()] {
    self->CancelAll(absl::CancelledError("another choice of the request failed"));
  });
}

void GenerationCall::Complete() {
  failed_ = true;  // nothing is written after this
  if (request_.stream) {
    if (request_.include_usage) {
      WriteTail(StreamPosition::Tail::kUsage,
                SseEvent(ChunkText(head_, "", DumpJson(UsageJson(usage_)))));
    }
    WriteTail(StreamPosition::Tail::kDone, kSseDone);
    return exchange_->EndStream();
  }
  AnswerExtras extras = {.timings = DumpJson(TimingsJson(usage_))};
  if (request_.endpoint == OpenAiEndpoint::kChat) {
    extras.prompt_token_ids = renderers_[0].GivePromptIds();
    extras.prompt_logprobs = renderers_[0].GivePromptLogprobs();
  }
  std::vector<std::string> choices;
  for (ChoiceRenderer& renderer : renderers_) choices.push_back(renderer.TakeWhole());
  HttpResponse response = HeadOf(200, "application/json");
  response.body = AnswerText(head_, std::move(choices), usage_, extras);
  response.held = whole_;
  exchange_->Answer(std::move(response));
}

}  // namespace tidepool::service

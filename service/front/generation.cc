#include "service/front/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/sampling/request.h"
#include "kernels/base/retry_after.h"
#include "service/base/model_identity.h"
#include "service/front/convert_sessions.h"
#include "service/front/served_models.h"
#include "service/grpc/check_request.h"
#include "service/grpc/convert.h"
#include "service/tools/response_message.h"

namespace tidepool::service {
namespace {

// Maximum age of a response that a client may resume at a front that does not know this response.
constexpr absl::Duration kOldestResponse = absl::Hours(1);

// Returns the information about the caller that workers get.
worker::v1::Caller CallerOf(const GenerationInput& input) {
  worker::v1::Caller caller;
  caller.set_principal(input.principal);
  if (input.role.has_value()) caller.set_role(std::string(RoleName(*input.role)));
  caller.set_traceparent(Traceparent(input.span.context));
  caller.set_tracestate(input.span.context.state);
  return caller;
}

// Estimates how many bytes one token needs in a message, with its text and its alternatives. It is
// used until the first message arrives.
int64_t ExpectedTokenBytes(const v1::GenerateRequest& request) {
  constexpr int64_t kEach = 96;
  if (!request.logprobs() && !request.has_prompt_logprobs()) return kEach;
  return kEach * (1 + std::max(request.top_logprobs(), request.prompt_logprobs()));
}

absl::Status CheckKind(const v1::GenerateRequest& request, const SessionInfo& info) {
  const bool chat = request.has_chat();
  if (info.kind == SessionKind::kNew || (info.kind == SessionKind::kChat) == chat) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "session '", info.session_id, "' has ", chat ? "tokens" : "chat messages",
      ": send its turns as ", chat ? "text or token_ids" : "chat", ", or create a new session"));
}

worker::v1::SessionLog ToWorkerLog(const SessionLogData& log, v1::ToolSyntax syntax) {
  worker::v1::SessionLog out;
  out.mutable_token_ids()->Assign(log.token_ids.begin(), log.token_ids.end());
  for (const StoredTurn& turn : log.turns) {
    for (const StoredMessage& message : turn.messages) ToProto(message, out.add_messages());
    if (log.info.kind != SessionKind::kChat) continue;
    ToProto(ResponseMessage(turn), out.add_messages());
    SeparateResponse(syntax, &*out.mutable_messages()->rbegin());
  }
  return out;
}

}  // namespace

bool IsWorkerFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsUnknown(status) || absl::IsDataLoss(status);
}

Generation::Generation(const GenerationContext& context, GenerationInput input,
                       GenerationSink* sink, std::function<void(const absl::Status&)> on_end)
    : context_(context),
      input_(std::move(input)),
      sink_(sink),
      on_end_(std::move(on_end)),
      placement_(this, context_, input_.request.session_id(), input_.deadline),
      prompt_report_(input_.request),
      queue_(static_cast<int64_t>(input_.request.resume_after())),
      window_(ExpectedTokenBytes(input_.request)) {}

Generation::~Generation() {
  if (turn_ != nullptr) turn_->Close();
}

void Generation::Start() { has_session() ? BeginTurn() : FindModel(); }

void Generation::Do(StreamStep step) {
  switch (step) {
    case StreamStep::kFindModel:
      return FindModel();
    case StreamStep::kPrepare:
      return Prepare();
    case StreamStep::kFindReceivedText:
      return FindReceivedText();
    case StreamStep::kRun:
      return Run();
  }
}

void Generation::BeginTurn() {
  turn_ = std::make_shared<SessionTurn>(context_.loop, context_.store, this);
  turn_->Begin({.session_id = input_.request.session_id(),
                .principal = input_.principal,
                .request_id = input_.request.request_id(),
                .body_digest = input_.digests->turn});
}

void Generation::OnTurn(absl::Status status) {
  const auto self = shared_from_this();
  if (status.ok()) status = CheckKind(input_.request, turn_->log().info);
  if (!status.ok()) return End(std::move(status));
  if (const auto& logged = turn_->logged(); logged.has_value()) {
    numerics_.ContinueFrom(logged->turn.numerics_id);
  }
  FindModel();
}

absl::Status Generation::CheckSessionModel() const {
  const std::string& asked = input_.request.model();
  if (!has_session() || !input_.request.has_model()) return absl::OkStatus();
  const SessionInfo& info = turn_->log().info;
  if (asked == info.model) return absl::OkStatus();
  const absl::StatusOr<v1::Model> model = service::FindModel(*context_.workers, asked);
  if (model.ok() && SameModel(ModelIdentity(*model), ModelIdentity(model_))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "session '", info.session_id, "' belongs to model '", info.model, "', not '", asked, "'"));
}

void Generation::FindModel() {
  const SessionLogData none;
  const SessionLogData& log = has_session() ? turn_->log() : none;
  const SessionInfo& info = log.info;
  absl::StatusOr<v1::Model> model =
      has_session() ? service::FindModel(*context_.workers, info.model, info.model_digest)
                    : service::FindModel(*context_.workers, input_.request.model());
  if (absl::IsUnavailable(model.status())) {
    return placement_.WaitForWorkers(StreamStep::kFindModel, model.status());
  }
  if (!model.ok()) return End(model.status());
  model_ = *std::move(model);
  if (absl::Status named = CheckSessionModel(); !named.ok()) return End(std::move(named));
  if (has_session() && !SameModel(info.model_digest, ModelIdentity(model_))) {
    return End(absl::FailedPreconditionError(
        absl::StrCat("session '", info.session_id, "' was created with other weights of model '",
                     info.model, "' (digest ", info.model_digest, ", now ", ModelIdentity(model_),
                     "); create a new session")));
  }
  const PromptId prompt =
      PromptIdOf(input_.principal, model_.digest(), input_.request, log.token_ids);
  placement_.SetPrompt(prompt, model_.digest());
  context_.failover->evidence.Conclude();
  absl::Status allowed = context_.failover->poisoned.Check(prompt.sent);
  if (!allowed.ok()) return End(std::move(allowed));
  // Check now whether a worker has room, before any worker is called, because under overload most
  // requests end here. A turn that is already in the log is not refused. If necessary, it waits for
  // room.
  if (!has_logged_turn()) {
    if (absl::Status room = context_.workers->CheckRoom(ModelIdentity(model_)); !room.ok()) {
      return End(std::move(room));
    }
  }
  placement_.Try(StreamStep::kPrepare);
}

void Generation::Prepare() {
  if (!placement_.TakeWorker(StreamStep::kPrepare)) return;
  worker::v1::PrepareRequest request;
  *request.mutable_request() = input_.request;
  *request.mutable_caller() = CallerOf(input_);
  // The time that the chat template gets.
  const absl::Time now = has_session() ? turn_->log().info.create_time : input_.asked_at;
  request.set_now_us(absl::ToUnixMicros(now));
  if (has_session()) {
    *request.mutable_session() = ToWorkerLog(turn_->log(), model_.tool_syntax());
  } else if (input_.begun_before) {
    request.set_since_us(absl::ToUnixMicros(now - kOldestResponse));
  }
  const auto done = [weak = weak_from_this(), attempt = placement_.attempt()](
                        absl::StatusOr<worker::v1::PrepareResponse> prepared) {
    const auto self = weak.lock();
    if (self != nullptr) self->OnPrepared(attempt, std::move(prepared));
  };
  placement_.worker().link->Prepare(std::move(request), input_.deadline, done);
}

void Generation::OnPrepared(int32_t attempt, absl::StatusOr<worker::v1::PrepareResponse> prepared) {
  if (sink_ == nullptr || attempt != placement_.attempt()) return;
  placement_.OnAnswered();
  // DATA_LOSS means that the session's log is damaged. Another worker would return the same error.
  if (IsWorkerFailure(prepared.status()) && !absl::IsDataLoss(prepared.status())) {
    return placement_.Retry(prepared.status(), UnaryEndedBy(prepared.status()),
                            StreamStep::kPrepare);
  }
  if (!prepared.ok()) return End(prepared.status());
  prepared_ = *std::move(prepared);
  context_.workers->NoteUnderstands(placement_.worker().link, prepared_.understands());
  if (absl::Status status = CheckUnderstood(input_.request, prepared_.understands());
      !status.ok()) {
    return End(std::move(status));
  }
  placement_.OnPrepared();
  if (input_.request.parse_output()) BeginEvents();
  if (has_logged_turn()) return FindReceivedText();
  if (absl::Status status = LimitSession(); !status.ok()) return End(std::move(status));
  if (auto echo = prompt_report_.Echo(prepared_); echo.has_value()) {
    echo->set_request_id(input_.request.request_id());
    queue_.Push(*std::move(echo), /*logged=*/true);
    SendNext();
  }
  placement_.Try(StreamStep::kRun);
}

void Generation::BeginEvents() {
  const ResponseFormat format = {
      .syntax = model_.tool_syntax(),
      .reasoning = model_.reasoning(),
      .in_reasoning = prepared_.in_reasoning(),
      .tools = input_.tools != nullptr ? input_.tools : ToolsOf(input_.request)};
  events_.emplace(format, OutputEvents::Names{.principal = input_.principal,
                                              .request_id = input_.request.request_id()});
}

absl::Status Generation::LimitSession() {
  if (!has_session() || context_.max_session_tokens == 0) return absl::OkStatus();
  const int64_t room = context_.max_session_tokens - prepared_.token_ids_size();
  if (room < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the session is full: with this turn its log is ", prepared_.token_ids_size(),
                     " tokens, and --max-session-tokens ", context_.max_session_tokens,
                     " must hold at least one more; truncate it with TruncateSession, fork it with "
                     "ForkSession, or continue in a new session"));
  }
  v1::Stopping* stopping = prepared_.mutable_stopping();
  stopping->set_max_tokens(engine::LimitMaxTokens(stopping->max_tokens(), room));
  return absl::OkStatus();
}

PickRequest Generation::MakePick() const {
  PickRequest pick = {
      .model_digest = ModelIdentity(model_),
      .prompt_tokens = prepared_.token_ids_size() + static_cast<int64_t>(output_ids_.size()),
      .preferred_numerics_id = numerics_.first(),
      .needs = Needs(),
      // A worker may report its value of `understands` only with the prepared prompt.
      .strictly = prepared_.token_ids_size() > 0};
  pick.block_hashes.assign(prepared_.block_hashes().begin(), prepared_.block_hashes().end());
  if (has_session()) {
    pick.affinity = input_.request.session_id();
  } else if (!pick.block_hashes.empty()) {
    pick.affinity = absl::StrCat(pick.block_hashes.front());
  }
  return pick;
}

int32_t Generation::Needs() const {
  if (AllUnderstand(*context_.workers, kUnderstands)) return 0;
  if (!needs_.has_value()) needs_ = NeededToUnderstand(input_.request);
  return *needs_;
}

void Generation::Run() {
  if (!placement_.TakeWorker(StreamStep::kRun)) return;
  const PickedWorker& picked = placement_.worker();
  if (numerics_.Take(picked.numerics_id, reported() > 0)) {
    ++context_.failover->numerics_changed_total;
  }
  run_ = context_.workers->NoteSent(picked.link, prepared_.token_ids_size());
  granted_ = std::max(CreditLimit(), reported());
  NoteStandstill();
  RunEvents events;
  // Both callbacks can end this generation, and then its owner may release it. `self` keeps it
  // alive until they return.
  events.on_response = [this, attempt = placement_.attempt()](worker::v1::RunResponse response) {
    const auto self = shared_from_this();
    self->OnResponse(attempt, std::move(response));
  };
  events.on_end = [this, attempt = placement_.attempt()](absl::Status status, EndedBy by) {
    const auto self = shared_from_this();
    self->OnRunEnd(attempt, std::move(status), by);
  };
  call_ = picked.link->Run(MakeStart(), input_.deadline, std::move(events));
}

worker::v1::Start Generation::MakeStart() const {
  const v1::GenerateRequest& request = input_.request;
  worker::v1::Start start;
  *start.mutable_prepared() = prepared_;
  start.mutable_prepared()->clear_block_hashes();
  start.set_prompt_length(prepared_.token_ids_size());
  start.mutable_output_token_ids()->Assign(output_ids_.begin(), output_ids_.end());
  start.set_attempt(placement_.attempt());
  *start.mutable_caller() = CallerOf(input_);
  start.set_priority(std::min(request.priority(), input_.limits.max_priority));
  start.set_credit(granted_ - reported());
  prompt_report_.Fill(&start);
  CopyConstraint(request, &start);
  start.set_logprobs(request.logprobs());
  start.set_top_logprobs(request.top_logprobs());
  start.set_processed_logprobs(request.processed_logprobs());
  start.set_request_id(request.request_id());
  return start;
}

void Generation::OnResponse(int32_t attempt, worker::v1::RunResponse response) {
  if (sink_ == nullptr || attempt != placement_.attempt() || finish_received_) return;
  const int64_t next = static_cast<int64_t>(output_ids_.size());
  if (response.attempt() != attempt || response.position() != next) {
    return End(absl::InternalError(absl::StrCat("worker ", worker(), " sent position ",
                                                response.position(), " instead of ", next)));
  }
  if (response.migrate()) return LeaveDrainingWorker();
  if (absl::Status fits = prompt_report_.Take(response, prepared_.token_ids_size(), worker());
      !fits.ok()) {
    return End(std::move(fits));
  }
  const int64_t count = response.token_ids_size() + response.prompt_logprobs_size();
  output_ids_.insert(output_ids_.end(), response.token_ids().begin(), response.token_ids().end());
  if (count > 0) placement_.OnTokens(count);
  window_.OnReceived(count, static_cast<int64_t>(response.ByteSizeLong()));
  v1::GenerateResponse out = ToGenerateResponse(std::move(response));
  out.set_request_id(input_.request.request_id());
  if (out.has_usage()) out.mutable_usage()->set_numerics_changed(numerics_.changed());
  finish_received_ = out.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  if (finish_received_) placement_.OnFinished();
  if (events_.has_value()) events_->AddTo(&out);
  const bool logged = !has_session() || IsProgressOnly(out);
  if (!logged) AppendToLog(out);
  queue_.Push(std::move(out), logged);
  SendNext();
  GrantCredit();
  NoteStandstill();
}

// If the client does not read, the worker computes nothing for this stream. So the stream does not
// count as a trial any more, and other streams do not wait for it.
void Generation::NoteStandstill() {
  granted_ > reported() ? placement_.OnCredit() : placement_.OnStandstill();
}

void Generation::AppendToLog(const v1::GenerateResponse& response) {
  AppendRequest append;
  if (!turn_->begun()) {
    const int64_t kept = prepared_.session_tokens_kept();
    append.begin =
        TurnStart{.request_id = input_.request.request_id(),
                  .kind = input_.request.has_chat() ? SessionKind::kChat : SessionKind::kTokens,
                  .kept = kept,
                  .input_ids = {prepared_.token_ids().begin() + kept, prepared_.token_ids().end()}};
    for (const v1::ChatMessage& message : input_.request.chat().messages()) {
      append.begin->messages.push_back(FromProto(message));
    }
    append.begin->body_digest = input_.digests->turn;
  }
  append.numerics_id = numerics_.ForLog(append.begin.has_value());
  append.output_ids.assign(response.token_ids().begin(), response.token_ids().end());
  append.output_text = response.text();
  append.finish = FromProto(response.finish_reason());
  turn_->Append(std::move(append));
}

void Generation::OnLogged() {
  const auto self = shared_from_this();
  queue_.MarkLogged();
  SendNext();
}

void Generation::OnTurnLost(absl::Status status) {
  const auto self = shared_from_this();
  End(std::move(status));
}

void Generation::SendNext() {
  if (sink_ == nullptr) return;
  std::optional<v1::GenerateResponse> next = queue_.Take();
  if (next.has_value()) sink_->Write(*std::move(next));
}

void Generation::OnWritten() {
  if (sink_ == nullptr) return;
  window_.OnTaken(queue_.OnTaken());
  if (queue_.ended()) return End(absl::OkStatus());
  GrantCredit();
  SendNext();
}

int64_t Generation::CreditLimit() const {
  int64_t limit = window_.Limit(reported());
  limit = std::max(limit, reported() + placement_.ProofTokens());
  const int64_t resumed = static_cast<int64_t>(input_.request.resume_after());
  if (resumed == 0) return limit;
  const int64_t end = prompt_report_.Expected(prepared_.token_ids_size()) + resumed;
  return reported() < end ? std::min(limit, end) : limit;
}

void Generation::GrantCredit() {
  const int64_t more = CreditLimit() - granted_;
  if (call_ == nullptr || more <= 0 || !placement_.MayResume()) return;
  granted_ += more;
  placement_.OnCredit();
  call_->AddCredit(more);
}

void Generation::OnRunEnd(int32_t attempt, absl::Status status, EndedBy by) {
  if (sink_ == nullptr || attempt != placement_.attempt()) return;
  call_.reset();
  if (finish_received_) return;
  LeaveWorker();
  if (by == EndedBy::kDrain) return placement_.Migrate();
  if (status.ok()) status = absl::UnknownError("the stream ended without a finish reason");
  if (IsWorkerFailure(status)) {
    // The worker had nothing to compute for this stream, because the client does not read. So this
    // stream cannot be the reason why the worker failed.
    const bool idle = granted_ == reported();
    if (idle && (by == EndedBy::kCrash || by == EndedBy::kSilent)) {
      return placement_.ComeBack(status);
    }
    return placement_.Retry(std::move(status), by, StreamStep::kRun);
  }
  // A worker whose queue is full is healthy. Another worker may have room.
  if (absl::IsResourceExhausted(status)) {
    const bool passes = base::RetryAfterOf(status).has_value();
    if (passes && !output_ids_.empty()) return placement_.WaitForRoom(std::move(status));
    if (placement_.AnotherHasRoom()) {
      return placement_.Retry(std::move(status), by, StreamStep::kRun);
    }
  }
  End(std::move(status));
}

void Generation::LeaveDrainingWorker() {
  const WorkerLink* link = placement_.worker().link;
  context_.workers->NoteDraining(link);
  if (context_.workers->ServedElsewhere(link, Needs())) {
    call_.reset();
    LeaveWorker();
    return placement_.Migrate();
  }
  context_.workers->WhenChanged([weak = weak_from_this(), attempt = placement_.attempt()] {
    const auto self = weak.lock();
    if (self == nullptr || self->sink_ == nullptr || self->placement_.attempt() != attempt) return;
    if (self->call_ != nullptr && !self->finish_received_) self->LeaveDrainingWorker();
  });
}

void Generation::LeaveHanging(const WorkerLink* link, absl::string_view why) {
  if (sink_ == nullptr || placement_.worker().link != link) return;
  if (!context_.workers->ServedElsewhere(link, Needs())) return;
  const absl::Status silent = absl::UnavailableError(absl::StrCat("worker ", worker(), " ", why));
  if (call_ != nullptr) return OnRunEnd(placement_.attempt(), silent, EndedBy::kSilent);
  if (const auto step = placement_.asked()) placement_.Retry(silent, EndedBy::kSilent, *step);
}

void Generation::Cancel(absl::Status why) { End(std::move(why)); }

void Generation::LeaveWorker() {
  if (run_ != 0) context_.workers->NoteEnded(placement_.worker().link, std::exchange(run_, 0));
}

void Generation::End(absl::Status status) {
  if (sink_ == nullptr) return;
  GenerationSink* sink = std::exchange(sink_, nullptr);
  call_.reset();
  placement_.End();
  queue_.Clear();
  if (run_ != 0 && has_session() && !output_ids_.empty()) {
    // The KV of the last token was never computed, so it is not counted.
    context_.workers->NoteSession(
        placement_.worker().link, input_.request.session_id(),
        prepared_.token_ids_size() + static_cast<int64_t>(output_ids_.size()) - 1);
  }
  LeaveWorker();
  if (turn_ != nullptr) turn_->Close();
  on_end_(status);
  sink->Finish(std::move(status));
}

}  // namespace tidepool::service

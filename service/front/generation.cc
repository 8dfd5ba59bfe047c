#include "service/front/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "service/convert.h"
#include "service/model_identity.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr absl::Duration kLeaseRenewal = absl::Seconds(3);
// How old an answer may be whose client comes back to a front that does not know it.
constexpr absl::Duration kOldestAnswer = absl::Hours(1);

// Who asks, as the worker is told.
worker::v1::Caller CallerOf(const GenerationInput& input) {
  worker::v1::Caller caller;
  caller.set_principal(input.principal);
  if (input.role.has_value()) caller.set_role(std::string(RoleName(*input.role)));
  caller.set_traceparent(Traceparent(input.span.context));
  caller.set_tracestate(input.span.context.state);
  return caller;
}

// How long a token of its answer may be, its text and alternatives in all languages, before the
// first one tells.
int64_t ExpectedTokenBytes(const v1::GenerateRequest& request) {
  constexpr int64_t kEach = 96;
  if (!request.logprobs() && !request.has_prompt_logprobs()) return kEach;
  return kEach * (1 + std::max(request.top_logprobs(), request.prompt_logprobs()));
}

// Appends `next` to a message that has no finish yet.
void Merge(v1::GenerateResponse&& next, v1::GenerateResponse* into) {
  into->mutable_text()->append(next.text());
  into->mutable_token_ids()->MergeFrom(next.token_ids());
  into->mutable_logprobs()->MergeFrom(next.logprobs());
  into->mutable_prompt_logprobs()->MergeFrom(next.prompt_logprobs());
  if (next.has_progress()) *into->mutable_progress() = next.progress();
  into->set_finish_reason(next.finish_reason());
  if (next.has_usage()) *into->mutable_usage() = std::move(*next.mutable_usage());
}

}  // namespace

Generation::Generation(const GenerationContext& context, GenerationInput input,
                       GenerationSink* sink, std::function<void(const absl::Status&)> on_end)
    : context_(context),
      input_(std::move(input)),
      sink_(sink),
      on_end_(std::move(on_end)),
      prompt_report_(input_.request) {}

void Generation::Start() { has_session() ? BeginTurn() : FindModel(); }

void Generation::BeginTurn() {
  // Holds the generation: a lease that arrives too late must still be given back.
  context_.store->BeginTurn({.session_id = input_.request.session_id(),
                             .principal = input_.principal,
                             .request_id = input_.request.request_id(),
                             .lease = kLease,
                             .body_digest = input_.digests->turn},
                            [self = shared_from_this()](absl::StatusOr<OpenTurn> turn) {
                              self->context_.loop->Post([self, turn = std::move(turn)]() mutable {
                                self->OnTurn(std::move(turn));
                              });
                            });
}

void Generation::OnTurn(absl::StatusOr<OpenTurn> turn) {
  if (!turn.ok()) return End(turn.status());
  turn_ = *std::move(turn);
  lease_held_ = true;
  sent_length_ = logged_length_ = turn_.log.info.token_count;
  if (sink_ == nullptr) return CloseTurn();
  if (absl::Status status = CheckTurn(); !status.ok()) return End(std::move(status));
  auto logged = TakeLoggedTurn(input_.request.request_id(), &turn_.log);
  if (!logged.ok()) return End(logged.status());
  logged_turn_ = *std::move(logged);
  turn_begun_ = logged_turn_.has_value() && logged_turn_->goes_on;
  if (logged_turn_.has_value()) {
    numerics_changed_ = numerics_logged_ = logged_turn_->turn.numerics_id == kSeveralNumerics;
    if (!numerics_changed_) numerics_id_ = logged_turn_->turn.numerics_id;
  }
  KeepLease();
  FindModel();
}

absl::Status Generation::CheckTurn() const {
  const SessionInfo& info = turn_.log.info;
  const bool chat = input_.request.has_chat();
  if (info.kind != SessionKind::kNew && (info.kind == SessionKind::kChat) != chat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "session '", info.session_id, "' holds ", chat ? "tokens" : "chat messages",
        ": send its turns as ", chat ? "text or token_ids" : "chat", ", or make a new session"));
  }
  return absl::OkStatus();
}

absl::Status Generation::CheckSessionModel() const {
  const SessionInfo& info = turn_.log.info;
  const std::string& asked = input_.request.model();
  if (!has_session() || !input_.request.has_model() || asked == info.model) return absl::OkStatus();
  const absl::StatusOr<v1::Model> model = context_.workers->FindModel(asked);
  if (model.ok() && SameModel(ModelIdentity(*model), ModelIdentity(model_))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "session '", info.session_id, "' belongs to model '", info.model, "', not '", asked, "'"));
}

void Generation::KeepLease() {
  context_.loop->PostAfter(kLeaseRenewal, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->sink_ == nullptr || self->turn_finished_) return;
    const auto on_renewed = [weak, loop = self->context_.loop](absl::Status status) {
      if (status.ok()) return;
      loop->Post([weak, status] {
        if (const auto live = weak.lock(); live != nullptr && !live->turn_finished_) {
          live->End(status);
        }
      });
    };
    self->context_.store->RenewLease(self->turn_.log.info.session_id, self->turn_.epoch, kLease,
                                     on_renewed);
    self->KeepLease();
  });
}

void Generation::FindModel() {
  const SessionInfo& info = turn_.log.info;
  absl::StatusOr<v1::Model> model = has_session()
                                        ? context_.workers->FindModel(info.model, info.model_digest)
                                        : context_.workers->FindModel(input_.request.model());
  if (absl::IsUnavailable(model.status())) {
    return WaitForWorkers(&Generation::FindModel, model.status());
  }
  if (!model.ok()) return End(model.status());
  model_ = *std::move(model);
  if (absl::Status named = CheckSessionModel(); !named.ok()) return End(std::move(named));
  if (has_session() && !SameModel(info.model_digest, ModelIdentity(model_))) {
    return End(absl::FailedPreconditionError(
        absl::StrCat("session '", info.session_id, "' was made with other weights of model '",
                     info.model, "' (digest ", info.model_digest, ", now ", ModelIdentity(model_),
                     "); make a new session")));
  }
  prompt_digest_ =
      PromptDigest(input_.principal, model_.digest(), input_.request, turn_.log.token_ids);
  context_.failover->evidence.Conclude();
  absl::Status allowed = context_.failover->poisoned.Check(prompt_digest_);
  if (!allowed.ok()) return End(std::move(allowed));
  // Before a worker is troubled with it: under overload most requests end here. What is in the log
  // already goes on, and waits for room if it must.
  if (!logged_turn_.has_value()) {
    if (absl::Status room = context_.workers->CheckRoom(ModelIdentity(model_)); !room.ok()) {
      return End(std::move(room));
    }
  }
  Try(&Generation::Prepare);
}

void Generation::Prepare() {
  if (!TakeWorker(&Generation::Prepare)) return;
  asked_ = &Generation::Prepare;
  worker::v1::PrepareRequest request;
  *request.mutable_request() = input_.request;
  *request.mutable_caller() = CallerOf(input_);
  TellTime(&request);
  if (has_session()) {
    const SessionLogData& log = turn_.log;
    request.mutable_session()->mutable_token_ids()->Assign(log.token_ids.begin(),
                                                           log.token_ids.end());
    for (const StoredTurn& turn : log.turns) {
      for (const StoredMessage& message : turn.messages) {
        ToProto(message, request.mutable_session()->add_messages());
      }
      if (log.info.kind == SessionKind::kChat) {
        ToProto(AnswerMessage(turn), request.mutable_session()->add_messages());
      }
    }
  }
  worker_.link->Prepare(std::move(request), input_.deadline,
                        [weak = weak_from_this(),
                         attempt = attempt_](absl::StatusOr<worker::v1::PrepareResponse> prepared) {
                          if (const auto self = weak.lock())
                            self->OnPrepared(attempt, std::move(prepared));
                        });
}

void Generation::TellTime(worker::v1::PrepareRequest* request) const {
  const absl::Time now = has_session() ? turn_.log.info.create_time : input_.asked_at;
  request->set_now_us(absl::ToUnixMicros(now));
  if (input_.begun_before && !has_session()) {
    request->set_since_us(absl::ToUnixMicros(now - kOldestAnswer));
  }
}

void Generation::OnPrepared(int32_t attempt, absl::StatusOr<worker::v1::PrepareResponse> prepared) {
  if (sink_ == nullptr || attempt != attempt_) return;
  asked_ = nullptr;
  // DATA_LOSS is the session's own: every worker would say so.
  if (IsWorkerFailure(prepared.status()) && !absl::IsDataLoss(prepared.status())) {
    return Retry(prepared.status(), UnaryEndedBy(prepared.status()), &Generation::Prepare);
  }
  if (!prepared.ok()) return End(prepared.status());
  prepared_ = *std::move(prepared);
  if (absl::Status status = CheckUnderstood(input_.request, prepared_.understands());
      !status.ok()) {
    return End(std::move(status));
  }
  trial_.OnPrepared();
  BeginAttempts();
  if (logged_turn_.has_value()) return FindReceivedText();
  if (absl::Status status = LimitSession(); !status.ok()) return End(std::move(status));
  if (auto echo = prompt_report_.Echo(prepared_); echo.has_value()) {
    echo->set_request_id(input_.request.request_id());
    queue_.push_back({.response = *std::move(echo), .logged = true});
    SendNext();
  }
  Try(&Generation::Run);
}

absl::Status Generation::LimitSession() {
  if (!has_session() || context_.max_session_tokens == 0) return absl::OkStatus();
  const int64_t room = context_.max_session_tokens - prepared_.token_ids_size();
  if (room < 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the session is full: with this turn its log is ", prepared_.token_ids_size(),
        " tokens, and --max-session-tokens ", context_.max_session_tokens,
        " must hold at least one more; cut it with TruncateSession, branch off it with "
        "ForkSession, or go on in a new session"));
  }
  v1::Stopping* stopping = prepared_.mutable_stopping();
  stopping->set_max_tokens(std::min(stopping->max_tokens(), room));
  return absl::OkStatus();
}

PickRequest Generation::MakePick() const {
  PickRequest pick = {
      .model_digest = ModelIdentity(model_),
      .prompt_tokens = prepared_.token_ids_size() + static_cast<int64_t>(output_ids_.size()),
      .preferred_numerics_id = numerics_id_,
      .avoid = failed_workers_};
  const Resubmissions& line = context_.failover->resubmissions;
  const bool suspect = ticket_.held() && kind_ != Resubmissions::Kind::kUsual;
  pick.spare = suspect ? line.WithSuspects() : line.WithTrials();
  if (tried_alone()) {
    std::erase(pick.spare, ticket_.worker());
    pick.prefer = ticket_.worker();
    pick.fewest = true;
  }
  pick.block_hashes.assign(prepared_.block_hashes().begin(), prepared_.block_hashes().end());
  if (has_session()) {
    pick.affinity = input_.request.session_id();
  } else if (!pick.block_hashes.empty()) {
    pick.affinity = absl::StrCat(pick.block_hashes.front());
  }
  return pick;
}

void Generation::Run() {
  if (!TakeWorker(&Generation::Run)) return;
  if (!lost_worker_.empty() && worker_.name != lost_worker_) ++context_.failover->moved_total;
  lost_worker_.clear();
  NoteNumerics();
  run_ = context_.workers->NoteSent(worker_.link, prepared_.token_ids_size());
  granted_ = std::max(CreditLimit(), told());
  NoteStandstill();
  RunEvents events;
  // Both can end this generation, and so what owns it: it stays until they are done.
  events.on_response = [this, attempt = attempt_](worker::v1::RunResponse response) {
    const auto self = shared_from_this();
    self->OnResponse(attempt, std::move(response));
  };
  events.on_end = [this, attempt = attempt_](absl::Status status, EndedBy by) {
    const auto self = shared_from_this();
    self->OnRunEnd(attempt, std::move(status), by);
  };
  call_ = worker_.link->Run(MakeStart(), input_.deadline, std::move(events));
}

void Generation::NoteNumerics() {
  if (numerics_id_.empty() || told() == 0) numerics_id_ = worker_.numerics_id;
  if (numerics_changed_ || worker_.numerics_id == numerics_id_) return;
  numerics_changed_ = true;
  ++context_.failover->numerics_changed_total;
}

worker::v1::Start Generation::MakeStart() const {
  const v1::GenerateRequest& request = input_.request;
  worker::v1::Start start;
  *start.mutable_prepared() = prepared_;
  start.mutable_prepared()->clear_block_hashes();
  start.set_prompt_length(prepared_.token_ids_size());
  start.mutable_output_token_ids()->Assign(output_ids_.begin(), output_ids_.end());
  start.set_attempt(attempt_);
  *start.mutable_caller() = CallerOf(input_);
  start.set_priority(std::min(request.priority(), input_.limits.max_priority));
  start.set_credit(granted_ - told());
  prompt_report_.Fill(&start);
  start.set_logprobs(request.logprobs());
  start.set_top_logprobs(request.top_logprobs());
  start.set_request_id(request.request_id());
  return start;
}

void Generation::OnResponse(int32_t attempt, worker::v1::RunResponse response) {
  if (sink_ == nullptr || attempt != attempt_ || finish_received_) return;
  const int64_t next = static_cast<int64_t>(output_ids_.size());
  if (response.attempt() != attempt || response.position() != next) {
    return End(absl::InternalError(absl::StrCat("worker ", worker_.name, " answered position ",
                                                response.position(), " instead of ", next)));
  }
  if (response.migrate()) return LeaveDrainingWorker();
  if (absl::Status fits =
          prompt_report_.Take(response, prepared_.token_ids_size(), worker_.name);
      !fits.ok()) {
    return End(std::move(fits));
  }
  const int64_t count = response.token_ids_size() + response.prompt_logprobs_size();
  output_ids_.insert(output_ids_.end(), response.token_ids().begin(), response.token_ids().end());
  if (count > 0) OnTokensMade(count);
  untaken_tokens_ += count;
  if (count > 0) {
    const int64_t each = static_cast<int64_t>(response.ByteSizeLong()) / count;
    token_bytes_ = std::max(token_bytes_, each);
  }
  Outgoing out = {.response = ToGenerateResponse(std::move(response))};
  out.response.set_request_id(input_.request.request_id());
  if (out.response.has_usage())
    out.response.mutable_usage()->set_numerics_changed(numerics_changed_);
  finish_received_ = out.response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  if (finish_received_) {
    trial_.Reset();
    ticket_.Reset();
  }
  out.logged = !has_session() || IsProgressOnly(out.response);
  queue_.push_back(std::move(out));
  queue_.back().logged ? SendNext() : AppendToLog(queue_.back().response);
  GrantCredit();
  NoteStandstill();
}

// One whose client does not read is not computed, for as long as that lasts: nobody waits for it.
void Generation::NoteStandstill() {
  if (granted_ > told()) return trial_.Resume();
  trial_.Pause();
  ticket_.Reset();
}

void Generation::AppendToLog(const v1::GenerateResponse& response) {
  AppendRequest append = {.session_id = turn_.log.info.session_id,
                          .epoch = turn_.epoch,
                          .expected_length = sent_length_};
  if (!std::exchange(turn_begun_, true)) {
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
    append.numerics_id = numerics_id_;
    sent_length_ = prepared_.token_ids_size();
  }
  if (numerics_changed_ && !std::exchange(numerics_logged_, true)) {
    append.numerics_id = std::string(kSeveralNumerics);
  }
  append.output_ids.assign(response.token_ids().begin(), response.token_ids().end());
  append.output_text = response.text();
  append.finish = FromProto(response.finish_reason());
  turn_finished_ = append.finish != TurnFinish::kRunning;
  sent_length_ += response.token_ids_size();
  context_.store->Append(
      std::move(append), [self = shared_from_this(), length = sent_length_](absl::Status status) {
        self->context_.loop->Post([self, status = std::move(status), length]() mutable {
          self->OnLogged(std::move(status), length);
        });
      });
}

void Generation::OnLogged(absl::Status status, int64_t length) {
  if (log_failed_) return;
  if (!status.ok()) {
    log_failed_ = true;
    if (sink_ == nullptr) return CloseTurn();
    return End(std::move(status));
  }
  logged_length_ = length;
  for (Outgoing& out : queue_) {
    if (out.logged) continue;
    out.logged = true;
    break;
  }
  SendNext();
}

void Generation::CloseTurn() {
  if (!lease_held_) return;
  const auto ignore = [](absl::Status) {};  // the lease expires by itself
  const std::string& session_id = turn_.log.info.session_id;
  // Nothing of this turn is in the log, or all of it.
  const bool nothing_logged =
      !turn_begun_ || (log_failed_ && logged_length_ == turn_.log.info.token_count);
  if (nothing_logged) return context_.store->ReleaseLease(session_id, turn_.epoch, ignore);
  if (turn_finished_ && !log_failed_) return;
  turn_finished_ = true;
  context_.store->Append({.session_id = session_id,
                          .epoch = turn_.epoch,
                          .expected_length = log_failed_ ? logged_length_ : sent_length_,
                          .finish = TurnFinish::kCancelled},
                         ignore);
}

void Generation::SendNext() {
  if (sink_ == nullptr || writing_ || queue_.empty() || !queue_.front().logged) return;
  v1::GenerateResponse response = std::move(queue_.front().response);
  queue_.pop_front();
  // A client that reads slowly gets what has collected as one message.
  const int64_t resumed = static_cast<int64_t>(input_.request.resume_after());
  while (!queue_.empty() && queue_.front().logged &&
         queue_.front().response.position() != resumed) {
    Merge(std::move(queue_.front().response), &response);
    queue_.pop_front();
  }
  writing_ = true;
  writing_tokens_ = response.token_ids_size() + response.prompt_logprobs_size();
  writing_last_ = response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  sink_->Write(std::move(response));
}

void Generation::OnWritten() {
  if (sink_ == nullptr) return;
  writing_ = false;
  if (writing_last_) return End(absl::OkStatus());
  untaken_tokens_ -= writing_tokens_;
  GrantCredit();
  SendNext();
}

int64_t Generation::WindowTokens() const {
  const int64_t each = token_bytes_ > 0 ? token_bytes_ : ExpectedTokenBytes(input_.request);
  return std::clamp(kWindowBytes / each, int64_t{1}, kWindowTokens);
}

int64_t Generation::CreditLimit() const {
  int64_t limit = told() - untaken_tokens_ + WindowTokens();
  // One that is tried by itself gets as far as it has to, whether its client reads or not.
  if (tried_alone()) {
    limit = std::max(limit, told() + context_.failover->evidence.ProofOf(prompt_digest_));
  }
  const int64_t resumed = static_cast<int64_t>(input_.request.resume_after());
  if (resumed == 0) return limit;
  const int64_t end = prompt_report_.Expected(prepared_.token_ids_size()) + resumed;
  return told() < end ? std::min(limit, end) : limit;
}

void Generation::GrantCredit() {
  const int64_t more = CreditLimit() - granted_;
  if (call_ == nullptr || more <= 0) return;
  granted_ += more;
  trial_.Resume();
  call_->AddCredit(more);
}

void Generation::Cancel(absl::Status why) { End(std::move(why)); }

void Generation::LeaveWorker() {
  if (run_ != 0) context_.workers->NoteEnded(worker_.link, std::exchange(run_, 0));
}

void Generation::End(absl::Status status) {
  if (sink_ == nullptr) return;
  GenerationSink* sink = std::exchange(sink_, nullptr);
  call_.reset();
  trial_.Reset();
  ticket_.Reset();
  queue_.clear();
  if (run_ != 0 && has_session() && !output_ids_.empty()) {
    // The last token was drawn and never computed with.
    context_.workers->NoteSession(
        worker_.link, input_.request.session_id(),
        prepared_.token_ids_size() + static_cast<int64_t>(output_ids_.size()) - 1);
  }
  LeaveWorker();
  CloseTurn();
  on_end_(status);
  sink->Finish(std::move(status));
}

}  // namespace tidepool::service

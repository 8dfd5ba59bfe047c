#include "service/front/front_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/retry_after.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "service/base/model_identity.h"
#include "service/front/choices.h"
#include "service/front/convert_sessions.h"
#include "service/grpc/check_request.h"

namespace tidepool::service {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kLargestPage = 1000;
// The shortest time between two searches for expired sessions, and how many one search deletes.
constexpr absl::Duration kShortestSweep = absl::Milliseconds(100);
constexpr absl::Duration kLongestSweep = absl::Minutes(1);
constexpr int64_t kExpiredAtOnce = 1000;
// between two checks for hanging workers
constexpr absl::Duration kSilencePeriod = absl::Milliseconds(250);
constexpr absl::Duration kStatsTimeout = absl::Seconds(2);
// Maximum number of Tokenize and Detokenize calls, running and waiting. Each can be as long as a
// message, and a principal's limits do not count them.
constexpr int64_t kMaxTexts = 64;

// About the memory that this adds to a response.
int64_t KeptBytes(const v1::GenerateResponse& response) {
  size_t bytes = response.text().size() + response.token_ids_size() * sizeof(int32_t);
  for (const v1::TokenLogprob& logprob : response.logprobs()) bytes += logprob.SpaceUsedLong();
  bytes += response.prompt_text().size() + response.prompt_token_ids_size() * sizeof(int32_t);
  for (const v1::TokenLogprob& logprob : response.prompt_logprobs()) {
    bytes += logprob.SpaceUsedLong();
  }
  return static_cast<int64_t>(bytes);
}

// Collects a generation into one response. Deletes itself at the end.
class Collector final : public GenerationSink {
 public:
  Collector(Executor* loop, WholeAnswer* whole, FrontCore::Done<v1::CompleteResponse> done)
      : loop_(loop), whole_(whole), done_(std::move(done)) {
    answer_.add_completions();
  }
  // Call before the first message. Requires: count >= 1.
  void SetCompletions(int32_t count) {
    for (int32_t i = 1; i < count; ++i) answer_.add_completions()->set_index(i);
  }

  void Attach(const std::shared_ptr<AnswerStream>& stream) { stream_ = stream; }

  void Write(v1::GenerateResponse response) override {
    if (absl::Status room = Grow(KeptBytes(response)); !room.ok()) return Stop(std::move(room));
    v1::Completion* completion = answer_.mutable_completions(response.index());
    answer_.set_request_id(response.request_id());
    completion->mutable_text()->append(response.text());
    completion->mutable_token_ids()->MergeFrom(response.token_ids());
    completion->mutable_logprobs()->MergeFrom(response.logprobs());
    completion->set_finish_reason(response.finish_reason());
    if (response.has_usage()) *answer_.mutable_usage() = response.usage();
    TakePrompt(&response);
    loop_->Post([weak = stream_] {
      if (const auto stream = weak.lock()) stream->OnWritten();
    });
  }

  void Finish(absl::Status status) override {
    if (status.ok()) {
      done_(std::move(answer_));
    } else {
      done_(std::move(status));
    }
    delete this;
  }

 private:
  void TakePrompt(v1::GenerateResponse* response) {
    if (response->prompt_token_ids_size() > 0) {
      answer_.mutable_prompt_token_ids()->Swap(response->mutable_prompt_token_ids());
      answer_.set_prompt_text(response->prompt_text());
    }
    answer_.mutable_prompt_logprobs()->MergeFrom(response->prompt_logprobs());
  }

  absl::Status Grow(int64_t bytes) {
    absl::Status room = whole_->Grow(bytes);
    if (!whole_->IsTooLong()) return room;
    return absl::InvalidArgumentError(
        absl::StrCat("the answer is past ", WholeAnswer::kMaxBytes >> 20,
                     " MiB, the most that is sent as one; ask with Generate, which streams, or for "
                     "fewer tokens or logprobs"));
  }

  // Ends the response with this status.
  void Stop(absl::Status status) {
    v1::CompleteResponse().Swap(&answer_);
    whole_->Clear();
    // Post it, because the stream may be calling us.
    loop_->Post([weak = stream_, status = std::move(status)] {
      if (const auto stream = weak.lock()) stream->Cancel(status);
    });
  }

  Executor* loop_;
  WholeAnswer* whole_;
  FrontCore::Done<v1::CompleteResponse> done_;
  std::weak_ptr<AnswerStream> stream_;
  v1::CompleteResponse answer_;
};

}  // namespace

FrontCore::FrontCore(Executor* loop, const base::Clock* clock, SessionStore* store, LogSink log,
                     const FrontLimits& limits)
    : loop_(loop),
      clock_(clock),
      store_(store),
      limits_(limits),
      places_("the front", limits.max_requests),
      text_places_("the front's line of texts", kMaxTexts),
      untaken_writes_(loop, clock, limits.taken_within),
      whole_answers_(limits.max_whole_bytes),
      quotas_(clock),
      workers_(clock, log),
      admin_(clock, &workers_),
      named_(loop, limits.request_ttl, limits.orphan_ttl),
      asked_times_(clock),
      started_(clock->Monotonic()),
      failover_(loop, clock,
                {.running = [this] { return static_cast<int64_t>(running_.size()); },
                 .serving = [this](const std::string& model) { return workers_.Serving(model); },
                 .look = [this](const WorkerSighting& seen) { return workers_.FateOf(seen); }}),
      request_log_(std::move(log)) {
  workers_.OnMayHaveCrashed(
      [this](const WorkerSighting& seen) { failover_.evidence.OnLost(seen); });
  LeaveHangingWorkers();
  ExpireSessions();
}

void FrontCore::SetLimits(const FrontLimits& limits) {
  limits_ = limits;
  named_.SetTtls(limits.request_ttl, limits.orphan_ttl);
  if (!expiring_) ExpireSessions();
}

void FrontCore::ExpireSessions() {
  expiring_ = limits_.session_ttl < absl::InfiniteDuration();
  if (!expiring_) return;
  // If more sessions have expired, the next search deletes them.
  store_->Expire(limits_.session_ttl, kExpiredAtOnce, [](const absl::StatusOr<int64_t>&) {});
  const absl::Duration wait = std::clamp(limits_.session_ttl / 2, kShortestSweep, kLongestSweep);
  loop_->PostAfter(wait, [this, weak = std::weak_ptr<int>(alive_)] {
    if (!weak.expired()) ExpireSessions();
  });
}

void FrontCore::LeaveHangingWorkers() {
  for (const WorkerSet::ToLeave& worker : workers_.BetterLeft()) {
    for (const auto& generation : Running()) generation->LeaveHanging(worker.link, worker.why);
  }
  loop_->PostAfter(kSilencePeriod, [this, weak = std::weak_ptr<int>(alive_)] {
    if (!weak.expired()) LeaveHangingWorkers();
  });
}

std::vector<std::shared_ptr<Generation>> FrontCore::Running() const {
  std::vector<std::shared_ptr<Generation>> all;
  for (const auto& [key, generation] : running_) all.push_back(generation);
  return all;
}

std::nullptr_t FrontCore::Refuse(const GenerationInput& input, absl::Status status,
                                 GenerationSink* sink) {
  ++requests_failed_total_;
  if (const auto model = workers_.FindModel(input.request.model()); model.ok()) {
    ++request_metrics_[model->name()].ends[static_cast<int>(RequestEnd::kError)];
  }
  request_log_.Refused(input, status);
  sink->Finish(std::move(status));
  return nullptr;
}

std::shared_ptr<AnswerStream> FrontCore::Generate(GenerationInput input, GenerationSink* sink) {
  ++requests_total_;
  if (closed_.has_value()) return Refuse(input, *closed_, sink);
  absl::Status status =
      input.checked.has_value() ? *input.checked : CheckGenerateRequest(input.request);
  if (!status.ok()) return Refuse(input, std::move(status), sink);
  if (!input.digests.has_value()) input.digests = DigestsOf(input.request);
  if (input.request.n() > 1) {
    --requests_total_;  // each choice counts instead
    return Choices::Start(
        loop_, std::move(input), sink,
        [this, weak = std::weak_ptr<int>(alive_)](
            GenerationInput one, GenerationSink* to) -> std::shared_ptr<AnswerStream> {
          if (!weak.expired()) return Generate(std::move(one), to);
          to->Finish(absl::UnavailableError("the server is shutting down"));
          return nullptr;
        });
  }
  if (!input.request.request_id().empty()) return GenerateNamed(std::move(input), sink);
  absl::StatusOr<Place> place = FindPlace(input);
  if (!place.ok()) return Refuse(input, place.status(), sink);
  input.request.set_request_id(input.own_id.empty() ? absl::StrCat("gen-", base::RandomHex())
                                                    : input.own_id);
  return Begin(std::move(input), *std::move(place), sink);
}

absl::StatusOr<FrontCore::Place> FrontCore::FindPlace(const GenerationInput& input) {
  Place place;
  absl::StatusOr<engine::AdmissionSlots::Place> here = places_.Take(input.principal);
  if (!here.ok()) return base::WithRetryAfter(here.status(), base::kUsualRetryAfter);
  place.here = *std::move(here);
  ASSIGN_OR_RETURN(place.among_own, quotas_.Acquire(input.principal, input.limits));
  return place;
}

std::shared_ptr<AnswerStream> FrontCore::GenerateNamed(GenerationInput input,
                                                       GenerationSink* sink) {
  const IdempotencyCache::Name name = {input.principal, input.request.request_id()};
  const int64_t resumed = static_cast<int64_t>(input.request.resume_after());
  const int64_t after = input.replay ? 0 : resumed;
  absl::StatusOr<std::shared_ptr<NamedRequest>> found =
      named_.Find(name, {after, resumed}, input.digests->body);
  if (!found.ok()) return Refuse(input, found.status(), sink);
  if (*found != nullptr) return (*found)->Read(after, sink);
  absl::StatusOr<Place> place = FindPlace(input);
  if (!place.ok()) return Refuse(input, place.status(), sink);
  const std::shared_ptr<NamedRequest> request =
      named_.Add(name, input.request, input.digests->body);
  const std::shared_ptr<AnswerStream> reader = request->Read(after, sink);
  v1::Sampling* sampling = input.request.mutable_sampling();
  if (!sampling->has_seed()) sampling->set_seed(SeedOf(name));
  if (const auto asked = asked_times_.Find(name, input.digests->body); asked.has_value()) {
    input.asked_at = *asked;
  } else {
    input.begun_before = resumed > 0;
  }
  // A client that reconnects has a new deadline, so ignore this one. The orphan TTL ends responses
  // without a client.
  input.deadline = absl::InfiniteDuration();
  request->Attach(Begin(std::move(input), *std::move(place), request.get()));
  return reader;
}

std::shared_ptr<Generation> FrontCore::Begin(GenerationInput input, Place place,
                                             GenerationSink* sink) {
  const IdempotencyCache::Name key = {input.principal, input.request.request_id()};
  if (input.asked_at == absl::InfinitePast()) input.asked_at = clock_->Now();
  const GenerationContext context = {.loop = loop_,
                                     .clock = clock_,
                                     .workers = &workers_,
                                     .store = store_,
                                     .failover = &failover_,
                                     .max_session_tokens = limits_.max_session_tokens};
  const auto model_name = [this, asked = input.request.model()] {
    const absl::StatusOr<v1::Model> model = workers_.FindModel(asked);
    return model.ok() ? model->name() : std::string();
  };
  auto measured = std::make_shared<MeasuredSink>(sink, clock_, &request_metrics_, model_name);
  GenerationSink* measuring = measured.get();
  auto generation = std::make_shared<Generation>(
      context, std::move(input), measuring,
      [this, key, measured, place = std::move(place)](const absl::Status& end) mutable {
        place = {};
        OnEnd(key, *measured, end);
      });
  running_[key] = generation;
  // Post it, so that the caller has the generation first: Start can already end it.
  loop_->Post([generation] { generation->Start(); });
  return generation;
}

void FrontCore::OnEnd(const IdempotencyCache::Name& key, const MeasuredSink& measured,
                      const absl::Status& end) {
  if (!end.ok()) ++requests_failed_total_;
  if (const auto found = running_.find(key); found != running_.end()) {
    const Generation& generation = *found->second;
    const RequestSummary summary = measured.Summary();
    KeepAskedTime(key, generation);
    request_log_.Ended(generation, measured.model(), summary, end);
    AddUsage(generation.input().principal,
             {.requests = 1,
              .prompt_tokens = generation.prompt_tokens(),
              .cached_tokens = summary.usage.has_value() ? summary.usage->cached_tokens() : 0,
              .generation_tokens = summary.output_tokens},
             &principal_usage_);
    running_.erase(found);
  }
  // The sink learns about the end after this.
  loop_->Post([ended = named_.OnEnd(key, end)] {});
}

void FrontCore::KeepAskedTime(const IdempotencyCache::Name& key, const Generation& generation) {
  const GenerationInput& input = generation.input();
  const v1::GenerateRequest& request = input.request;
  const bool named = !input.digests->body.empty();
  if (!named || !request.has_chat() || request.has_session_id()) return;
  // Without prompt tokens, the prompt was not compared with the first one. Then the time may be
  // wrong.
  if (input.begun_before && generation.prompt_tokens() == 0) return;
  asked_times_.Keep(key, input.digests->body, input.asked_at, limits_.request_ttl);
}

void FrontCore::Complete(GenerationInput input, WholeAnswer* answer,
                         Done<v1::CompleteResponse> done,
                         std::function<void(std::shared_ptr<AnswerStream>)> on_start) {
  auto* collector = new Collector(loop_, answer, std::move(done));
  collector->SetCompletions(std::clamp(input.request.n(), 1, kMaxChoices));
  // Progress is only useful in a stream: a unary response would deliver it at the end.
  input.request.clear_return_progress();
  const std::shared_ptr<AnswerStream> stream = Generate(std::move(input), collector);
  if (stream == nullptr) return;
  collector->Attach(stream);
  on_start(stream);
}

absl::StatusOr<PickedWorker> FrontCore::AnyWorker(absl::string_view model) const {
  ASSIGN_OR_RETURN(const v1::Model found, workers_.FindModel(model));
  return workers_.Pick({.model_digest = ModelIdentity(found)}, /*session_id=*/"");
}

template <typename Request, typename Response>
void FrontCore::AskAboutText(Request request, const TextAsker& asker, Done<Response> done,
                             TextCall<Request, Response> call) {
  const absl::StatusOr<PickedWorker> worker = AnyWorker(request.model());
  if (!worker.ok()) return done(worker.status());
  absl::StatusOr<engine::AdmissionSlots::Place> place = text_places_.Take(asker.principal);
  if (!place.ok()) return done(base::WithRetryAfter(place.status(), base::kUsualRetryAfter));
  (worker->link->*call)(std::move(request), asker.deadline,
                        [place = *std::move(place), done = std::move(done)](
                            absl::StatusOr<Response> response) { done(std::move(response)); });
}

void FrontCore::Tokenize(v1::TokenizeRequest request, const TextAsker& asker,
                         Done<v1::TokenizeResponse> done) {
  if (request.has_chat() || request.add_special() || request.return_tokens() ||
      request.describe()) {
    done = [done = std::move(done)](absl::StatusOr<v1::TokenizeResponse> response) {
      // Workers of an older release do not report their context.
      if (response.ok() && response->context_length() == 0) {
        response = absl::UnimplementedError(
            "chat, add_special, return_tokens and describe are not served by this model's worker, "
            "which is of an earlier release; upgrade it");
      }
      done(std::move(response));
    };
  }
  AskAboutText<v1::TokenizeRequest, v1::TokenizeResponse>(std::move(request), asker,
                                                          std::move(done), &WorkerLink::Tokenize);
}

void FrontCore::Detokenize(v1::DetokenizeRequest request, const TextAsker& asker,
                           Done<v1::DetokenizeResponse> done) {
  AskAboutText<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      std::move(request), asker, std::move(done), &WorkerLink::Detokenize);
}

void FrontCore::ListModels(Done<v1::ListModelsResponse> done) {
  v1::ListModelsResponse response;
  for (v1::Model& model : workers_.Models()) *response.add_models() = std::move(model);
  done(std::move(response));
}

void FrontCore::GetModel(const v1::GetModelRequest& request, Done<v1::Model> done) {
  done(workers_.FindModel(request.model()));
}

void FrontCore::CreateSession(const v1::CreateSessionRequest& request, const std::string& principal,
                              Done<v1::Session> done) {
  if (request.has_session_id()) {
    if (absl::Status status = CheckSessionId(request.session_id()); !status.ok()) {
      return done(std::move(status));
    }
  }
  const absl::StatusOr<v1::Model> model = workers_.FindModel(request.model());
  if (!model.ok()) return done(model.status());
  store_->Create({.session_id = request.has_session_id() ? request.session_id()
                                                         : absl::StrCat("s-", base::RandomHex()),
                  .principal = principal,
                  .model = model->name(),
                  .model_digest = ModelIdentity(*model)},
                 [done = std::move(done)](absl::StatusOr<SessionInfo> info) {
                   if (!info.ok()) return done(info.status());
                   v1::Session session;
                   ToProto(*info, &session);
                   done(std::move(session));
                 });
}

void FrontCore::GetSession(const v1::GetSessionRequest& request, const std::string& principal,
                           Done<v1::Session> done) {
  store_->Get(principal, request.session_id(),
              [done = std::move(done)](absl::StatusOr<SessionLogData> log) {
                if (!log.ok()) return done(log.status());
                v1::Session session;
                ToProto(*log, &session);
                done(std::move(session));
              });
}

void FrontCore::ListSessions(const v1::ListSessionsRequest& request, const std::string& principal,
                             Done<v1::ListSessionsResponse> done) {
  const int size = request.page_size() == 0 ? kDefaultPage : request.page_size();
  if (size < 0 || size > kLargestPage) {
    return done(absl::InvalidArgumentError(absl::StrCat(
        "page_size is ", size, "; accepted: 1 to ", kLargestPage, ", or 0 for ", kDefaultPage)));
  }
  store_->List(principal, size, request.page_token(),
               [done = std::move(done)](absl::StatusOr<SessionPage> page) {
                 if (!page.ok()) return done(page.status());
                 v1::ListSessionsResponse response;
                 for (const SessionInfo& info : page->sessions) {
                   ToProto(info, response.add_sessions());
                 }
                 response.set_next_page_token(page->next_page_token);
                 done(std::move(response));
               });
}

void FrontCore::DeleteSession(const v1::DeleteSessionRequest& request, const std::string& principal,
                              Done<v1::DeleteSessionResponse> done) {
  store_->Delete(principal, request.session_id(), [done = std::move(done)](absl::Status status) {
    if (!status.ok()) return done(std::move(status));
    done(v1::DeleteSessionResponse());
  });
}

void FrontCore::GetStats(const v1::GetStatsRequest& request, Done<v1::GetStatsResponse> done) {
  // Collects the workers' responses. The last one sends the result.
  struct Gathering {
    v1::GetStatsResponse response;
    int open = 0;
    Done<v1::GetStatsResponse> done;
  };
  auto gathering = std::make_shared<Gathering>();
  v1::FrontStats* front = gathering->response.mutable_front();
  front->set_uptime_seconds(absl::ToDoubleSeconds(clock_->Monotonic() - started_));
  front->set_streams_running(running_.size());
  front->set_requests_total(requests_total_);
  front->set_requests_failed_total(requests_failed_total_);
  front->set_failovers_total(failover_.moved_total);
  front->set_migrations_total(failover_.migrated_total);
  front->set_numerics_changed_total(failover_.numerics_changed_total);
  front->set_failovers_waiting(failover_.resubmissions.waiting());
  front->set_poisoned_prompts_refused_total(failover_.poisoned.refused_total());
  front->set_log_lines_dropped_total(request_log_.dropped_lines());
  gathering->done = std::move(done);
  const auto finish_one = [gathering] {
    if (--gathering->open == 0) gathering->done(std::move(gathering->response));
  };

  const auto asked = AskedWorkers(workers_, request);
  if (!asked.ok()) return gathering->done(asked.status());
  gathering->open = static_cast<int>(asked->size()) + 1;
  const absl::Duration deadline = clock_->Monotonic() + kStatsTimeout;
  for (const WorkerSet::Member* member : *asked) {
    v1::WorkerStats* stats = gathering->response.add_workers();
    stats->set_worker_id(member->view.name);
    stats->set_address(member->link->address());
    member->link->GetStats(
        deadline, [gathering, finish_one, stats](absl::StatusOr<v1::GetStatsResponse> answer) {
          TakeAnswer(answer, answer.status(), stats);
          finish_one();
        });
  }
  store_->Count([loop = loop_, gathering, finish_one](absl::StatusOr<int64_t> count) {
    loop->Post([gathering, finish_one, count] {
      if (count.ok()) gathering->response.mutable_front()->set_sessions(*count);
      finish_one();
    });
  });
}

std::shared_ptr<StatsWatch> FrontCore::WatchStats(const v1::WatchStatsRequest& request,
                                                  StatsWatchSink* sink) {
  v1::GetStatsRequest asked;
  if (request.has_worker_id()) asked.set_worker_id(request.worker_id());
  return watches_.Start(loop_, sink, request, [this, asked](Done<v1::GetStatsResponse> done) {
    GetStats(asked, std::move(done));
  });
}

void FrontCore::CloseGenerations(const absl::Status& status) {
  closed_ = status;
  for (const auto& generation : Running()) generation->Cancel(status);
  named_.EndReaders(status);
}

}  // namespace tidepool::service

#include "service/front/front_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random_hex.h"
#include "service/front/choices.h"
#include "service/front/hanging_workers.h"
#include "service/front/response_collector.h"
#include "service/front/served_models.h"
#include "service/grpc/check_request.h"

namespace tidepool::service {
namespace {

// Time between two checks for workers that hang.
constexpr absl::Duration kSilencePeriod = absl::Milliseconds(250);

}  // namespace

FrontCore::FrontCore(Executor* loop, const base::Clock* clock, SessionStore* store, LogSink log,
                     const FrontLimits& limits)
    : loop_(loop),
      clock_(clock),
      store_(store),
      limits_(limits),
      places_(clock, limits.max_requests),
      untaken_writes_(loop, clock, limits.taken_within),
      response_budget_(limits.max_whole_bytes),
      workers_(clock, log),
      admin_(clock, &workers_),
      sessions_(loop, clock, store, &workers_, limits.session_ttl),
      texts_(&workers_),
      named_(loop, limits.request_ttl, limits.orphan_ttl),
      asked_times_(clock),
      failover_(
          loop, clock,
          {.running = [this] { return static_cast<int64_t>(running_.size()); },
           .serving = [this](const std::string& model) { return CountServing(workers_, model); },
           .look = [this](const WorkerSighting& seen) { return workers_.FateOf(seen); }}),
      requests_(std::move(log)),
      stats_({.loop = loop,
              .clock = clock,
              .store = store,
              .workers = &workers_,
              .failover = &failover_,
              .requests = &requests_,
              .running = [this] { return static_cast<int64_t>(running_.size()); }}) {
  workers_.OnMayHaveCrashed(
      [this](const WorkerSighting& seen) { failover_.evidence.OnLost(seen); });
  LeaveHangingWorkers();
  TellQueueOfWorkers();
}

void FrontCore::TellQueueOfWorkers() {
  workers_.WhenChanged([this] {
    failover_.queue.OnWorkerAvailable();
    TellQueueOfWorkers();
  });
}

void FrontCore::SetLimits(const FrontLimits& limits) {
  limits_ = limits;
  named_.SetTtls(limits.request_ttl, limits.orphan_ttl);
  sessions_.SetTtl(limits.session_ttl);
}

void FrontCore::LeaveHangingWorkers() {
  for (const HangingWorker& worker : HangingWorkers(workers_, clock_->Monotonic())) {
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

std::string FrontCore::ModelName(const std::string& asked) const {
  const absl::StatusOr<v1::Model> model = FindModel(workers_, asked);
  return model.ok() ? model->name() : std::string();
}

std::nullptr_t FrontCore::Refuse(const GenerationInput& input, absl::Status status,
                                 GenerationSink* sink) {
  requests_.OnRefused(input, ModelName(input.request.model()), status);
  sink->Finish(std::move(status));
  return nullptr;
}

std::shared_ptr<ResponseStream> FrontCore::Generate(GenerationInput input, GenerationSink* sink) {
  requests_.OnReceived();
  if (closed_.has_value()) return Refuse(input, *closed_, sink);
  absl::Status status =
      input.checked.has_value() ? *input.checked : CheckGenerateRequest(input.request);
  if (!status.ok()) return Refuse(input, std::move(status), sink);
  if (!input.digests.has_value()) input.digests = DigestsOf(input.request);
  if (input.request.n() > 1) {
    requests_.OnSplit();
    return Choices::Start(
        loop_, std::move(input), sink,
        [this, weak = std::weak_ptr<int>(alive_)](
            GenerationInput one, GenerationSink* to) -> std::shared_ptr<ResponseStream> {
          if (!weak.expired()) return Generate(std::move(one), to);
          to->Finish(absl::UnavailableError("the server is shutting down"));
          return nullptr;
        });
  }
  if (!input.request.request_id().empty()) return GenerateNamed(std::move(input), sink);
  absl::StatusOr<GenerationPlaces::Place> place = places_.Take(input);
  if (!place.ok()) return Refuse(input, place.status(), sink);
  input.request.set_request_id(input.own_id.empty() ? absl::StrCat("gen-", base::RandomHex())
                                                    : input.own_id);
  return Begin(std::move(input), *std::move(place), sink);
}

std::shared_ptr<ResponseStream> FrontCore::GenerateNamed(GenerationInput input,
                                                         GenerationSink* sink) {
  const IdempotencyCache::Name name = {input.principal, input.request.request_id()};
  const int64_t resumed = static_cast<int64_t>(input.request.resume_after());
  const int64_t after = input.replay ? 0 : resumed;
  absl::StatusOr<std::shared_ptr<NamedRequest>> found =
      named_.Find(name, {after, resumed}, input.digests->body);
  if (!found.ok()) return Refuse(input, found.status(), sink);
  if (*found != nullptr) return (*found)->Read(after, sink);
  absl::StatusOr<GenerationPlaces::Place> place = places_.Take(input);
  if (!place.ok()) return Refuse(input, place.status(), sink);
  const std::shared_ptr<NamedRequest> request =
      named_.Add(name, input.request, input.digests->body);
  const std::shared_ptr<ResponseStream> reader = request->Read(after, sink);
  v1::Sampling* sampling = input.request.mutable_sampling();
  if (!sampling->has_seed()) sampling->set_seed(SeedOf(name));
  if (const auto asked = asked_times_.Find(name, input.digests->body); asked.has_value()) {
    input.asked_at = *asked;
  } else {
    input.begun_before = resumed > 0;
  }
  // A client that reconnects has a new deadline. So ignore the deadline of this call. If no client
  // is connected, the orphan TTL ends the response.
  input.deadline = absl::InfiniteDuration();
  request->Attach(Begin(std::move(input), *std::move(place), request.get()));
  return reader;
}

std::shared_ptr<Generation> FrontCore::Begin(GenerationInput input, GenerationPlaces::Place place,
                                             GenerationSink* sink) {
  const IdempotencyCache::Name key = {input.principal, input.request.request_id()};
  if (input.asked_at == absl::InfinitePast()) input.asked_at = clock_->Now();
  const GenerationContext context = {.loop = loop_,
                                     .clock = clock_,
                                     .workers = &workers_,
                                     .store = store_,
                                     .failover = &failover_,
                                     .max_session_tokens = limits_.max_session_tokens};
  const auto model_name = [this, asked = input.request.model()] { return ModelName(asked); };
  auto measured = std::make_shared<MeasuredSink>(sink, clock_, requests_.metrics(), model_name);
  GenerationSink* measuring = measured.get();
  auto generation = std::make_shared<Generation>(
      context, std::move(input), measuring,
      [this, key, measured, place = std::move(place)](const absl::Status& end) mutable {
        place = {};
        OnEnd(key, *measured, end);
      });
  running_[key] = generation;
  // Post the task, because Start may already end the generation. The caller must have the
  // generation before that.
  loop_->Post([generation] { generation->Start(); });
  return generation;
}

void FrontCore::OnEnd(const IdempotencyCache::Name& key, const MeasuredSink& measured,
                      const absl::Status& end) {
  if (const auto found = running_.find(key); found != running_.end()) {
    const Generation& generation = *found->second;
    KeepAskedTime(key, generation);
    requests_.OnEnded(generation, measured, end);
    running_.erase(found);
  }
  // The sink learns only after this function that the generation has ended. Keep the request until
  // then.
  loop_->Post([ended = named_.OnEnd(key, end)] {});
}

void FrontCore::KeepAskedTime(const IdempotencyCache::Name& key, const Generation& generation) {
  const GenerationInput& input = generation.input();
  const v1::GenerateRequest& request = input.request;
  const bool named = !input.digests->body.empty();
  if (!named || !request.has_chat() || request.has_session_id()) return;
  // If there are no prompt tokens, the front has not checked that the prompt is the same as in the
  // first request. Then the time may be wrong.
  if (input.begun_before && generation.prompt_tokens() == 0) return;
  asked_times_.Keep(key, input.digests->body, input.asked_at, limits_.request_ttl);
}

void FrontCore::Complete(GenerationInput input, WholeResponse* response,
                         Done<v1::CompleteResponse> done,
                         std::function<void(std::shared_ptr<ResponseStream>)> on_start) {
  auto* collector = new ResponseCollector(loop_, response, std::move(done));
  collector->SetCompletions(std::clamp(input.request.n(), 1, kMaxChoices));
  // Progress is only useful in a stream. A single response would deliver the progress after the
  // work is done.
  input.request.clear_return_progress();
  const std::shared_ptr<ResponseStream> stream = Generate(std::move(input), collector);
  if (stream == nullptr) return;
  collector->Attach(stream);
  on_start(stream);
}

void FrontCore::ListModels(Done<v1::ListModelsResponse> done) {
  v1::ListModelsResponse response;
  for (v1::Model& model : ServedModels(workers_)) *response.add_models() = std::move(model);
  done(std::move(response));
}

void FrontCore::GetModel(const v1::GetModelRequest& request, Done<v1::Model> done) {
  done(FindModel(workers_, request.model()));
}

void FrontCore::CloseGenerations(const absl::Status& status) {
  closed_ = status;
  for (const auto& generation : Running()) generation->Cancel(status);
  named_.EndReaders(status);
}

}  // namespace tidepool::service

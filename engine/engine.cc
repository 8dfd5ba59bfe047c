#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/engine_inbox.h"
#include "engine/engine_kv_disk.h"
#include "engine/engine_offload.h"
#include "engine/kv/kv_cache.h"
#include "engine/mask_threads.h"
#include "engine/model/workspace.h"
#include "engine/sampling/dry_breakers.h"
#include "engine/sampling/output_text.h"
#include "engine/scheduler/batch_scheduler.h"
#include "engine/scheduler/decoder.h"
#include "engine/scheduler/sequence.h"
#include "engine/scheduler/step_cost_model.h"
#include "engine/single_flight.h"
#include "engine/span_news.h"
#include "engine/step_limits.h"
#include "engine/stream_sink.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor.h"

namespace tidepool::engine {
namespace {

using DrawnTokens = absl::StatusOr<SpanOutput>;

// Returns the status that a client gets if a forward pass failed.
absl::Status ForwardError(const absl::Status& status) {
  if (absl::IsDataLoss(status) || absl::IsUnavailable(status)) return status;
  return absl::InternalError(status.message());
}

int64_t MaxChunk(const EngineOptions& options) {
  return std::max(options.prefill_chunk, options.offload_prefill_chunk);
}

absl::Status CheckFits(const GenerationRequest& request, int64_t chunk, const KvCache& cache) {
  const int64_t tokens = request.token_ids.size();
  const int64_t need = cache.BlocksFor(tokens, chunk);
  if (need <= cache.blocks_total()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a prompt of ", tokens, " tokens can never fit the KV memory of ",
                   cache.blocks_total() * cache.block_bytes(), " bytes: it needs ",
                   need * cache.block_bytes(), "; raise --kv-memory or shorten the prompt"));
}

// Large because it owns everything that a step uses.
class EngineImpl final : public Engine {
 public:
  struct Parts {
    EngineKv kv;
    kernels::Arena workspace;
  };
  EngineImpl(Model* model, const Tokenizer* tokenizer, const base::Clock* clock,
             const EngineOptions& options, Parts parts);
  ~EngineImpl() override;

  absl::StatusOr<std::unique_ptr<Stream>> Submit(GenerationRequest request) override;
  EngineStats Stats() const override;
  std::vector<uint64_t> PrefixDigests() const override { return shared_->PrefixDigests(); }
  void SetMaxQueued(int64_t max_queued) override {
    shared_->SetCapacity(options_.max_sequences + max_queued);
  }
  void StopAccepting() override { shared_->StopAccepting(); }
  bool WaitIdle(absl::Duration timeout) override { return shared_->WaitIdle(timeout); }
  void SetOffload(const moe::OffloadChange& change, Done<moe::OffloadSettings> done) override {
    Operate<moe::OffloadSettings>([this, change] { return offload_.Change(change); },
                                  std::move(done));
  }
  void RefreshExperts(Done<moe::OffloadSettings> done) override {
    Operate<moe::OffloadSettings>([this] { return offload_.RefreshSoon(); }, std::move(done));
  }
  void GetPlacement(Done<ExpertPlacement> done) override {
    if (!placement_.Join(std::move(done))) return;
    Operate<ExpertPlacement>(
        [this] { return offload_.Placement(); },
        [this](const absl::StatusOr<ExpertPlacement>& answer) { placement_.Answer(answer); });
  }

 private:
  // The results of a step for one stream.
  struct Delivery {
    std::shared_ptr<StreamSink> sink;
    StreamChunk chunk;
    absl::Status end;  // if this is an error, it is delivered instead of the chunk
  };

  // Called on the threads of callers.
  template <typename T>
  void Operate(std::function<absl::StatusOr<T>()> work, Done<T> done);

  // The main function of the step thread.
  void Run();
  bool Step();
  absl::StatusOr<StepOutput> Forward(const StepPlan& plan);
  absl::StatusOr<StepOutput> RunModel(const Batch& batch, absl::Span<const PlanItem> items);
  std::vector<DrawnTokens> Sample(const StepPlan& plan, const absl::StatusOr<StepOutput>& output);
  std::vector<DrawnTokens> ForwardApart(const StepPlan& plan);
  bool Commit(StepPlan plan, std::vector<DrawnTokens> drawn);
  void CommitItem(PlanItem* item, const RowSpan& span, SpanOutput output);
  void Append(Sequence* sequence, SampledToken token, StreamChunk* chunk);
  void Finish(Sequence* sequence, StreamChunk chunk);
  void Fail(std::unique_ptr<Sequence> sequence, absl::Status status);
  void RefreshStats();
  void PublishWithinPass();
  void PublishAndDeliver();
  void PaceScheduler();

  Model* const model_;
  const Tokenizer* const tokenizer_;
  const base::Clock* const clock_;
  const EngineOptions options_;
  const int vocab_size_;
  DryBreakerCache dry_breakers_{tokenizer_};
  const std::shared_ptr<EngineInbox> shared_;
  const std::unique_ptr<KvCache> cache_;
  const std::unique_ptr<EngineKvDisk> kv_disk_;
  const std::unique_ptr<Decoder> decoder_;
  BatchScheduler scheduler_;
  kernels::Arena workspace_;
  StepCostModel pace_;
  EngineOffload offload_;
  EngineStats stats_;
  std::vector<Delivery> outbox_;
  int64_t retired_ = 0;          // number of sequences that ended in the current step
  absl::Duration forced_until_;  // when to stop looking for forced tokens in the current step
  SingleFlight<ExpertPlacement> placement_;
  MaskThreads masks_{[shared = shared_.get()] { shared->Wake(); }};
  std::atomic<uint64_t> next_arrival_{0};
  std::thread step_thread_;  // must be the last member, because it uses all others
};

EngineImpl::EngineImpl(Model* model, const Tokenizer* tokenizer, const base::Clock* clock,
                       const EngineOptions& options, Parts parts)
    : model_(model),
      tokenizer_(tokenizer),
      clock_(clock),
      options_(options),
      vocab_size_(std::min(model->vocab_size(), tokenizer->vocab_size())),
      shared_(std::make_shared<EngineInbox>(options.max_sequences + options.max_queued)),
      cache_(std::move(parts.kv.cache)),
      kv_disk_(std::move(parts.kv.disk)),
      decoder_(MakeAutoregressiveDecoder(vocab_size_)),
      scheduler_({.limits = options.limits,
                  .prefill_chunk = MaxChunk(options),
                  .max_sequences = options.max_sequences,
                  .max_concurrent_prefills = options.max_concurrent_prefills,
                  .short_slots = model->short_slots()},
                 cache_.get(), decoder_.get(), kv_disk_->restores()),
      workspace_(std::move(parts.workspace)),
      offload_(model, clock) {
  kv_disk_->OnRead([shared = shared_.get()] { shared->Wake(); });
  PublishAndDeliver();
  model_->OnLayerEnd([this] { PublishWithinPass(); });
  step_thread_ = std::thread([this] { Run(); });
}

EngineImpl::~EngineImpl() {
  shared_->Stop();
  step_thread_.join();
  model_->OnLayerEnd(nullptr);
}

absl::StatusOr<std::unique_ptr<Stream>> EngineImpl::Submit(GenerationRequest request) {
  RETURN_IF_ERROR(shared_->CheckOpen(request.principal));
  RETURN_IF_ERROR(request.Validate(vocab_size_, options_.context_length));
  RETURN_IF_ERROR(CheckFits(request, MaxChunk(options_), *cache_));
  ASSIGN_OR_RETURN(auto constraint, SequenceConstraint::Create(request));
  OutputText text(request.stopping, options_.context_length - request.prompt_length, tokenizer_);
  std::optional<FinishReason> finish = Replay(request, &text);
  auto sink = std::make_shared<StreamSink>();
  auto sequence =
      std::make_unique<Sequence>(next_arrival_.fetch_add(1), std::move(request), std::move(text));
  sequence->constraint = std::move(constraint);
  RETURN_IF_ERROR(SetUpSampling(*tokenizer_, vocab_size_, &dry_breakers_, sequence.get()));
  if (sequence->outputs() > 0 && OnlyEndFollows(*sequence)) {
    finish = finish.value_or(FinishReason::kStop);
  }
  sequence->sink = sink;
  sequence->submitted_at = clock_->Monotonic();
  std::unique_ptr<Stream> stream = MakeStream(shared_, sequence->control, sink);
  if (finish.has_value()) {
    StreamChunk chunk;
    chunk.position = sequence->outputs();
    chunk.finish = finish;
    chunk.usage.prompt_tokens = sequence->request.prompt_length;
    chunk.usage.completion_tokens = sequence->outputs();
    sink->Push(std::move(chunk));
    return stream;
  }
  RETURN_IF_ERROR(shared_->Submit(std::move(sequence)));
  return stream;
}

// Makes the step thread call `work`, publish the changed stats, and then call `done`.
template <typename T>
void EngineImpl::Operate(std::function<absl::StatusOr<T>()> work, Done<T> done) {
  const absl::Status taken =
      shared_->Post([this, work = std::move(work), done](const absl::Status& status) {
        if (!status.ok()) return done(status);
        absl::StatusOr<T> result = work();
        RefreshStats();
        shared_->PublishStats(stats_);
        done(std::move(result));
      });
  if (!taken.ok()) done(taken);
}

// Without a running pass, nothing is published, so the window of the stats must be moved here.
// During a pass, stats are published between two layers. A layer can take seconds.
EngineStats EngineImpl::Stats() const {
  EngineStats stats = shared_->Stats();
  stats.progress += model_->heartbeat();
  if (!stats.computing) AgeWindow(clock_->Monotonic() - stats.offload_read_at, &stats);
  return stats;
}

void EngineImpl::Run() {
  EngineInbox::Work work;
  bool worked = false;
  // Returns the time until something can happen without a wake-up.
  const auto patience = [this] { return scheduler_.NextDeadline() - clock_->Monotonic(); };
  while (shared_->TakeWork(worked ? absl::ZeroDuration() : patience(), &work)) {
    for (auto& sequence : work.sequences) scheduler_.Add(std::move(sequence));
    for (EngineInbox::Task& task : work.tasks) task(absl::OkStatus());
    work = {};
    worked = Step();
    if (!worked) model_->Idle();
  }
  const absl::Status stopped = absl::UnavailableError("the engine has stopped");
  for (auto& sequence : scheduler_.RemoveAll()) work.sequences.push_back(std::move(sequence));
  for (auto& sequence : work.sequences) Fail(std::move(sequence), stopped);
  PublishAndDeliver();
  for (EngineInbox::Task& task : work.tasks) task(stopped);
  kv_disk_->SpillAll();
}

// Sets the scheduler's limits for steps. They depend on the measured costs and on the experts that
// are resident now, which operators may change between two steps.
void EngineImpl::PaceScheduler() {
  pace_.AddQueueLook({.at = clock_->Monotonic(),
                      .waiting = scheduler_.waiting(),
                      .admissions = scheduler_.admissions()});
  scheduler_.SetLimits(PickStepLimits(options_, stats_.offload, pace_));
  scheduler_.SetRates(pace_.rates());
}

bool EngineImpl::Step() {
  PaceScheduler();
  StepPlan plan = scheduler_.Plan(clock_->Monotonic());
  masks_.Begin(plan);
  const absl::StatusOr<StepOutput> output = Forward(plan);
  masks_.Wait(options_.mask_patience);
  // If the pass failed because an expert cannot be read, some of its sequences may not need the
  // expert. So each one is computed separately.
  const bool apart = !output.ok() && plan.items.size() > 1;
  std::vector<DrawnTokens> drawn = apart ? ForwardApart(plan) : Sample(plan, output);
  return Commit(std::move(plan), std::move(drawn));
}

absl::StatusOr<StepOutput> EngineImpl::Forward(const StepPlan& plan) {
  if (plan.items.empty()) return StepOutput();
  NoteStarted(plan, clock_->Monotonic(), &stats_);
  // A pass can take seconds, so its sequences are published before it runs.
  RefreshStats();
  stats_.computing = true;
  shared_->PublishStats(stats_);
  absl::StatusOr<StepOutput> output = RunModel(plan.batch, plan.items);
  ++stats_.steps;
  ++stats_.progress;
  return output;
}

// Runs the pass. Records its cost in the model of step costs, and distributes the cost among the
// items.
absl::StatusOr<StepOutput> EngineImpl::RunModel(const Batch& batch,
                                                absl::Span<const PlanItem> items) {
  const std::optional<moe::OffloadStats> before = model_->offload_stats();
  const absl::Duration start = clock_->Monotonic();
  absl::StatusOr<StepOutput> output = model_->Forward(batch, cache_->view(), &workspace_);
  StepCostModel::Step step = {.time = clock_->Monotonic() - start};
  for (const RowSpan& span : batch.spans) {
    const bool decodes = span.rows() == 1 || span.phase == moe::Phase::kDecode;
    (decodes ? step.decode_rows : step.prompt_rows) += span.rows();
  }
  const ExpertCounts experts = model_->last_expert_counts();
  PassCosts costs = {.hits = experts.hits, .misses = experts.misses};
  if (before.has_value()) {
    const moe::OffloadStats pass = moe::Difference(*model_->offload_stats(), *before);
    costs.demand_bytes = pass.demand_bytes;
    costs.stall_time = pass.stall_time;
    step.read_bytes = pass.demand_bytes + pass.prefetch_bytes;
    step.read_time = pass.stall_time + pass.hidden_time;
    step.stall_time = pass.stall_time;
  }
  // A failed pass has computed only a part of its work, and may have waited for reads that failed.
  // So its cost is not used.
  if (output.ok()) pace_.AddStep(step);
  const int64_t rows = batch.rows();
  int64_t row = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t end = row + batch.spans[i].rows();
    AddShare(costs, {row, end}, rows, &items[i].sequence->usage);
    row = end;
  }
  stats_.expert_hits += costs.hits;
  stats_.expert_misses += costs.misses;
  return output;
}

// Returns one entry for each item of the plan.
std::vector<DrawnTokens> EngineImpl::Sample(const StepPlan& plan,
                                            const absl::StatusOr<StepOutput>& output) {
  std::vector<DrawnTokens> drawn;
  drawn.reserve(plan.items.size());
  OutputCursor cursor(output.ok() ? *output : StepOutput());
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (!output.ok()) {
      drawn.push_back(ForwardError(output.status()));
      continue;
    }
    drawn.push_back(decoder_->Accept(*plan.items[i].sequence, plan.batch.spans[i], &cursor));
  }
  return drawn;
}

// Computes each item in its own pass, which writes the same KV again. Returns one entry for each
// item.
std::vector<DrawnTokens> EngineImpl::ForwardApart(const StepPlan& plan) {
  std::vector<DrawnTokens> drawn;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const Batch batch = {{plan.batch.spans[i]}};
    const absl::StatusOr<StepOutput> output = RunModel(batch, {&plan.items[i], 1});
    if (!output.ok()) {
      drawn.push_back(ForwardError(output.status()));
      continue;
    }
    OutputCursor cursor(*output);
    drawn.push_back(decoder_->Accept(*plan.items[i].sequence, batch.spans[0], &cursor));
  }
  return drawn;
}

bool EngineImpl::Commit(StepPlan plan, std::vector<DrawnTokens> drawn) {
  forced_until_ = clock_->Monotonic() + options_.mask_patience / 3;
  for (EndedSequence& ended : plan.ended) Fail(std::move(ended.sequence), std::move(ended.status));
  for (size_t i = 0; i < plan.items.size(); ++i) {
    PlanItem& item = plan.items[i];
    if (drawn[i].ok()) {
      if (!drawn[i]->deferred) CommitItem(&item, plan.batch.spans[i], *std::move(drawn[i]));
    } else {
      item.reservation.Keep();  // the blocks are released together with the whole lease
      Fail(scheduler_.Remove(item.sequence), drawn[i].status());
    }
  }
  const bool worked = !plan.items.empty() || !plan.ended.empty();
  PublishAndDeliver();
  return worked;
}

void EngineImpl::CommitItem(PlanItem* item, const RowSpan& span, SpanOutput output) {
  scheduler_.Commit(item, span);
  Sequence* sequence = item->sequence;
  StreamChunk chunk;
  chunk.position = sequence->outputs();
  TellPrompt(std::move(output.prompt), clock_->Monotonic(), sequence, &chunk);
  for (SampledToken& token : output.tokens) {
    Append(sequence, std::move(token), &chunk);
    sequence->forced = 0;
    while (!chunk.finish.has_value()) {
      const auto late = [this] { return clock_->Monotonic() >= forced_until_; };
      const std::optional<int32_t> forced =
          ForcedToken(options_.mask_patience / 10, late, sequence);
      if (!forced.has_value()) break;
      ++sequence->forced;
      Append(sequence, {.token_id = *forced}, &chunk);
    }
    if (chunk.finish.has_value()) break;
  }
  if (chunk.finish.has_value()) {
    Finish(sequence, std::move(chunk));
  } else if (HasNews(chunk)) {
    outbox_.push_back({sequence->sink, std::move(chunk), absl::OkStatus()});
  }
}

void EngineImpl::Append(Sequence* sequence, SampledToken token, StreamChunk* chunk) {
  if (!sequence->first_token_at.has_value()) sequence->first_token_at = clock_->Monotonic();
  if (sequence->request.stopping.max_tokens == 0) {  // the request only asked to compute the prompt
    chunk->finish = FinishReason::kLength;
    return;
  }
  sequence->tokens.push_back(token.token_id);
  if (sequence->constraint != nullptr) sequence->constraint->Accept(token.token_id);
  sequence->sampler.AddOutput(token.token_id);
  sequence->control->credit.fetch_sub(1);
  OutputText::Step step = sequence->text.Add(token.token_id);
  chunk->token_ids.push_back(token.token_id);
  chunk->text += step.text;
  chunk->finish = step.finish;
  EndByConstraint(sequence, chunk);
  if (token.logprob.has_value()) chunk->logprobs.push_back(*std::move(token.logprob));
  ++stats_.generated_tokens;
}

void EngineImpl::Finish(Sequence* sequence, StreamChunk chunk) {
  const std::unique_ptr<Sequence> finished = scheduler_.Remove(sequence);
  chunk.usage = FinalUsage(*finished, clock_->Monotonic());
  ++stats_.requests_finished;
  ++retired_;
  outbox_.push_back({finished->sink, std::move(chunk), absl::OkStatus()});
}

void EngineImpl::Fail(std::unique_ptr<Sequence> sequence, absl::Status status) {
  ++(absl::IsCancelled(status) ? stats_.requests_cancelled : stats_.requests_failed);
  ++stats_.progress;
  ++retired_;
  outbox_.push_back({sequence->sink, StreamChunk(), std::move(status)});
}

void EngineImpl::RefreshStats() {
  stats_.sequences_running = scheduler_.running();
  stats_.sequences_waiting = scheduler_.waiting();
  stats_.queued_prompt_tokens = scheduler_.QueuedPromptTokens();
  stats_.work_pending = scheduler_.HasReady();
  stats_.preemptions = scheduler_.preemptions();
  stats_.kv_blocks_total = cache_->blocks_total();
  stats_.kv_blocks_free = cache_->blocks_free();
  stats_.kv_blocks_cached = cache_->blocks_cached();
  stats_.kv_state_bytes = cache_->state_parts() * static_cast<int64_t>(cache_->block_bytes());
  stats_.kv_checkpoints = cache_->checkpoints();
  kv_disk_->Read(&stats_);
  stats_.prefill_tokens_per_second = pace_.prefill_rows_per_second();
  stats_.admissions_per_second = pace_.rates().admissions_per_second;
  stats_.deadline_refusals = scheduler_.deadline_refusals();
  stats_.workspace_high_water_bytes = workspace_.high_water();
  if (model_->memory()->on_host()) {
    stats_.untouched_bytes =
        cache_->blocks_untouched() * cache_->block_bytes() +
        static_cast<int64_t>(workspace_.capacity() - stats_.workspace_high_water_bytes);
  }
  stats_.computing = false;
  offload_.Read(&stats_);
}

// A pass over a long prompt can take a minute. So the costs of its layers are published while it
// runs.
void EngineImpl::PublishWithinPass() {
  constexpr absl::Duration kApart = absl::Milliseconds(200);
  if (!stats_.offload.has_value()) return;
  if (clock_->Monotonic() - stats_.offload_read_at < kApart) return;
  offload_.Read(&stats_);
  EngineStats so_far = stats_;
  const ExpertCounts experts = model_->last_expert_counts();
  so_far.expert_hits += experts.hits;
  so_far.expert_misses += experts.misses;
  shared_->PublishStats(so_far);
}

// Publishes before it delivers. So when a client sees the end of its stream, the stats already show
// that the KV is free.
void EngineImpl::PublishAndDeliver() {
  RefreshStats();
  if (retired_ > 0) shared_->PublishPrefixes(cache_->RecentPrefixes(KvCache::kRecentPrefixes));
  shared_->PublishStats(stats_);
  shared_->Retire(std::exchange(retired_, 0));
  for (Delivery& delivery : outbox_) {
    if (delivery.end.ok()) {
      delivery.sink->Push(std::move(delivery.chunk));
    } else {
      delivery.sink->End(std::move(delivery.end));
    }
  }
  outbox_.clear();
  shared_->Delivered();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Model* model, const Tokenizer* tokenizer,
                                                       const base::Clock* clock,
                                                       const EngineOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  ASSIGN_OR_RETURN(EngineKv kv, EngineKv::Open(*model, options, clock));
  ASSIGN_OR_RETURN(kernels::Arena workspace, MakeWorkspace(*model, options.limits));
  return std::make_unique<EngineImpl>(model, tokenizer, clock, options,
                                      EngineImpl::Parts{std::move(kv), std::move(workspace)});
}

}  // namespace tidepool::engine

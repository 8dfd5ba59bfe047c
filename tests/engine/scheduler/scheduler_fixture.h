// A scheduler whose plans are read as text, and whose steps the test completes.
#ifndef TIDEPOOL_TESTS_ENGINE_SCHEDULER_SCHEDULER_FIXTURE_H_
#define TIDEPOOL_TESTS_ENGINE_SCHEDULER_SCHEDULER_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/scheduler/batch_scheduler.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::engine {

inline constexpr int64_t kTokens = kernels::kKvBlockTokens;

struct Job {
  std::string name;
  int64_t prompt = 1;
  int64_t outputs = 0;          // outputs that another engine generated
  std::vector<int32_t> shared;  // beginning of the prompt, before its `prompt` own tokens
  std::string principal;
  int32_t priority = 0;
  int64_t credit = 1000;
  absl::Duration deadline = absl::InfiniteDuration();
};

class SchedulerTest : public testing::Test {
 protected:
  // By default, a step has 64 rows, a chunk has 40, and 4 sequences may run.
  void Start(int64_t blocks, SchedulerOptions options = {.limits = {.rows = 64, .logit_rows = 8},
                                                         .prefill_chunk = 40,
                                                         .max_sequences = 4}) {
    const KvSpec spec = {.kv_heads = 1, .k_dim = 2, .v_dim = 2, .dtype = kernels::DType::kF32};
    const size_t block_bytes = 4 * sizeof(float) * kTokens;
    cache_ = KvCache::Create({spec}, {.memory_bytes = blocks * block_bytes}).value();
    scheduler_ = std::make_unique<BatchScheduler>(options, cache_.get(), decoder_.get());
  }

  void TearDown() override {
    plan_.reset();
    scheduler_.reset();
  }

  // Prompts of different jobs have no prefix in common, except for `shared`.
  std::unique_ptr<Sequence> MakeSequence(const Job& job) {
    GenerationRequest request;
    request.token_ids = job.shared;
    request.token_ids.resize(job.shared.size() + job.prompt, static_cast<int32_t>(names_.size()));
    request.prompt_length = static_cast<int64_t>(request.token_ids.size()) - job.outputs;
    request.principal = job.principal;
    request.priority = job.priority;
    request.credit = job.credit;
    request.deadline = job.deadline;
    request.stopping.max_tokens = 1000;
    OutputText text(request.stopping, 1000, tokenizer_.get());
    auto sequence = std::make_unique<Sequence>(arrival_++, std::move(request), std::move(text));
    names_[sequence->arrival] = job.name;
    sequences_[job.name] = sequence.get();
    return sequence;
  }
  void Add(const Job& job) { scheduler_->Add(MakeSequence(job)); }

  // "A 0+48" means that sequence A computes 48 rows from slot 0 on. A star means that it will get a
  // token. "A!" and a code mean that it ended.
  std::string Plan(absl::Duration now = absl::ZeroDuration()) {
    plan_.emplace(scheduler_->Plan(now));
    std::vector<std::string> parts;
    for (const EndedSequence& ended : plan_->ended) {
      parts.push_back(absl::StrCat(names_[ended.sequence->arrival], "! ",
                                   absl::StatusCodeToString(ended.status.code())));
    }
    for (size_t i = 0; i < plan_->items.size(); ++i) {
      const RowSpan& span = plan_->batch.spans[i];
      parts.push_back(absl::StrCat(names_[plan_->items[i].sequence->arrival], " ", span.first_slot,
                                   "+", span.rows(), span.logit_rows.empty() ? "" : "*"));
    }
    return absl::StrJoin(parts, ", ");
  }

  // Computes the plan: each row of logits becomes one token.
  void Commit() {
    for (size_t i = 0; i < plan_->items.size(); ++i) {
      Sequence* sequence = plan_->items[i].sequence;
      scheduler_->Commit(&plan_->items[i], plan_->batch.spans[i]);
      if (plan_->batch.spans[i].logit_rows.empty()) continue;
      sequence->tokens.push_back(static_cast<int32_t>(200 + sequence->arrival));
      sequence->control->credit.fetch_sub(1);
    }
    plan_.reset();
  }

  std::string Step() {
    const std::string plan = Plan();
    Commit();
    return plan;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = fakes::MakeByteTokenizer();
  std::unique_ptr<Decoder> decoder_ = MakeAutoregressiveDecoder(fakes::kByteVocabSize);
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<BatchScheduler> scheduler_;
  std::optional<StepPlan> plan_;
  uint64_t arrival_ = 0;
  std::map<uint64_t, std::string> names_;
  std::map<std::string, Sequence*> sequences_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_SCHEDULER_SCHEDULER_FIXTURE_H_

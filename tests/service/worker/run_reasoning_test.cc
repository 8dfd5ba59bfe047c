// The reasoning tokens of runs, also if a run continues an earlier attempt.
#include "service/worker/run_reasoning.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "tests/fakes/byte_tokenizer.h"

namespace tidepool::service {
namespace {

class RunReasoningTest : public testing::Test {
 protected:
  RunReasoningTest() : tokenizer_(fakes::MakeByteTokenizer()) {
    model_.tokenizer = tokenizer_.get();
    // The first marker is a control token of the vocabulary.
    model_.reasoning.set_begin("<|start|>");
    model_.reasoning.set_end("</t>");
    start_.mutable_chat();
    tokens_ = {fakes::kStartToken};
    for (const int32_t token : fakes::ByteTokens("Hm.</t>Yes")) tokens_.push_back(token);
    tokens_.push_back(fakes::kEndToken);
  }

  // Counts a run whose first tokens are from earlier attempts.
  int64_t Count(size_t before = 0) {
    worker::v1::Start start = start_;
    start.mutable_output_token_ids()->Assign(tokens_.begin(),
                                             tokens_.begin() + static_cast<int64_t>(before));
    RunReasoning reasoning(&model_);
    reasoning.OnStart(start);
    reasoning.Add(absl::MakeConstSpan(tokens_).subspan(before));
    return reasoning.tokens();
  }

  std::unique_ptr<engine::Tokenizer> tokenizer_;
  WorkerModel model_;
  worker::v1::Start start_;
  std::vector<int32_t> tokens_;
};

TEST_F(RunReasoningTest, EveryAttemptCountsTheSame) {
  for (size_t before = 0; before <= tokens_.size(); ++before) EXPECT_EQ(Count(before), 3);
}

TEST_F(RunReasoningTest, AnUnfinishedReasoningCounts) {
  tokens_ = {fakes::kStartToken, 'a', fakes::kEndToken, 'b'};
  EXPECT_EQ(Count(), 2);
}

TEST_F(RunReasoningTest, ThePromptMayEndInReasoning) {
  tokens_.erase(tokens_.begin());
  EXPECT_EQ(Count(), 0);
  start_.mutable_prepared()->set_in_reasoning(true);
  EXPECT_EQ(Count(), 3);
}

TEST_F(RunReasoningTest, OnlyChatsOfModelsWithReasoningAreCounted) {
  start_.clear_chat();
  EXPECT_EQ(Count(), 0);
  start_.mutable_chat();
  model_.reasoning.Clear();
  EXPECT_EQ(Count(), 0);
}

}  // namespace
}  // namespace tidepool::service

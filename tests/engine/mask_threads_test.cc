// Masks that take longer than a step. The test holds the lock of a grammar, so its masks cannot be
// computed.
#include "engine/mask_threads.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/grammar/compile.h"
#include "engine/grammar/grammar_cache.h"
#include "kernels/base/mutex.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

using grammar::GrammarKind;

class MaskThreadTest : public SchedulerTest {
 protected:
  MaskThreadTest()
      : grammar_(
            grammar::CompileGrammar({.kind = GrammarKind::kRegex, .text = "a+"}, nullptr).value()) {
  }

  // Adds a sequence whose output is constrained.
  void AddConstrained(const std::string& name) {
    std::unique_ptr<Sequence> sequence = MakeSequence({.name = name});
    sequence->request.grammar = grammar_;
    sequence->request.token_trie = cache_of_grammars_.trie();
    GenerationRequest request = sequence->request;
    request.token_ids = sequence->tokens;
    sequence->constraint = SequenceConstraint::Create(request).value();
    scheduler_->Add(std::move(sequence));
  }
  const SequenceConstraint& ConstraintOf(const std::string& name) {
    return *sequences_[name]->constraint;
  }
  void WaitForLateMask() {
    const base::MutexLock lock(&mutex_);
    while (late_ == 0) changed_.Wait(&mutex_);
    --late_;
  }

  grammar::GrammarCache cache_of_grammars_{tokenizer_.get()};
  const std::shared_ptr<const grammar::Grammar> grammar_;
  base::Mutex mutex_;
  base::CondVar changed_;
  int late_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  MaskThreads masks_{[this] {
    const base::MutexLock lock(&mutex_);
    ++late_;
    changed_.NotifyAll();
  }};
};

TEST_F(MaskThreadTest, OnlyTheSequenceOfALateMaskWaits) {
  Start(/*blocks=*/8);
  AddConstrained("C");
  Add({.name = "F"});
  EXPECT_EQ(Plan(), "C 0+1*, F 0+1*");
  {
    const base::MutexLock lock(&grammar_->automaton()->mutex);
    masks_.Begin(*plan_);
    masks_.Wait(absl::ZeroDuration());
    EXPECT_FALSE(ConstraintOf("C").ready());
    // C is computed again later, so only F is committed.
    scheduler_->Commit(&plan_->items[1], plan_->batch.spans[1]);
    sequences_["F"]->tokens.push_back('x');
    plan_.reset();
    EXPECT_EQ(Plan(), "F 1+1*");
    masks_.Begin(*plan_);
    masks_.Wait(absl::InfiniteDuration());  // no mask of this plan is missing
    Commit();
    EXPECT_EQ(Plan(), "F 2+1*");
    plan_.reset();
  }
  WaitForLateMask();
  EXPECT_TRUE(ConstraintOf("C").ready());
  EXPECT_EQ(Plan(), "C 0+1*, F 2+1*");
  EXPECT_TRUE(ConstraintOf("C").mask()->Test('a'));
  EXPECT_FALSE(ConstraintOf("C").mask()->Test('b'));
}

TEST_F(MaskThreadTest, WaitsForTheMasksOfThePlan) {
  Start(/*blocks=*/8);
  AddConstrained("A");
  AddConstrained("B");
  Plan();
  masks_.Begin(*plan_);
  masks_.Wait(absl::InfiniteDuration());
  EXPECT_TRUE(ConstraintOf("A").ready());
  EXPECT_TRUE(ConstraintOf("B").ready());
}

TEST_F(MaskThreadTest, NoStepWaitsForASequenceWhoseMasksAreSlow) {
  Start(/*blocks=*/8);
  AddConstrained("C");
  Plan();
  EXPECT_FALSE(ConstraintOf("C").slow());
  sequences_["C"]->constraint->NoteSlow();
  masks_.Begin(*plan_);
  masks_.Wait(absl::InfiniteDuration());
  WaitForLateMask();
  EXPECT_TRUE(ConstraintOf("C").ready());
  EXPECT_FALSE(ConstraintOf("C").slow());
}

// The sequence is cancelled while its mask is computed.
TEST_F(MaskThreadTest, ASequenceMayEndBeforeItsMask) {
  Start(/*blocks=*/8);
  AddConstrained("C");
  Plan();
  {
    const base::MutexLock lock(&grammar_->automaton()->mutex);
    masks_.Begin(*plan_);
    masks_.Wait(absl::ZeroDuration());
    plan_.reset();
    scheduler_->RemoveAll();
  }
  WaitForLateMask();
}

}  // namespace
}  // namespace tidepool::engine

// A Run on a worker that drains, with a transport that the test controls.
#include "service/worker/run_session.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"
#include "tests/service/test_server.h"

namespace tidepool::service {
namespace {

class PuppetTransport final : public RunTransport {
 public:
  void Write(worker::v1::RunResponse response) override {
    EXPECT_FALSE(writing) << "two writes at once";
    EXPECT_EQ(response.position(), tokens);
    writing = true;
    tokens += response.token_ids_size();
    written.push_back(std::move(response));
  }
  void Finish(absl::Status end) override {
    EXPECT_FALSE(status.has_value()) << "finished twice";
    status = std::move(end);
  }

  bool writing = false;
  int64_t tokens = 0;
  std::vector<worker::v1::RunResponse> written;
  std::optional<absl::Status> status;
};

class RunSessionTest : public testing::Test {
 protected:
  RunSessionTest() { engine_.model.Hold(); }
  ~RunSessionTest() override {
    session_->Abandon();
    engine_.model.Release();
    EXPECT_TRUE(engine_.engine->WaitIdle(absl::InfiniteDuration()));
  }

  static worker::v1::RunRequest Credit(int64_t tokens) {
    worker::v1::RunRequest request;
    request.set_credit(tokens);
    return request;
  }

  // Without a constraint if `regex` is empty.
  void Start(int64_t max_tokens, const std::string& regex = "", int64_t credit = 1000) {
    worker::v1::RunRequest request;
    worker::v1::Start* start = request.mutable_start();
    start->mutable_prepared()->set_model_digest(engine_.worker.digest);
    for (const int32_t token : {1, 2, 3}) start->mutable_prepared()->add_token_ids(token);
    start->mutable_prepared()->mutable_stopping()->set_max_tokens(max_tokens);
    start->mutable_prepared()->mutable_stopping()->set_ignore_eos(regex.empty());
    if (!regex.empty()) start->mutable_constraint()->set_regex(regex);
    start->set_prompt_length(3);
    start->set_credit(credit);
    session_->OnRequest(request, absl::InfiniteDuration());
  }

  void Written() {
    transport_.writing = false;
    session_->OnWritten();
  }

  // Generates more tokens. The peer reads all of them.
  void Make(int64_t tokens) {
    engine_.model.Allow(tokens);
    const int64_t wanted = transport_.tokens + tokens;
    loop_.RunUntil([&] {
      if (transport_.writing) Written();
      return transport_.tokens == wanted;
    });
    if (transport_.writing) Written();
  }

  int Offers() const {
    int offers = 0;
    for (const worker::v1::RunResponse& response : transport_.written) {
      if (!response.migrate()) continue;
      ++offers;
      EXPECT_EQ(response.token_ids_size(), 0);
    }
    return offers;
  }

  TestEngine engine_;
  fakes::ManualClock clock_;
  ManualExecutor loop_{&clock_};
  PuppetTransport transport_;
  std::vector<std::function<void()>> background_;  // tasks that were not run yet
  std::shared_ptr<RunSession> session_ = std::make_shared<RunSession>(
      RunContext{.model = &engine_.worker,
                 .engine = engine_.engine.get(),
                 .loop = &loop_,
                 .clock = &clock_,
                 .constrain =
                     [this](const std::string&, OutputWork, std::function<void()> task) {
                       background_.push_back(std::move(task));
                     }},
      &transport_);
};

TEST_F(RunSessionTest, OffersToMoveAndContinuesUntilItIsCancelled) {
  Start(100);
  clock_.Advance(absl::Seconds(4));
  Make(4);  // one token per second
  session_->OfferMove(clock_.Monotonic() + absl::Seconds(95));
  EXPECT_EQ(Offers(), 1);
  Written();
  Make(2);
  EXPECT_EQ(Offers(), 1) << "once is enough";
  session_->Cancel();
  EXPECT_EQ(transport_.status->code(), absl::StatusCode::kCancelled);
}

TEST_F(RunSessionTest, StaysWhereTheRestComesInTime) {
  Start(100);
  clock_.Advance(absl::Seconds(4));
  Make(4);
  session_->OfferMove(clock_.Monotonic() + absl::Seconds(97));
  EXPECT_EQ(Offers(), 0);
  Make(96);
  ASSERT_TRUE(transport_.status.has_value());
  EXPECT_TRUE(transport_.status->ok());
}

TEST_F(RunSessionTest, MovesBeforeItsFirstToken) {
  session_->OfferMove(clock_.Monotonic() + absl::Hours(1));
  EXPECT_EQ(Offers(), 0);
  Start(2);
  EXPECT_EQ(Offers(), 1);
  Written();
  Make(2);
  EXPECT_TRUE(transport_.status->ok());
}

TEST_F(RunSessionTest, OffersAfterTheMessageInFlight) {
  Start(100);
  clock_.Advance(absl::Seconds(1));
  engine_.model.Allow(1);
  loop_.RunUntil([&] { return transport_.writing; });
  session_->OfferMove(clock_.Monotonic() + absl::Seconds(1));
  EXPECT_EQ(Offers(), 0);
  Written();
  EXPECT_EQ(Offers(), 1);
  Written();
}

TEST_F(RunSessionTest, GivesUpAfterTheMessageInFlight) {
  Start(100);
  engine_.model.Allow(1);
  loop_.RunUntil([&] { return transport_.writing; });
  session_->GiveUp();
  EXPECT_FALSE(transport_.status.has_value());
  Written();
  ASSERT_TRUE(transport_.status.has_value());
  EXPECT_EQ(transport_.status->code(), absl::StatusCode::kUnavailable);
}

// The loop only hands the work over. Credit that arrives before the stream is not lost.
TEST_F(RunSessionTest, CompilesInTheBackground) {
  Start(100, "abc|abd", /*credit=*/1);
  EXPECT_EQ(engine_.worker.grammars->compiled_total(), 0);
  ASSERT_EQ(background_.size(), 1);
  session_->OnRequest(Credit(5), absl::InfiniteDuration());
  session_->OnRequestsEnd();
  EXPECT_FALSE(transport_.status.has_value());
  background_[0]();
  EXPECT_EQ(engine_.worker.grammars->compiled_total(), 1);
  engine_.model.Release();
  loop_.RunUntil([&] {
    if (transport_.writing) Written();
    return transport_.status.has_value();
  });
  EXPECT_TRUE(transport_.status->ok()) << *transport_.status;
  EXPECT_EQ(transport_.tokens, 3);
}

TEST_F(RunSessionTest, OtherRunsNeedNoBackground) {
  Start(2);
  EXPECT_TRUE(background_.empty());
  Make(2);
  EXPECT_TRUE(transport_.status->ok());
}

TEST_F(RunSessionTest, ErrorsOfTheBackgroundEndTheRun) {
  Start(100, "(");
  background_[0]();
  EXPECT_FALSE(transport_.status.has_value());
  loop_.RunAll();
  ASSERT_TRUE(transport_.status.has_value());
  EXPECT_EQ(transport_.status->code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RunSessionTest, MayBeCancelledBeforeItsGrammarIsCompiled) {
  Start(100, "a+");
  session_->Cancel();
  EXPECT_EQ(transport_.status->code(), absl::StatusCode::kCancelled);
  background_[0]();
  loop_.RunAll();
  session_->Abandon();
  engine_.model.Release();  // a step may have begun before the stream was destroyed
  EXPECT_TRUE(engine_.engine->WaitIdle(absl::InfiniteDuration()));
  EXPECT_EQ(engine_.engine->Stats().requests_cancelled, 1);
}

TEST_F(RunSessionTest, AStartMayComeOnlyOnce) {
  Start(100, "a+");
  Start(100, "a+");
  ASSERT_TRUE(transport_.status.has_value());
  EXPECT_EQ(transport_.status->code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool::service

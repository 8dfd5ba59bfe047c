// A Run on a worker that drains, with a transport that the test controls.
#include "service/worker/run_session.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
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

  void Start(int64_t max_tokens) {
    worker::v1::RunRequest request;
    worker::v1::Start* start = request.mutable_start();
    start->mutable_prepared()->set_model_digest(engine_.worker.digest);
    for (const int32_t token : {1, 2, 3}) start->mutable_prepared()->add_token_ids(token);
    start->mutable_prepared()->mutable_stopping()->set_max_tokens(max_tokens);
    start->mutable_prepared()->mutable_stopping()->set_ignore_eos(true);
    start->set_prompt_length(3);
    start->set_credit(1000);
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
  std::shared_ptr<RunSession> session_ = std::make_shared<RunSession>(
      &engine_.worker, engine_.engine.get(), &loop_, &clock_, &transport_);
};

TEST_F(RunSessionTest, OffersToMoveAndGoesOnUntilItIsCancelled) {
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

TEST_F(RunSessionTest, OffersBehindTheMessageInFlight) {
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

TEST_F(RunSessionTest, GivesUpBehindTheMessageInFlight) {
  Start(100);
  engine_.model.Allow(1);
  loop_.RunUntil([&] { return transport_.writing; });
  session_->GiveUp();
  EXPECT_FALSE(transport_.status.has_value());
  Written();
  ASSERT_TRUE(transport_.status.has_value());
  EXPECT_EQ(transport_.status->code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tidepool::service

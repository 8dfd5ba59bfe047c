// Engines whose disk fails: a request that needs an unreadable expert fails with an error that
// names the expert, and other requests in the same pass get their normal results.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/puppet_model.h"
#include "tests/moe/hang_clock.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

// With many experts, and few per token, two short responses have few experts in common.
constexpr int kExperts = 64;
constexpr tools::Shape kShape = {.name = "many",
                                 .architecture = "qwen3moe",
                                 .layers = 2,
                                 .hidden = 64,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 32,
                                 .ffn_width = 64,
                                 .experts = kExperts,
                                 .experts_used = 2,
                                 .expert_width = 32,
                                 .vocabulary = 320,
                                 .context = 512,
                                 .rope_base = 1e6f,
                                 .norm_eps = 1e-6f,
                                 .qk_norm = true};
constexpr absl::Duration kPatience = absl::Seconds(30);

// An engine and the objects that it uses, declared so that each outlives its users.
struct PuppetEngine {
  PuppetEngine(PuppetModels* models, const base::Clock* clock, int64_t slots = 24)
      : model(models->Make({.slots = slots, .read_patience = kPatience, .clock = clock}, {})),
        tokenizer(fakes::MakeByteTokenizer()) {
    auto made =
        Engine::Create(model.model.get(), tokenizer.get(), &base::Clock::Real(), MakeOptions());
    CHECK_OK(made.status());
    engine = *std::move(made);
  }

  std::unique_ptr<Stream> Submit(const GenerationRequest& request) const {
    auto stream = engine->Submit(request);
    CHECK_OK(stream.status());
    return *std::move(stream);
  }
  Answer Run(const GenerationRequest& request) const { return ReadAll(Submit(request).get()); }

  PuppetModel model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
};

// The result of a request without faults, and how often it needs each expert.
struct SoundRun {
  std::vector<int32_t> tokens;
  std::vector<int64_t> uses;  // [layers, experts]
};

class EngineFaultsTest : public testing::Test {
 protected:
  EngineFaultsTest() {
    models_.Write(kShape, GgmlType::kQ8_0);
    sound_ = RunAlone(kSound);
    broken_ = RunAlone(kBroken);
    bad_ = 0;
    while (broken_.uses[bad_] == 0 || sound_.uses[bad_] > 0) ++bad_;
  }

  SoundRun RunAlone(const GenerationRequest& request) {
    PuppetEngine alone(&models_, &base::Clock::Real());
    SoundRun run;
    const Answer answer = alone.Run(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    run.tokens = answer.tokens;
    alone.engine.reset();
    run.uses = alone.model.experts()->Map().uses;
    return run;
  }

  // Runs both requests together. The broken request, which needs the bad expert, joins the pass in
  // which the other request generates its second token. To this end, the first token of the other
  // request is held back. `fail` sets how reads end.
  void RunTogether(PuppetEngine* engine, const std::function<void()>& fail) const {
    moe::PuppetReader* const puppet = engine->model.puppet;
    puppet->set_held([](const moe::RecordRead&) { return true; });
    const auto sound = engine->Submit(kSound);
    while (puppet->held() == 0) std::this_thread::yield();
    const auto broken = engine->Submit(kBroken);
    fail();
    ExpectNamed(ReadAll(broken.get()));
    const Answer answer = ReadAll(sound.get());
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.tokens, sound_.tokens);
  }

  void ExpectNamed(const Answer& answer) const {
    EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
    EXPECT_TRUE(answer.tokens.empty());
    EXPECT_THAT(std::string(answer.status.message()),
                HasSubstr(absl::StrCat("model.gguf.tidepack: layer ", bad_ / kExperts, ", expert ",
                                       bad_ % kExperts, " ", what_)));
  }

  const GenerationRequest kSound = MakeRequest({7, 30}, 40);
  const GenerationRequest kBroken = MakeRequest({90, 12, 55, 201, 8}, 1);
  PuppetModels models_{testing::TempDir() + "/engine_faults_test"};
  SoundRun sound_, broken_;
  int64_t bad_;       // an expert that only the second request needs
  std::string what_;  // part of the error message
};

TEST_F(EngineFaultsTest, DiskErrorsFailTheRequestsThatNeedTheExpert) {
  what_ = "cannot be read: Input/output error";
  PuppetEngine engine(&models_, &base::Clock::Real());
  moe::PuppetReader* const puppet = engine.model.puppet;
  RunTogether(&engine, [&] {
    puppet->set_fate([bad = bad_](const moe::RecordRead& read) {
      return read.ticket == bad ? absl::UnavailableError("cannot be read: Input/output error")
                                : absl::OkStatus();
    });
    puppet->set_held(nullptr);
  });
  ExpectNamed(engine.Run(kBroken));
  EXPECT_EQ(engine.engine->Stats().requests_failed, 2);
  EXPECT_GE(engine.engine->Stats().offload->failed_reads, 2);
  puppet->set_fate(nullptr);
  EXPECT_EQ(engine.Run(kBroken).tokens, broken_.tokens);
  EXPECT_EQ(engine.engine->Stats().requests_failed, 2);
}

TEST_F(EngineFaultsTest, AStuckReadFailsTheRequestsThatNeedTheExpert) {
  what_ = "has not been read for 30s; check the disk";
  moe::HangClock clock(kPatience / 20);
  PuppetEngine engine(&models_, &clock);
  moe::PuppetReader* const puppet = engine.model.puppet;
  RunTogether(&engine, [&] {
    puppet->set_held([bad = bad_](const moe::RecordRead& read) { return read.ticket == bad; });
    clock.Watch(puppet);
  });
  const absl::Duration waited = engine.engine->Stats().offload->stall_time;
  EXPECT_GE(waited, kPatience);
  // From now on a request for this expert fails at once.
  ExpectNamed(engine.Run(kBroken));
  EXPECT_LT(engine.engine->Stats().offload->stall_time, waited + kPatience);
  EXPECT_EQ(engine.engine->Stats().requests_failed, 2);
  // The read ends late, and serves later requests.
  clock.Watch(nullptr);
  puppet->set_held(nullptr);
  puppet->WaitIdle();
  EXPECT_EQ(engine.Run(kBroken).tokens, broken_.tokens);
  EXPECT_EQ(engine.Run(kSound).tokens, sound_.tokens);
  EXPECT_EQ(engine.engine->Stats().requests_failed, 2);
}

// The read is slow but ends before the timeout, so no request fails.
TEST_F(EngineFaultsTest, ALateReadFailsNoRequest) {
  PuppetEngine engine(&models_, &base::Clock::Real());
  moe::PuppetReader* const puppet = engine.model.puppet;
  puppet->set_held([bad = bad_](const moe::RecordRead& read) { return read.ticket == bad; });
  const auto broken = engine.Submit(kBroken);
  while (puppet->held() == 0) std::this_thread::yield();
  puppet->WaitIdle();
  puppet->set_held(nullptr);
  EXPECT_EQ(ReadAll(broken.get()).tokens, broken_.tokens);
  EXPECT_EQ(engine.Run(kSound).tokens, sound_.tokens);
  EXPECT_EQ(engine.engine->Stats().requests_failed, 0);
}

// Models with recurrent states. The failed pass has advanced the states of its first layers.
class HybridFaultsTest : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int64_t kSlots = 6;

  HybridFaultsTest() { models_.Copy(absl::StrCat("tests/golden/families/", GetParam(), ".gguf")); }

  struct Run {
    Answer answer;
    std::vector<int64_t> uses;  // how often each expert was used
  };

  static GenerationRequest MakeLogged(std::vector<int32_t> prompt, int64_t max_tokens) {
    GenerationRequest request = MakeRequest(std::move(prompt), max_tokens);
    request.logprobs = true;
    request.top_logprobs = 3;
    return request;
  }

  Run RunAlone(const GenerationRequest& request) {
    PuppetEngine alone(&models_, &base::Clock::Real(), kSlots);
    Run run = {.answer = alone.Run(request)};
    alone.engine.reset();
    run.uses = alone.model.experts()->Map().uses;
    return run;
  }

  PuppetModels models_{absl::StrCat(testing::TempDir(), "/hybrid_faults_test_", GetParam())};
};

TEST_P(HybridFaultsTest, AFailedReadDoesNotAdvanceTheStatesOfOthers) {
  const GenerationRequest broken = MakeRequest({60, 12, 55, 1, 8, 33, 41}, 1);
  const Run broken_run = RunAlone(broken);
  int tried = 0;
  for (int32_t id = 0; id < 20; ++id) {
    const GenerationRequest sound = MakeLogged({id, 30}, 3);
    const Run sound_run = RunAlone(sound);
    // The last expert that only the broken request needs.
    auto bad = static_cast<int64_t>(sound_run.uses.size()) - 1;
    while (bad >= 0 && (broken_run.uses[bad] == 0 || sound_run.uses[bad] > 0)) --bad;
    if (bad < 0) continue;
    ++tried;
    PuppetEngine engine(&models_, &base::Clock::Real(), kSlots);
    moe::PuppetReader* const puppet = engine.model.puppet;
    puppet->set_held([](const moe::RecordRead&) { return true; });
    const auto first = engine.Submit(sound);
    while (puppet->held() == 0) std::this_thread::yield();
    const auto second = engine.Submit(broken);
    puppet->set_fate([bad](const moe::RecordRead& read) {
      return read.ticket == bad ? absl::UnavailableError("cannot be read") : absl::OkStatus();
    });
    puppet->set_held(nullptr);
    EXPECT_TRUE(absl::IsUnavailable(ReadAll(second.get()).status));
    SCOPED_TRACE(id);
    ExpectSame(ReadAll(first.get()), sound_run.answer);
  }
  EXPECT_GE(tried, 3);
}

INSTANTIATE_TEST_SUITE_P(Families, HybridFaultsTest,
                         testing::Values("qwen35moe", "qwen3next", "lfm2moe"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tidepool::engine

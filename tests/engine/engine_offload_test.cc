// An engine with offloaded experts, while operators change the settings.
#include "engine/engine_offload.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_inbox.h"
#include "engine/loading/model_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/base/retry_after.h"
#include "kernels/device.h"
#include "moe/replay/replay.h"
#include "moe/trace/trace.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/model/test_backend.h"
#include "tests/moe/tier_checks.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

// Waits for the result of a call, from any thread.
template <typename T>
class Awaited {
 public:
  Engine::Done<T> done() {
    return
        [promise = promise_](absl::StatusOr<T> result) { promise->set_value(std::move(result)); };
  }
  absl::StatusOr<T> Get() { return promise_->get_future().get(); }

 private:
  std::shared_ptr<std::promise<absl::StatusOr<T>>> promise_ =
      std::make_shared<std::promise<absl::StatusOr<T>>>();
};

absl::StatusOr<moe::OffloadSettings> SetOffload(Engine* engine, const moe::OffloadChange& change) {
  Awaited<moe::OffloadSettings> answer;
  engine->SetOffload(change, answer.done());
  return answer.Get();
}

absl::StatusOr<ExpertPlacement> GetPlacement(Engine* engine) {
  Awaited<ExpertPlacement> answer;
  engine->GetPlacement(answer.done());
  return answer.Get();
}

class EngineOffloadTest : public testing::Test {
 protected:
  struct Served {
    std::unique_ptr<ModelBundle> bundle;
    std::unique_ptr<Engine> engine;
  };

  EngineOffloadTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    CHECK_OK(tools::WriteSynthetic(*tools::FindShape("tiny-moe"), model_,
                                   {.type = GgmlType::kQ4_K, .seed = 9})
                 .status());
  }
  ~EngineOffloadTest() override { std::filesystem::remove_all(folder_); }

  // If `share` is 0, all experts are in the host's memory, without offloading. On a device, the
  // host's memory has some of the experts for which the device has no room.
  Served Serve(double share, ExpertOptions experts = {}) const {
    LoadOptions load = {.threads = 2, .experts = std::move(experts)};
    if (share > 0) {
      load.experts.memory = {.kind = ExpertMemoryKind::kShare, .share = share};
      load.device = TestDevice();
      load.make_backend = MakeLoaderBackend;
    }
    if (load.device == kernels::Device::kCuda) {
      load.experts.host_memory = {.kind = ExpertMemoryKind::kShare, .share = 0.6};
    }
    Served served;
    auto bundle = LoadModel(model_, load);
    CHECK_OK(bundle.status());
    served.bundle = *std::move(bundle);
    EngineOptions options = MakeOptions();
    options.context_length = 160;
    options.kv_memory_bytes = 8 << 20;
    options.prefill_chunk = 13;
    auto engine = Engine::Create(served.bundle->model.get(), served.bundle->tokenizer.get(),
                                 &base::Clock::Real(), options);
    CHECK_OK(engine.status());
    served.engine = *std::move(engine);
    return served;
  }

  static std::vector<GenerationRequest> Requests(int count) {
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < count; ++i) {
      std::vector<int32_t> prompt(1 + i * 17 % 50);
      for (int at = 0; at < std::ssize(prompt); ++at) prompt[at] = (at * 31 + i * 7 + 3) % 290;
      GenerationRequest request = MakeRequest(prompt, 30 + i * 13 % 40);
      request.sampling.temperature = i % 2 == 0 ? 0 : 0.9f;
      request.sampling.seed = i;
      request.logprobs = true;
      requests.push_back(request);
    }
    return requests;
  }

  const bool on_device_ = TestDevice() == kernels::Device::kCuda;
  const std::string folder_ = testing::TempDir() + "/engine_offload_test";
  const std::string model_ = folder_ + "/model.gguf";
};

moe::OffloadChange RandomChange(std::mt19937* random) {
  constexpr moe::PolicyKind kKinds[] = {moe::PolicyKind::kAdaptive, moe::PolicyKind::kTide,
                                        moe::PolicyKind::kLru, moe::PolicyKind::kStatic};
  const auto draw = [&](uint32_t below) { return (*random)() % below; };
  moe::OffloadChange change;
  if (draw(2) == 0) change.policy = kKinds[draw(4)];
  if (draw(3) == 0) change.refresh_interval = 1 + draw(6);
  // 3 layers of 16 experts; the floor is 12 records.
  if (draw(3) > 0) change.expert_memory_share = (12.5 + draw(40)) / 48;
  if (change.expert_memory_share > 1) change.expert_memory_share = 1;
  if (draw(3) == 0) change.prefetch = draw(2) == 0 ? moe::Prefetch::kOn : moe::Prefetch::kOff;
  return change;
}

void ExpectSameBits(const Answer& answer, const Answer& expected) {
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.tokens, expected.tokens);
  ASSERT_EQ(answer.logprobs.size(), expected.logprobs.size());
  for (size_t t = 0; t < answer.logprobs.size(); ++t) {
    EXPECT_EQ(answer.logprobs[t].logprob, expected.logprobs[t].logprob);
  }
}

// Changes at random times during generation do not change any bit of the output.
TEST_F(EngineOffloadTest, ChangesAtAnyMomentChangeNoBit) {
  const std::vector<GenerationRequest> requests = Requests(12);
  const Served resident = Serve(0);
  std::vector<Answer> expected;
  expected.reserve(requests.size());
  for (const GenerationRequest& request : requests) {
    expected.push_back(ReadAll(resident.engine->Submit(request)->get()));
  }
  for (int seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Served served = Serve(0.3 + 0.2 * seed);
    std::vector<std::unique_ptr<Stream>> streams;
    streams.reserve(requests.size());
    for (const GenerationRequest& request : requests) {
      streams.push_back(*served.engine->Submit(request));
    }
    std::thread reader([&] {
      for (size_t i = 0; i < streams.size(); ++i) {
        const Answer answer = ReadAll(streams[i].get());
        SCOPED_TRACE(i);
        ExpectSameBits(answer, expected[i]);
      }
    });
    // The number of changes depends on the time between steps, but there are at least a few.
    int changes = 0;
    while (changes < 20 || !served.engine->WaitIdle(absl::ZeroDuration())) {
      const moe::OffloadChange change = RandomChange(&random);
      const auto settings = SetOffload(served.engine.get(), change);
      if (settings.ok()) {
        if (change.policy.has_value()) {
          EXPECT_EQ(settings->policy, *change.policy);
        }
        const EngineStats stats = served.engine->Stats();
        EXPECT_EQ(stats.offload->slots, settings->slots);
        EXPECT_EQ(stats.offload->policy, moe::PolicyName(settings->policy));
        moe::ExpectMemoryHolds(*stats.offload);
      } else {
        EXPECT_EQ(settings.status().code(), absl::StatusCode::kFailedPrecondition);
      }
      if (random() % 3 == 0) {
        const auto placement = GetPlacement(served.engine.get());
        ASSERT_TRUE(placement.ok());
        EXPECT_EQ(placement->map.uses.size(), 48u);
        EXPECT_EQ(placement->recent_uses.size(), 48u);
      }
      if (random() % 3 == 0) {
        Awaited<moe::OffloadSettings> refreshed;
        served.engine->RefreshExperts(refreshed.done());
        EXPECT_TRUE(refreshed.Get().ok());
      }
      ++changes;
    }
    reader.join();
    EXPECT_EQ(served.engine->Stats().offload->failed_reads, 0);
  }
}

// Settings can also change while no sequence runs.
TEST_F(EngineOffloadTest, AnswersWhileIdle) {
  const Served served = Serve(0.5);
  const auto settings = SetOffload(served.engine.get(), {.expert_memory_share = 0.3});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->slots, 14 - 8);
  EXPECT_EQ(served.engine->Stats().offload->slots, 14 - 8);
  const auto placement = GetPlacement(served.engine.get());
  ASSERT_TRUE(placement.ok());
  // A device only has experts that the host's memory had, too.
  const auto resident =
      std::count(placement->map.resident.begin(), placement->map.resident.end(), true);
  EXPECT_TRUE(resident == 6 || (on_device_ && resident < 6)) << resident;
  EXPECT_EQ(placement->map.layer_numbers, (std::vector<int>{0, 1, 2}));
  const auto refused = SetOffload(served.engine.get(), {.expert_memory_bytes = 1});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
}

// The usage costs of all requests add up to the engine's totals.
TEST_F(EngineOffloadTest, SharesOfUsageAddUp) {
  const Served served = Serve(0.4);
  const moe::OffloadStats before = *served.engine->Stats().offload;
  std::vector<std::unique_ptr<Stream>> streams;
  for (const GenerationRequest& request : Requests(9)) {
    streams.push_back(*served.engine->Submit(request));
  }
  Usage sum;
  for (const auto& stream : streams) {
    const Answer answer = ReadAll(stream.get());
    ASSERT_TRUE(answer.status.ok());
    sum.expert_hits += answer.usage.expert_hits;
    sum.expert_misses += answer.usage.expert_misses;
    sum.expert_demand_bytes += answer.usage.expert_demand_bytes;
    sum.expert_stall_time += answer.usage.expert_stall_time;
    EXPECT_GT(answer.usage.expert_hits, 0);
    if (!on_device_) {
      EXPECT_GT(answer.usage.expert_demand_bytes, 0);
    }
  }
  const EngineStats stats = served.engine->Stats();
  EXPECT_GT(sum.expert_demand_bytes, 0);
  EXPECT_EQ(sum.expert_hits, stats.expert_hits);
  EXPECT_EQ(sum.expert_misses, stats.expert_misses);
  EXPECT_EQ(sum.expert_hits, stats.offload->placement.hits);
  EXPECT_EQ(sum.expert_misses, stats.offload->placement.misses());
  EXPECT_EQ(sum.expert_demand_bytes, stats.offload->demand_bytes - before.demand_bytes);
  EXPECT_EQ(sum.expert_stall_time, stats.offload->stall_time - before.stall_time);
  const auto placement = GetPlacement(served.engine.get());
  ASSERT_TRUE(placement.ok());
  int64_t uses = 0;
  for (const int64_t count : placement->map.uses) uses += count;
  EXPECT_EQ(uses, stats.offload->placement.lookups());
}

// True if the layer's tokens belong to several requests, of which some prefill and some decode.
bool IsMixed(const moe::TraceEntry& entry) {
  const auto differ = [](const auto& of_tokens) {
    return std::any_of(of_tokens.begin(), of_tokens.end(),
                       [&](const auto& one) { return one != of_tokens.front(); });
  };
  return differ(entry.requests) && differ(entry.phases);
}

// An engine's counters for many concurrent requests equal those of `replay` on the engine's trace.
// On a device, each lookup is a hit, a copy or work of the CPU.
TEST_F(EngineOffloadTest, CountsAsReplayOfItsTraceDoes) {
  const std::string profile = folder_ + "/lru.jsonl.zst";  // trace of the first run
  for (const moe::PolicyKind kind : {moe::PolicyKind::kLru, moe::PolicyKind::kTide,
                                     moe::PolicyKind::kAdaptive, moe::PolicyKind::kStatic}) {
    const std::string name(moe::PolicyName(kind));
    SCOPED_TRACE(name);
    ExpertOptions options = {.policy = {.kind = kind, .refresh_interval = 3},
                             .prefetch = moe::Prefetch::kOff,
                             .trace_path = folder_ + "/" + name + ".jsonl.zst"};
    moe::PolicyOptions policy = options.policy;
    if (kind == moe::PolicyKind::kStatic) {
      options.profile_path = profile;
      policy.profile = *moe::ReadProfile(profile, 3, 16);
    }
    Served served = Serve(0.8, options);
    std::vector<std::unique_ptr<Stream>> streams;
    for (const GenerationRequest& request : Requests(9)) {
      streams.push_back(*served.engine->Submit(request));
    }
    for (const auto& stream : streams) ASSERT_TRUE(ReadAll(stream.get()).status.ok());
    const EngineStats stats = served.engine->Stats();
    served.engine.reset();
    ASSERT_TRUE(served.bundle->model->Finish().ok());
    const auto trace = moe::ReadTrace(options.trace_path);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_TRUE(std::any_of(trace->entries.begin(), trace->entries.end(), IsMixed));
    const auto placement = moe::MakePlacement(*trace, stats.offload->slots, {name, policy});
    ASSERT_TRUE(placement.ok()) << placement.status();
    const moe::ReplayResult replayed = moe::Replay(*trace, {}, placement->get());
    if (on_device_) {
      moe::ExpectSameLookups(replayed, *stats.offload);
      // A copy to the device may keep an expert in the host's memory after its eviction.
      EXPECT_GT(stats.offload->demand_bytes, 0);
      EXPECT_LE(stats.offload->demand_bytes,
                stats.offload->host->placement.misses() * stats.offload->record_bytes);
    } else {
      EXPECT_TRUE(replayed.counters == stats.offload->placement);
      EXPECT_EQ(replayed.bytes_moved, stats.offload->demand_bytes);
    }
    EXPECT_EQ(stats.offload->placement.hits, stats.expert_hits);
    EXPECT_EQ(stats.offload->placement.misses(), stats.expert_misses);
    EXPECT_GT(stats.expert_hits, 100);
    EXPECT_GT(stats.expert_misses, 100);
  }
}

TEST(EngineInboxTest, TooManyCallsGetARetryHint) {
  EngineInbox shared(4);
  absl::Status posted;
  int taken = 0;
  while ((posted = shared.Post([](const absl::Status&) {})).ok() && taken < 1000) ++taken;
  EXPECT_EQ(taken, 64);
  EXPECT_TRUE(absl::IsResourceExhausted(posted)) << posted;
  EXPECT_EQ(base::RetryAfterOf(posted), absl::Seconds(1));
  shared.Stop();
}

// Tasks that are left when the step thread ends are called with an error, and no task is accepted
// after that.
TEST(EngineInboxTest, TasksPostedBeforeTheEndAreReturned) {
  EngineInbox shared(4);
  absl::Status told = absl::OkStatus();
  ASSERT_TRUE(shared.Post([&](const absl::Status& status) { told = status; }).ok());
  shared.Stop();
  EXPECT_TRUE(absl::IsUnavailable(shared.Post([](const absl::Status&) { FAIL(); })));
  EngineInbox::Work work;
  EXPECT_FALSE(shared.TakeWork(absl::InfiniteDuration(), &work));
  ASSERT_EQ(work.tasks.size(), 1u);
  work.tasks[0](absl::UnavailableError("the end"));
  EXPECT_EQ(told, absl::UnavailableError("the end"));
}

TEST_F(EngineOffloadTest, AnEndingEngineRespondsToPendingCalls) {
  TestEngine test;
  test.model.Hold();
  const auto stream = test.Submit(MakeRequest({1, 2, 3}, 8));
  test.model.WaitForForwards(1);
  Awaited<moe::OffloadSettings> settings;
  Awaited<ExpertPlacement> placement;
  test.engine->SetOffload({}, settings.done());
  test.engine->GetPlacement(placement.done());
  test.model.Release();
  test.engine.reset();
  // The step thread either handled them before the end, or called them with an error.
  for (const absl::Status& status : {settings.Get().status(), placement.Get().status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status) || absl::IsUnavailable(status)) << status;
  }
}

moe::OffloadStats StatsOf(int64_t hits) {
  moe::OffloadStats stats;
  stats.placement.hits = hits;
  return stats;
}

// A layer can take a minute. Until it ends, the earlier counts stay visible.
TEST(EngineWindowTest, DoesNotAgeWhileALayerRuns) {
  TestEngine test;
  test.model.SetOffloadStats(StatsOf(5));
  test.Run(MakeRequest({1, 2, 3}, 1));
  test.clock.Advance(absl::Seconds(2));
  test.model.SetOffloadStats(StatsOf(9));
  test.model.Hold();
  const auto stream = test.Submit(MakeRequest({1, 2, 3}, 1));
  test.model.WaitForForwards(2);
  test.clock.Advance(absl::Minutes(1));
  EngineStats stats = test.engine->Stats();
  EXPECT_TRUE(stats.computing);
  EXPECT_EQ(stats.offload_recent.placement.hits, 4);
  EXPECT_EQ(stats.offload_window, absl::Seconds(2));
  test.model.Release();
  ReadAll(stream.get());
  test.clock.Advance(absl::Minutes(1));
  stats = test.engine->Stats();
  EXPECT_FALSE(stats.computing);
  EXPECT_EQ(stats.offload_recent.placement.hits, 0);
}

// During the first prompt of a new server, these counts are the only information for a long time.
TEST(EngineWindowTest, ShowsTheCostOfThePassesLayersSoFar) {
  TestEngine test;
  test.model.SetOffloadStats(StatsOf(5));
  test.model.Hold();
  const auto stream = test.Submit(MakeRequest({1, 2, 3}, 1));
  test.model.WaitForForwards(1);
  for (const int64_t hits : {7, 12}) {
    test.model.SetOffloadStats(StatsOf(hits));
    test.clock.Advance(absl::Seconds(2));
    test.model.EndLayer();
    const EngineStats stats = test.engine->Stats();
    EXPECT_TRUE(stats.computing);
    EXPECT_EQ(stats.offload->placement.hits, hits);
    EXPECT_EQ(stats.expert_hits, test.model.last_expert_counts().hits);
  }
  const EngineStats stats = test.engine->Stats();
  EXPECT_EQ(stats.offload_recent.placement.hits, 12 - 5);
  EXPECT_EQ(stats.offload_window, absl::Seconds(4));
  test.model.Release();
  ReadAll(stream.get());
  // The pass's own counts are added only once.
  EXPECT_EQ(test.engine->Stats().expert_hits, test.model.last_expert_counts().hits);
}

TEST_F(EngineOffloadTest, ModelsWithoutOffloadedExpertsSaySo) {
  TestEngine dense;
  const absl::Status status = SetOffload(dense.engine.get(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--expert-memory"));
  EXPECT_EQ(GetPlacement(dense.engine.get()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const Served resident = Serve(0);
  EXPECT_EQ(SetOffload(resident.engine.get(), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// During a long step, the engine keeps a limited number of changes. Further changes are refused at
// once. Placement requests do not count, however many there are, and the latest ones get a
// response.
TEST_F(EngineOffloadTest, CallsThatWaitAreCounted) {
  TestEngine test;
  test.model.Hold();
  const auto stream = test.Submit(MakeRequest({1, 2, 3}, 1));
  test.model.WaitForForwards(1);
  std::vector<Awaited<ExpertPlacement>> placements(100);
  for (auto& answer : placements) test.engine->GetPlacement(answer.done());
  std::vector<Awaited<moe::OffloadSettings>> changes(100);
  for (auto& answer : changes) test.engine->SetOffload({}, answer.done());
  test.model.Release();
  for (size_t i = 0; i < placements.size(); ++i) {
    EXPECT_EQ(absl::IsResourceExhausted(placements[i].Get().status()), i < 100 - 64) << i;
  }
  int turned_away = 0;
  for (auto& answer : changes) turned_away += absl::IsResourceExhausted(answer.Get().status());
  EXPECT_EQ(turned_away, 100 - 63);
}

TEST(AddShareTest, PartsOfAnyCutAddUp) {
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    const PassCosts costs = {
        .hits = static_cast<int64_t>(random() % 400),
        .misses = static_cast<int64_t>(random() % 7),
        .demand_bytes = static_cast<int64_t>(random()) << (random() % 20),
        .stall_time = absl::Nanoseconds(random()),
    };
    const int64_t rows = 1 + random() % 50;
    Usage sum;
    for (int64_t row = 0; row < rows;) {
      const int64_t end = std::min<int64_t>(rows, row + 1 + random() % 9);
      Usage part;
      AddShare(costs, {row, end}, rows, &part);
      // The part gets its share of the hits, rounded to a whole number.
      EXPECT_LE(std::abs(part.expert_hits * rows - costs.hits * (end - row)), rows);
      AddShare(costs, {row, end}, rows, &sum);
      row = end;
    }
    EXPECT_EQ(sum.expert_hits, costs.hits);
    EXPECT_EQ(sum.expert_misses, costs.misses);
    EXPECT_EQ(sum.expert_demand_bytes, costs.demand_bytes);
    EXPECT_EQ(sum.expert_stall_time, costs.stall_time);
  }
}

TEST(AgeWindowTest, AnIdleEnginesWindowEmpties) {
  const auto read = [] {
    EngineStats stats;
    stats.offload.emplace();
    stats.offload->placement.hits = 100;
    stats.offload_recent.placement.hits = 40;
    stats.offload_window = absl::Seconds(9);
    return stats;
  };
  EngineStats young = read();
  AgeWindow(absl::Seconds(3), &young);
  EXPECT_EQ(young.offload_recent.placement.hits, 40);
  EXPECT_EQ(young.offload_window, absl::Seconds(12));
  EngineStats old = read();
  AgeWindow(absl::Seconds(11), &old);
  EXPECT_EQ(old.offload_recent.placement.hits, 0);
  EXPECT_EQ(old.offload_window, moe::OffloadWindow::kLength);
  EXPECT_EQ(old.offload->placement.hits, 100);
}

}  // namespace
}  // namespace tidepool::engine

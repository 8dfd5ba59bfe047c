// The sizes of the chunks into which an engine splits prompts, depending on the experts that must
// be read.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "kernels/base/clock.h"
#include "moe/offload_stats.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/puppet_model.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {
namespace {

// Large chunks save reads if experts are missing. Otherwise, they only delay other requests.
TEST(EnginePrefillTest, ChunksFollowTheResidentExperts) {
  EngineOptions options = MakeOptions();
  options.limits = {.rows = 200, .logit_rows = 32};
  options.offload_prefill_chunk = 200;
  TestEngine test(options);
  const auto passes_of_a_prompt = [&](int64_t slots) {
    moe::OffloadStats stats;
    stats.slots = slots;
    stats.experts = 48;
    test.model.SetOffloadStats(stats);
    // The new stats take effect in the second step from now.
    test.Run(MakeRequest({static_cast<int32_t>(slots)}, 1));
    const int64_t before = test.model.forwards();
    test.Run(MakeRequest(std::vector<int32_t>(200, static_cast<int32_t>(slots)), 1));
    return test.model.forwards() - before;
  };
  EXPECT_EQ(passes_of_a_prompt(48), (200 + 47) / 48);
  EXPECT_EQ(passes_of_a_prompt(47), 1);
}

constexpr int64_t kMegabyte = 1'000'000;

std::vector<int32_t> Prompt(int64_t tokens) {
  std::vector<int32_t> prompt(tokens);
  for (int64_t i = 0; i < tokens; ++i) prompt[i] = static_cast<int32_t>((i * 31 + 5) % 250);
  return prompt;
}

// An engine on a simulated machine that computes a row in a millisecond and reads a gigabyte in a
// second, both at the same time, with 48 experts of 10 MB. A pass with many rows needs all of them.
class SlowDisk {
 public:
  static constexpr int64_t kBytesPerRowTime = kMegabyte;  // bytes read while one row is computed
  static constexpr int64_t kExperts = 48;

  explicit SlowDisk(int64_t slots) : test_(Options()) {
    stats_.experts = kExperts;
    stats_.record_bytes = 10 * kMegabyte;
    SetSlots(slots);
    test_.model.SetOffloadStats(stats_);
    test_.Run(MakeRequest({2}, 1));  // the first pass with these stats
    passes_ = test_.model.forwards();
    rows_ = test_.model.rows();
    test_.model.Hold();
  }
  ~SlowDisk() { test_.model.Release(); }

  std::unique_ptr<Stream> Submit(GenerationRequest request) {
    return test_.Submit(std::move(request));
  }

  // Returns when the next pass has begun.
  void AwaitPass() { test_.model.WaitForForwards(passes_ + 1); }
  // Takes effect in the pass after the next one.
  void SetSlots(int64_t slots) { stats_.slots = slots; }
  int64_t missing_bytes() const { return (kExperts - stats_.slots) * stats_.record_bytes; }
  int64_t read_bytes() const { return stats_.demand_bytes; }

  // Lets a pass take its simulated time; returns its number of rows.
  int64_t Pass() {
    constexpr absl::Duration kRow = absl::Milliseconds(1);
    test_.model.WaitForForwards(++passes_);
    const int64_t rows = test_.model.rows() - rows_;
    rows_ += rows;
    const int64_t read = rows > 1 ? missing_bytes() : 0;
    const absl::Duration reading = read / kBytesPerRowTime * kRow;
    const absl::Duration stall = std::max(reading - rows * kRow, absl::ZeroDuration());
    stats_.demand_bytes += read;
    stats_.stall_time += stall;
    stats_.hidden_time += reading - stall;
    test_.model.SetOffloadStats(stats_);
    test_.clock.Advance(rows * kRow + stall);
    test_.model.Allow(1);
    return rows;
  }

 private:
  static EngineOptions Options() {
    EngineOptions options = MakeOptions();
    options.limits = {.rows = 1000, .logit_rows = 32};
    options.offload_prefill_chunk = 1000;
    return options;
  }

  TestEngine test_;
  moe::OffloadStats stats_;
  int64_t passes_ = 0;
  int64_t rows_ = 0;
};

// If a stream waits for its next token, a pass has few rows of a prompt: computing them takes as
// long as the pass's reads.
TEST(EnginePrefillTest, BesideAnswersRowsFollowTheMissingBytes) {
  SlowDisk disk(/*slots=*/10);
  const auto answer = disk.Submit(MakeRequest({1}, 100));
  EXPECT_EQ(disk.Pass(), 1);
  disk.AwaitPass();
  const auto prompt = disk.Submit(MakeRequest(Prompt(4000), 1));
  EXPECT_EQ(disk.Pass(), 1);
  EXPECT_EQ(disk.Pass(), 1000) << "nothing is measured yet";
  for (const int64_t slots : {10, 38, 28, 20}) {
    disk.SetSlots(slots);
    disk.Pass();
    const double as_long = static_cast<double>(disk.missing_bytes() / SlowDisk::kBytesPerRowTime);
    EXPECT_NEAR(static_cast<double>(disk.Pass() - 1), as_long, 1 + 0.03 * as_long) << slots;
  }
}

// Beside a stream, a prompt's reads take no longer than its computation, except for one pass.
// Alone, the prompt reads each missing expert once.
TEST(EnginePrefillTest, BesideAnswersAPromptReadsNoLongerThanItComputes) {
  constexpr int64_t kPrompt = 3000;
  for (const int64_t slots : {6, 24, 40}) {
    SlowDisk disk(slots);
    const auto answer = disk.Submit(MakeRequest({1}, 200));
    disk.Pass();
    const auto prompt = disk.Submit(MakeRequest(Prompt(kPrompt), 1));
    int passes = 0;
    for (int64_t rows = 0; rows < kPrompt; ++passes) rows += disk.Pass() - 1;
    EXPECT_LE(disk.read_bytes() * 100,
              (kPrompt * SlowDisk::kBytesPerRowTime + disk.missing_bytes()) * 103)
        << slots << " slots, " << passes << " passes";
    EXPECT_GE(passes, 3);
  }
  SlowDisk disk(/*slots=*/6);
  const auto prompt = disk.Submit(MakeRequest(Prompt(1000), 1));
  EXPECT_EQ(disk.Pass(), 1000);
  EXPECT_EQ(disk.read_bytes(), disk.missing_bytes());
}

constexpr tools::Shape kWide = {.name = "wide",
                                .architecture = "qwen3moe",
                                .layers = 4,
                                .hidden = 128,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_dim = 64,
                                .ffn_width = 64,
                                .experts = 64,
                                .experts_used = 8,
                                .expert_width = 64,
                                .vocabulary = 320,
                                .context = 1024,
                                .rope_base = 1e6f,
                                .norm_eps = 1e-6f,
                                .qk_norm = true};

// A pass that also decodes reads each missing expert only once.
TEST(EnginePrefillTest, AMixedPassReadsEachMissingExpertOnce) {
  constexpr int64_t kPrompt = 512, kExperts = 4 * 64, kSlots = 100;
  PuppetModels models(testing::TempDir() + "/engine_prefill_test");
  models.Write(kWide, GgmlType::kQ8_0);
  // Prefetch is off, because usage does not include prefetched bytes.
  const PuppetModel made = models.Make({.slots = kSlots, .prefetch = moe::Prefetch::kOff}, {});
  ASSERT_TRUE(made.load_residents().ok());
  const int64_t record = made.experts()->Settings().record_bytes;
  const auto tokenizer = fakes::MakeByteTokenizer();
  EngineOptions options = MakeOptions();
  options.context_length = 1024;
  options.kv_memory_bytes = 8 << 20;
  options.limits = {.rows = 600, .logit_rows = 32};
  options.offload_prefill_chunk = 600;
  auto engine = Engine::Create(made.model.get(), tokenizer.get(), &base::Clock::Real(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  // The stream's first pass waits until the prompt has arrived for its second pass. No speed is
  // measured by then, so the pass takes the whole prompt.
  made.puppet->set_held([](const moe::RecordRead&) { return true; });
  const auto answer = (*engine)->Submit(MakeRequest({1}, 100));
  ASSERT_TRUE(answer.ok()) << answer.status();
  while (made.puppet->held() == 0) std::this_thread::yield();
  const auto prompt = (*engine)->Submit(MakeRequest(Prompt(kPrompt), 1));
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  made.puppet->set_held(nullptr);
  const Answer of_prompt = ReadAll(prompt->get());
  ASSERT_TRUE(of_prompt.status.ok()) << of_prompt.status;
  // The prompt is charged for the pass, except for the stream's row.
  const int64_t missing = (kExperts - kSlots) * record;
  const int64_t read = of_prompt.usage.expert_demand_bytes * (kPrompt + 1) / kPrompt;
  EXPECT_LE(read * 100, missing * 105);
  EXPECT_GE(read * 100, missing * 80);
}

}  // namespace
}  // namespace tidepool::engine

// Engines whose experts are in a device's memory, in the host's memory, and in a file. They compute
// the bits of the CPU, and report the errors of copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/model_bundle.h"
#include "kernels/backends/make_backend.h"
#include "kernels/base/check.h"
#include "kernels/device.h"
#include "tests/engine/engine_fixture.h"
#include "tests/kernels/protected_backend.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

// The shares of the experts in the device's and in the host's memory. The minimum of both is 5 of
// 48 experts, which is 10 %.
struct Shares {
  double device = 1;
  double host = 1;
};

constexpr Shares kShares[] = {{0.1, 1},   {0.25, 1},   {0.5, 1},  {1, 1},
                              {0.1, 0.5}, {0.25, 0.5}, {0.5, 0.5}};

class EngineTiersTest : public testing::Test {
 protected:
  struct Served {
    std::unique_ptr<ModelBundle> bundle;
    std::unique_ptr<Engine> engine;
  };

  EngineTiersTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    CHECK_OK(tools::WriteSynthetic(*tools::FindShape("tiny-moe"), model_,
                                   {.type = GgmlType::kQ4_K, .seed = 9})
                 .status());
  }
  ~EngineTiersTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<ModelBundle>> LoadOnDevice(
      const Shares& shares, const kernels::ProtectedOptions& device) const {
    const auto make = [device](const kernels::BackendOptions& options)
        -> absl::StatusOr<std::unique_ptr<kernels::KernelBackend>> {
      if (options.device == kernels::Device::kCpu) return kernels::MakeBackend(options);
      return kernels::MakeProtectedBackend(device);
    };
    return LoadModel(
        model_,
        {.threads = 2,
         .device = kernels::Device::kCuda,
         .experts = {.memory = {.kind = ExpertMemoryKind::kShare, .share = shares.device},
                     .host_memory = {.kind = ExpertMemoryKind::kShare, .share = shares.host},
                     .staging = 1},
         .make_backend = make});
  }

  std::unique_ptr<ModelBundle> LoadOnCpu() const {
    auto bundle = LoadModel(model_, {.threads = 2});
    CHECK_OK(bundle.status());
    return *std::move(bundle);
  }

  static Served Serve(absl::StatusOr<std::unique_ptr<ModelBundle>> bundle) {
    CHECK_OK(bundle.status());
    Served served = {.bundle = *std::move(bundle)};
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

  static GenerationRequest MakeLogged(int i) {
    std::vector<int32_t> prompt;
    for (int at = 0; at < 1 + i * 17 % 50; ++at) prompt.push_back((at * 31 + i * 7 + 3) % 290);
    GenerationRequest request = MakeRequest(prompt, 20 + i * 13 % 20);
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.9f;
    request.sampling.seed = i;
    request.logprobs = true;
    return request;
  }

  static Answer Generate(const Served& served, const GenerationRequest& request) {
    const auto stream = served.engine->Submit(request);
    CHECK_OK(stream.status());
    return ReadAll(stream->get());
  }

  const std::string folder_ = testing::TempDir() + "/engine_tiers_test";
  const std::string model_ = folder_ + "/model.gguf";
};

std::vector<float> Logits(ModelBundle* bundle, int64_t chunk) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 80; ++i) ids.push_back((i * 37 + 11) % 290);
  std::vector<float> all;
  CHECK_OK(ComputeLogits(bundle->model.get(), ids, {.chunk_rows = chunk, .rows = LogitRows::kAll},
                         [&](int64_t, absl::Span<const float> logits) {
                           all.insert(all.end(), logits.begin(), logits.end());
                           return absl::OkStatus();
                         }));
  return all;
}

// Chunks of 80 rows have too many rows for the CPU to compute experts.
TEST_F(EngineTiersTest, AllSharesHaveTheLogitsOfTheCpu) {
  const std::vector<float> expected = Logits(LoadOnCpu().get(), 80);
  uint64_t seed = 0;
  int64_t copied = 0, computed = 0;
  for (const Shares& shares : kShares) {
    SCOPED_TRACE(absl::StrCat(shares.device, " on the device, ", shares.host, " on the host"));
    for (const int64_t chunk : {80, 9, 1}) {
      const auto bundle = LoadOnDevice(shares, {.threads = 2, .seed = ++seed});
      ASSERT_TRUE(bundle.ok()) << bundle.status();
      ASSERT_EQ(Logits(bundle->get(), chunk), expected) << chunk;  // no NaNs: equal bits
      const moe::OffloadStats stats = *(*bundle)->model->offload_stats();
      ASSERT_TRUE(stats.host.has_value());
      EXPECT_EQ(stats.placement.misses() == 0, shares.device == 1);
      copied += stats.host->copied;
      computed += stats.host->computed_on_cpu;
    }
  }
  EXPECT_GT(copied, 0);
  EXPECT_GT(computed, 0);
}

TEST_F(EngineTiersTest, AllSharesGenerateTheTokensOfTheCpu) {
  constexpr int kRequests = 5;
  std::vector<Answer> expected;
  const Served cpu = Serve(LoadOnCpu());
  for (int i = 0; i < kRequests; ++i) expected.push_back(Generate(cpu, MakeLogged(i)));
  uint64_t seed = 100;
  for (const Shares& shares : kShares) {
    SCOPED_TRACE(absl::StrCat(shares.device, " on the device, ", shares.host, " on the host"));
    const Served served = Serve(LoadOnDevice(shares, {.threads = 2, .seed = ++seed}));
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < kRequests; ++i) {
      streams.push_back(*served.engine->Submit(MakeLogged(i)));
    }
    for (int i = 0; i < kRequests; ++i) ExpectSame(ReadAll(streams[i].get()), expected[i]);
  }
}

// The first copies are those of the experts that are on the device at the start.
TEST_F(EngineTiersTest, AFailedCopyAtTheStartIsNamed) {
  const absl::Status status = LoadOnDevice({0.5, 1}, {.failing_copy = 3}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("copy 3 of the device failed"));
}

TEST_F(EngineTiersTest, AFailedCopyEndsRequestsWithItsMessage) {
  for (const kernels::CopyTicket copy : {24, 30, 60}) {
    const Served served = Serve(LoadOnDevice({0.5, 1}, {.failing_copy = copy}));
    absl::Status status;
    for (int i = 0; i < 1000 && status.ok(); ++i) status = Generate(served, MakeLogged(i)).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("copy ", copy, " of the device failed")));
    EXPECT_EQ(Generate(served, MakeLogged(1)).status.code(), absl::StatusCode::kInternal);
  }
}

TEST_F(EngineTiersTest, MemoryThatCannotBePinnedIsAnErrorWithARemedy) {
  const absl::Status status = LoadOnDevice({0.5, 1}, {.pinned_bytes = 1 << 20}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -l"));
}

TEST_F(EngineTiersTest, ADeviceWithoutRoomForTheSlotsIsAnError) {
  const absl::Status status = LoadOnDevice({1, 1}, {.memory_bytes = 3 << 20}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the memory of the device"));
}

}  // namespace
}  // namespace tidepool::engine

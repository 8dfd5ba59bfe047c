// Engines whose weights, workspace and KV are in memory that the host cannot touch. They compute
// the bits of the CPU, use the KV disk, and report the errors of a device.
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
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/engine.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "kernels/base/check.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/model/golden_data.h"
#include "tests/engine/model/test_backend.h"
#include "tests/fakes/byte_tokenizer.h"
#include "tests/kernels/protected_backend.h"

namespace tidepool::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = "tests/golden/tiny/qwen3moe_q4_1.gguf";

EngineOptions Options() {
  EngineOptions options = MakeOptions();
  options.context_length = 120;
  options.kv_memory_bytes = 4 << 20;
  return options;
}

GenerationRequest MakeLogged(int64_t prompt, int seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < prompt; ++i) ids.push_back(static_cast<int32_t>((i * i + seed) % 65));
  GenerationRequest request = MakeRequest(std::move(ids), 20);
  request.sampling.temperature = 2;
  request.sampling.seed = seed;
  request.logprobs = true;
  request.top_logprobs = 2;
  return request;
}

// A model on a backend. If loading fails, `status` has the error.
struct Device {
  explicit Device(std::unique_ptr<kernels::KernelBackend> made, const char* path = kModel)
      : backend(std::move(made)) {
    status = Load(path);
  }

  absl::Status Load(const char* path) {
    auto file = OpenCheckpoint(path);
    CHECK_OK(file.status());
    auto config = ModelConfig::Parse(*file);
    CHECK_OK(config.status());
    store = *WeightStore::Create(*std::move(file), {.threads = 1, .backend = backend.get()});
    auto loaded = TransformerModel::Create(*config, store.get(), backend.get(), {});
    if (loaded.ok()) model = *std::move(loaded);
    return loaded.status();
  }

  absl::StatusOr<std::unique_ptr<Engine>> Start(const EngineOptions& options) const {
    return Engine::Create(model.get(), tokenizer.get(), &base::Clock::Real(), options);
  }

  std::unique_ptr<kernels::KernelBackend> backend;
  std::unique_ptr<WeightStore> store;
  std::unique_ptr<TransformerModel> model;
  const std::unique_ptr<Tokenizer> tokenizer = fakes::MakeByteTokenizer();
  absl::Status status;
};

Answer Generate(Engine* engine, const GenerationRequest& request) {
  auto stream = engine->Submit(request);
  CHECK_OK(stream.status());
  return ReadAll(stream->get());
}

Answer ExpectedOf(const GenerationRequest& request, const char* path = kModel) {
  const Device cpu(MakeTestBackend({.backend = TestBackend::kCpu}), path);
  return Generate(cpu.Start(Options())->get(), request);
}

// Blocks are copied from the device to the disk, and back in another process.
TEST(EngineDeviceTest, KvOfTheDeviceSurvivesARestart) {
  EngineOptions options = Options();
  options.kv_disk_path = testing::TempDir() + "/engine_device_test.kv";
  options.kv_disk_bytes = 16 << 20;
  std::filesystem::remove(options.kv_disk_path);
  const GenerationRequest request = MakeLogged(90, 3);
  const Answer expected = ExpectedOf(request);
  for (const int64_t cached : {0, 64}) {
    const Device device(kernels::MakeProtectedBackend({}));
    const auto engine = device.Start(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const Answer answer = Generate(engine->get(), request);
    ExpectSame(answer, expected);
    EXPECT_EQ(answer.usage.cached_tokens, cached);
  }
}

// Each seed changes the times at which ops run.
TEST(EngineDeviceTest, SequencesTogetherHaveTheBitsOfTheCpu) {
  std::vector<GenerationRequest> requests;
  std::vector<Answer> expected;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(MakeLogged(40 + 15 * i, i));
    expected.push_back(ExpectedOf(requests.back()));
  }
  for (const uint64_t seed : {1, 2, 3}) {
    const Device device(kernels::MakeProtectedBackend({.threads = 2, .seed = seed}));
    const auto engine = *device.Start(Options());
    std::vector<std::unique_ptr<Stream>> streams;
    for (const GenerationRequest& request : requests) streams.push_back(*engine->Submit(request));
    for (size_t i = 0; i < streams.size(); ++i) ExpectSame(ReadAll(streams[i].get()), expected[i]);
  }
}

// The models have windows, MLA, or recurrent states. A second request finds the prefix of the first
// one.
TEST(EngineDeviceTest, FamiliesHaveTheBitsOfTheCpu) {
  for (const char* path :
       {"tests/golden/families/gemma3.gguf", "tests/golden/families/deepseek_v2.gguf",
        "tests/golden/families/qwen3next.gguf"}) {
    SCOPED_TRACE(path);
    const Device device(kernels::MakeProtectedBackend({.threads = 2}), path);
    ASSERT_TRUE(device.status.ok()) << device.status;
    const auto engine = *device.Start(Options());
    const GenerationRequest request = MakeLogged(70, 1);
    const Answer expected = ExpectedOf(request, path);
    ExpectSame(Generate(engine.get(), request), expected);
    ExpectSame(Generate(engine.get(), request), expected);
  }
}

// The first op of a forward pass fails, or one in the middle. After this, no request succeeds.
TEST(EngineDeviceTest, AFailedOpEndsRequestsWithItsMessage) {
  for (const int64_t op : {300, 500, 503}) {
    const Device device(kernels::MakeProtectedBackend({.failing_op = op}));
    ASSERT_TRUE(device.status.ok()) << device.status;
    const auto engine = *device.Start(Options());
    absl::Status status;
    for (int i = 0; i < 100 && status.ok(); ++i) {
      status = Generate(engine.get(), MakeLogged(40, i)).status;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("op ", op)));
    EXPECT_EQ(Generate(engine.get(), MakeLogged(40, 1)).status, status);
  }
}

TEST(EngineDeviceTest, NamesThePartThatDoesNotFitOnTheDevice) {
  const auto with = [](size_t bytes) {
    return Device(kernels::MakeProtectedBackend({.memory_bytes = bytes}));
  };
  const size_t weights = with(SIZE_MAX).store->weight_bytes();
  const auto expect = [](const absl::Status& status, const char* what, const char* remedy) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(what), HasSubstr("the memory of the device ("),
                      HasSubstr("bytes are free"), HasSubstr(remedy)));
  };
  expect(with(weights / 2).status, "tensor blk.", "--quantize-to");
  const Device no_kv = with(weights + (64 << 10));
  ASSERT_TRUE(no_kv.status.ok()) << no_kv.status;
  expect(no_kv.Start(Options()).status(), "the KV cache", "--kv-memory");
  const Device no_workspace = with(weights + Options().kv_memory_bytes + (64 << 10));
  ASSERT_TRUE(no_workspace.status.ok()) << no_workspace.status;
  expect(no_workspace.Start(Options()).status(), "the workspace", "--kv-memory");
}

}  // namespace
}  // namespace tidepool::engine

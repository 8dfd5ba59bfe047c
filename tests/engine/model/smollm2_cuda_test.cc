// SmolLM2-135M-Instruct Q4_1 on the emulated CUDA device: the logits have the bits of the CPU, and
// the text is that of transformers. The emulated device takes about 10 seconds for a token.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/contiguous_kv.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine {
namespace {

using kernels::Precision;

constexpr int64_t kSlots = 32;

// The model on one backend, and one sequence.
class Sequence {
 public:
  Sequence(std::unique_ptr<kernels::KernelBackend> backend, Precision precision)
      : backend_(std::move(backend)) {
    auto file = OpenCheckpoint(std::getenv("TIDEPOOL_TEST_MODEL"));
    CHECK_OK(file.status());
    const ModelConfig config = *ModelConfig::Parse(*file);
    auto store = WeightStore::Create(*std::move(file), {.threads = 2, .backend = backend_.get()});
    CHECK_OK(store.status());
    store_ = *std::move(store);
    const bool exact = precision == Precision::kExact;
    auto model =
        TransformerModel::Create(config, store_.get(), backend_.get(),
                                 {.kv_dtype = exact ? kernels::DType::kF32 : kernels::DType::kF16});
    CHECK_OK(model.status());
    model_ = *std::move(model);
    kv_ = std::make_unique<ContiguousKv>(*model_, 1, kSlots);
    workspace_ = std::make_unique<kernels::Arena>(
        model_->WorkspaceBytes({.rows = kSlots, .logit_rows = 1}), model_->memory());
  }

  // Adds the tokens and returns the logits of the last one.
  std::vector<float> Run(const std::vector<int32_t>& ids) {
    Batch batch;
    RowSpan& span = batch.spans.emplace_back();
    span.first_slot = slots_used_;
    span.slot_limit = kSlots;
    span.token_ids = ids;
    span.logit_rows = {static_cast<int32_t>(ids.size() - 1)};
    kv_->SetBlocks(0, &span);
    slots_used_ += span.rows();
    const auto step = model_->Forward(batch, kv_->view(), workspace_.get());
    CHECK_OK(step.status());
    kv_->Commit(0);
    const float* logits = step->logits.Row(0);
    return {logits, logits + step->logits.cols};
  }

 private:
  const std::unique_ptr<kernels::KernelBackend> backend_;
  std::unique_ptr<WeightStore> store_;
  std::unique_ptr<TransformerModel> model_;
  std::unique_ptr<ContiguousKv> kv_;
  std::unique_ptr<kernels::Arena> workspace_;
  int64_t slots_used_ = 0;
};

// Generates `count` tokens on both backends, and compares the logits. Returns the tokens of the
// emulated device.
std::vector<int32_t> Generate(Precision precision, const std::vector<int32_t>& prompt,
                              size_t count) {
  Sequence device(kernels::MakeCudaBackend({.precision = precision}).value(), precision);
  Sequence cpu(kernels::MakeCpuBackend({.threads = 2, .precision = precision}).value(), precision);
  std::vector<int32_t> ours;
  while (ours.size() < count) {
    const std::vector<int32_t> ids = ours.empty() ? prompt : std::vector<int32_t>{ours.back()};
    const std::vector<float> logits = device.Run(ids);
    const std::vector<float> expected = cpu.Run(ids);
    EXPECT_EQ(logits.size(), expected.size());
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), expected.size() * sizeof(float)), 0)
        << "token " << ours.size();
    const auto best = std::max_element(logits.begin(), logits.end());
    ours.push_back(static_cast<int32_t>(best - logits.begin()));
  }
  return ours;
}

// The shortest prompt of the golden text.
nlohmann::json ReadPrompt() {
  std::ifstream file("tests/golden/smollm2/golden.json");
  return nlohmann::json::parse(file)["prompts"][0];
}

TEST(SmolLm2CudaTest, ExactGreedyTextIsTheTruth) {
  constexpr size_t kTokens = 8;
  const nlohmann::json prompt = ReadPrompt();
  auto truth = prompt["greedy"]["ids"].get<std::vector<int32_t>>();
  truth.resize(kTokens);
  EXPECT_EQ(Generate(Precision::kExact, prompt["ids"].get<std::vector<int32_t>>(), kTokens), truth);
}

TEST(SmolLm2CudaTest, FastLogitsHaveTheBitsOfTheCpu) {
  Generate(Precision::kFast, ReadPrompt()["ids"].get<std::vector<int32_t>>(), 4);
}

}  // namespace
}  // namespace tidepool::engine

// Compares SmolLM2-135M-Instruct Q4_1 with transformers on the dequantised weights.
// tests/golden/README.md says how the numbers were made and defines the metrics and tolerances.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/model/golden_data.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Precision;

constexpr char kPrompts[] = "tests/golden/smollm2/";
constexpr char kText[] = "tests/golden/text800/";
constexpr int kThreads = 2;
// If the reference's two best logits are closer than this, correct implementations may choose
// differently.
constexpr double kNearTie = 0.02;

class SmolLm2Test : public testing::Test {
 protected:
  static LoadedModel LoadIn(Precision precision) {
    const bool exact = precision == Precision::kExact;
    return Load(RealModelPath(), {.precision = precision,
                                  .kv_dtype = exact ? DType::kF32 : DType::kF16,
                                  .threads = kThreads});
  }
};

TEST_F(SmolLm2Test, ExactLogitsOfSixPromptsAreTheTruth) {
  const LoadedModel loaded = LoadIn(Precision::kExact);
  int prompts = 0;
  const nlohmann::json golden = ReadJson(std::string(kPrompts) + "golden.json");
  for (const nlohmann::json& prompt : golden["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<int32_t>>();
    const auto truth = ReadNpy<float>(kPrompts + prompt["last_logits"].get<std::string>());
    ASSERT_EQ(static_cast<int64_t>(truth.values.size()), loaded.model->vocab_size());
    double error = 0;
    int rows = 0;
    const auto sink = [&](int64_t position, absl::Span<const float> row) {
      EXPECT_EQ(position + 1, static_cast<int64_t>(ids.size()));
      ++rows;
      for (size_t i = 0; i < row.size(); ++i) error += std::abs(double{row[i]} - truth.values[i]);
      return absl::OkStatus();
    };
    ASSERT_TRUE(ComputeLogits(loaded.model.get(), ids, {}, sink).ok());
    EXPECT_EQ(rows, 1);
    error /= static_cast<double>(truth.values.size());
    EXPECT_LE(error, 0.002) << prompt["name"];
    std::printf("%s, %zu tokens: mean |error| %.2e\n", prompt["name"].get<std::string>().c_str(),
                ids.size(), error);
    ++prompts;
  }
  EXPECT_EQ(prompts, 6);
}

TEST_F(SmolLm2Test, ExactGreedyTextIsTheTruthUpToTheFirstNearTie) {
  const LoadedModel loaded = LoadIn(Precision::kExact);
  const nlohmann::json golden = ReadJson(std::string(kPrompts) + "golden.json");
  for (const nlohmann::json& prompt : golden["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<int32_t>>();
    const auto truth = prompt["greedy"]["ids"].get<std::vector<int32_t>>();
    const auto margins = prompt["greedy"]["margin"].get<std::vector<double>>();
    const size_t sure = std::find_if(margins.begin(), margins.end(),
                                     [](double margin) { return margin < kNearTie; }) -
                        margins.begin();
    ASSERT_GT(sure, 16u) << prompt["name"];
    GreedyRun run(loaded.model.get(), ids.size() + sure);
    std::vector<int32_t> ours = {run.Next(ids)};
    while (ours.size() < sure) ours.push_back(run.Next({ours.back()}));
    EXPECT_EQ(ours, std::vector<int32_t>(truth.begin(), truth.begin() + sure)) << prompt["name"];
  }
}

// Threads, ISA and chunks do not change any bit with the sizes of a real model. bits_test.cc covers
// the other rules about bits. The portable kernels call a function for every exact multiply-add, so
// they get only the shortest prompt.
TEST_F(SmolLm2Test, ThreadsIsaAndChunkChangeNoBit) {
  const nlohmann::json golden = ReadJson(std::string(kPrompts) + "golden.json");
  for (const Precision precision : {Precision::kFast, Precision::kExact}) {
    const int prompt = precision == Precision::kExact ? 0 : 1;
    const auto ids = golden["prompts"][prompt]["ids"].get<std::vector<int32_t>>();
    RunOptions options = {.precision = precision, .kv_dtype = DType::kF16, .threads = 2};
    const LoadedModel best = Load(RealModelPath(), options);
    options.threads = 1;
    options.isa = kernels::Isa::kPortable;
    const LoadedModel portable = Load(RealModelPath(), options);
    // Not EXPECT_EQ, which would print millions of numbers.
    EXPECT_TRUE(AllLogits(best.model.get(), ids, 512) == AllLogits(portable.model.get(), ids, 4))
        << golden["prompts"][prompt]["name"];
  }
}

// The reference logits of one text in compact form.
struct TextTruth {
  nlohmann::json golden = ReadJson(std::string(kText) + "golden.json");
  NpyArray<int32_t> columns = ReadNpy<int32_t>(std::string(kText) + "columns.npy");
  NpyArray<float> sample[2] = {ReadNpy<float>(std::string(kText) + "sample_0.npy"),
                               ReadNpy<float>(std::string(kText) + "sample_1.npy")};
  NpyArray<int32_t> top_ids = ReadNpy<int32_t>(std::string(kText) + "top_ids.npy");
  NpyArray<float> top_values = ReadNpy<float>(std::string(kText) + "top_values.npy");
  NpyArray<double> logsumexp = ReadNpy<double>(std::string(kText) + "logsumexp.npy");

  absl::Span<const float> SampleRow(int64_t position) const {
    const int64_t first = sample[0].shape[0];
    return position < first ? sample[0].Row(position) : sample[1].Row(position - first);
  }
};

double LogSumExp(absl::Span<const float> row) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float value : row) sum += std::exp(value - most);
  return most + std::log(sum);
}

double SampleError(const TextTruth& truth, int64_t position, absl::Span<const float> row) {
  const absl::Span<const float> expected = truth.SampleRow(position);
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    sum += std::abs(double{row[truth.columns.values[i]]} - expected[i]);
  }
  return sum / static_cast<double>(expected.size());
}

// Treats all tokens except the reference's best as one.
double BucketKl(const TextTruth& truth, int64_t position, absl::Span<const float> row) {
  const double our_sum = LogSumExp(row);
  const double sum = truth.logsumexp.values[position];
  const absl::Span<const int32_t> ids = truth.top_ids.Row(position);
  double kl = 0;
  double rest = 1;
  double our_rest = 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double log_p = truth.top_values.Row(position)[i] - sum;
    const double log_q = row[ids[i]] - our_sum;
    kl += std::exp(log_p) * (log_p - log_q);
    rest -= std::exp(log_p);
    our_rest -= std::exp(log_q);
  }
  rest = std::max(rest, 1e-12);
  our_rest = std::max(our_rest, 1e-12);
  return kl + rest * (std::log(rest) - std::log(our_rest));
}

struct TextMetrics {
  double error = 0;
  double kl = 0;
};

TextMetrics Measure(const TextTruth& truth, TransformerModel* model) {
  const auto ids = truth.golden["ids"].get<std::vector<int32_t>>();
  CHECK_EQ(ids.size(), truth.logsumexp.values.size());
  TextMetrics metrics;
  size_t rows = 0;
  const auto sink = [&](int64_t position, absl::Span<const float> row) {
    metrics.error += SampleError(truth, position, row) / static_cast<double>(ids.size());
    metrics.kl += BucketKl(truth, position, row) / static_cast<double>(ids.size());
    ++rows;
    return absl::OkStatus();
  };
  CHECK_OK(ComputeLogits(model, ids, {.rows = LogitRows::kAll}, sink));
  EXPECT_EQ(rows, ids.size());
  return metrics;
}

TEST_F(SmolLm2Test, DefaultModeIsCloserThanLlamaCpp) {
  const TextTruth truth;
  const TextMetrics ours = Measure(truth, LoadIn(Precision::kFast).model.get());
  const nlohmann::json theirs = truth.golden["llamacpp"];
  std::printf("default mode: mean |error| %.5f, mean KL %.7f\n", ours.error, ours.kl);
  EXPECT_LT(ours.error, theirs["sample_mean_abs_error"].get<double>());
  EXPECT_LT(ours.kl, theirs["bucket_mean_kl"].get<double>());
}

// The error of KV in q8_0, compared with llama.cpp's (which also quantises the query).
TEST_F(SmolLm2Test, QuantisedKvIsAsCloseAsLlamaCpp) {
  const TextTruth truth;
  const LoadedModel loaded = Load(RealModelPath(), {.kv_dtype = DType::kQ8_0, .threads = kThreads});
  const TextMetrics exact = Measure(truth, loaded.model.get());
  std::printf("q8_0 KV alone: mean |error| %.5f, mean KL %.7f\n", exact.error, exact.kl);
  // With float32 arithmetic, only the KV is rounded. This error is much smaller than that of
  // rounding activations.
  EXPECT_LE(exact.error, 0.5 * truth.golden["llamacpp"]["sample_mean_abs_error"].get<double>());
  EXPECT_LE(exact.kl, 0.5 * truth.golden["llamacpp"]["bucket_mean_kl"].get<double>());

  const LoadedModel fast =
      Load(RealModelPath(),
           {.precision = Precision::kFast, .kv_dtype = DType::kQ8_0, .threads = kThreads});
  const TextMetrics ours = Measure(truth, fast.model.get());
  const nlohmann::json theirs = truth.golden["llamacpp_q8_0_kv"];
  std::printf("default mode with q8_0 KV: mean |error| %.5f, mean KL %.7f\n", ours.error, ours.kl);
  EXPECT_LE(ours.error, 1.05 * theirs["sample_mean_abs_error"].get<double>());
  EXPECT_LE(ours.kl, 1.05 * theirs["bucket_mean_kl"].get<double>());
}

// With exact arithmetic, the metrics must be almost zero. Otherwise a formula would be wrong.
TEST_F(SmolLm2Test, ExactModeIsTheTruthOnTheText) {
  const TextTruth truth;
  const TextMetrics ours = Measure(truth, LoadIn(Precision::kExact).model.get());
  std::printf("exact mode: mean |error| %.2e, mean KL %.2e\n", ours.error, ours.kl);
  EXPECT_LE(ours.error, 1e-3);
  EXPECT_LE(ours.kl, 1e-6);
}

}  // namespace
}  // namespace tidepool::engine

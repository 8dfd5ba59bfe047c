#include "moe/expert_scheduler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/counting_backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/packed_matrix.h"
#include "moe/resident_experts.h"

namespace tidepool::moe {
namespace {

using kernels::DType;
using kernels::MatrixView;
using kernels::PackedMatrix;

constexpr int kExperts = 12;
constexpr int kTopK = 4;
constexpr int kHidden = 48;
constexpr int kWidth = 40;

// Random experts, with float32 weights.
class Experts {
 public:
  explicit Experts(int layers) : random_(7), layers_(layers) {
    for (auto& layer : layers_) {
      for (int e = 0; e < kExperts; ++e) {
        layer.push_back(
            {Matrix(kWidth, kHidden), Matrix(kWidth, kHidden), Matrix(kHidden, kWidth)});
      }
    }
  }

  const std::vector<std::vector<kernels::FfnWeights>>& layers() const { return layers_; }

 private:
  PackedMatrix Matrix(int64_t rows, int64_t cols) {
    std::vector<float> values(rows * cols);
    for (float& value : values) value = 0.3f * normal_(random_);
    buffers_.emplace_back(PackedBytes(DType::kF32, rows, cols));
    Pack(DType::kF32, rows, cols, reinterpret_cast<const std::byte*>(values.data()),
         buffers_.back().data());
    return {DType::kF32, rows, cols, buffers_.back().data()};
  }

  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<std::vector<kernels::FfnWeights>> layers_;
};

// Gives out experts in an order and in groups that the test chooses. Odd experts count as fetched:
// each needs one of `memory` places until it is released.
class PuppetSource final : public ExpertSource {
 public:
  // `seed` determines the order and the groups.
  PuppetSource(const Experts* experts, int seed, int memory = kExperts)
      : memory_(memory), experts_(*experts), random_(seed) {}

  void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) override {
    CHECK(left_.empty() && lent_.empty()) << "asked before the last request was drained";
    requests.push_back({experts.begin(), experts.end()});
    layer_ = routing.layer;
    left_.assign(experts.begin(), experts.end());
    std::shuffle(left_.begin(), left_.end(), random_);
  }

  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) override {
    if (static_cast<int>(given_) == fail_after) {
      left_.clear();
      lent_.clear();
      return absl::InternalError("expert 5 of layer 0: checksum");
    }
    if (patience == Patience::kUntilOne) {
      max_lent_at_a_wait = std::max(max_lent_at_a_wait, lent_.size());
    }
    std::vector<ReadyExpert> wave;
    size_t most = 1 + random_() % 3;
    if (patience == Patience::kNone) most = random_() % 2;
    // The lowest expert that needs memory comes first, as they are read.
    std::vector<int32_t> odd;
    for (const int32_t expert : left_) {
      if (expert % 2 == 1) odd.push_back(expert);
    }
    std::sort(odd.begin(), odd.end());
    for (size_t i = left_.size(); i-- > 0 && wave.size() < most;) {
      const int32_t expert = left_[i];
      const bool leaves = expert % 2 == 1;
      if (leaves && (in_memory_ >= memory_ || expert != odd.front())) continue;
      if (leaves) {
        ++in_memory_;
        odd.erase(odd.begin());
      }
      left_.erase(left_.begin() + static_cast<int64_t>(i));
      ++given_;
      lent_[expert] = std::make_unique<kernels::FfnWeights>(experts_.layers()[layer_][expert]);
      wave.push_back({.expert = expert, .leaves = leaves, .weights = lent_[expert].get()});
      if (leaves) wave.back().found = Found::kFetched;
      i = left_.size();
    }
    return wave;
  }

  void Release(int32_t expert) override {
    CHECK_EQ(lent_.erase(expert), size_t{1}) << "expert " << expert;
    if (expert % 2 == 1) --in_memory_;
  }

  void Postpone(int32_t expert) override {
    Release(expert);
    CHECK(expert % 2 == 1) << "expert " << expert << " is not leaving";
    left_.push_back(expert);
    ++postponed;
  }

  std::vector<std::vector<int32_t>> requests;
  int fail_after = -1;  // experts given out before an error; -1: none
  int postponed = 0;
  size_t max_lent_at_a_wait = 0;

 private:
  const int memory_;
  const Experts& experts_;
  std::mt19937 random_;
  int layer_ = 0;
  size_t given_ = 0;
  int in_memory_ = 0;
  std::vector<int32_t> left_;
  std::map<int32_t, std::unique_ptr<kernels::FfnWeights>> lent_;
};

// Tokens with a routing: random distinct experts, with descending weights like a gate's.
struct Tokens {
  explicit Tokens(int64_t count, int seed = 3) : x(count * kHidden) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random);
    std::vector<int32_t> all(kExperts);
    for (int e = 0; e < kExperts; ++e) all[e] = e;
    for (int64_t t = 0; t < count; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      ids.insert(ids.end(), all.begin(), all.begin() + kTopK);
      for (int s = 0; s < kTopK; ++s) weights.push_back(1.0f / static_cast<float>(s + 2));
    }
  }

  int64_t count() const { return static_cast<int64_t>(x.size()) / kHidden; }
  Routing InLayer(int layer) const {
    return {.moe_layer = layer, .top_k = kTopK, .ids = ids.data(), .weights = weights.data()};
  }

  std::vector<float> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

class ExpertSchedulerTest : public testing::Test {
 protected:
  ExpertSchedulerTest() {
    auto backend = kernels::MakeCpuBackend({.threads = 2});
    CHECK_OK(backend.status());
    backend_ = *std::move(backend);
  }

  size_t Workspace(const Tokens& tokens) const {
    return Measured({.tokens = tokens.count(),
                     .top_k = kTopK,
                     .hidden = kHidden,
                     .expert = &experts_.layers()[0][0]},
                    memory_);
  }

  size_t Measured(const ExpertShape& shape, const SchedulerMemory& memory) const {
    const auto counting = kernels::MakeCountingBackend(backend_->precision(), backend_->threads());
    kernels::Arena arena = kernels::Arena::Counting();
    ExpertScheduler(backend_.get(), nullptr, nullptr, memory)
        .Measure(shape, counting.get(), &arena);
    EXPECT_EQ(arena.used(), 0u);
    return arena.high_water();
  }

  // Returns the layer's output plus one: the residual stream is all ones.
  absl::StatusOr<std::vector<float>> Run(const Tokens& tokens, int layer, ExpertSource* source) {
    kernels::Arena inputs(1 << 20);
    // The arena has exactly the documented size, and is full of NaNs.
    kernels::Arena arena(Workspace(tokens));
    std::memset(arena.Allocate<std::byte>(arena.capacity()), 0xff, arena.capacity());
    arena.Reset();
    const kernels::Activation x =
        backend_->Quantize({tokens.x.data(), tokens.count(), kHidden}, &inputs);
    std::vector<float> out(tokens.x.size(), 1.0f);
    ExpertScheduler scheduler(backend_.get(), source, nullptr, memory_);
    const absl::Status run = scheduler.Run(tokens.InLayer(layer), x,
                                           MatrixView(out.data(), tokens.count(), kHidden), &arena);
    lookups_ = scheduler.TakeLookups();
    EXPECT_EQ(arena.used(), 0u);
    if (!run.ok()) {
      EXPECT_EQ(out, std::vector<float>(out.size(), 1.0f));
      return run;
    }
    return out;
  }

  std::unique_ptr<kernels::KernelBackend> backend_;
  const Experts experts_{2};
  SchedulerMemory memory_;
  ExpertLookups lookups_;
};

double Silu(double x) { return x / (1 + std::exp(-x)); }

std::vector<float> Row(const PackedMatrix& matrix, int64_t row) {
  std::vector<float> values(matrix.cols);
  UnpackRow(matrix, row, absl::MakeSpan(values));
  return values;
}

double Dot(const std::vector<float>& weights, const double* x) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * x[i];
  return sum;
}

// Returns 1 + the sum over a token's experts, computed from the definition.
std::vector<double> Definition(const Tokens& tokens,
                               const std::vector<kernels::FfnWeights>& layer) {
  std::vector<double> out(tokens.x.size(), 1.0);
  for (int64_t t = 0; t < tokens.count(); ++t) {
    const std::vector<double> x(tokens.x.begin() + t * kHidden,
                                tokens.x.begin() + (t + 1) * kHidden);
    for (int64_t at = t * kTopK; at < (t + 1) * kTopK; ++at) {
      const kernels::FfnWeights& expert = layer[tokens.ids[at]];
      std::vector<double> inner(kWidth);
      for (int j = 0; j < kWidth; ++j) {
        inner[j] = Silu(Dot(Row(expert.gate, j), x.data())) * Dot(Row(expert.up, j), x.data());
      }
      for (int k = 0; k < kHidden; ++k) {
        out[t * kHidden + k] += tokens.weights[at] * Dot(Row(expert.down, k), inner.data());
      }
    }
  }
  return out;
}

TEST_F(ExpertSchedulerTest, MatchesTheReference) {
  const Tokens tokens(9);
  ResidentExperts resident(experts_.layers());
  for (int layer = 0; layer < 2; ++layer) {
    const auto out = Run(tokens, layer, &resident);
    ASSERT_TRUE(out.ok()) << out.status();
    const std::vector<double> expected = Definition(tokens, experts_.layers()[layer]);
    for (size_t i = 0; i < expected.size(); ++i) {
      // A few hundred float32 roundings of values up to 10.
      ASSERT_NEAR((*out)[i], expected[i], 1e-4) << "layer " << layer << ", element " << i;
    }
  }
}

TEST_F(ExpertSchedulerTest, ResultDoesNotDependOnArrivalOrder) {
  for (const int64_t count : {1, 2, 33}) {
    const Tokens tokens(count);
    ResidentExperts resident(experts_.layers());
    const auto expected = Run(tokens, 1, &resident);
    ASSERT_TRUE(expected.ok());
    for (int seed = 0; seed < 20; ++seed) {
      PuppetSource source(&experts_, seed);
      const auto out = Run(tokens, 1, &source);
      ASSERT_TRUE(out.ok());
      ASSERT_EQ(*out, *expected) << count << " tokens, seed " << seed;
      EXPECT_EQ(source.max_lent_at_a_wait, 0u) << "what was there waited for others";
    }
  }
}

// The workspace is too small for the outputs of all (token, expert) pairs, and the source has
// memory for two experts.
TEST_F(ExpertSchedulerTest, ResultDoesNotDependOnWorkspaceSize) {
  const Tokens tokens(150);
  ResidentExperts resident(experts_.layers());
  const auto expected = Run(tokens, 1, &resident);
  ASSERT_TRUE(expected.ok());
  int postponed = 0;
  for (const int64_t rows : {64, 100, 300, 599}) {
    memory_ = {.whole_bytes = 1, .kept_bytes = rows * kHidden * 4, .call_bytes = rows % 7 * 10000};
    for (int seed = 0; seed < 20; ++seed) {
      PuppetSource source(&experts_, seed, /*memory=*/2);
      const auto out = Run(tokens, 1, &source);
      ASSERT_TRUE(out.ok());
      ASSERT_EQ(*out, *expected) << rows << " rows, seed " << seed;
      ASSERT_EQ(lookups_.hits, 6);
      ASSERT_EQ(lookups_.misses, 6);
      postponed += source.postponed;
    }
    const auto all = Run(tokens, 1, &resident);
    ASSERT_TRUE(all.ok());
    ASSERT_EQ(*all, *expected) << rows << " rows, all resident";
  }
  EXPECT_EQ(postponed, 0);  // the next expert in order always comes first here
}

// If later experts use all of a source's memory, they are postponed to make room.
TEST_F(ExpertSchedulerTest, PostponesExpertsOutOfTurn) {
  // Experts that leave come in descending order.
  class Backwards final : public ExpertSource {
   public:
    explicit Backwards(const Experts* experts) : experts_(*experts) {}
    void Request(const LayerRouting&, absl::Span<const int32_t> experts) override {
      left_.assign(experts.begin(), experts.end());
    }
    absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience) override {
      if (left_.empty() || held_ == 2) return std::vector<ReadyExpert>();
      // After an expert was postponed, the lowest one comes next.
      const auto at = postponed > 0 ? left_.begin() : left_.end() - 1;
      const int32_t expert = *at;
      left_.erase(at);
      ++held_;
      ReadyExpert ready = {.expert = expert, .found = Found::kFetched, .leaves = true};
      ready.weights = &experts_.layers()[0][expert];
      return std::vector<ReadyExpert>{ready};
    }
    void Release(int32_t) override { --held_; }
    void Postpone(int32_t expert) override {
      --held_;
      ++postponed;
      left_.insert(std::lower_bound(left_.begin(), left_.end(), expert), expert);
    }
    int postponed = 0;

   private:
    const Experts& experts_;
    std::vector<int32_t> left_;
    int held_ = 0;
  };
  const Tokens tokens(150);
  ResidentExperts resident(experts_.layers());
  const auto expected = Run(tokens, 0, &resident);
  memory_ = {.whole_bytes = 1, .kept_bytes = 1, .call_bytes = 1};
  Backwards source(&experts_);
  const auto out = Run(tokens, 0, &source);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(*out, *expected);
  EXPECT_EQ(lookups_.misses, kExperts);
  EXPECT_GT(source.postponed, 0);
}

// Twice the tokens need twice the sums and index words, but not more outputs.
TEST_F(ExpertSchedulerTest, WorkspaceIsBounded) {
  kernels::FfnWeights expert;
  expert.gate.rows = 768;
  const ExpertShape qwen3_30b = {.tokens = 2048, .top_k = 8, .hidden = 2048, .expert = &expert};
  EXPECT_LT(Measured(qwen3_30b, {}), size_t{40} << 20);
  ExpertShape twice = qwen3_30b;
  twice.tokens *= 2;
  EXPECT_LT(Measured(twice, {}) - Measured(qwen3_30b, {}),
            static_cast<size_t>(qwen3_30b.tokens) * (2048 * 4 + 8 * 40));
}

// Between a layer whose outputs are all kept and one that is summed in order, memory shrinks. So
// fewer tokens could need more.
TEST_F(ExpertSchedulerTest, MeasureCoversFewerTokens) {
  memory_ = {.whole_bytes = 1 << 16, .kept_bytes = 1, .call_bytes = 1 << 12};
  size_t fewer = 0;
  for (int64_t count = 1; count < 300; count += 13) {
    const size_t bytes = Workspace(Tokens(count));
    EXPECT_GE(bytes, fewer) << count;
    fewer = bytes;
  }
}

TEST_F(ExpertSchedulerTest, ResultDoesNotDependOnOtherTokens) {
  const Tokens all(16);
  ResidentExperts resident(experts_.layers());
  const auto together = Run(all, 0, &resident);
  ASSERT_TRUE(together.ok());
  for (int64_t t = 0; t < all.count(); ++t) {
    Tokens one(1);
    one.x.assign(all.x.begin() + t * kHidden, all.x.begin() + (t + 1) * kHidden);
    one.ids.assign(all.ids.begin() + t * kTopK, all.ids.begin() + (t + 1) * kTopK);
    const auto alone = Run(one, 0, &resident);
    ASSERT_TRUE(alone.ok());
    ASSERT_TRUE(std::equal(alone->begin(), alone->end(), together->begin() + t * kHidden)) << t;
  }
}

// A token's experts are summed in order of id, so the order in its routing does not matter.
TEST_F(ExpertSchedulerTest, ResultDoesNotDependOnTheGatesOrder) {
  const Tokens tokens(5);
  Tokens reversed = tokens;
  for (int64_t t = 0; t < tokens.count(); ++t) {
    std::reverse(reversed.ids.begin() + t * kTopK, reversed.ids.begin() + (t + 1) * kTopK);
    std::reverse(reversed.weights.begin() + t * kTopK, reversed.weights.begin() + (t + 1) * kTopK);
  }
  ResidentExperts resident(experts_.layers());
  const auto out = Run(tokens, 0, &resident);
  const auto other = Run(reversed, 0, &resident);
  ASSERT_TRUE(out.ok() && other.ok());
  EXPECT_EQ(*out, *other);
}

TEST_F(ExpertSchedulerTest, RequestsDistinctExpertsInAscendingOrder) {
  Tokens tokens(3);
  tokens.ids = {7, 2, 11, 0,  //
                2, 5, 7,  3,  //
                0, 2, 8,  7};
  PuppetSource source(&experts_, 1);
  ASSERT_TRUE(Run(tokens, 0, &source).ok());
  EXPECT_EQ(source.requests, (std::vector<std::vector<int32_t>>{{0, 2, 3, 5, 7, 8, 11}}));
  EXPECT_EQ(lookups_.hits, 3);    // 0, 2, 8
  EXPECT_EQ(lookups_.misses, 4);  // 3, 5, 7, 11
}

TEST_F(ExpertSchedulerTest, AResidentExpertIsAlwaysAHit) {
  Tokens tokens(1);
  tokens.ids = {3, 1, 9, 4};
  ResidentExperts resident(experts_.layers());
  ASSERT_TRUE(Run(tokens, 1, &resident).ok());
  EXPECT_EQ(lookups_.hits, 4);
  EXPECT_EQ(lookups_.misses, 0);
}

TEST_F(ExpertSchedulerTest, ReturnsErrorsOfTheSourceAndRecovers) {
  const Tokens tokens(6);
  PuppetSource source(&experts_, 2);
  source.fail_after = 0;
  const auto failed = Run(tokens, 0, &source);
  EXPECT_EQ(failed.status(), absl::InternalError("expert 5 of layer 0: checksum"));
  source.fail_after = -1;
  ResidentExperts resident(experts_.layers());
  const auto expected = Run(tokens, 0, &resident);
  const auto out = Run(tokens, 0, &source);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, *expected);
}

TEST_F(ExpertSchedulerTest, RequestsNothingWithoutTokens) {
  PuppetSource source(&experts_, 1);
  const Tokens none(0);
  ASSERT_TRUE(Run(none, 0, &source).ok());
  EXPECT_TRUE(source.requests.empty());
}

TEST_F(ExpertSchedulerTest, ADryRunMeasuresTheMemoryOfARun) {
  for (const int64_t count : {1, 2, 7, 40}) {
    const Tokens tokens(count);
    kernels::Arena inputs(1 << 20);
    kernels::Arena arena(Workspace(tokens));
    const kernels::Activation x =
        backend_->Quantize({tokens.x.data(), tokens.count(), kHidden}, &inputs);
    std::vector<float> out(tokens.x.size());
    ResidentExperts resident(experts_.layers());
    ExpertScheduler scheduler(backend_.get(), &resident);
    ASSERT_TRUE(
        scheduler.Run(tokens.InLayer(0), x, MatrixView(out.data(), tokens.count(), kHidden), &arena)
            .ok());
    EXPECT_EQ(arena.high_water(), arena.capacity()) << count;
  }
}

TEST(ExpertSchedulerDeathTest, DiesOnAnExpertThatWasNotRequested) {
  class Wrong final : public ExpertSource {
   public:
    explicit Wrong(const Experts* experts) : experts_(*experts) {}
    void Request(const LayerRouting&, absl::Span<const int32_t>) override {}
    absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience) override {
      return std::vector<ReadyExpert>{{.expert = 11, .weights = &experts_.layers()[0][11]}};
    }
    void Release(int32_t) override {}
    void Postpone(int32_t) override {}

   private:
    const Experts& experts_;
  };
  const Experts experts(1);
  Wrong source(&experts);
  auto backend = kernels::MakeCpuBackend({});
  ASSERT_TRUE(backend.ok());
  Tokens tokens(1);
  tokens.ids = {0, 1, 2, 3};
  kernels::Arena arena(1 << 20);
  const kernels::Activation x = (*backend)->Quantize({tokens.x.data(), 1, kHidden}, &arena);
  std::vector<float> out(kHidden);
  ExpertScheduler scheduler(backend->get(), &source);
  EXPECT_DEATH(
      (void)scheduler.Run(tokens.InLayer(0), x, MatrixView(out.data(), 1, kHidden), &arena),
      "the source returned expert 11, which was not requested");
}

}  // namespace
}  // namespace tidepool::moe

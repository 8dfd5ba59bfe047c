// The routing of synthetic models when they run, compared with the requested one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/model_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/random_blocks.h"
#include "tools/synthetic/routing.h"
#include "tools/synthetic/shape.h"

namespace tidepool::tools {
namespace {

using ::testing::HasSubstr;

constexpr int kTokens = 640;
// At earlier tokens, the slow part is an average over too few tokens.
constexpr int kFirstCounted = 48;

using Routing = std::vector<std::vector<int64_t>>;  // [tokens][chosen]

// Returns the experts with the largest scores for each row of the residual stream. The norm weights
// are one.
Routing Route(const engine::GgufTensor& router, kernels::ConstMatrixView stream, int64_t chosen) {
  Routing routing;
  std::vector<int64_t> order(router.dims[1]);
  std::vector<double> scores(order.size());
  const auto* weights = reinterpret_cast<const float*>(router.data);
  for (int64_t row = 0; row < stream.rows; ++row) {
    for (size_t e = 0; e < scores.size(); ++e) {
      scores[e] = std::inner_product(stream.Row(row), stream.Row(row) + stream.cols,
                                     weights + e * stream.cols, 0.0);
    }
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
    routing.emplace_back(order.begin(), order.begin() + chosen);
  }
  return routing;
}

// Returns the share of all choices that goes to the layer's most popular quarter of experts. These
// have the largest router weights for the constant channel, which is the last channel.
double Skew(const Routing& routing, const engine::GgufTensor& router) {
  const int64_t experts = router.dims[1];
  const auto* weights = reinterpret_cast<const float*>(router.data);
  std::vector<int64_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  const auto liking = [&](int64_t e) { return weights[(e + 1) * router.dims[0] - 1]; };
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return liking(a) > liking(b); });
  order.resize((experts + 3) / 4);
  double liked = 0;
  double all = 0;
  for (size_t token = kFirstCounted; token < routing.size(); ++token) {
    for (const int64_t expert : routing[token]) {
      liked += std::count(order.begin(), order.end(), expert) > 0 ? 1 : 0;
      ++all;
    }
  }
  return liked / all;
}

// Returns the share of experts that `next` has in common with `now`, from token `first` on.
double Common(const Routing& now, const Routing& next, size_t first) {
  double kept = 0;
  double all = 0;
  for (size_t token = first; token < std::min(now.size(), next.size()); ++token) {
    for (const int64_t expert : next[token]) {
      kept += std::count(now[token].begin(), now[token].end(), expert);
      ++all;
    }
  }
  return kept / all;
}

double Persistence(const Routing& routing) {
  return Common(routing, Routing(routing.begin() + 1, routing.end()), kFirstCounted);
}

class SyntheticRoutingTest : public ::testing::Test {
 protected:
  ~SyntheticRoutingTest() override { std::remove(Path().c_str()); }

  std::string Path() const {
    return absl::StrCat(::testing::TempDir(), "/",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".gguf");
  }

  static Shape SmallMoe(const std::string& base, int64_t experts, int64_t chosen) {
    Shape shape = *FindShape(base);
    shape.layers = 3;
    shape.hidden = 512;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.ffn_width = shape.expert_width = 256;
    shape.experts = experts;
    shape.experts_used = chosen;
    shape.vocabulary = 4096;
    return shape;
  }

  struct Run {
    std::vector<Routing> routing;  // [layers]
    std::vector<double> skew;      // [layers]
  };

  // Runs random tokens through the model that these options produce.
  Run RunModel(const Shape& shape, SyntheticOptions options) {
    options.existing = base::ExistingFile::kReplace;
    options.threads = 2;
    const auto written = WriteSynthetic(shape, Path(), options);
    EXPECT_TRUE(written.ok()) << written.status();
    const auto file = engine::GgufFile::Open(Path());
    const auto bundle = engine::LoadModel(Path(), {.threads = 2});
    if (!file.ok() || !bundle.ok()) {
      ADD_FAILURE() << file.status() << bundle.status();
      return {};
    }
    Random random(9);
    std::vector<int32_t> ids(kTokens);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.Next() % shape.vocabulary);
    Run run = {.routing = std::vector<Routing>(shape.layers), .skew = {}};
    const auto see = [&](absl::string_view name, int64_t, kernels::ConstMatrixView rows) {
      for (int64_t layer = 0; layer < shape.layers; ++layer) {
        if (name != absl::StrCat("layer.", layer, ".attention")) continue;
        const engine::GgufTensor& router =
            *file->FindTensor(absl::StrCat("blk.", layer, ".ffn_gate_inp.weight"));
        run.routing[layer] = Route(router, rows, shape.experts_used);
        run.skew.push_back(Skew(run.routing[layer], router));
      }
      return absl::OkStatus();
    };
    const absl::Status status =
        engine::ComputeLogits((*bundle)->model.get(), ids, {.chunk_rows = kTokens, .parts = see},
                              [](int64_t, absl::Span<const float>) { return absl::OkStatus(); });
    EXPECT_TRUE(status.ok()) << status;
    return run;
  }
};

struct Case {
  std::string base;
  int64_t experts;
  int64_t chosen;
  engine::GgmlType type;
  RoutingTarget target;
};

TEST_F(SyntheticRoutingTest, TheModelRoutesAsAsked) {
  using engine::GgmlType;
  for (const Case& c : std::vector<Case>{
           {"tiny-moe", 64, 8, GgmlType::kQ4_K, {.skew = 0.5, .persistence = 0.6}},
           {"tiny-moe", 64, 8, GgmlType::kQ4_K, {.skew = 0.25, .persistence = 0.75}},
           {"tiny-moe", 64, 8, GgmlType::kQ8_0, {.skew = 0.8}},
           {"tiny-moe", 32, 4, GgmlType::kQ4_0, {.persistence = 0.4}},
           {"mixtral-8x7b", 8, 2, GgmlType::kQ4_K, {.skew = 0.4, .persistence = 0.5}},
       }) {
    const Shape shape = SmallMoe(c.base, c.experts, c.chosen);
    SCOPED_TRACE(absl::StrCat(c.base, " ", c.experts, " ", c.target.persistence.value_or(0)));
    const Run run = RunModel(shape, {.type = c.type, .routing = c.target});
    ASSERT_EQ(run.skew.size(), 3u);
    // The persistence of one layer is too small a sample. All layers together are large enough.
    double skew = 0;
    double persistence = 0;
    for (int layer = 0; layer < 3; ++layer) {
      skew += run.skew[layer] / 3;
      persistence += Persistence(run.routing[layer]) / 3;
    }
    if (c.target.skew.has_value()) {
      EXPECT_NEAR(skew, *c.target.skew, 0.05);
    }
    if (c.target.persistence.has_value()) {
      EXPECT_NEAR(persistence, *c.target.persistence, 0.04);
    }
  }
}

TEST_F(SyntheticRoutingTest, TheNextLayersRouterSeesMostButNotAllOfIt) {
  const Shape shape = SmallMoe("tiny-moe", 64, 8);
  RunModel(shape, {.routing = {.skew = 0.4, .persistence = 0.5}});
  const auto file = engine::GgufFile::Open(Path());
  const auto bundle = engine::LoadModel(Path(), {.threads = 2});
  ASSERT_TRUE(file.ok() && bundle.ok());
  const engine::GgufTensor& router = *file->FindTensor("blk.2.ffn_gate_inp.weight");
  std::vector<Routing> seen;
  const auto see = [&](absl::string_view name, int64_t, kernels::ConstMatrixView rows) {
    if (name == "layer.1.attention" || name == "layer.2.attention") {
      seen.push_back(Route(router, rows, shape.experts_used));
    }
    return absl::OkStatus();
  };
  std::vector<int32_t> ids(200);
  std::iota(ids.begin(), ids.end(), 1000);
  ASSERT_TRUE(
      engine::ComputeLogits((*bundle)->model.get(), ids, {.parts = see},
                            [](int64_t, absl::Span<const float>) { return absl::OkStatus(); })
          .ok());
  ASSERT_EQ(seen.size(), 2u);
  const double predicted = Common(seen[0], seen[1], 0);
  EXPECT_GT(predicted, 0.6);
  EXPECT_LT(predicted, 0.97);
}

TEST_F(SyntheticRoutingTest, RefusesTargetsThatNoRouterReaches) {
  const auto refuse = [&](const Shape& shape, RoutingTarget target) {
    return std::string(WriteSynthetic(shape, Path(), {.routing = target}).status().message());
  };
  const Shape moe = SmallMoe("tiny-moe", 64, 8);
  EXPECT_THAT(refuse(moe, {.skew = 0.1}), HasSubstr("--skew must be from"));
  EXPECT_THAT(refuse(SmallMoe("tiny-moe", 32, 16), {.skew = 0.9}), HasSubstr("(got 0.9)"));
  EXPECT_THAT(refuse(moe, {.skew = 0.9, .persistence = 0.2}), HasSubstr("(got 0.2)"));
  EXPECT_THAT(refuse(*FindShape("tiny"), {.skew = 0.5}), HasSubstr("need a model with experts"));
}

}  // namespace
}  // namespace tidepool::tools

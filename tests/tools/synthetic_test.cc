#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/model_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::tools {
namespace {

using engine::GgmlType;
using ::testing::HasSubstr;

class SyntheticTest : public ::testing::Test {
 protected:
  ~SyntheticTest() override { std::remove(Path().c_str()); }

  std::string Path() const {
    return absl::StrCat(::testing::TempDir(), "/",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".gguf");
  }

  // Returns the root mean square of the logits of the model at Path() for a short text.
  double LogitDeviation() const {
    const auto bundle = engine::LoadModel(Path(), {.threads = 2});
    EXPECT_TRUE(bundle.ok()) << bundle.status();
    if (!bundle.ok()) return 0;
    const auto ids = (*bundle)->tokenizer->Encode("The tide is in", engine::SpecialTokens::kAsText,
                                                  engine::AddBos::kNo);
    EXPECT_TRUE(ids.ok());
    EXPECT_LT(ids->size(), 14u);  // merges are used
    double squares = 0;
    int64_t count = 0;
    const absl::Status status =
        engine::ComputeLogits((*bundle)->model.get(), *ids, {.rows = engine::LogitRows::kAll},
                              [&](int64_t, absl::Span<const float> logits) {
                                for (const float logit : logits) squares += double{logit} * logit;
                                count += static_cast<int64_t>(logits.size());
                                return absl::OkStatus();
                              });
    EXPECT_TRUE(status.ok()) << status;
    return std::sqrt(squares / static_cast<double>(count));
  }

  // Returns the bytes of the file that these options produce.
  std::string Bytes(absl::string_view shape, SyntheticOptions options) const {
    options.existing = base::ExistingFile::kReplace;
    const auto written = WriteSynthetic(*FindShape(shape), Path(), options);
    EXPECT_TRUE(written.ok()) << written.status();
    std::stringstream text;
    text << std::ifstream(Path(), std::ios::binary).rdbuf();
    EXPECT_EQ(text.str().size(), written.value_or(0));
    return text.str();
  }
};

TEST_F(SyntheticTest, ModelsOfEveryTypeRun) {
  for (const auto& [shape, type] :
       std::vector<std::pair<absl::string_view, GgmlType>>{{"tiny", GgmlType::kQ4_K},
                                                           {"tiny", GgmlType::kF16},
                                                           {"tiny", GgmlType::kIQ4_NL},
                                                           {"tiny-hybrid", GgmlType::kQ4_K},
                                                           {"tiny-moe", GgmlType::kQ5_K},
                                                           {"tiny-moe", GgmlType::kQ8_0}}) {
    Bytes(shape, {.type = type});
    // The logits are as wide as documented: nothing exploded or vanished on the way.
    EXPECT_NEAR(LogitDeviation(), 2, 0.4) << shape;
  }
}

TEST_F(SyntheticTest, ShapesOfNewerFamiliesRun) {
  for (const absl::string_view name : {"gemma3-270m", "gpt-oss-20b"}) {
    Shape shape = *FindShape(name);
    shape.layers = 2;
    shape.hidden = 320;
    shape.heads = 8;
    shape.vocabulary = 512;
    shape.ffn_width = 256;
    if (shape.experts > 0) shape.expert_width = 256;
    const auto written = WriteSynthetic(
        shape, Path(), {.type = GgmlType::kQ4_0, .existing = base::ExistingFile::kReplace});
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_NEAR(LogitDeviation(), 2, 0.4) << name;
  }
}

TEST_F(SyntheticTest, SeedsDecideAndThreadsDoNot) {
  const std::string one = Bytes("tiny", {.type = GgmlType::kQ6_K, .seed = 5});
  EXPECT_TRUE(one == Bytes("tiny", {.type = GgmlType::kQ6_K, .seed = 5, .threads = 3}));
  EXPECT_FALSE(one == Bytes("tiny", {.type = GgmlType::kQ6_K, .seed = 6}));
}

TEST_F(SyntheticTest, LayersCanBeFewer) {
  Shape shape = *FindShape("tiny-moe");
  shape.layers = 1;
  const auto written = WriteSynthetic(shape, Path(), {.type = GgmlType::kQ8_0});
  ASSERT_TRUE(written.ok()) << written.status();
  const auto file = engine::GgufFile::Open(Path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->Int("qwen3moe.block_count"), 1);
  EXPECT_NE(file->FindTensor("blk.0.ffn_down_exps.weight"), nullptr);
  EXPECT_EQ(file->FindTensor("blk.1.ffn_down_exps.weight"), nullptr);
}

TEST_F(SyntheticTest, PublishedShapesAreAsPublished) {
  // Parameters of the published models, in millions.
  for (const auto& [name, millions] :
       std::vector<std::pair<absl::string_view, double>>{{"qwen3-0.6b", 596},
                                                         {"qwen3-4b", 4022},
                                                         {"qwen3-30b-a3b", 30532},
                                                         {"olmoe", 6919},
                                                         {"gemma3-270m", 268},
                                                         {"gpt-oss-20b", 20915},
                                                         {"mixtral-8x7b", 46703}}) {
    const Shape* shape = FindShape(name);
    ASSERT_NE(shape, nullptr) << name;
    const double ffn = shape->experts > 0
                           ? static_cast<double>(shape->experts) * (3 * shape->expert_width + 1)
                           : 3.0 * static_cast<double>(shape->ffn_width);
    const double attention =
        static_cast<double>(shape->head_dim * 2 * (shape->heads + shape->kv_heads));
    const double weights = static_cast<double>(shape->hidden) *
                           (static_cast<double>(shape->vocabulary * (shape->tied ? 1 : 2)) +
                            static_cast<double>(shape->layers) * (ffn + attention));
    EXPECT_NEAR(weights / 1e6, millions, millions * 0.002) << name;
  }
}

TEST_F(SyntheticTest, NamesTheTypeThatCannotBeWritten) {
  const auto refuse = [&](GgmlType type) {
    return std::string(
        WriteSynthetic(*FindShape("tiny"), Path(), {.type = type}).status().message());
  };
  EXPECT_THAT(refuse(GgmlType::kIQ2_S), HasSubstr("IQ2_S"));
  EXPECT_EQ(FindShape("no-such-model"), nullptr);
}

}  // namespace
}  // namespace tidepool::tools

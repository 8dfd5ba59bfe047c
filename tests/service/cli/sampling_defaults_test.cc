#include "service/cli/sampling_defaults.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

engine::GgufFile Open(engine::GgufWriter writer) {
  writer.F32Tensor("t", {1}, {0});
  auto file = engine::GgufFile::Open(engine::WriteTempFile("defaults.gguf", writer.Build()));
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

engine::GgufWriter Llama() {
  engine::GgufWriter writer;
  writer.String("general.architecture", "llama");
  return writer;
}

TEST(ReadDefaultSamplingTest, AFileWithoutKeysIsGreedy) {
  const auto params = ReadDefaultSampling(Open(Llama()), 10);
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->temperature, 0);
  EXPECT_EQ(params->top_k, 0);
  EXPECT_EQ(params->top_p, 1);
}

TEST(ReadDefaultSamplingTest, KeysAreTaken) {
  const auto params = ReadDefaultSampling(Open(Llama()
                                                   .F32("general.sampling.temp", 0.6f)
                                                   .F32("general.sampling.top_p", 0.95f)
                                                   .U32("general.sampling.top_k", 20)
                                                   .F32("general.sampling.penalty_repeat", 1.1f)
                                                   .F32("general.sampling.typical_p", 0.9f)
                                                   .F32("general.sampling.xtc_probability", 0.5f)
                                                   .F32("general.sampling.xtc_threshold", 0.2f)),
                                          10);
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_FLOAT_EQ(params->temperature, 0.6f);
  EXPECT_FLOAT_EQ(params->top_p, 0.95f);
  EXPECT_EQ(params->top_k, 20);
  EXPECT_FLOAT_EQ(params->repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(params->typical_p, 0.9f);
  EXPECT_FLOAT_EQ(params->xtc_probability, 0.5f);
  EXPECT_FLOAT_EQ(params->xtc_threshold, 0.2f);
}

TEST(ReadDefaultSamplingTest, BadValuesNameTheFile) {
  const auto params = ReadDefaultSampling(Open(Llama().F32("general.sampling.temp", -1)), 10);
  EXPECT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(params.status().message()),
              AllOf(HasSubstr("defaults.gguf"), HasSubstr("temperature")));
  EXPECT_FALSE(ReadDefaultSampling(Open(Llama().String("general.sampling.temp", "hot")), 10).ok());
}

}  // namespace
}  // namespace tidepool::service

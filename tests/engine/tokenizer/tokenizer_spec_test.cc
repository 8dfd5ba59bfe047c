#include "engine/tokenizer/tokenizer_spec.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/checkpoint/gguf.h"
#include "gtest/gtest.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

GgufWriter Writer() {
  GgufWriter writer;
  writer.String("general.architecture", "llama")
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "qwen2")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>"})
      .I32s("tokenizer.ggml.token_type", {1, 1, 1, 3})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .U32("tokenizer.ggml.bos_token_id", 3)
      .U32("tokenizer.ggml.eos_token_id", 3);
  return writer;
}

absl::StatusOr<TokenizerSpec> Read(GgufWriter writer) {
  auto file = GgufFile::Open(WriteTempFile("tokenizer_spec.gguf", writer.Build()));
  EXPECT_TRUE(file.ok()) << file.status();
  return ReadTokenizerSpec(*file);
}

TEST(TokenizerSpecTest, ReadsEveryKey) {
  GgufWriter writer = Writer();
  writer.U32("tokenizer.ggml.eot_token_id", 2)
      .U32("tokenizer.ggml.padding_token_id", 0xFFFFFFFF)
      .Bool("tokenizer.ggml.add_bos_token", true)
      .Bool("tokenizer.ggml.add_space_prefix", false)
      .String("tokenizer.chat_template", "{{ messages }}")
      .String("tokenizer.chat_template.tool_use", "{{ tools }}");
  const auto spec = Read(std::move(writer));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model, "gpt2");
  EXPECT_EQ(spec->pre, "qwen2");
  EXPECT_EQ(spec->tokens, (std::vector<std::string>{"a", "b", "ab", "<|end|>"}));
  EXPECT_EQ(spec->token_types.back(), TokenType::kControl);
  EXPECT_EQ(spec->merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(spec->bos_id, 3);
  EXPECT_EQ(spec->eot_id, 2);
  EXPECT_EQ(spec->eom_id, -1);
  EXPECT_EQ(spec->padding_id, -1) << "all ones say none";
  EXPECT_EQ(spec->add_bos, true);
  EXPECT_EQ(spec->add_eos, std::nullopt);
  EXPECT_EQ(spec->add_space_prefix, false);
  EXPECT_EQ(spec->chat_template, "{{ messages }}");
  EXPECT_EQ(spec->named_templates.at("tool_use"), "{{ tools }}");
}

TEST(TokenizerSpecTest, MissingPartsAreEmpty) {
  GgufWriter writer = Writer();
  writer.Remove("tokenizer.ggml.pre")
      .Remove("tokenizer.ggml.token_type")
      .Remove("tokenizer.ggml.merges")
      .Remove("tokenizer.ggml.bos_token_id");
  const auto spec = Read(std::move(writer));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->pre, "");
  EXPECT_TRUE(spec->token_types.empty());
  EXPECT_EQ(spec->bos_id, -1);
  EXPECT_EQ(spec->chat_template, "");
}

TEST(TokenizerSpecTest, ErrorsNameFileAndKey) {
  const auto expect = [](GgufWriter writer, absl::string_view key) {
    const auto spec = Read(std::move(writer));
    ASSERT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_TRUE(absl::StrContains(spec.status().message(), "tokenizer_spec.gguf"));
    EXPECT_TRUE(absl::StrContains(spec.status().message(), key)) << spec.status();
  };
  GgufWriter writer = Writer();
  expect(writer.Remove("tokenizer.ggml.model"), "tokenizer.ggml.model");
  writer = Writer();
  expect(writer.Remove("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens");
  writer = Writer();
  expect(writer.Remove("tokenizer.ggml.token_type").I32s("tokenizer.ggml.token_type", {1, 1, 7, 1}),
         "token type is 7");
  writer = Writer();
  expect(writer.Remove("tokenizer.ggml.token_type").I32s("tokenizer.ggml.token_type", {1, 1}),
         "one for each of the 4 tokens");
  writer = Writer();
  expect(writer.Remove("tokenizer.ggml.eos_token_id").U32("tokenizer.ggml.eos_token_id", 4),
         "tokenizer.ggml.eos_token_id: 4");
  writer = Writer();
  expect(writer.U32("tokenizer.chat_template", 1), "tokenizer.chat_template");
}

}  // namespace
}  // namespace tidepool::engine

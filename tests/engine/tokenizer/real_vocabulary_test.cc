// Tests the tokenizer of SmolLM2-135M-Instruct. The only argument is the path of the GGUF file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "engine/checkpoint/gguf.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_spec.h"
#include "gtest/gtest.h"
#include "tests/engine/tokenizer/test_vocabulary.h"

namespace tidepool::engine {
namespace {

using Ids = std::vector<int32_t>;

class RealVocabularyTest : public testing::Test {
 public:
  static absl::Status Load(const std::string& path) {
    auto file = GgufFile::Open(path);
    if (!file.ok()) return file.status();
    auto spec = ReadTokenizerSpec(*file);
    if (!spec.ok()) return spec.status();
    auto tokenizer = Tokenizer::Create(*std::move(spec));
    if (!tokenizer.ok()) return tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    return absl::OkStatus();
  }

 protected:
  static Ids Encode(absl::string_view text, SpecialTokens special) {
    auto ids = tokenizer_->Encode(text, special, AddBos::kModelDefault);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : Ids();
  }

  static inline std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(RealVocabularyTest, IdsEqualTokenizers) {
  const auto golden = ReadGolden("tokenizer_golden.json");
  const auto& lines = golden["lines"];
  ASSERT_GE(lines.size(), 200u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto line = lines[i].get<std::string>();
    EXPECT_EQ(Encode(line, SpecialTokens::kParse), golden["full_parse"][i].get<Ids>()) << line;
    EXPECT_EQ(Encode(line, SpecialTokens::kAsText), golden["full_text"][i].get<Ids>()) << line;
  }
}

TEST_F(RealVocabularyTest, ReadsTheSpecialTokensOfTheFile) {
  EXPECT_EQ(tokenizer_->vocab_size(), 49152);
  EXPECT_EQ(tokenizer_->bos_text(), "<|im_start|>");
  EXPECT_EQ(tokenizer_->eos_text(), "<|im_end|>");
  EXPECT_FALSE(tokenizer_->adds_bos());
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(tokenizer_->eos_id()));
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(*tokenizer_->FindToken("<|endoftext|>")));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(tokenizer_->bos_id()));
  EXPECT_EQ(tokenizer_->TokenBytes(*tokenizer_->FindToken("\xC4\xA0the")), " the");
}

TEST_F(RealVocabularyTest, TenMegabytes) {
  constexpr size_t kSize = 10 << 20;
  for (const std::string unit : {"a", "The quick brown fox, 42 times.\n", " ", "\xE4\xB8\xAD"}) {
    std::string text;
    while (text.size() < kSize) text += unit;
    const Ids ids = Encode(text, SpecialTokens::kParse);
    EXPECT_EQ(*tokenizer_->Decode(ids, ControlText::kSkip), text);
  }
}

TEST_F(RealVocabularyTest, ChatTemplateToIds) {
  auto chat = ChatTemplate::Parse(tokenizer_->spec().chat_template);
  ASSERT_TRUE(chat.ok()) << chat.status();
  ChatInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "Hi<|im_end|>"}}};
  const auto pieces = chat->Render(inputs);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  const auto ids = tokenizer_->EncodePieces(*pieces, AddBos::kNo);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*tokenizer_->Decode(*ids, ControlText::kKeep),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  // The user's own "<|im_end|>" is text.
  EXPECT_EQ(std::count(ids->begin(), ids->end(), tokenizer_->eos_id()), 2);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), tokenizer_->bos_id()), 3);
}

}  // namespace

// This function is outside the unnamed namespace, because main calls it.
absl::Status LoadRealVocabulary(const std::string& path) { return RealVocabularyTest::Load(path); }

}  // namespace tidepool::engine

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: real_vocabulary_test MODEL.gguf\n");
    return 2;
  }
  const absl::Status status = tidepool::engine::LoadRealVocabulary(argv[1]);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}

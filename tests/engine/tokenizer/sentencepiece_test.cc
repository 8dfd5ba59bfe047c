// Tests small SentencePiece and Gemma 4 vocabularies. golden_lines_test.cc compares whole
// vocabularies.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/tokenizer/tokenizer.h"
#include "gtest/gtest.h"

namespace tidepool::engine {
namespace {

using Ids = std::vector<int32_t>;

struct Piece {
  std::string text;
  float score = 0;
  TokenType type = TokenType::kNormal;
};

constexpr int32_t kPieces = 259;  // the first of `pieces`

// Returns a vocabulary of <unk>, <s>, </s>, the 256 bytes from id 3 on, and then `pieces`.
TokenizerSpec Spec(const std::vector<Piece>& pieces) {
  TokenizerSpec spec;
  spec.model = "llama";
  const auto add = [&spec](const Piece& piece) {
    spec.tokens.push_back(piece.text);
    spec.scores.push_back(piece.score);
    spec.token_types.push_back(piece.type);
  };
  add({"<unk>", 0, TokenType::kUnknown});
  add({"<s>", 0, TokenType::kControl});
  add({"</s>", 0, TokenType::kControl});
  for (int byte = 0; byte < 256; ++byte) {
    add({absl::StrFormat("<0x%02X>", byte), 0, TokenType::kByte});
  }
  for (const Piece& piece : pieces) add(piece);
  return spec;
}

std::vector<Piece> Letters() {
  return {{"▁", -1}, {"a", -2}, {"b", -3}, {"ab", -4}, {"▁a", -5}, {"▁ab", -6}, {"ba", -7}};
}

std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, absl::string_view text,
           SpecialTokens special = SpecialTokens::kAsText, AddBos add_bos = AddBos::kNo) {
  auto ids = tokenizer.Encode(text, special, add_bos);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids();
}

// Returns the names of tokens, to make ids readable.
std::string Names(const Tokenizer& tokenizer, const Ids& ids) {
  std::string names;
  for (const int32_t id : ids) {
    absl::StrAppend(&names, names.empty() ? "" : "|", tokenizer.TokenText(id));
  }
  return names;
}

TEST(SentencePieceTest, BestScoreFirstThenLeftmost) {
  const auto tokenizer = Make(Spec(Letters()));
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "ab")), "▁ab");
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "bab")), "▁|b|ab");
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "ba ab")), "▁|ba|▁ab");
  const auto ties = Make(Spec({{"▁", -1}, {"a", -1}, {"aa", -2}}));
  EXPECT_EQ(Names(*ties, Encode(*ties, "aaa")), "▁|aa|a");
  EXPECT_EQ(Names(*ties, Encode(*ties, std::string(41, 'a'))).substr(0, 12), "▁|aa|aa|aa");
}

TEST(SentencePieceTest, SpacePrefixAtTheStartAndAfterSpecialTokens) {
  const auto tokenizer = Make(Spec(Letters()));
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "a</s>b", SpecialTokens::kParse)), "▁a|</s>|▁|b");
  EXPECT_EQ(Encode(*tokenizer, ""), Ids());
  EXPECT_EQ(Encode(*tokenizer, "</s>", SpecialTokens::kParse), Ids{2});
  const Ids after = Encode(*tokenizer, "a</s>a", SpecialTokens::kParse, AddBos::kContinue);
  EXPECT_EQ(Names(*tokenizer, after), "a|</s>|▁a");
  TokenizerSpec spec = Spec(Letters());
  spec.add_space_prefix = false;
  const auto bare = Make(std::move(spec));
  EXPECT_EQ(Names(*bare, Encode(*bare, "a a")), "a|▁a");
}

TEST(SentencePieceTest, DecodeTakesThePrefixAway) {
  const auto tokenizer = Make(Spec(Letters()));
  const auto decode = [&tokenizer](const Ids& ids, ControlText control) {
    return *tokenizer->Decode(ids, control);
  };
  for (const char* text : {"ab", " ab", "  ", "", "b a", "a</s>b", "</s> a"}) {
    const Ids ids = Encode(*tokenizer, text, SpecialTokens::kParse, AddBos::kModelDefault);
    EXPECT_EQ(decode(ids, ControlText::kKeep), absl::StrCat("<s>", text));
  }
  const Ids ids = Encode(*tokenizer, "a a", SpecialTokens::kAsText, AddBos::kModelDefault);
  EXPECT_EQ(decode(ids, ControlText::kSkip), "a a");
  // The decoder of a stream continues earlier text.
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Feed(*tokenizer->FindToken("▁a")), " a");
}

TEST(SentencePieceTest, TextWithoutAPieceBecomesBytes) {
  const auto tokenizer = Make(Spec(Letters()));
  const std::string text = "é\xFF\n";
  EXPECT_EQ(Encode(*tokenizer, text), (Ids{kPieces, 3 + 0xC3, 3 + 0xA9, 3 + 0xFF, 3 + '\n'}));
  EXPECT_EQ(*tokenizer->DecodeBytes(Encode(*tokenizer, text), ControlText::kSkip), text);
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Feed(3 + 0xC3), "");
  EXPECT_EQ(decoder.Feed(3 + 0xA9), "é");
}

TEST(SentencePieceTest, UnknownOnceForARunWithoutByteTokens) {
  TokenizerSpec spec;
  spec.model = "llama";
  spec.tokens = {"<unk>", "<s>", "</s>", "▁", "a"};
  spec.scores = {0, 0, 0, -1, -2};
  spec.token_types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl,
                      TokenType::kNormal, TokenType::kNormal};
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(Encode(*tokenizer, "aéüa ö"), (Ids{3, 4, 0, 4, 3, 0}));
}

TEST(SentencePieceTest, UnusedPiecesComeApart) {
  std::vector<Piece> pieces = Letters();
  pieces[3].type = TokenType::kUnused;  // ab
  pieces.push_back({"abab", -8, TokenType::kUnused});
  const auto tokenizer = Make(Spec(pieces));
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "babab")), "▁|b|a|b|a|b");
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "ab")), "▁ab") << "a used piece through it";
}

TEST(SentencePieceTest, ControlTokensAreNeverMerged) {
  const auto tokenizer = Make(Spec({{"▁", -1},
                                    {"<", -1},
                                    {"s", -1},
                                    {">", -1},
                                    {"<s", -2},
                                    {"0", -1},
                                    {"x", -1},
                                    {"<0", -2},
                                    {"<0x", -2},
                                    {"<0x0", -2},
                                    {"<0x00", -2}}));
  for (const char* text : {"<s>", "<0x00>"}) {
    const Ids ids = Encode(*tokenizer, text);
    EXPECT_EQ(*tokenizer->Decode(ids, ControlText::kSkip), text);
    for (const int32_t id : ids) EXPECT_EQ(tokenizer->type(id), TokenType::kNormal) << text;
  }
}

TEST(SentencePieceTest, UserDefinedTokensOfSpaces) {
  TokenizerSpec spec = Spec({{"▁", -1},
                             {"a", -2},
                             {"  ", 0, TokenType::kUserDefined},
                             {"▁▁▁", 0, TokenType::kUserDefined}});
  spec.add_space_prefix = false;
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(Encode(*tokenizer, "a  a   a"),
            (Ids{kPieces + 1, kPieces + 2, kPieces + 1, kPieces + 3, kPieces + 1}));
  EXPECT_EQ(tokenizer->TokenBytes(kPieces + 3), "   ");
}

TEST(SentencePieceTest, UserDefinedTokensLeaveTheSpacePrefixAlone) {
  const auto tokenizer = Make(
      Spec({{"▁", 0, TokenType::kUserDefined}, {"▁▁", 0, TokenType::kUserDefined}, {"a", -1}}));
  for (const char* text : {"a", " a", "  a", " ", "  ", "a a", "   "}) {
    EXPECT_EQ(*tokenizer->Decode(Encode(*tokenizer, text), ControlText::kSkip), text);
  }
}

TEST(SentencePieceTest, ExtraSpacesGoWhereTheFileSaysSo) {
  TokenizerSpec spec = Spec(Letters());
  spec.remove_extra_spaces = true;
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "  a   a ")), "▁a|▁a");
  EXPECT_EQ(Encode(*tokenizer, "   "), Ids());
}

TEST(SentencePieceTest, OldFilesGetTheDefaultSpecialTokens) {
  TokenizerSpec spec = Spec(Letters());
  spec.token_types.clear();
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_FALSE(tokenizer->adds_eos());
  EXPECT_EQ(tokenizer->type(0), TokenType::kUnknown);
  EXPECT_EQ(tokenizer->type(3), TokenType::kByte);
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(2));
}

// A line of a megabyte has no space, and all merges of its text are equal. Encoding takes n log n
// time, and uses no recursion.
TEST(SentencePieceTest, AMegabyteWithoutASpace) {
  std::vector<Piece> pieces = {{"▁", -1}};
  std::string run = "a";
  for (int i = 0; i < 10; ++i, run += run) pieces.push_back({run, -1});
  const auto tokenizer = Make(Spec(pieces));
  const std::string text(1 << 20, 'a');
  const Ids ids = Encode(*tokenizer, text);
  EXPECT_EQ(ids.size(), 1 + (1 << 20) / 512);
  EXPECT_EQ(*tokenizer->Decode(ids, ControlText::kSkip), text);
  const auto letters = Make(Spec(Letters()));
  std::string mixed;
  while (mixed.size() < 1 << 20) mixed += "abba";
  EXPECT_EQ(*letters->Decode(Encode(*letters, mixed), ControlText::kSkip), mixed);
}

TEST(SentencePieceTest, ErrorsNameTheirPart) {
  const auto error = [](const TokenizerSpec& spec) {
    const auto made = Tokenizer::Create(spec);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  TokenizerSpec spec = Spec(Letters());
  spec.scores.clear();
  EXPECT_TRUE(absl::StrContains(error(spec), "tokenizer.ggml.scores is missing"));
  spec = Spec(Letters());
  spec.scores[300 - 40] = std::nanf("");
  EXPECT_TRUE(absl::StrContains(error(spec), "scores[260] is not a number"));
  spec = Spec(Letters());
  spec.tokens[10] = "<0xZZ>";
  EXPECT_TRUE(absl::StrContains(error(spec), "tokens[10] '<0xZZ>' is of the type byte"));
  spec = Spec(Letters());
  spec.token_types[10] = TokenType::kNormal;
  EXPECT_TRUE(absl::StrContains(error(spec), "255 of the 256 byte tokens"));
  spec = Spec(Letters());
  spec.eos_id = 266;
  EXPECT_TRUE(absl::StrContains(error(spec), "eos_token_id is 266"));
}

TEST(Gemma4Test, MergesCharactersWithinLines) {
  TokenizerSpec spec = Spec({{"▁"}, {"a"}, {"b"}, {"ab"}, {"▁ab"}, {"\n\n"}, {"b▁"}});
  spec.model = "gemma4";
  spec.merges = {"a b", "▁ ab"};
  spec.bos_id = 1;
  spec.add_bos = false;
  const auto tokenizer = Make(spec);
  EXPECT_TRUE(tokenizer->adds_bos()) << "whatever the file says";
  EXPECT_EQ(Names(*tokenizer, Encode(*tokenizer, "ab ab\n\nab\n")), "ab|▁ab|\n\n|ab|<0x0A>");
  spec.merges = {"a b", "ab"};
  const auto made = Tokenizer::Create(spec);
  EXPECT_TRUE(absl::StrContains(made.status().message(), "merges[1] 'ab'"));
}

}  // namespace
}  // namespace tidepool::engine

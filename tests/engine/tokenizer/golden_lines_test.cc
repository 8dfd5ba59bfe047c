// Encodes 11,000 lines with every kind of vocabulary, and compares the ids with those of
// sentencepiece and tokenizers. The README of tests/golden/tokenizers describes the data.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/gguf.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_spec.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine {
namespace {

using Ids = std::vector<int32_t>;

std::string Path(absl::string_view name) { return absl::StrCat("tests/golden/tokenizers/", name); }

std::string ReadAll(absl::string_view name) {
  std::ifstream file(Path(name), std::ios::binary);
  CHECK(file.good()) << "cannot read " << Path(name);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

uint32_t LittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Returns zlib's CRC-32 of the numbers as little-endian int32.
uint32_t Checksum(const Ids& ids) {
  uint32_t crc = 0xFFFFFFFF;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      crc ^= static_cast<uint32_t>(id) >> shift & 0xFF;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
  }
  return ~crc;
}

std::vector<std::string> ReadLines() {
  const std::string data = ReadAll("lines.bin");
  std::vector<std::string> lines;
  for (size_t at = 0; at < data.size();) {
    const size_t size = LittleEndian(absl::string_view(data).substr(at, 2));
    lines.push_back(data.substr(at + 2, size));
    at += 2 + size;
  }
  return lines;
}

const nlohmann::json& Golden() {
  static const auto* golden = new nlohmann::json(nlohmann::json::parse(ReadAll("golden.json")));
  return *golden;
}

// Returns the tokenizer of one set, with its vocabulary, and its pre-tokenizer if it has one.
std::unique_ptr<Tokenizer> Open(const nlohmann::json& set) {
  auto file = GgufFile::Open(Path(set["vocabulary"].get<std::string>()));
  CHECK(file.ok()) << file.status().ToString();
  auto spec = ReadTokenizerSpec(*file);
  CHECK(spec.ok()) << spec.status().ToString();
  if (!set["pre"].is_null()) spec->pre = set["pre"].get<std::string>();
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  CHECK(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

bool IsUtf8(absl::string_view line) { return base::ValidUtf8Prefix(line) == line.size(); }

// Returns how a set treats the names of special tokens.
SpecialTokens Specials(const nlohmann::json& set) {
  return set["parse"].get<bool>() ? SpecialTokens::kParse : SpecialTokens::kAsText;
}

// Returns the pre-tokenizer of a set. Null if the reference does not show its words, so that only
// ids are compared.
std::unique_ptr<PreTokenizer> Words(const nlohmann::json& set) {
  const auto& numbers = set["examples"].begin().value();
  if (std::find(numbers.begin(), numbers.end(), -1) == numbers.end()) return nullptr;
  auto rules = FindPreTokenizerRules(set["pre"].get<std::string>());
  CHECK(rules.ok()) << rules.status().ToString();
  auto words = PreTokenizer::Create(rules->passes);
  CHECK(words.ok()) << words.status().ToString();
  return std::make_unique<PreTokenizer>(*std::move(words));
}

// Returns the numbers that golden checksums cover. First come the sizes of the words and -1, unless
// `words` is null, and then the ids.
Ids Numbers(const Tokenizer& tokenizer, const PreTokenizer* words, SpecialTokens special,
            absl::string_view line) {
  Ids numbers;
  if (words != nullptr) {
    const absl::Status status = words->Split(line, [&numbers](absl::string_view word) {
      numbers.push_back(static_cast<int32_t>(word.size()));
    });
    EXPECT_TRUE(status.ok()) << status;
    numbers.push_back(-1);
  }
  const auto ids = tokenizer.Encode(line, special, AddBos::kNo);
  EXPECT_TRUE(ids.ok()) << ids.status();
  if (ids.ok()) numbers.insert(numbers.end(), ids->begin(), ids->end());
  return numbers;
}

class GoldenLinesTest : public testing::TestWithParam<std::string> {
 protected:
  const nlohmann::json& set() const { return Golden()["sets"][GetParam()]; }
};

TEST_P(GoldenLinesTest, IdsEqualTheReference) {
  const std::vector<std::string> lines = ReadLines();
  ASSERT_EQ(lines.size(), Golden()["lines"].get<size_t>());
  const std::string sums = ReadAll(absl::StrCat(GetParam(), ".crc"));
  ASSERT_EQ(sums.size(), 4 * lines.size());
  const std::unique_ptr<Tokenizer> tokenizer = Open(set());
  const std::unique_ptr<PreTokenizer> words = Words(set());
  int compared = 0;
  int broken = 0;
  int wrong = 0;
  for (size_t i = 0; i < lines.size() && wrong < 10; ++i) {
    const uint32_t expected = LittleEndian(absl::string_view(sums).substr(4 * i, 4));
    if (expected == 0 && !lines[i].empty()) continue;  // the reference has nothing to compare with
    const bool is_text = IsUtf8(lines[i]);
    ++(is_text ? compared : broken);
    const Ids numbers =
        Numbers(*tokenizer, is_text ? words.get() : nullptr, Specials(set()), lines[i]);
    if (Checksum(numbers) == expected) continue;
    ++wrong;
    ADD_FAILURE() << "line " << i << ", '" << absl::CHexEscape(lines[i])
                  << "': " << absl::StrJoin(numbers, " ");
  }
  if (wrong > 0) return;
  EXPECT_GE(compared, 10'000);
  EXPECT_GE(broken, set()["parse"].get<bool>() ? 0 : 400);
}

// Compares all ids of a few lines, so that differences can be inspected.
TEST_P(GoldenLinesTest, Examples) {
  const std::vector<std::string> lines = ReadLines();
  const std::unique_ptr<Tokenizer> tokenizer = Open(set());
  ASSERT_GE(set()["examples"].size(), 30u);
  for (const auto& [index, numbers] : set()["examples"].items()) {
    const std::string& line = lines[std::stoul(index)];
    Ids expected = numbers.get<Ids>();
    const auto ids = std::find(expected.begin(), expected.end(), -1);
    if (ids != expected.end()) expected.erase(expected.begin(), ids + 1);
    EXPECT_EQ(Numbers(*tokenizer, nullptr, Specials(set()), line), expected) << line;
  }
}

// Encodes every line and decodes it to the same bytes, at once and token by token. This also works
// with invalid UTF-8.
TEST_P(GoldenLinesTest, BytesComeBack) {
  const std::unique_ptr<Tokenizer> tokenizer = Open(set());
  if (!set()["lossless"].get<bool>()) GTEST_SKIP() << "a vocabulary without byte tokens";
  const bool spaces_marked = tokenizer->spec().model != "gpt2";
  int compared = 0;
  int broken = 0;
  for (const std::string& line : ReadLines()) {
    if (spaces_marked && line.find("\u2581") != std::string::npos) continue;
    ++compared;
    broken += IsUtf8(line) ? 0 : 1;
    const auto ids = tokenizer->Encode(line, SpecialTokens::kAsText, AddBos::kModelDefault);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*tokenizer->DecodeBytes(*ids, ControlText::kSkip), line);
    StreamDecoder decoder(tokenizer.get());
    std::string streamed;
    for (const int32_t id : *ids) {
      const std::string text = decoder.Feed(id);
      ASSERT_TRUE(IsUtf8(text));
      streamed += text;
    }
    streamed += decoder.Flush();
    const auto whole = tokenizer->Decode(*ids, ControlText::kSkip);
    ASSERT_TRUE(whole.ok());
    EXPECT_TRUE(streamed == *whole || streamed == absl::StrCat(" ", *whole)) << line;
  }
  EXPECT_GT(compared, 9000);
  EXPECT_GT(broken, 300);
}

// Every pre-tokenizer name is tested in a set, or has the same rules as such a name.
TEST(PreTokenizerNamesTest, AliasesHaveTheRulesOfTheirSet) {
  std::set<std::string> named;
  for (const auto& [name, set] : Golden()["sets"].items()) {
    if (!set["pre"].is_null()) named.insert(name);
  }
  for (const auto& [pre, aliases] : Golden()["aliases"].items()) {
    const auto expected = FindPreTokenizerRules(pre);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const auto& alias : aliases) {
      const auto rules = FindPreTokenizerRules(alias.get<std::string>());
      ASSERT_TRUE(rules.ok()) << rules.status();
      EXPECT_EQ(rules->passes, expected->passes) << alias;
      EXPECT_EQ(rules->ignore_merges, expected->ignore_merges) << alias;
      EXPECT_EQ(rules->add_bos, expected->add_bos) << alias;
      EXPECT_TRUE(named.insert(alias.get<std::string>()).second) << alias;
    }
  }
  for (const std::string& name : KnownPreTokenizers()) {
    EXPECT_EQ(named.erase(name), 1u) << name << " is compared with nothing";
  }
  EXPECT_TRUE(named.empty()) << *named.begin() << " is not known";
}

std::vector<std::string> SetNames() {
  std::vector<std::string> names;
  for (const auto& [name, set] : Golden()["sets"].items()) names.push_back(name);
  return names;
}

std::string ParamName(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) name.push_back(std::isalnum(static_cast<uint8_t>(c)) ? c : '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Sets, GoldenLinesTest, testing::ValuesIn(SetNames()), ParamName);

}  // namespace
}  // namespace tidepool::engine

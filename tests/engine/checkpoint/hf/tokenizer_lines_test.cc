// Encodes 10,000 lines with a tokenizer.json of each kind and compares the ids with those of the
// tokenizers package. make_hf_tokenizers.py writes the reference to tests/golden/hf_tokenizers.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/hf/sentencepiece.h"
#include "engine/checkpoint/hf/tokenizer_json.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

using Ids = std::vector<int32_t>;

constexpr char kFolder[] = "tests/golden/hf_tokenizers/";
constexpr char kLines[] = "tests/golden/tokenizers/";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << "cannot read " << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

uint32_t LittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Returns zlib's CRC-32 of the ids as little-endian int32.
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
  const std::string data = ReadAll(absl::StrCat(kLines, "lines.bin"));
  std::vector<std::string> lines;
  for (size_t at = 0; at < data.size();) {
    const size_t size = LittleEndian(absl::string_view(data).substr(at, 2));
    lines.push_back(data.substr(at + 2, size));
    at += 2 + size;
  }
  return lines;
}

// Writes the metadata to a GGUF file and loads the tokenizer from it. A directory's tokenizer
// becomes the same metadata.
std::unique_ptr<Tokenizer> Load(const GgufMetadata& metadata) {
  const auto file = GgufFile::Open(WriteTempFile("hf_tokenizer.gguf", GgufHeader(metadata)));
  CHECK_OK(file.status());
  auto tokenizer = LoadTokenizer(*file);
  CHECK_OK(tokenizer.status());
  return *std::move(tokenizer);
}

void Compare(const Tokenizer& tokenizer, const std::string& sums, int least) {
  const std::vector<std::string> lines = ReadLines();
  ASSERT_EQ(sums.size(), 4 * lines.size());
  int compared = 0;
  int wrong = 0;
  for (size_t i = 0; i < lines.size() && wrong < 10; ++i) {
    const uint32_t expected = LittleEndian(absl::string_view(sums).substr(4 * i, 4));
    if (expected == 0 && !lines[i].empty()) continue;
    ++compared;
    const auto ids = tokenizer.Encode(lines[i], SpecialTokens::kAsText, AddBos::kNo);
    ASSERT_TRUE(ids.ok()) << ids.status();
    if (Checksum(*ids) == expected) continue;
    ++wrong;
    ADD_FAILURE() << "line " << i << ", '" << absl::CHexEscape(lines[i])
                  << "': " << absl::StrJoin(*ids, " ");
  }
  if (wrong > 0) return;
  EXPECT_GE(compared, least);
}

class TokenizerJsonTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJsonTest, IdsEqualTheReference) {
  const std::string path = absl::StrCat(kFolder, GetParam(), ".json");
  const auto json = hf::ParseJsonObject(path, ReadAll(path));
  ASSERT_TRUE(json.ok()) << json.status();
  GgufMetadata metadata;
  const hf::Json config;
  const hf::ConfigTokens tokens;
  const absl::Status read = hf::ReadTokenizerJson(
      path, *json, {.config_path = path, .config = &config, .tokens = &tokens}, &metadata);
  ASSERT_TRUE(read.ok()) << read;
  Compare(*Load(metadata), ReadAll(absl::StrCat(kFolder, GetParam(), ".crc")), 9'900);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJsonTest,
                         testing::Values("llama3", "qwen2", "edges", "legacy", "gemma",
                                         "metaspace_first", "metaspace_split", "unigram",
                                         "unigram_nfkc"),
                         [](const auto& one) { return std::string(one.param); });

class SentencePieceModelTest : public testing::TestWithParam<const char*> {};

// These are the source models of the GGUF vocabularies in tests/golden/tokenizers.
TEST_P(SentencePieceModelTest, IdsEqualTheReference) {
  const std::string path = absl::StrCat(kLines, GetParam(), ".model");
  GgufMetadata metadata;
  const hf::Json config;
  const hf::ConfigTokens tokens;
  const absl::Status read = hf::ReadSentencePiece(
      path, ReadAll(path), {.config_path = path, .config = &config, .tokens = &tokens}, &metadata);
  ASSERT_TRUE(read.ok()) << read;
  Compare(*Load(metadata), ReadAll(absl::StrCat(kLines, GetParam(), ".crc")), 9'900);
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceModelTest,
                         testing::Values("spm_llama", "spm_gemma", "spm_phrases", "spm_unused"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tidepool::engine

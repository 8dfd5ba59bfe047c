// libFuzzer target: a vocabulary and a text, both made from the input's bytes.
//
//   tests/fuzz/run --seconds 300 tokenizer_fuzz
//
// It checks that a refused vocabulary gives a one-line error. It checks that any text has ids in
// the vocabulary, that no id is a control token, and that the ids decode to the text's bytes.
// SentencePiece's merges must equal those of a simple implementation.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"

namespace {

using tidepool::engine::AddBos;
using tidepool::engine::BytesToAlphabet;
using tidepool::engine::ControlText;
using tidepool::engine::SpecialTokens;
using tidepool::engine::StreamDecoder;
using tidepool::engine::Tokenizer;
using tidepool::engine::TokenizerSpec;
using tidepool::engine::TokenType;
using Ids = std::vector<int32_t>;

constexpr absl::string_view kMark = "\xE2\x96\x81";  // "▁", a space in these vocabularies

// The bytes of the input, one after the other. After the last one, all bytes are zero.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  // Returns up to `most` bytes. The next byte of the input is their number.
  std::string String(size_t most) {
    const size_t wanted = Byte() % (most + 1);
    const size_t size = std::min(wanted, rest_.size());
    const std::string result(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return result;
  }
  std::string Rest() const { return std::string(rest_); }

 private:
  absl::string_view rest_;
};

TokenizerSpec MakeSpec(Input* input) {
  TokenizerSpec spec;
  const uint8_t flags = input->Byte();
  constexpr const char* kModels[] = {"gpt2", "llama", "gemma4", "llama"};
  constexpr const char* kRules[] = {"gpt-2",       "llama-bpe", "qwen2", "tekken",
                                    "deepseek-v3", "smollm",    "",      "kimi-k2"};
  spec.model = kModels[flags & 3];
  const bool byte_level = spec.model == "gpt2";
  spec.pre = kRules[flags >> 2 & 7];
  if (flags & 32) spec.add_space_prefix = (flags & 64) != 0;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(byte_level ? BytesToAlphabet(std::string(1, static_cast<char>(byte)))
                                     : absl::StrFormat("<0x%02X>", byte));
    spec.token_types.push_back(byte_level ? TokenType::kNormal : TokenType::kByte);
  }
  const int pieces = input->Byte() % 64;
  for (int i = 0; i < pieces; ++i) {
    const uint8_t type = input->Byte() % 16;
    const std::string text = input->String(12);
    spec.tokens.push_back(byte_level ? BytesToAlphabet(text)
                                     : absl::StrReplaceAll(text, {{" ", kMark}}));
    spec.token_types.push_back(type >= 1 && type <= 5 ? static_cast<TokenType>(type)
                                                      : TokenType::kNormal);
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    spec.scores.push_back(id < 256 ? 0.0F : -static_cast<float>(input->Byte() % 32));
  }
  const int merges = input->Byte() % 64;
  for (int i = 0; i < merges; ++i) {
    const std::string& left =
        spec.tokens[(input->Byte() << 8 | input->Byte()) % spec.tokens.size()];
    const std::string& right =
        spec.tokens[(input->Byte() << 8 | input->Byte()) % spec.tokens.size()];
    spec.merges.push_back(absl::StrCat(left, " ", right));
  }
  spec.bos_id = static_cast<int32_t>(input->Byte()) - 2;
  return spec;
}

// A simple implementation of SentencePiece's definition: repeatedly merges the best neighbours.
Ids Reference(const Tokenizer& tokenizer, const std::string& text) {
  const std::string marked = absl::StrReplaceAll(text, {{" ", kMark}});
  std::vector<std::string> symbols;
  for (absl::string_view rest = marked; !rest.empty();) {
    const size_t size = tidepool::base::NextUtf8Char(rest).size;
    symbols.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  const auto find = [&tokenizer](const std::string& piece) {
    const auto id = tokenizer.FindToken(piece);
    const bool merges = id.has_value() &&
                        (tokenizer.type(*id) == TokenType::kNormal ||
                         tokenizer.type(*id) == TokenType::kUserDefined) &&
                        tidepool::base::ValidUtf8Prefix(piece) == piece.size();
    return merges ? *id : -1;
  };
  while (true) {
    size_t best = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const int32_t id = find(symbols[i] + symbols[i + 1]);
      if (id < 0) continue;
      const auto& scores = tokenizer.spec().scores;
      if (best == symbols.size() || scores[id] > scores[find(symbols[best] + symbols[best + 1])]) {
        best = i;
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    if (const int32_t id = find(symbol); id >= 0) {
      ids.push_back(id);
    } else {
      for (const char c : absl::StrReplaceAll(symbol, {{kMark, " "}})) {
        ids.push_back(static_cast<uint8_t>(c));
      }
    }
  }
  return ids;
}

bool HasType(const TokenizerSpec& spec, TokenType type) {
  for (const TokenType other : spec.token_types) {
    if (other == type) return true;
  }
  return false;
}

void CheckText(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, SpecialTokens::kAsText, AddBos::kNo);
  if (!ids.ok()) {
    // This is the limit on matching. No input has reached it so far.
    CHECK(false) << ids.status().ToString();
  }
  StreamDecoder decoder(&tokenizer);
  for (const int32_t id : *ids) {
    CHECK(tokenizer.IsValid(id));
    CHECK(!tokenizer.IsControl(id));
    const std::string piece = decoder.Feed(id);
    CHECK_EQ(tidepool::base::ValidUtf8Prefix(piece), piece.size());
  }
  const bool spaces_marked = tokenizer.spec().model != "gpt2";
  const std::string expected = spaces_marked ? absl::StrReplaceAll(text, {{kMark, " "}}) : text;
  CHECK_EQ(*tokenizer.DecodeBytes(*ids, ControlText::kSkip), expected);
  // The same text in two pieces of one origin, and with control tokens parsed and shown.
  const auto parsed = tokenizer.Encode(text, SpecialTokens::kParse, AddBos::kNo);
  CHECK(parsed.ok());
  const auto middle = static_cast<std::ptrdiff_t>(text.size() / 2);
  const auto pieces = tokenizer.EncodePieces(
      {{std::string(text.begin(), text.begin() + middle), tidepool::engine::TextOrigin::kTemplate},
       {std::string(text.begin() + middle, text.end()), tidepool::engine::TextOrigin::kTemplate}},
      AddBos::kNo);
  CHECK(pieces.ok());
  CHECK(*pieces == *parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  TokenizerSpec spec = MakeSpec(&input);
  const bool plain = spec.model == "llama" && !HasType(spec, TokenType::kUnused) &&
                     !HasType(spec, TokenType::kUserDefined);
  const bool prefix = spec.add_space_prefix.value_or(true);
  const auto tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) {
    CHECK(tokenizer.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  const std::string text = input.Rest();
  CheckText(**tokenizer, text);
  if (plain && !text.empty() && text.size() < 128) {
    const auto ids = (*tokenizer)->Encode(text, SpecialTokens::kAsText, AddBos::kNo);
    CHECK(*ids == Reference(**tokenizer, prefix ? " " + text : text));
  }
  return 0;
}

#include "tests/fakes/byte_tokenizer.h"

#include <string>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::fakes {
namespace {

// GPT-2's table: a byte that is a printable Latin-1 character is written as this character. The
// other bytes are written as U+0100 and the following characters.
std::string Writing(int byte) {
  const auto printable = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

std::unique_ptr<engine::Tokenizer> MakeByteTokenizer() {
  engine::TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(Writing(byte));
  spec.token_types.resize(256, engine::TokenType::kNormal);
  spec.tokens.insert(spec.tokens.end(), {"<|end_of_text|>", "<|start|>", "opera"});
  spec.token_types.insert(
      spec.token_types.end(),
      {engine::TokenType::kControl, engine::TokenType::kControl, engine::TokenType::kNormal});
  spec.eos_id = kEndToken;
  auto tokenizer = engine::Tokenizer::Create(std::move(spec));
  CHECK(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

std::vector<int32_t> ByteTokens(absl::string_view text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

}  // namespace tidepool::fakes

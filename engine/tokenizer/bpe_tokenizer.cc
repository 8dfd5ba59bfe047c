#include "engine/tokenizer/bpe_tokenizer.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// "<0x0A>" as the byte it names.
std::optional<std::string> ParseByteToken(absl::string_view text) {
  constexpr size_t kSize = 6;
  int byte = 0;
  if (text.size() != kSize || text.substr(0, 3) != "<0x" || text[kSize - 1] != '>' ||
      !absl::SimpleHexAtoi(text.substr(3, 2), &byte)) {
    return std::nullopt;
  }
  return std::string(1, static_cast<char>(byte));
}

}  // namespace

BpeTokenizer::BpeTokenizer(TokenizerSpec spec, PreTokenizerRules rules, PreTokenizer pre_tokenizer)
    : Tokenizer(std::move(spec)),
      rules_(std::move(rules)),
      pre_tokenizer_(std::move(pre_tokenizer)) {}

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(TokenizerSpec spec) {
  ASSIGN_OR_RETURN(PreTokenizerRules rules, FindPreTokenizerRules(spec.pre));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(rules.passes));
  auto tokenizer = std::unique_ptr<BpeTokenizer>(
      new BpeTokenizer(std::move(spec), std::move(rules), std::move(pre_tokenizer)));
  tokenizer->add_bos_ = tokenizer->rules_.add_bos;
  RETURN_IF_ERROR(tokenizer->Init());
  tokenizer->FillTokenBytes();
  RETURN_IF_ERROR(tokenizer->FillMerges());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

void BpeTokenizer::FillTokenBytes() {
  token_bytes_.resize(spec_.tokens.size());
  word_bytes_.resize(spec_.tokens.size());
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& text = spec_.tokens[id];
    const TokenType type = types_[id];
    std::optional<std::string> bytes;
    if (type == TokenType::kNormal || type == TokenType::kUnused) bytes = AlphabetToBytes(text);
    if (type == TokenType::kByte) bytes = ParseByteToken(text);
    token_bytes_[id] = bytes.has_value() ? *bytes : text;
    if (type == TokenType::kNormal && bytes.has_value()) word_bytes_[id] = *std::move(bytes);
  }
}

absl::Status BpeTokenizer::FillMerges() {
  merger_.emplace(word_bytes_);
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const absl::string_view merge = spec_.merges[rank];
    const auto error = [rank, merge](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.merges[", rank, "] '", merge, "' ", what));
    };
    const size_t space = merge.find(' ', 1);
    if (space == absl::string_view::npos || space + 1 == merge.size()) {
      return error("is not two strings with a space between them");
    }
    const auto left = AlphabetToBytes(merge.substr(0, space));
    const auto right = AlphabetToBytes(merge.substr(space + 1));
    if (!left.has_value() || !right.has_value()) {
      return error("has a character outside the byte alphabet");
    }
    merger_->AddMerge(*left, *right);
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::EncodeText(absl::string_view text, std::vector<int32_t>* ids) const {
  return pre_tokenizer_.Split(text, [this, ids](absl::string_view word) {
    if (rules_.ignore_merges) {
      if (const int32_t id = merger_->Find(word); id >= 0) {
        ids->push_back(id);
        return;
      }
    }
    merger_->Merge(word, ids);
  });
}

}  // namespace tidepool::engine

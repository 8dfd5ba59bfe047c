#include "engine/tokenizer/bpe_tokenizer.h"

#include <string>
#include <utility>

#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/byte_token.h"
#include "engine/tokenizer/normalize.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine {
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
  RETURN_IF_ERROR(tokenizer->FillMerges());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

void BpeTokenizer::FillTokenBytes() {
  word_bytes_.resize(spec_.tokens.size());
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& text = spec_.tokens[id];
    const TokenType type = types_[id];
    std::optional<std::string> bytes;
    if (type == TokenType::kNormal || type == TokenType::kUnused) bytes = AlphabetToBytes(text);
    if (type == TokenType::kByte) {
      const std::optional<uint8_t> byte = ParseByteToken(text);
      if (byte.has_value()) bytes = std::string(1, static_cast<char>(*byte));
    }
    token_bytes_[id] = bytes.has_value() ? *bytes : text;
    if (type == TokenType::kNormal && bytes.has_value()) word_bytes_[id] = *std::move(bytes);
  }
}

absl::Status BpeTokenizer::FillMerges() {
  merger_.emplace(word_bytes_);
  RETURN_IF_ERROR(ForEachMerge([this](absl::string_view left, absl::string_view right) {
    const auto left_bytes = AlphabetToBytes(left);
    const auto right_bytes = AlphabetToBytes(right);
    if (!left_bytes.has_value() || !right_bytes.has_value()) return MergeFault::kAlphabet;
    return merger_->AddMerge(*left_bytes, *right_bytes) ? MergeFault::kNone : MergeFault::kRepeated;
  }));
  merger_->Finish();
  return absl::OkStatus();
}

absl::Status BpeTokenizer::EncodeText(absl::string_view text, SpacePrefix /*prefix*/,
                                      std::vector<int32_t>* ids) const {
  while (!text.empty()) {
    const absl::string_view valid = text.substr(0, base::ValidUtf8Prefix(text));
    std::string normal;
    if (spec_.extras.normalizer != Normalizer::kNone)
      normal = Normalize(valid, spec_.extras.normalizer);
    const absl::string_view words = spec_.extras.normalizer == Normalizer::kNone ? valid : normal;
    RETURN_IF_ERROR(pre_tokenizer_.Split(words, [this, ids](absl::string_view word) {
      if (rules_.ignore_merges) {
        if (const int32_t id = merger_->Find(word); id >= 0) {
          ids->push_back(id);
          return;
        }
      }
      merger_->Merge(word, ids);
    }));
    text.remove_prefix(valid.size());
    if (text.empty()) break;
    // Bytes that are not valid UTF-8 end a word, and are encoded byte by byte.
    const size_t broken = base::NextUtf8Char(text).size;
    merger_->AppendBytes(text.substr(0, broken), ids);
    text.remove_prefix(broken);
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine

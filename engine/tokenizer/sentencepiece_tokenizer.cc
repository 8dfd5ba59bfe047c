#include "engine/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/tokenizer/byte_token.h"
#include "engine/tokenizer/normalize.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

constexpr absl::string_view kMark = "\xE2\x96\x81";  // "▁"

std::string WithSpaces(absl::string_view text) { return absl::StrReplaceAll(text, {{kMark, " "}}); }

// Normalises valid UTF-8. Other bytes do not change.
std::string NormalizeValid(absl::string_view text, Normalizer form) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = base::ValidUtf8Prefix(text);
    out += Normalize(text.substr(0, valid), form);
    text.remove_prefix(valid);
    if (text.empty()) break;
    const size_t broken = base::NextUtf8Char(text).size;
    out.append(text.data(), broken);
    text.remove_prefix(broken);
  }
  return out;
}

// Replaces each run of spaces by one space, and removes the spaces at both ends.
std::string RemoveExtraSpaces(absl::string_view text) {
  std::string result;
  bool pending = false;
  for (const char c : text) {
    if (c == ' ') {
      pending = !result.empty();
      continue;
    }
    if (pending) result.push_back(' ');
    pending = false;
    result.push_back(c);
  }
  return result;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(TokenizerSpec spec) : Tokenizer(std::move(spec)) {}

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(TokenizerSpec spec) {
  auto tokenizer =
      std::unique_ptr<SentencePieceTokenizer>(new SentencePieceTokenizer(std::move(spec)));
  tokenizer->InferTypes();
  tokenizer->add_bos_ = true;
  if (tokenizer->is_gemma4()) {
    // The files say that no BOS is added even if the model was trained with BOS. So this setting is
    // ignored.
    tokenizer->spec_.add_bos = tokenizer->spec_.bos_id >= 0;
  } else {
    tokenizer->add_space_prefix_ = tokenizer->spec_.add_space_prefix.value_or(true);
  }
  RETURN_IF_ERROR(tokenizer->Init());
  RETURN_IF_ERROR(tokenizer->FillMerger());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

// Sets what old files omit: the types of tokens, and the ids of special tokens that llama.cpp uses.
void SentencePieceTokenizer::InferTypes() {
  const auto size = static_cast<int32_t>(spec_.tokens.size());
  std::vector<TokenType>& types = spec_.token_types;
  if (!is_gemma4()) {
    const std::pair<int32_t*, TokenType> defaults[] = {{&spec_.unknown_id, TokenType::kUnknown},
                                                       {&spec_.bos_id, TokenType::kControl},
                                                       {&spec_.eos_id, TokenType::kControl}};
    for (int32_t id = 0; id < 3; ++id) {
      const auto& [target, type] = defaults[id];
      const bool fits = id < size && (types.empty() || (id < types.size() && types[id] == type));
      if (*target < 0 && fits) *target = id;
    }
  }
  if (!types.empty()) return;
  types.resize(size, TokenType::kNormal);
  for (int32_t id = 0; id < size; ++id) {
    if (ParseByteToken(spec_.tokens[id]).has_value()) types[id] = TokenType::kByte;
    if (id == spec_.bos_id || id == spec_.eos_id) types[id] = TokenType::kControl;
    if (id == spec_.unknown_id) types[id] = TokenType::kUnknown;
  }
}

void SentencePieceTokenizer::FillTokenBytes() {
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& text = spec_.tokens[id];
    const std::optional<uint8_t> byte = ParseByteToken(text);
    if (types_[id] == TokenType::kByte && byte.has_value()) {
      token_bytes_[id] = std::string(1, static_cast<char>(*byte));
    } else if (IsControl(static_cast<int32_t>(id))) {
      token_bytes_[id] = text;
    } else {
      token_bytes_[id] = WithSpaces(text);
    }
  }
}

bool SentencePieceTokenizer::Merges(int32_t id) const {
  // Merges use "▁", and never produce a plain space. So a token whose name contains a space can
  // only be found by searching for its name.
  if (absl::StrContains(spec_.tokens[id], ' ')) return false;
  if (is_unigram()) return types_[id] == TokenType::kNormal;
  // A name that could begin with the space prefix is also only found by a search. Otherwise two
  // texts would have the same ids.
  if (types_[id] == TokenType::kUserDefined) {
    return !(add_space_prefix_ && absl::StartsWith(token_bytes_[id], " "));
  }
  return types_[id] == TokenType::kNormal || types_[id] == TokenType::kUnused;
}

absl::Status SentencePieceTokenizer::FillMerger() {
  pieces_.resize(spec_.tokens.size());
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (Merges(static_cast<int32_t>(id))) pieces_[id] = token_bytes_[id];
  }
  ASSIGN_OR_RETURN(const PieceMerger::Fallback fallback, MakeFallback());
  if (is_unigram()) {
    RETURN_IF_ERROR(CheckScores());
    segmenter_.emplace(pieces_, spec_.scores, fallback);
    return absl::OkStatus();
  }
  merger_.emplace(pieces_, fallback);
  RETURN_IF_ERROR(is_gemma4() || spec_.extras.merges_by_rank ? AddMerges() : AddScores());
  merger_->Finish();
  return absl::OkStatus();
}

absl::StatusOr<PieceMerger::Fallback> SentencePieceTokenizer::MakeFallback() const {
  PieceMerger::Fallback fallback;
  fallback.byte_ids.fill(-1);
  fallback.unknown_id = spec_.unknown_id;
  int bytes = 0;
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    if (types_[id] != TokenType::kByte) continue;
    const std::optional<uint8_t> byte = ParseByteToken(spec_.tokens[id]);
    if (!byte.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens[", id, "] ", base::Quoted(spec_.tokens[id]),
                       " is of the type byte; expected <0x00> to <0xFF>"));
    }
    if (fallback.byte_ids[*byte] < 0) ++bytes;
    fallback.byte_ids[*byte] = static_cast<int32_t>(id);
  }
  if (bytes == 256 || (bytes == 0 && fallback.unknown_id >= 0)) return fallback;
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer.ggml.tokens has ", bytes,
                   " of the 256 byte tokens <0x00> to <0xFF>; expected all of them, or none and "
                   "tokenizer.ggml.unknown_token_id"));
}

absl::Status SentencePieceTokenizer::CheckScores() const {
  if (spec_.scores.empty()) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.scores is missing; a SentencePiece vocabulary merges by them");
  }
  for (size_t id = 0; id < spec_.scores.size(); ++id) {
    // A sum of infinities could be NaN.
    if (std::isnan(spec_.scores[id]) || (is_unigram() && std::isinf(spec_.scores[id]))) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.scores[", id, "] is not a number"));
    }
  }
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::AddScores() {
  RETURN_IF_ERROR(CheckScores());
  std::vector<bool> is_unused(spec_.tokens.size());
  for (size_t id = 0; id < is_unused.size(); ++id) {
    is_unused[id] = types_[id] == TokenType::kUnused;
  }
  merger_->AddScores(spec_.scores, is_unused);
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::AddMerges() {
  return ForEachMerge([this](absl::string_view left, absl::string_view right) {
    return merger_->AddMerge(WithSpaces(left), WithSpaces(right)) ? MergeFault::kNone
                                                                  : MergeFault::kRepeated;
  });
}

absl::Status SentencePieceTokenizer::EncodeText(absl::string_view text, SpacePrefix prefix,
                                                std::vector<int32_t>* ids) const {
  std::string normal;
  if (spec_.extras.normalizer != Normalizer::kNone) {
    normal = NormalizeValid(text, spec_.extras.normalizer);
    text = normal;
  }
  std::string single;
  if (spec_.remove_extra_spaces) {
    single = RemoveExtraSpaces(text);
    text = single;
  }
  // The vocabulary does not distinguish a space from "▁", so texts do not distinguish them, either.
  std::string spaced;
  if (text.find(kMark) != absl::string_view::npos) {
    spaced = WithSpaces(text);
    text = spaced;
    if (spec_.remove_extra_spaces) text = text.substr(0, text.find_last_not_of(' ') + 1);
  }
  if (text.empty()) return absl::OkStatus();
  std::string padded;
  const bool has_prefix = spec_.extras.space_prefix_once && absl::StartsWith(text, " ");
  if (prefix == SpacePrefix::kAdd && add_space_prefix_ && !has_prefix) {
    padded = absl::StrCat(" ", text);
    text = padded;
  }
  if (is_gemma4()) {
    EncodeLines(text, ids);
  } else if (spec_.extras.split_at_spaces) {
    EncodeWords(text, ids);
  } else {
    EncodeWord(text, ids);
  }
  return absl::OkStatus();
}

void SentencePieceTokenizer::EncodeWord(absl::string_view text, std::vector<int32_t>* ids) const {
  if (is_unigram()) {
    segmenter_->Encode(text, ids);
  } else {
    merger_->Encode(text, ids);
  }
}

// A new word begins at each space.
void SentencePieceTokenizer::EncodeWords(absl::string_view text, std::vector<int32_t>* ids) const {
  while (!text.empty()) {
    const size_t size = std::min(text.find(' ', 1), text.size());
    EncodeWord(text.substr(0, size), ids);
    text.remove_prefix(size);
  }
}

// Gemma 4's merges never cross the border of a run of newlines. If a run is a token, it is used
// without merging.
void SentencePieceTokenizer::EncodeLines(absl::string_view text, std::vector<int32_t>* ids) const {
  while (!text.empty()) {
    const bool newlines = text[0] == '\n';
    const size_t size =
        std::min(newlines ? text.find_first_not_of('\n') : text.find('\n'), text.size());
    const int32_t id = newlines ? merger_->Find(text.substr(0, size)) : -1;
    if (id >= 0) {
      ids->push_back(id);
    } else {
      merger_->Encode(text.substr(0, size), ids);
    }
    text.remove_prefix(size);
  }
}

}  // namespace tidepool::engine

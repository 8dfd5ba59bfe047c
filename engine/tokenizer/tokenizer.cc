#include "engine/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/no_text_tokenizer.h"
#include "engine/tokenizer/sentencepiece_tokenizer.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

// Limits far above those of published vocabularies. They are low enough that a bad file cannot take
// hours.
constexpr size_t kMaxTokens = size_t{1} << 24;
constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxMerges = size_t{1} << 25;

// Tokens that end a generation even if the file does not say so. Marks of fill-in-the-middle are
// among them, because the text after such a mark was not requested.
constexpr std::array<absl::string_view, 18> kStopTexts = {
    "<|eot_id|>", "<|im_end|>",    "<|end|>",      "<|return|>",      "<|call|>",   "<end_of_turn>",
    "<turn|>",    "<|endoftext|>", "<|eom_id|>",   "<|end_of_text|>", "<eos>",      "<|fim_pad|>",
    "<fim-pad>",  "<fim_pad>",     "<|fim_repo|>", "<|repo_name|>",   "<reponame>", "<|file_sep|>",
};

// Returns whether a text looks like a control token. Older converters store some control tokens as
// normal tokens.
bool LooksLikeControl(absl::string_view text) {
  constexpr absl::string_view kWideOpen = "<｜";
  constexpr absl::string_view kWideClose = "｜>";
  return (absl::StartsWith(text, "<|") && absl::EndsWith(text, "|>")) ||
         (absl::StartsWith(text, kWideOpen) && absl::EndsWith(text, kWideClose));
}

bool IsStopText(absl::string_view text) {
  return std::find(kStopTexts.begin(), kStopTexts.end(), text) != kStopTexts.end();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  if (spec.model == "gpt2") return BpeTokenizer::Create(std::move(spec));
  if (spec.model == "llama" || spec.model == "t5" || spec.model == "gemma4") {
    return SentencePieceTokenizer::Create(std::move(spec));
  }
  if (spec.model == "no_vocab" || spec.model == "none") {
    return NoTextTokenizer::Create(std::move(spec));
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model ", base::Quoted(spec.model),
                                               " is not supported; expected 'gpt2' (byte-level "
                                               "BPE), 'llama' (SentencePiece BPE), 't5' "
                                               "(unigram) or 'gemma4'"));
}

absl::Status Tokenizer::CheckCounts() const {
  const size_t size = spec_.tokens.size();
  if (size == 0 || size > kMaxTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.tokens has ", size, " tokens; expected 1 to ", kMaxTokens));
  }
  for (size_t id = 0; id < size; ++id) {
    if (spec_.tokens[id].size() <= kMaxTokenBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens[", id, "] has ",
                                                   spec_.tokens[id].size(),
                                                   " bytes; expected at most ", kMaxTokenBytes));
  }
  if (!spec_.token_types.empty() && spec_.token_types.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.token_type has ", spec_.token_types.size(),
                     " entries; expected one for each of the ", size, " tokens"));
  }
  if (!spec_.scores.empty() && spec_.scores.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.scores has ", spec_.scores.size(),
                     " entries; expected one for each of the ", size, " tokens"));
  }
  if (spec_.merges.size() > kMaxMerges) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges has ",
                                                   spec_.merges.size(),
                                                   " entries; expected at most ", kMaxMerges));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::CheckSpec() const {
  RETURN_IF_ERROR(CheckCounts());
  const size_t size = spec_.tokens.size();
  const std::pair<absl::string_view, int32_t> ids[] = {
      {"bos", spec_.bos_id}, {"eos", spec_.eos_id},         {"eot", spec_.eot_id},
      {"eom", spec_.eom_id}, {"unknown", spec_.unknown_id}, {"padding", spec_.padding_id}};
  for (const auto& [name, id] : ids) {
    if (id < -1 || id >= static_cast<int64_t>(size)) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", name, "_token_id is ", id,
                                                     "; expected an id of the vocabulary, 0 to ",
                                                     size - 1));
    }
  }
  const std::pair<absl::string_view, const std::vector<int32_t>*> lists[] = {
      {"stop", &spec_.extras.stop_ids},
      {"lstrip", &spec_.extras.lstrip_ids},
      {"rstrip", &spec_.extras.rstrip_ids},
      {"single_word", &spec_.extras.single_word_ids}};
  for (const auto& [name, list] : lists) {
    for (const int32_t id : *list) {
      if (id >= 0 && id < static_cast<int64_t>(size)) continue;
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", name, "_token_ids has ", id,
                                                     "; expected ids of the vocabulary, 0 to ",
                                                     size - 1));
    }
  }
  if (spec_.add_bos.value_or(false) && spec_.bos_id < 0) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_bos_token is true, but there is no bos_token_id");
  }
  if (spec_.add_eos.value_or(false) && spec_.eos_id < 0) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_eos_token is true, but there is no eos_token_id");
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Init() {
  RETURN_IF_ERROR(CheckSpec());
  add_bos_ = spec_.add_bos.value_or(add_bos_ && spec_.bos_id >= 0);
  add_eos_ = spec_.add_eos.value_or(add_eos_ && spec_.eos_id >= 0);
  CorrectTypes();
  token_bytes_.resize(spec_.tokens.size());
  FillTokenBytes();
  RETURN_IF_ERROR(FindSpecials());
  FindStopTokens();
  return absl::OkStatus();
}

absl::Status Tokenizer::FindSpecials() {
  id_by_text_.reserve(spec_.tokens.size());
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& text = spec_.tokens[id];
    const auto [it, is_new] = id_by_text_.try_emplace(text, static_cast<int32_t>(id));
    if (text.empty()) continue;  // some files have unused ids
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.tokens[", id, "] ", base::Quoted(text), " is a duplicate of token ",
          it->second, "; every token must have a different text"));
    }
    if (types_[id] == TokenType::kUserDefined) {
      specials_.Add(token_bytes_[id], static_cast<int32_t>(id), SpecialTrie::Kind::kAnywhere);
    } else if (IsControl(static_cast<int32_t>(id))) {
      specials_.Add(text, static_cast<int32_t>(id), SpecialTrie::Kind::kGuarded);
    }
  }
  const std::pair<const std::vector<int32_t>*, bool SpecialTrie::Edges::*> rules[] = {
      {&spec_.extras.lstrip_ids, &SpecialTrie::Edges::strip_before},
      {&spec_.extras.rstrip_ids, &SpecialTrie::Edges::strip_after},
      {&spec_.extras.single_word_ids, &SpecialTrie::Edges::whole_word}};
  for (const auto& [ids, rule] : rules) {
    for (const int32_t id : *ids) specials_.edges(id).*rule = true;
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::ForEachMerge(
    absl::FunctionRef<MergeFault(absl::string_view, absl::string_view)> add) const {
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const absl::string_view merge = spec_.merges[rank];
    const auto error = [rank, merge](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.merges[", rank, "] ", base::Quoted(merge), " ", what));
    };
    const size_t space = merge.find(' ', 1);
    if (space == absl::string_view::npos || space + 1 == merge.size()) {
      return error("is not two strings with a space between them");
    }
    switch (add(merge.substr(0, space), merge.substr(space + 1))) {
      case MergeFault::kNone:
        break;
      case MergeFault::kAlphabet:
        return error("has a character outside the byte alphabet");
      case MergeFault::kRepeated:
        return error("is a duplicate; each pair must have one rank");
    }
  }
  return absl::OkStatus();
}

void Tokenizer::CorrectTypes() {
  types_ = spec_.token_types;
  types_.resize(spec_.tokens.size(), TokenType::kNormal);
  for (size_t id = 0; id < types_.size(); ++id) {
    const std::string& text = spec_.tokens[id];
    const bool word = types_[id] == TokenType::kUserDefined && LooksLikeControl(text);
    if (word || IsStopText(text)) types_[id] = TokenType::kControl;
  }
}

void Tokenizer::FindStopTokens() {
  is_stop_.resize(spec_.tokens.size());
  for (size_t id = 0; id < spec_.tokens.size(); ++id) is_stop_[id] = IsStopText(spec_.tokens[id]);
  // In models whose messages can continue in another channel, <|end|> only ends the channel.
  const auto end = FindToken("<|end|>");
  if (end.has_value() && FindToken("<|return|>").has_value() && FindToken("<|call|>").has_value()) {
    is_stop_[*end] = false;
  }
  for (const int32_t id : {spec_.eos_id, spec_.eot_id, spec_.eom_id}) {
    if (id >= 0) is_stop_[id] = true;
  }
  for (const int32_t id : spec_.extras.stop_ids) is_stop_[id] = true;
  for (int32_t id = 0; id < static_cast<int32_t>(is_stop_.size()); ++id) {
    if (is_stop_[id]) stop_ids_.push_back(id);
  }
}

std::optional<int32_t> Tokenizer::FindToken(absl::string_view token_text) const {
  const auto it = id_by_text_.find(token_text);
  if (it == id_by_text_.end()) return std::nullopt;
  return it->second;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       SpecialTokens special,
                                                       AddBos add_bos) const {
  const Run run = {text.size(),
                   special == SpecialTokens::kParse ? TextOrigin::kTemplate : TextOrigin::kUser};
  return EncodeRuns(text, absl::MakeConstSpan(&run, 1), add_bos);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodePieces(absl::Span<const TextPiece> pieces,
                                                             AddBos add_bos) const {
  std::string text;
  std::vector<Run> runs;
  for (const TextPiece& piece : pieces) {
    text += piece.text;
    if (!runs.empty() && runs.back().origin == piece.origin) {
      runs.back().end = text.size();
    } else {
      runs.push_back({text.size(), piece.origin});
    }
  }
  return EncodeRuns(text, runs, add_bos);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeRuns(absl::string_view text,
                                                           absl::Span<const Run> runs,
                                                           AddBos add_bos) const {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the text has ", text.size(), " bytes; at most ",
                                                   kMaxBytes, " can be encoded"));
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 2);
  if (add_bos == AddBos::kModelDefault && add_bos_) ids.push_back(spec_.bos_id);
  size_t run = 0;
  size_t plain = 0;  // where the text after the last special token begins
  SpacePrefix prefix = add_bos == AddBos::kContinue ? SpacePrefix::kNone : SpacePrefix::kAdd;
  const auto encode_plain = [this, text, &plain, &prefix, &ids](size_t end) {
    if (plain == end) return absl::OkStatus();
    return EncodeText(text.substr(plain, end - plain), prefix, &ids);
  };
  for (size_t at = 0; at < text.size();) {
    while (runs[run].end <= at) ++run;
    const bool guarded = runs[run].origin == TextOrigin::kTemplate;
    SpecialTrie::Match match;
    if (specials_.MayStart(text[at])) {
      match = specials_.LongestPrefix(text.substr(at), guarded ? runs[run].end - at : 0);
    }
    if (match.id < 0) {
      ++at;
      continue;
    }
    const SpecialTrie::Range range = specials_.Widen(text, plain, at, match);
    at += match.size;
    if (range.empty()) continue;
    RETURN_IF_ERROR(encode_plain(range.begin));
    ids.push_back(match.id);
    at = range.end;
    plain = at;
    prefix = spec_.extras.space_prefix_first ? SpacePrefix::kNone : SpacePrefix::kAdd;
  }
  RETURN_IF_ERROR(encode_plain(text.size()));
  if (add_bos == AddBos::kModelDefault && add_eos_) ids.push_back(spec_.eos_id);
  return ids;
}

absl::StatusOr<std::string> Tokenizer::DecodeBytes(absl::Span<const int32_t> ids,
                                                   ControlText control) const {
  std::string text;
  bool drop_space = add_space_prefix_;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[i];
    if (!IsValid(id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token id ", id, " at index ", i, " is outside the vocabulary, 0 to ", vocab_size() - 1));
    }
    if (IsControl(id) && control == ControlText::kSkip) continue;
    absl::string_view bytes = TokenBytes(id);
    if (drop_space && !IsSpecial(id) && !bytes.empty()) {
      absl::ConsumePrefix(&bytes, " ");
      drop_space = false;
    }
    text.append(bytes.data(), bytes.size());
    // If the first token is BOS, the text's space prefix comes after BOS.
    const bool first = spec_.extras.space_prefix_first && !(i == 0 && id == spec_.bos_id);
    if (IsSpecial(id)) drop_space = add_space_prefix_ && !first;
  }
  return text;
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids,
                                              ControlText control) const {
  ASSIGN_OR_RETURN(const std::string bytes, DecodeBytes(ids, control));
  std::string text;
  text.reserve(bytes.size());
  if (!base::AppendUtf8Lossy(bytes, &text).empty()) {
    absl::StrAppend(&text, base::kReplacementCharacter);
  }
  return text;
}

std::string StreamDecoder::Feed(int32_t id) {
  CHECK(tokenizer_->IsValid(id)) << id;
  if (tokenizer_->IsControl(id) && control_ == ControlText::kSkip) return "";
  const absl::string_view bytes = tokenizer_->TokenBytes(id);
  tail_.append(bytes.data(), bytes.size());
  std::string text;
  tail_ = base::AppendUtf8Lossy(tail_, &text);
  return text;
}

std::string StreamDecoder::Flush() {
  if (tail_.empty()) return "";
  tail_.clear();
  return std::string(base::kReplacementCharacter);
}

}  // namespace tidepool::engine

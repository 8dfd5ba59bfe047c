#include "engine/checkpoint/hf/tokenizer_json.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/gguf_parser.h"
#include "engine/checkpoint/hf/steps.h"
#include "engine/checkpoint/hf/vocabulary.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr int64_t kMaxTokens = 1 << 24;

class TokenizerReader {
 public:
  TokenizerReader(const std::string& path, const Json& tokenizer, const TokenizerFiles& files,
                  GgufMetadata* metadata)
      : path_(path),
        tokenizer_(path, tokenizer),
        files_(files),
        metadata_(metadata),
        vocabulary_(path) {}

  absl::Status Read() {
    const Json* model = tokenizer_.Find("model");
    if (model == nullptr || !model->is_object()) {
      return tokenizer_.Error("model", "missing, expected an object");
    }
    const JsonMembers members(path_, *model);
    ASSIGN_OR_RETURN(const std::string type,
                     members.StringOr("type", members.Has("merges") ? "BPE" : ""));
    ASSIGN_OR_RETURN(normalizers_, Flatten(path_, "normalizer", tokenizer_.Find("normalizer")));
    ASSIGN_OR_RETURN(pre_tokenizers_,
                     Flatten(path_, "pre_tokenizer", tokenizer_.Find("pre_tokenizer")));
    if (type == "Unigram") {
      RETURN_IF_ERROR(ReadUnigram(members));
      return WriteAround();
    }
    if (type != "BPE") {
      return tokenizer_.Unsupported(
          "model.type",
          absl::StrCat(Shown(Json(type)), " is not supported, expected BPE or Unigram"));
    }
    RETURN_IF_ERROR(CheckOptions(members));
    RETURN_IF_ERROR(ReadVocabulary(members));
    RETURN_IF_ERROR(ReadMerges(members));
    RETURN_IF_ERROR(IsByteLevel() ? ReadByteLevel(members) : ReadMetaspace(members));
    return WriteAround();
  }

 private:
  bool IsByteLevel() const {
    for (const Json* step : pre_tokenizers_) {
      if (TypeOfStep(*step) == "ByteLevel") return true;
    }
    return false;
  }

  absl::Status ReadVocabulary(const JsonMembers& model) {
    const Json* tokens = model.Find("vocab");
    if (tokens == nullptr || !tokens->is_object()) {
      return tokenizer_.Error("model.vocab", "missing, expected an object {TOKEN: ID}");
    }
    for (const auto& [text, id] : tokens->items()) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokens) {
        return FileError(path_, absl::StrCat("model.vocab ", Quote(text)),
                         absl::StrCat("id ", Shown(id), ", expected 0 to ", kMaxTokens - 1));
      }
      RETURN_IF_ERROR(vocabulary_.Add(text, id.get<int64_t>(), TokenType::kNormal));
    }
    RETURN_IF_ERROR(vocabulary_.AddAdded(tokenizer_.Find("added_tokens")));
    return vocabulary_.FillGaps();
  }

  // Writes each merge as "LEFT RIGHT". In the file, a merge is such a string or a pair of strings.
  absl::Status ReadMerges(const JsonMembers& model) {
    const Json* list = model.Find("merges");
    if (list == nullptr || !list->is_array()) {
      return tokenizer_.Error("model.merges", "missing, expected a list");
    }
    std::vector<std::string>& merges = merges_;
    merges.reserve(list->size());
    for (const Json& merge : *list) {
      if (merge.is_string()) {
        merges.push_back(merge.get<std::string>());
        continue;
      }
      const bool pair =
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
      if (!pair) {
        return tokenizer_.Error(absl::StrCat("model.merges[", merges.size(), "]"),
                                absl::StrCat(Shown(merge), ", expected a pair of strings"));
      }
      const auto& left = merge[0].get_ref<const std::string&>();
      const auto& right = merge[1].get_ref<const std::string&>();
      if (absl::StrContains(left, ' ') || absl::StrContains(right, ' ')) {
        return tokenizer_.Unsupported(absl::StrCat("model.merges[", merges.size(), "]"),
                                      absl::StrCat(Shown(merge),
                                                   " with a space in it is not "
                                                   "supported"));
      }
      merges.push_back(absl::StrCat(left, " ", right));
    }
    metadata_->SetStrings("tokenizer.ggml.merges", merges);
    return absl::OkStatus();
  }

  // Rejects options of the model that would change ids. Neutral values are accepted.
  absl::Status CheckOptions(const JsonMembers& model) const {
    for (const absl::string_view key :
         {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json* value = model.Find(key);
      if (value == nullptr || *value == Json("") || *value == Json(0) || *value == Json(0.0)) {
        continue;
      }
      return tokenizer_.Unsupported(absl::StrCat("model.", key),
                                    absl::StrCat(Shown(*value),
                                                 " is not supported, expected "
                                                 "null"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadByteLevel(const JsonMembers& model) {
    ASSIGN_OR_RETURN(const bool ignore_merges, model.BoolOr("ignore_merges", false));
    ASSIGN_OR_RETURN(const std::string pre,
                     FindPreTokenizer(path_, pre_tokenizers_, ignore_merges));
    metadata_->SetString("tokenizer.ggml.model", "gpt2");
    metadata_->SetString("tokenizer.ggml.pre", pre);
    for (const Json* step : normalizers_) {
      if (TypeOfStep(*step) != "NFC") {
        return tokenizer_.Unsupported("normalizer",
                                      absl::StrCat(Shown(*step),
                                                   " is not supported in a byte-level tokenizer, "
                                                   "expected NFC or none"));
      }
      metadata_->SetString("tokenizer.ggml.normalizer", "nfc");
    }
    return absl::OkStatus();
  }

  // Reads a BPE of characters, in which a space is written as "▁".
  absl::Status ReadMetaspace(const JsonMembers& model) {
    ASSIGN_OR_RETURN(const bool ignore_merges, model.BoolOr("ignore_merges", false));
    if (ignore_merges) {
      return tokenizer_.Unsupported("model.ignore_merges",
                                    "true is not supported without ByteLevel, expected false");
    }
    ASSIGN_OR_RETURN(const SpaceRules rules, ReadSpaceRules(path_, normalizers_, pre_tokenizers_));
    ASSIGN_OR_RETURN(const std::string unknown, model.StringOr("unk_token", ""));
    ASSIGN_OR_RETURN(const bool bytes, model.BoolOr("byte_fallback", false));
    RETURN_IF_ERROR(MarkFallbacks(unknown, bytes));
    metadata_->SetString("tokenizer.ggml.model", "llama");
    metadata_->SetString("tokenizer.ggml.pre", "default");
    metadata_->SetBool("tokenizer.ggml.merges_by_rank", true);
    metadata_->SetF32s("tokenizer.ggml.scores", Scores());
    WriteSpaceRules(rules);
    return absl::OkStatus();
  }

  // Reads the pieces and their log probabilities.
  absl::Status ReadUnigram(const JsonMembers& model) {
    const Json* list = model.Find("vocab");
    if (list == nullptr || !list->is_array() || list->empty()) {
      return tokenizer_.Error("model.vocab", "missing, expected a list [[PIECE, SCORE], ...]");
    }
    std::vector<float> scores;
    for (const Json& piece : *list) {
      const bool whole =
          piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number();
      if (!whole || scores.size() == kMaxTokens) {
        return tokenizer_.Error(absl::StrCat("model.vocab[", scores.size(), "]"),
                                absl::StrCat(Shown(piece), ", expected [PIECE, SCORE]"));
      }
      RETURN_IF_ERROR(
          vocabulary_.Add(piece[0].get<std::string>(), vocabulary_.size(), TokenType::kNormal));
      scores.push_back(piece[1].get<float>());
    }
    RETURN_IF_ERROR(vocabulary_.AddAdded(tokenizer_.Find("added_tokens")));
    RETURN_IF_ERROR(vocabulary_.FillGaps());
    scores.resize(vocabulary_.size(), 0);
    ASSIGN_OR_RETURN(const bool bytes, model.BoolOr("byte_fallback", false));
    RETURN_IF_ERROR(MarkFallbacks("", bytes));
    ASSIGN_OR_RETURN(const int64_t unknown, model.IntOr("unk_id", -1, 0, vocabulary_.size() - 1));
    if (unknown >= 0) {
      vocabulary_.set_type(static_cast<int32_t>(unknown), TokenType::kUnknown);
      metadata_->SetU32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown));
    }
    ASSIGN_OR_RETURN(const SpaceRules rules, ReadSpaceRules(path_, normalizers_, pre_tokenizers_));
    metadata_->SetString("tokenizer.ggml.model", "t5");
    metadata_->SetString("tokenizer.ggml.pre", "default");
    metadata_->SetF32s("tokenizer.ggml.scores", scores);
    WriteSpaceRules(rules);
    return absl::OkStatus();
  }

  void WriteSpaceRules(const SpaceRules& rules) {
    metadata_->SetBool("tokenizer.ggml.add_space_prefix",
                       rules.prefix != SpaceRules::Prefix::kNever);
    metadata_->SetBool("tokenizer.ggml.space_prefix_first",
                       rules.prefix == SpaceRules::Prefix::kFirst);
    metadata_->SetBool("tokenizer.ggml.space_prefix_once", rules.once);
    metadata_->SetBool("tokenizer.ggml.split_at_spaces", rules.split);
    if (!rules.form.empty()) metadata_->SetString("tokenizer.ggml.normalizer", rules.form);
    metadata_->SetBool("tokenizer.ggml.remove_extra_whitespaces", false);
  }

  // Marks the unknown token and the byte tokens. These tokens encode characters for which there is
  // no token.
  absl::Status MarkFallbacks(const std::string& unknown, bool bytes) {
    if (!unknown.empty()) {
      const std::optional<int32_t> id = vocabulary_.Find(unknown);
      if (!id.has_value()) {
        return tokenizer_.Error("model.unk_token",
                                absl::StrCat(Quote(unknown), " is not a token of the vocabulary"));
      }
      vocabulary_.set_type(*id, TokenType::kUnknown);
      metadata_->SetU32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*id));
    }
    if (!bytes) return absl::OkStatus();
    for (int byte = 0; byte < 256; ++byte) {
      const std::string name = absl::StrFormat("<0x%02X>", byte);
      const std::optional<int32_t> id = vocabulary_.Find(name);
      if (!id.has_value()) {
        return tokenizer_.Error("model.vocab", absl::StrCat(name,
                                                            " is missing, expected all 256 "
                                                            "byte tokens"));
      }
      vocabulary_.set_type(*id, TokenType::kByte);
    }
    return absl::OkStatus();
  }

  // Returns scores for programs that merge in the order of scores. A token's score is the negative
  // rank of the first merge that produces the token.
  std::vector<float> Scores() const {
    std::vector<float> scores(vocabulary_.size(), -1e6F);
    for (size_t rank = merges_.size(); rank-- > 0;) {
      std::string joined = merges_[rank];
      const size_t space = joined.find(' ', 1);
      if (space != std::string::npos) joined.erase(space, 1);
      const std::optional<int32_t> id = vocabulary_.Find(joined);
      if (id.has_value()) scores[*id] = -static_cast<float>(rank);
    }
    return scores;
  }

  // Writes the vocabulary, the special tokens, and the tokens that are added before and after every
  // text.
  absl::Status WriteAround() {
    vocabulary_.Write(metadata_);
    const Json none = Json::object();
    const JsonMembers config(files_.config_path, files_.config->is_null() ? none : *files_.config);
    ASSIGN_OR_RETURN(AddedAround around,
                     ReadPostProcessor(path_, tokenizer_.Find("post_processor")));
    RETURN_IF_ERROR(WriteSpecialTokens(vocabulary_, config, *files_.tokens, metadata_));
    RETURN_IF_ERROR(WriteAdded(around.before, "bos"));
    return WriteAdded(around.after, "eos");
  }

  // A token that is added to every text has precedence over the BOS or EOS token of the
  // configuration.
  absl::Status WriteAdded(const std::optional<std::string>& token, absl::string_view name) {
    metadata_->SetBool(absl::StrCat("tokenizer.ggml.add_", name, "_token"), token.has_value());
    if (!token.has_value()) return absl::OkStatus();
    const std::optional<int32_t> id = vocabulary_.Find(*token);
    if (!id.has_value()) {
      return tokenizer_.Error("post_processor",
                              absl::StrCat(Quote(*token), " is not a token of the vocabulary"));
    }
    metadata_->SetU32(absl::StrCat("tokenizer.ggml.", name, "_token_id"),
                      static_cast<uint32_t>(*id));
    return absl::OkStatus();
  }

  const std::string& path_;
  const JsonMembers tokenizer_;
  const TokenizerFiles& files_;
  GgufMetadata* const metadata_;
  Vocabulary vocabulary_;
  std::vector<const Json*> normalizers_;
  std::vector<const Json*> pre_tokenizers_;
  std::vector<std::string> merges_;
};

}  // namespace

absl::Status ReadTokenizerJson(const std::string& path, const Json& tokenizer,
                               const TokenizerFiles& files, GgufMetadata* metadata) {
  return TokenizerReader(path, tokenizer, files, metadata).Read();
}

}  // namespace tidepool::engine::hf

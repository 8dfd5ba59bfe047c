#include "engine/tokenizer/tokenizer_spec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// A limit far above the size of published vocabularies.
constexpr int64_t kMaxTokens = 1 << 24;

absl::StatusOr<std::vector<std::string>> ReadStrings(const Checkpoint& file,
                                                     absl::string_view key) {
  ASSIGN_OR_RETURN(const std::vector<absl::string_view> views, file.Strings(key));
  return std::vector<std::string>(views.begin(), views.end());
}

// Checks the size of an array. If the array exists, it must have one entry for each token.
absl::Status CheckCount(const Checkpoint& file, absl::string_view key, size_t tokens) {
  const GgufEntry* entry = file.Find(key);
  if (entry == nullptr || !entry->is_array || entry->count == tokens) return absl::OkStatus();
  return file.Error(key, absl::StrCat(entry->count, " entries; expected one for each of the ",
                                      tokens, " tokens"));
}

absl::Status ReadTypes(const Checkpoint& file, TokenizerSpec* spec) {
  constexpr absl::string_view kKey = "tokenizer.ggml.token_type";
  if (!file.HasKey(kKey)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.Ints(kKey));
  for (const int64_t type : types) {
    if (type < static_cast<int64_t>(TokenType::kNormal) ||
        type > static_cast<int64_t>(TokenType::kByte)) {
      return file.Error(kKey, absl::StrCat("a token type is ", type, "; expected 1 to 6"));
    }
    spec->token_types.push_back(static_cast<TokenType>(type));
  }
  return absl::OkStatus();
}

absl::Status ReadIds(const Checkpoint& file, TokenizerSpec* spec) {
  const std::pair<absl::string_view, int32_t*> ids[] = {
      {"bos", &spec->bos_id}, {"eos", &spec->eos_id},         {"eot", &spec->eot_id},
      {"eom", &spec->eom_id}, {"unknown", &spec->unknown_id}, {"padding", &spec->padding_id}};
  for (const auto& [name, target] : ids) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    ASSIGN_OR_RETURN(const int64_t id, file.IntOr(key, -1));
    // To say "none", some converters write -1 as an unsigned 32-bit number.
    if (id == -1 || id == std::numeric_limits<uint32_t>::max()) continue;
    if (id < 0 || id >= static_cast<int64_t>(spec->tokens.size())) {
      return file.Error(
          key, absl::StrCat(id, " is not an id of the vocabulary, 0 to ", spec->tokens.size() - 1));
    }
    *target = static_cast<int32_t>(id);
  }
  return absl::OkStatus();
}

// Reads our own keys, which HfDirectory sets.
absl::Status ReadExtensions(const Checkpoint& file, TokenizerSpec* spec) {
  const std::pair<absl::string_view, std::vector<int32_t>*> lists[] = {
      {"tokenizer.ggml.stop_token_ids", &spec->extras.stop_ids},
      {"tokenizer.ggml.lstrip_token_ids", &spec->extras.lstrip_ids},
      {"tokenizer.ggml.rstrip_token_ids", &spec->extras.rstrip_ids},
      {"tokenizer.ggml.single_word_token_ids", &spec->extras.single_word_ids}};
  for (const auto& [key, target] : lists) {
    if (!file.HasKey(key)) continue;
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, file.Ints(key));
    for (const int64_t id : ids) {
      if (id < 0 || id >= static_cast<int64_t>(spec->tokens.size())) {
        return file.Error(key, absl::StrCat(id, " is not an id of the vocabulary, 0 to ",
                                            spec->tokens.size() - 1));
      }
      target->push_back(static_cast<int32_t>(id));
    }
  }
  constexpr absl::string_view kNormalizer = "tokenizer.ggml.normalizer";
  ASSIGN_OR_RETURN(const absl::string_view form, file.StringOr(kNormalizer, "none"));
  if (form == "nfc") {
    spec->extras.normalizer = Normalizer::kNfc;
  } else if (form == "nfkc") {
    spec->extras.normalizer = Normalizer::kNfkc;
  } else if (form != "none") {
    return file.Error(kNormalizer, "expected none, nfc or nfkc");
  }
  return absl::OkStatus();
}

absl::Status ReadFlags(const Checkpoint& file, TokenizerSpec* spec) {
  const std::pair<absl::string_view, std::optional<bool>*> flags[] = {
      {"tokenizer.ggml.add_bos_token", &spec->add_bos},
      {"tokenizer.ggml.add_eos_token", &spec->add_eos},
      {"tokenizer.ggml.add_space_prefix", &spec->add_space_prefix}};
  for (const auto& [key, target] : flags) {
    if (!file.HasKey(key)) continue;
    ASSIGN_OR_RETURN(*target, file.Bool(key));
  }
  const std::pair<absl::string_view, bool*> switches[] = {
      {"tokenizer.ggml.remove_extra_whitespaces", &spec->remove_extra_spaces},
      {"tokenizer.ggml.merges_by_rank", &spec->extras.merges_by_rank},
      {"tokenizer.ggml.space_prefix_first", &spec->extras.space_prefix_first},
      {"tokenizer.ggml.space_prefix_once", &spec->extras.space_prefix_once},
      {"tokenizer.ggml.split_at_spaces", &spec->extras.split_at_spaces}};
  for (const auto& [key, target] : switches) {
    ASSIGN_OR_RETURN(*target, file.BoolOr(key, false));
  }
  return absl::OkStatus();
}

absl::Status ReadTemplates(const Checkpoint& file, TokenizerSpec* spec) {
  constexpr absl::string_view kKey = "tokenizer.chat_template";
  ASSIGN_OR_RETURN(const absl::string_view chat_template, file.StringOr(kKey, ""));
  spec->chat_template = std::string(chat_template);
  const std::string prefix = absl::StrCat(kKey, ".");
  for (const GgufEntry& entry : file.metadata()) {
    if (!absl::StartsWith(entry.key, prefix)) continue;
    ASSIGN_OR_RETURN(const absl::string_view named, file.String(entry.key));
    spec->named_templates.emplace(entry.key.substr(prefix.size()), named);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const Checkpoint& file) {
  TokenizerSpec spec;
  ASSIGN_OR_RETURN(const absl::string_view model, file.String("tokenizer.ggml.model"));
  ASSIGN_OR_RETURN(const absl::string_view pre, file.StringOr("tokenizer.ggml.pre", ""));
  spec.model = std::string(model);
  spec.pre = std::string(pre);
  if (model == "no_vocab" || model == "none") {
    const GgufTensor* embedding = file.FindTensor("token_embd.weight");
    if (embedding == nullptr)
      return file.Error("token_embd.weight", "missing, expected the tensor");
    spec.tokens.resize(std::min(embedding->dims[1], kMaxTokens));
  } else {
    ASSIGN_OR_RETURN(spec.tokens, ReadStrings(file, "tokenizer.ggml.tokens"));
  }
  RETURN_IF_ERROR(CheckCount(file, "tokenizer.ggml.token_type", spec.tokens.size()));
  RETURN_IF_ERROR(CheckCount(file, "tokenizer.ggml.scores", spec.tokens.size()));
  RETURN_IF_ERROR(ReadTypes(file, &spec));
  if (file.HasKey("tokenizer.ggml.merges")) {
    ASSIGN_OR_RETURN(spec.merges, ReadStrings(file, "tokenizer.ggml.merges"));
  }
  if (file.HasKey("tokenizer.ggml.scores")) {
    ASSIGN_OR_RETURN(spec.scores, file.Floats("tokenizer.ggml.scores"));
  }
  RETURN_IF_ERROR(ReadIds(file, &spec));
  RETURN_IF_ERROR(ReadExtensions(file, &spec));
  RETURN_IF_ERROR(ReadFlags(file, &spec));
  RETURN_IF_ERROR(ReadTemplates(file, &spec));
  return spec;
}

}  // namespace tidepool::engine

#include "engine/checkpoint/hf/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf_parser.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr int64_t kMaxTokens = 1 << 24;
// Maximum number of ids without a token. If there are more, the file is probably damaged.
constexpr int64_t kMaxGaps = 1 << 17;

// Returns the name of a special token, or nullopt if the file does not name it. In the file, the
// name is a string or the "content" of an object.
absl::StatusOr<std::optional<std::string>> TokenName(const JsonMembers& config,
                                                     absl::string_view key) {
  const Json* value = config.Find(key);
  if (value == nullptr) return std::optional<std::string>();
  const Json* text = value;
  if (value->is_object()) {
    const auto content = value->find("content");
    text = content == value->end() ? nullptr : &*content;
  }
  if (text == nullptr || !text->is_string()) {
    return config.Error(key, absl::StrCat(Shown(*value), ", expected the name of a token"));
  }
  return std::optional<std::string>(text->get<std::string>());
}

struct SpecialIds {
  int64_t bos = -1;  // -1 if there is none
  int64_t eos = -1;
  int64_t padding = -1;
};

// Sets the ids in `special`, and all ids of `tokens` that end a generation.
void WriteIds(const SpecialIds& special, const ConfigTokens& tokens, int64_t vocab_size,
              GgufMetadata* metadata) {
  const auto set = [&](absl::string_view name, int64_t id) {
    if (id < 0) return;
    metadata->SetU32(absl::StrCat("tokenizer.ggml.", name, "_token_id"), static_cast<uint32_t>(id));
  };
  set("bos", special.bos);
  set("eos", special.eos);
  set("padding", special.padding);
  std::vector<int32_t> others;
  for (const int64_t id : tokens.eos) {
    if (id != special.eos && id >= 0 && id < vocab_size) others.push_back(static_cast<int32_t>(id));
  }
  // llama.cpp has two more keys for such ids, EOT and EOM. stop_token_ids is our own key.
  if (!others.empty()) set("eot", others[0]);
  if (others.size() > 1) set("eom", others[1]);
  if (others.size() > 2) metadata->SetI32s("tokenizer.ggml.stop_token_ids", others);
}

}  // namespace

absl::Status Vocabulary::Add(const std::string& text, int64_t id, TokenType type) {
  if (id < 0 || id >= kMaxTokens) {
    return FileError(path_, text,
                     absl::StrCat("token id ", id, ", expected 0 to ", kMaxTokens - 1));
  }
  if (id >= size()) {
    tokens_.resize(id + 1);
    types_.resize(id + 1, 0);
  }
  if (types_[id] != 0 && tokens_[id] != text) {
    return FileError(path_, text,
                     absl::StrCat("token id ", id, " is also that of ", Quote(tokens_[id]),
                                  ", expected one token an id"));
  }
  const auto [found, is_new] = ids_.try_emplace(text, static_cast<int32_t>(id));
  if (!is_new && found->second != id) {
    return FileError(
        path_, text,
        absl::StrCat("has the token ids ", found->second, " and ", id, ", expected one"));
  }
  tokens_[id] = text;
  types_[id] = static_cast<int32_t>(type);
  return absl::OkStatus();
}

absl::Status Vocabulary::AddAdded(const Json* list) {
  if (list == nullptr) return absl::OkStatus();
  if (!list->is_array()) return FileError(path_, "added_tokens", "expected a list");
  for (const Json& entry : *list) {
    if (!entry.is_object()) {
      return FileError(path_, "added_tokens", absl::StrCat(Shown(entry), ", expected an object"));
    }
    const JsonMembers token(path_, entry);
    ASSIGN_OR_RETURN(const std::string text, token.String("content"));
    ASSIGN_OR_RETURN(const int64_t id, token.Int("id", 0, kMaxTokens - 1));
    ASSIGN_OR_RETURN(const bool special, token.BoolOr("special", false));
    for (const absl::string_view option : {"single_word", "lstrip", "rstrip"}) {
      ASSIGN_OR_RETURN(const bool set, token.BoolOr(option, false));
      if (!set) continue;
      if (option == "single_word" && id < size() && type(id) == TokenType::kNormal) {
        // The model could not use the token in words any more, because special tokens are never a
        // part of words.
        return FileUnsupported(path_, absl::StrCat("added token ", Quote(text)),
                               "single_word is not supported for a token of the model's own "
                               "vocabulary, expected false");
      }
      options_[std::string(option)].push_back(static_cast<int32_t>(id));
    }
    if (text.empty()) return FileError(path_, "added_tokens", "a token without text");
    // The model's own unknown and byte tokens keep their type.
    const bool kept =
        id < size() && (type(id) == TokenType::kUnknown || type(id) == TokenType::kByte);
    RETURN_IF_ERROR(Add(text, id,
                        kept      ? type(static_cast<int32_t>(id))
                        : special ? TokenType::kControl
                                  : TokenType::kUserDefined));
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::FillGaps() {
  if (tokens_.empty()) return FileError(path_, "model.vocab", "no tokens, expected at least one");
  const auto gaps = std::count(types_.begin(), types_.end(), 0);
  if (gaps > kMaxGaps) {
    return FileError(path_, "model.vocab",
                     absl::StrCat(gaps, " of the ids 0 to ", size() - 1,
                                  " have no token, expected at most ", kMaxGaps));
  }
  for (int64_t id = 0; id < size(); ++id) {
    if (types_[id] != 0) continue;
    RETURN_IF_ERROR(Add(PlaceholderToken(id), id, TokenType::kUnused));
  }
  return absl::OkStatus();
}

std::optional<int32_t> Vocabulary::Find(absl::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

void Vocabulary::Write(GgufMetadata* metadata) const {
  metadata->SetStrings("tokenizer.ggml.tokens", tokens_);
  metadata->SetI32s("tokenizer.ggml.token_type", types_);
  for (const auto& [option, ids] : options_) {
    metadata->SetI32s(absl::StrCat("tokenizer.ggml.", option, "_token_ids"), ids);
  }
}

absl::Status WriteSpecialTokens(const Vocabulary& vocabulary, const JsonMembers& config,
                                const ConfigTokens& tokens, GgufMetadata* metadata) {
  // Returns the id of the token that tokenizer_config.json names. If it names none, returns the
  // first of `ids`, or -1 if there is none.
  const auto find = [&](absl::string_view key,
                        const std::vector<int64_t>& ids) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const std::optional<std::string> name, TokenName(config, key));
    if (name.has_value()) {
      const std::optional<int32_t> id = vocabulary.Find(*name);
      if (id.has_value()) return *id;
      return config.Error(key, absl::StrCat(Quote(*name), " is not a token of ", vocabulary.path(),
                                            ", expected one of its tokens"));
    }
    // If tokenizer_config.json has no bos_token, the model has no BOS token.
    if (key == "bos_token" && !tokens.bos_by_id && config.Has("tokenizer_class")) return -1;
    const int64_t id = ids.empty() ? -1 : ids[0];
    return id < vocabulary.size() ? id : -1;
  };
  ASSIGN_OR_RETURN(const int64_t bos, find("bos_token", tokens.bos));
  ASSIGN_OR_RETURN(const int64_t eos, find("eos_token", tokens.eos));
  ASSIGN_OR_RETURN(const int64_t padding, find("pad_token", tokens.padding));
  WriteIds({bos, eos, padding}, tokens, vocabulary.size(), metadata);
  return absl::OkStatus();
}

void WriteNoTokenizer(const ConfigTokens& tokens, int64_t vocab_size, GgufMetadata* metadata) {
  const auto first = [vocab_size](const std::vector<int64_t>& ids) {
    return ids.empty() || ids[0] >= vocab_size ? int64_t{-1} : ids[0];
  };
  metadata->SetString("tokenizer.ggml.model", "no_vocab");
  WriteIds({first(tokens.bos), first(tokens.eos), first(tokens.padding)}, tokens, vocab_size,
           metadata);
}

}  // namespace tidepool::engine::hf

// Vocabulary: collects the ids, types and texts of the tokens while a tokenizer is read.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_VOCABULARY_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_VOCABULARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/token_type.h"

namespace tidepool::engine::hf {

// Thread-compatible. Errors name the file. They are INVALID_ARGUMENT unless the function says
// otherwise.
class Vocabulary {
 public:
  explicit Vocabulary(std::string path) : path_(std::move(path)) {}

  // Adds a token. Fails if the id is out of range, the id already has another text, or the text
  // already has another id.
  absl::Status Add(const std::string& text, int64_t id, TokenType type);
  // Adds the "added_tokens" of a tokenizer.json. Returns UNIMPLEMENTED if a token that matches only
  // whole words is also in the vocabulary of the model.
  absl::Status AddAdded(const Json* list);
  // Each unused id below the largest id gets a placeholder text. Fails if there are too many.
  absl::Status FillGaps();

  std::optional<int32_t> Find(absl::string_view text) const;
  TokenType type(int32_t id) const { return static_cast<TokenType>(types_[id]); }
  void set_type(int32_t id, TokenType type) { types_[id] = static_cast<int32_t>(type); }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& path() const { return path_; }

  // Sets tokenizer.ggml.tokens and tokenizer.ggml.token_type. Also sets the lists of tokens that
  // match together with adjacent white space, and of tokens that do not match inside a word.
  void Write(GgufMetadata* metadata) const;

 private:
  const std::string path_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;  // 0 if the id has no token
  absl::flat_hash_map<std::string, int32_t> ids_;
  // ids of the tokens that have an option, by option
  std::map<std::string, std::vector<int32_t>> options_;
};

// Sets the ids of special tokens. The names in tokenizer_config.json override the ids in `tokens`.
// The other ids in `tokens.eos` also end a generation.
absl::Status WriteSpecialTokens(const Vocabulary& vocabulary, const JsonMembers& tokenizer_config,
                                const ConfigTokens& tokens, GgufMetadata* metadata);

// Sets the keys of a model that has no tokenizer. Its special tokens have ids but no texts.
void WriteNoTokenizer(const ConfigTokens& tokens, int64_t vocab_size, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_VOCABULARY_H_

// The tokens of a tokenizer while they are read: ids, types and names.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_VOCABULARY_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_VOCABULARY_H_

#include <cstdint>
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

namespace tidepool::engine::hf {

// GGUF's numbers.
enum class TokenKind : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Thread-compatible. Errors are INVALID_ARGUMENT and name the file.
class Vocabulary {
 public:
  explicit Vocabulary(std::string path) : path_(std::move(path)) {}

  // Fails where the id is out of range or has another text already, or the text another id.
  absl::Status Add(const std::string& text, int64_t id, TokenKind kind);
  // The "added_tokens" of a tokenizer.json.
  absl::Status AddAdded(const Json* list);
  // Ids between tokens that have none get names of their own.
  absl::Status FillGaps();

  std::optional<int32_t> Find(absl::string_view text) const;
  TokenKind kind(int32_t id) const { return static_cast<TokenKind>(kinds_[id]); }
  void set_kind(int32_t id, TokenKind kind) { kinds_[id] = static_cast<int32_t>(kind); }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& path() const { return path_; }

  // Sets the tokens and their types.
  void Write(GgufMetadata* metadata) const;

 private:
  const std::string path_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> kinds_;  // 0: no token
  absl::flat_hash_map<std::string, int32_t> ids_;
};

// Sets the ids of special tokens. Names of tokenizer_config.json go before the ids of the
// configurations; what ends a generation is in `tokens.eos` too.
absl::Status WriteSpecialTokens(const Vocabulary& vocabulary, const JsonMembers& tokenizer_config,
                                const ConfigTokens& tokens, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_VOCABULARY_H_

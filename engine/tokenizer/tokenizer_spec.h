// TokenizerSpec: what a checkpoint says about its tokenizer, as plain data.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_SPEC_H_
#define TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tidepool::engine {

class Checkpoint;

// The numbers are those of GGUF (tokenizer.ggml.token_type).
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// What becomes of text before it is cut into words.
enum class Normalizer : uint8_t { kNone, kNfc, kNfkc };

// What Hugging Face directories say and GGUF files do not.
struct TokenizerExtras {
  std::vector<int32_t> stop_ids;  // that end a generation, beside EOS, EOT and EOM
  // Special tokens that match more or less than their text: with the white space before or after
  // them, or not inside a word.
  std::vector<int32_t> lstrip_ids;
  std::vector<int32_t> rstrip_ids;
  std::vector<int32_t> single_word_ids;
  Normalizer normalizer = Normalizer::kNone;
  // Of characters and "▁", not of bytes.
  bool merges_by_rank = false;      // merges by `merges` as Hugging Face does, not by `scores`
  bool space_prefix_first = false;  // not after special tokens
  bool space_prefix_once = false;   // not before text that begins with a space
  bool split_at_spaces = false;     // no token has a space after other text
};

struct TokenizerSpec {
  // "gpt2": byte-level BPE; "llama": SentencePiece BPE; "t5": unigram; "gemma4"; "no_vocab" or
  // "none": there is no tokenizer
  std::string model;
  std::string pre;                     // name of the pre-tokenizer; empty: not given
  std::vector<std::string> tokens;     // by id, as the vocabulary writes them (" the" is "Ġthe")
  std::vector<TokenType> token_types;  // by id; empty: all are normal
  std::vector<std::string> merges;     // "LEFT RIGHT", best first
  std::vector<float> scores;           // by id; SentencePiece only
  // Ids of special tokens. -1 if the model has none.
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t eot_id = -1;
  int32_t eom_id = -1;
  int32_t unknown_id = -1;
  int32_t padding_id = -1;
  // Unset: the default of the tokenizer model.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  bool remove_extra_spaces = false;  // SentencePiece only
  TokenizerExtras extras;
  std::string chat_template;                           // Jinja; empty: none
  std::map<std::string, std::string> named_templates;  // tokenizer.chat_template.NAME
};

// Reads the tokenizer.* metadata. The tokens of a model without a tokenizer are empty texts, one
// for each row of the embedding. INVALID_ARGUMENT names the file and the key if
// tokenizer.ggml.model is missing, a key has the wrong type, arrays have different lengths, or a
// token type or id is out of range.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const Checkpoint& file);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_SPEC_H_

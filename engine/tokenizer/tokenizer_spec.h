// TokenizerSpec: a checkpoint's description of its tokenizer, as plain data.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_SPEC_H_
#define TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/token_type.h"

namespace tidepool::engine {

class Checkpoint;

// How text is normalised before it is split into words.
enum class Normalizer : uint8_t { kNone, kNfc, kNfkc };

// Settings that Hugging Face directories have and GGUF files do not have.
struct TokenizerExtras {
  std::vector<int32_t> stop_ids;  // tokens that end a generation, besides EOS, EOT and EOM
  // Special tokens that include the white space before them (lstrip) or after them (rstrip), and
  // special tokens that do not match inside a word (single_word).
  std::vector<int32_t> lstrip_ids;
  std::vector<int32_t> rstrip_ids;
  std::vector<int32_t> single_word_ids;
  Normalizer normalizer = Normalizer::kNone;
  // The next four apply to vocabularies of characters and "▁", not to byte-level vocabularies.
  // merge in the order of `merges`, as Hugging Face does, not by `scores`
  bool merges_by_rank = false;
  bool space_prefix_first = false;  // add no space prefix after special tokens
  bool space_prefix_once = false;   // add no space prefix to text that begins with a space
  bool split_at_spaces = false;     // no token contains a space after other text
};

struct TokenizerSpec {
  // "gpt2": byte-level BPE; "llama": SentencePiece BPE; "t5": unigram; "gemma4": merges of
  // characters; "no_vocab" or "none": no tokenizer
  std::string model;
  std::string pre;                     // name of the pre-tokenizer; empty if the file has none
  std::vector<std::string> tokens;     // by id, in the vocabulary's notation (" the" is "Ġthe")
  std::vector<TokenType> token_types;  // by id; if empty, all tokens are normal
  std::vector<std::string> merges;     // "LEFT RIGHT"; earlier merges have precedence
  std::vector<float> scores;           // by id; only for SentencePiece
  // The ids of special tokens. -1 if the model has no such token.
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t eot_id = -1;
  int32_t eom_id = -1;
  int32_t unknown_id = -1;
  int32_t padding_id = -1;
  // If unset, the default of the tokenizer model applies.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  bool remove_extra_spaces = false;  // only for SentencePiece
  TokenizerExtras extras;
  std::string chat_template;  // Jinja source; empty if there is none
  // templates from tokenizer.chat_template.NAME, by NAME
  std::map<std::string, std::string> named_templates;
};

// Reads the tokenizer.* metadata. If the model has no tokenizer, the spec has one token with an
// empty text for each row of the embedding. Returns INVALID_ARGUMENT with the file and the key if
// tokenizer.ggml.model is missing, a key has the wrong type, arrays have different lengths, or a
// token type or id is out of range.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const Checkpoint& file);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_SPEC_H_

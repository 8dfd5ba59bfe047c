// Tokenizer: converts text to token ids and back. Its Create checks the limits of a vocabulary.
//
//   ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerSpec(gguf));
//   ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Create(std::move(spec)));
//   ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer->Encode("The sky is",
//                    SpecialTokens::kAsText, AddBos::kModelDefault));
//   StreamDecoder decoder(tokenizer.get());
//   for (int32_t id : ids) text += decoder.Feed(id);
//   text += decoder.Flush();
//
// The ids are the same as those of Hugging Face's tokenizers and of SentencePiece, with two
// exceptions. First, text is normalised to Unicode NFC only if the checkpoint requires it. A GGUF
// file cannot require this, so for GGUF files decomposed accents in text get other ids. Second, a
// vocabulary's space prefix is also added after every special token, as in llama.cpp. Invalid UTF-8
// is not replaced: it becomes the tokens of its bytes.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/tokenizer/special_trie.h"
#include "engine/tokenizer/text_piece.h"
#include "engine/tokenizer/tokenizer_spec.h"

namespace tidepool::engine {

// How to encode a control token's name, such as "<|im_end|>", in a text. User-defined tokens (such
// as "<tool_call>", which is not a control token) are always recognised.
enum class SpecialTokens : uint8_t {
  kAsText,  // as the ten characters of the name
  kParse,   // as the control token
};

enum class AddBos : uint8_t {
  kNo,
  kModelDefault,  // add BOS at the start (and EOS at the end) if the model was trained with them
  kContinue,      // do not add BOS or a space prefix, because the text continues earlier text
};

// How decoded text shows control tokens.
enum class ControlText : uint8_t {
  kSkip,  // control tokens are omitted
  kKeep,  // control tokens appear as their names
};

// Thread-safe: immutable after Create. Large because it encodes, decodes, and answers all queries
// about a vocabulary (ids, bytes, special tokens, limits).
class Tokenizer {
 public:
  // Returns UNIMPLEMENTED with the name of an unknown tokenizer model or pre-tokenizer. Returns
  // INVALID_ARGUMENT with the part of the spec that is wrong: an id outside the vocabulary; no
  // tokens, or more than 2^24; a token of more than 4096 bytes, or a duplicate token; scores that
  // are missing or not numbers; a merge that is not a pair, or a duplicate merge; more than 2^25
  // merges; an incomplete set of byte tokens.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the ids of `text`, which may be any bytes. Takes O(n log n) time. A byte without a
  // token is dropped (SmolLM2 lacks some control characters). Returns INVALID_ARGUMENT for more
  // than 1 GiB.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, SpecialTokens special,
                                              AddBos add_bos) const;

  // Returns the ids of a rendered chat template. The pieces are joined to one text, so a word may
  // cross the border of two pieces. A control token is recognised only if all of its bytes come
  // from the template. Chat templates write BOS themselves, so pass AddBos::kNo for them.
  absl::StatusOr<std::vector<int32_t>> EncodePieces(absl::Span<const TextPiece> pieces,
                                                    AddBos add_bos) const;

  // Returns the bytes of the text that begins with `ids`. This is the inverse of Encode if each
  // byte has a token and the text contains no "▁" (U+2581), which SentencePiece vocabularies treat
  // as a space. Removes the space prefixes: one space at the start, and one after each special
  // token that is written as its name. Returns INVALID_ARGUMENT for an id outside the vocabulary.
  absl::StatusOr<std::string> DecodeBytes(absl::Span<const int32_t> ids, ControlText control) const;

  // Like DecodeBytes, but returns valid UTF-8: invalid bytes become U+FFFD.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, ControlText control) const;

  int vocab_size() const { return static_cast<int>(token_bytes_.size()); }
  bool IsValid(int32_t id) const { return id >= 0 && id < vocab_size(); }

  // The functions below require IsValid(id).

  // The token's bytes, which may be a part of a character. For a control token, the bytes of its
  // name.
  absl::string_view TokenBytes(int32_t id) const { return token_bytes_[id]; }
  // The token's text in the vocabulary's notation, such as "Ġthe".
  absl::string_view TokenText(int32_t id) const { return spec_.tokens[id]; }
  TokenType type(int32_t id) const { return types_[id]; }
  // Returns true for control tokens and unknown tokens. They have no text.
  bool IsControl(int32_t id) const {
    return types_[id] == TokenType::kControl || types_[id] == TokenType::kUnknown;
  }
  // Returns true for control, unknown and user-defined tokens. They are never a part of a word.
  bool IsSpecial(int32_t id) const {
    return IsControl(id) || types_[id] == TokenType::kUserDefined;
  }
  bool IsEndOfGeneration(int32_t id) const { return is_stop_[id]; }

  // The ids of the tokens that end a generation, in ascending order: EOS, EOT, EOM, and tokens with
  // known names.
  absl::Span<const int32_t> stop_ids() const { return stop_ids_; }

  // Both are -1 if the model has no such token.
  int32_t bos_id() const { return spec_.bos_id; }
  int32_t eos_id() const { return spec_.eos_id; }
  // The texts of BOS and EOS, for chat templates. "" if the model has no such token.
  absl::string_view bos_text() const { return spec_.bos_id < 0 ? "" : TokenText(spec_.bos_id); }
  absl::string_view eos_text() const { return spec_.eos_id < 0 ? "" : TokenText(spec_.eos_id); }
  bool adds_bos() const { return add_bos_; }
  bool adds_eos() const { return add_eos_; }

  // Returns the id of the token whose text in the vocabulary's notation is `token_text`.
  std::optional<int32_t> FindToken(absl::string_view token_text) const;

  // The spec that the tokenizer was created from. It contains, for example, the chat templates.
  const TokenizerSpec& spec() const { return spec_; }

 protected:
  explicit Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {}

  // Whether a space prefix may be added to a text.
  enum class SpacePrefix : uint8_t { kAdd, kNone };
  // What is wrong with a merge.
  enum class MergeFault : uint8_t { kNone, kAlphabet, kRepeated };

  // Checks the spec and sets all members below. A subclass sets its defaults of add_bos_ and
  // add_eos_ before it calls Init.
  absl::Status Init();

  // Fills token_bytes_ according to types_. token_bytes_ already has its final size.
  virtual void FillTokenBytes() = 0;

  // Appends the ids of `text`. Requires: `text` contains no special tokens and is not empty.
  virtual absl::Status EncodeText(absl::string_view text, SpacePrefix prefix,
                                  std::vector<int32_t>* ids) const = 0;

  // Calls `add` with the left and the right part of each merge, in order. Returns INVALID_ARGUMENT
  // with the first merge that is not a pair of strings, or that `add` rejects.
  absl::Status ForEachMerge(
      absl::FunctionRef<MergeFault(absl::string_view, absl::string_view)> add) const;

  TokenizerSpec spec_;
  std::vector<TokenType> types_;          // by id; wrong types of known files are corrected
  std::vector<std::string> token_bytes_;  // by id
  std::vector<bool> is_stop_;             // by id
  std::vector<int32_t> stop_ids_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool add_space_prefix_ = false;

 private:
  // A run of bytes with one origin. It ends at byte `end` of the whole text.
  struct Run {
    size_t end;
    TextOrigin origin;
  };

  absl::Status CheckCounts() const;
  absl::Status CheckSpec() const;
  void CorrectTypes();
  absl::Status FindSpecials();
  void FindStopTokens();
  absl::StatusOr<std::vector<int32_t>> EncodeRuns(absl::string_view text,
                                                  absl::Span<const Run> runs, AddBos add_bos) const;

  SpecialTrie specials_;
  // the keys are views into spec_.tokens
  absl::flat_hash_map<absl::string_view, int32_t> id_by_text_;
};

// Thread-compatible. Converts tokens, one by one, to text of whole characters. Keeps every space,
// because its text continues earlier text. A copy continues at the same point. To resume a
// generation, feed its earlier tokens. The tokenizer must outlive the decoder.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer* tokenizer, ControlText control = ControlText::kSkip)
      : tokenizer_(tokenizer), control_(control) {}

  // Returns the characters that are complete with `id`; there may be none. Bytes that cannot be a
  // part of a character become U+FFFD. Requires: tokenizer->IsValid(id).
  std::string Feed(int32_t id);

  // Ends the text. Returns U+FFFD if a character is incomplete, otherwise "". Afterwards the
  // decoder can be used for another text.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  ControlText control_;
  std::string tail_;  // the start of an incomplete character
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_H_

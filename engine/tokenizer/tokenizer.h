// Tokenizer: converts text to token ids and back.
//
//   ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerSpec(gguf));
//   ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Create(std::move(spec)));
//   ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer->Encode("The sky is",
//                    SpecialTokens::kAsText, AddBos::kModelDefault));
//   StreamDecoder decoder(tokenizer.get());
//   for (int32_t id : ids) text += decoder.Feed(id);
//   text += decoder.Flush();
//
// The ids are those of Hugging Face's tokenizers and of SentencePiece, with two exceptions. Text is
// normalised to Unicode NFC only if the checkpoint asks for it. A GGUF file never does; this
// matters for decomposed accents. And as in llama.cpp, a vocabulary's space prefix is also added
// after every special token. Invalid UTF-8 is kept, as the tokens of its bytes.
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

// How to encode "<|im_end|>" in a text. A vocabulary's user-defined tokens (words such as
// "<tool_call>", which are not control tokens) are recognised in both cases.
enum class SpecialTokens : uint8_t {
  kAsText,  // as ten characters
  kParse,   // as the control token
};

enum class AddBos : uint8_t {
  kNo,
  kModelDefault,  // add BOS (and EOS at the end) if the model was trained with it
  kContinue,      // no: the text continues ordinary tokens, so no space prefix is added
};

// How control tokens appear in decoded text.
enum class ControlText : uint8_t {
  kSkip,  // omitted
  kKeep,  // written as their names
};

// Thread-safe: immutable after Create. Large because it combines encoding and decoding with all
// queries about a vocabulary (ids, bytes, special tokens, limits).
class Tokenizer {
 public:
  // UNIMPLEMENTED names an unknown tokenizer model or pre-tokenizer. INVALID_ARGUMENT names a
  // broken part of the spec: an id outside the vocabulary; no tokens or more than 2^24; a token of
  // more than 4096 bytes, or a duplicate; scores that are missing or not numbers; a merge that is
  // not a pair, or a duplicate; more than 2^25 merges; an incomplete set of byte tokens.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the ids of `text`, which may be any bytes, up to 1 GiB. The time is linear, except for
  // a logarithmic factor. A byte without a token (SmolLM2 lacks some control characters) is
  // dropped. INVALID_ARGUMENT for a longer text.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, SpecialTokens special,
                                              AddBos add_bos) const;

  // Returns the ids of a rendered chat template. The pieces form one text: words may cross their
  // borders, but a control token is recognised only if all of its bytes come from the template.
  // Chat templates write their own BOS, so pass AddBos::kNo for them.
  absl::StatusOr<std::vector<int32_t>> EncodePieces(absl::Span<const TextPiece> pieces,
                                                    AddBos add_bos) const;

  // Returns the bytes of the text that begins with `ids`. This inverts Encode if each byte has a
  // token, and if the text has no "▁" (U+2581), which SentencePiece vocabularies treat as a space.
  // Removes the space prefix: one space at the beginning, and one after each special token that is
  // written as its name. INVALID_ARGUMENT for an id outside the vocabulary.
  absl::StatusOr<std::string> DecodeBytes(absl::Span<const int32_t> ids, ControlText control) const;

  // Same as text: invalid UTF-8 becomes U+FFFD.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, ControlText control) const;

  int vocab_size() const { return static_cast<int>(token_bytes_.size()); }
  bool IsValid(int32_t id) const { return id >= 0 && id < vocab_size(); }

  // The functions below require IsValid(id).

  // The token's bytes, which may be part of a character. For a control token, its name.
  absl::string_view TokenBytes(int32_t id) const { return token_bytes_[id]; }
  // The token as the vocabulary writes it ("Ġthe").
  absl::string_view TokenText(int32_t id) const { return spec_.tokens[id]; }
  TokenType type(int32_t id) const { return types_[id]; }
  // True for control and unknown tokens, which have no text.
  bool IsControl(int32_t id) const {
    return types_[id] == TokenType::kControl || types_[id] == TokenType::kUnknown;
  }
  // True for these and for user-defined tokens, which are never part of a word.
  bool IsSpecial(int32_t id) const {
    return IsControl(id) || types_[id] == TokenType::kUserDefined;
  }
  bool IsEndOfGeneration(int32_t id) const { return is_stop_[id]; }

  // The tokens that end a generation, ascending: EOS, EOT, EOM, and tokens with known names.
  absl::Span<const int32_t> stop_ids() const { return stop_ids_; }

  // -1 if the model has none.
  int32_t bos_id() const { return spec_.bos_id; }
  int32_t eos_id() const { return spec_.eos_id; }
  // Their names, for chat templates. "" if the model has none.
  absl::string_view bos_text() const { return spec_.bos_id < 0 ? "" : TokenText(spec_.bos_id); }
  absl::string_view eos_text() const { return spec_.eos_id < 0 ? "" : TokenText(spec_.eos_id); }
  bool adds_bos() const { return add_bos_; }
  bool adds_eos() const { return add_eos_; }

  // Returns the id of the token that the vocabulary writes as `token_text`.
  std::optional<int32_t> FindToken(absl::string_view token_text) const;

  // The spec that the tokenizer was created from: names, chat templates.
  const TokenizerSpec& spec() const { return spec_; }

 protected:
  explicit Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {}

  // Whether a space prefix may be added to a text.
  enum class SpacePrefix : uint8_t { kAdd, kNone };
  // The fault of a merge.
  enum class MergeFault : uint8_t { kNone, kAlphabet, kRepeated };

  // Checks the spec and fills all members below. Subclasses set the defaults of add_bos_ and
  // add_eos_ first.
  absl::Status Init();

  // Fills token_bytes_, which already has its size, using types_.
  virtual void FillTokenBytes() = 0;

  // Appends the ids of `text`. Requires: it contains no special tokens and is not empty.
  virtual absl::Status EncodeText(absl::string_view text, SpacePrefix prefix,
                                  std::vector<int32_t>* ids) const = 0;

  // Calls `add` with both sides of each merge, in order. INVALID_ARGUMENT names the first one that
  // is not a pair of strings, or that `add` rejects.
  absl::Status ForEachMerge(
      absl::FunctionRef<MergeFault(absl::string_view, absl::string_view)> add) const;

  TokenizerSpec spec_;
  std::vector<TokenType> types_;          // by id; corrected if a file is known to be wrong
  std::vector<std::string> token_bytes_;  // by id
  std::vector<bool> is_stop_;             // by id
  std::vector<int32_t> stop_ids_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool add_space_prefix_ = false;

 private:
  // A run of one origin that ends at byte `end` of the whole text.
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
  absl::flat_hash_map<absl::string_view, int32_t> id_by_text_;  // views into spec_.tokens
};

// Thread-compatible. Converts tokens one by one to text of whole characters. It keeps every space,
// because the text continues earlier text. Copyable: a copy continues from the same point. To
// resume a generation, feed its earlier tokens. The tokenizer outlives it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer* tokenizer, ControlText control = ControlText::kSkip)
      : tokenizer_(tokenizer), control_(control) {}

  // Returns the characters that `id` completes, possibly none. Bytes that cannot be part of a
  // character become U+FFFD. Requires: tokenizer->IsValid(id).
  std::string Feed(int32_t id);

  // Ends the text: returns U+FFFD for an incomplete character, else "". Then the decoder can be
  // reused.
  std::string Flush();

  // Number of bytes held back, 0 to 3.
  size_t pending_bytes() const { return tail_.size(); }

 private:
  const Tokenizer* tokenizer_;
  ControlText control_;
  std::string tail_;  // beginning of an incomplete character
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_H_

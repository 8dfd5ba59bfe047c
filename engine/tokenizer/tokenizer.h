// Tokenizer: text to token ids and back.
//
//   ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerSpec(gguf));
//   ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Create(std::move(spec)));
//   ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer->Encode("The sky is",
//                    SpecialTokens::kAsText, AddBos::kModelDefault));
//   StreamDecoder decoder(tokenizer.get());
//   for (int32_t id : ids) text += decoder.Feed(id);
//   text += decoder.Flush();
//
// Ids are those of Hugging Face's tokenizers and of SentencePiece, save that text is brought into
// Unicode NFC only where the checkpoint says so (a GGUF file never does; it matters to decomposed
// accents), and that, as in llama.cpp, a vocabulary's space prefix also stands behind every special
// token.
// Bytes that are not UTF-8 are kept, as the tokens of their values.
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

// What "<|im_end|>" in a text means. User-defined tokens of a vocabulary (words such as
// "<tool_call>" that carry no control) are recognised either way.
enum class SpecialTokens : uint8_t {
  kAsText,  // ten characters
  kParse,   // the control token
};

enum class AddBos : uint8_t {
  kNo,
  kModelDefault,  // a BOS in front (and an EOS behind) where the model is trained with one
  kContinue,      // no: the text goes on from ordinary tokens, so that no space prefix is added
};

// How control tokens appear in decoded text.
enum class ControlText : uint8_t {
  kSkip,  // not at all
  kKeep,  // as their names
};

// Thread-safe: immutable after Create. Large because it answers what callers ask of a vocabulary
// (ids, bytes, special tokens, limits) beside encoding and decoding.
class Tokenizer {
 public:
  // Errors: UNIMPLEMENTED names a tokenizer model or pre-tokenizer that is not known;
  // INVALID_ARGUMENT names a broken part of the spec: an id outside the vocabulary, no tokens or
  // more than 2^24, a token of more than 4096 bytes or twice, scores that are missing or no
  // numbers, a merge that is not a pair or stands there twice, more than 2^25 merges, byte tokens
  // of which some are missing.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text`, which may be any bytes, up to 1 GiB, in time linear in it but for a logarithm. A
  // byte that the vocabulary has no token for (SmolLM2 lacks some control characters) becomes
  // nothing. INVALID_ARGUMENT: a longer text.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, SpecialTokens special,
                                              AddBos add_bos) const;

  // Ids of a rendered chat template. The pieces are one text: words run across their borders, but
  // a control token is recognised only where all of its bytes come from the template. Chat
  // templates write their own BOS: pass AddBos::kNo for them.
  absl::StatusOr<std::vector<int32_t>> EncodePieces(absl::Span<const TextPiece> pieces,
                                                    AddBos add_bos) const;

  // The bytes of the text that begins with `ids`: what Encode got, if each of its bytes has a token
  // and it had no "▁" (U+2581) for a SentencePiece vocabulary, which reads that as a space. The
  // space prefix goes: one space at the beginning, and one behind each special token whose name
  // stands in the text. INVALID_ARGUMENT: an id outside the vocabulary.
  absl::StatusOr<std::string> DecodeBytes(absl::Span<const int32_t> ids, ControlText control) const;

  // The same as text: what is not UTF-8 becomes U+FFFD.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, ControlText control) const;

  int vocab_size() const { return static_cast<int>(token_bytes_.size()); }
  bool IsValid(int32_t id) const { return id >= 0 && id < vocab_size(); }

  // The functions below require IsValid(id).

  // The bytes that the token stands for: any part of a character. For a control token its name.
  absl::string_view TokenBytes(int32_t id) const { return token_bytes_[id]; }
  // The token in the vocabulary's own writing ("Ġthe").
  absl::string_view TokenText(int32_t id) const { return spec_.tokens[id]; }
  TokenType type(int32_t id) const { return types_[id]; }
  // Control and unknown tokens: no text of their own.
  bool IsControl(int32_t id) const {
    return types_[id] == TokenType::kControl || types_[id] == TokenType::kUnknown;
  }
  // Those and user-defined ones: tokens that stand between texts, never inside a word.
  bool IsSpecial(int32_t id) const {
    return IsControl(id) || types_[id] == TokenType::kUserDefined;
  }
  bool IsEndOfGeneration(int32_t id) const { return is_stop_[id]; }

  // The tokens that end a generation, ascending: EOS, EOT, EOM and those known by name.
  absl::Span<const int32_t> stop_ids() const { return stop_ids_; }

  // -1: the model has none.
  int32_t bos_id() const { return spec_.bos_id; }
  int32_t eos_id() const { return spec_.eos_id; }
  // Their names, for chat templates; "" where the model has none.
  absl::string_view bos_text() const { return spec_.bos_id < 0 ? "" : TokenText(spec_.bos_id); }
  absl::string_view eos_text() const { return spec_.eos_id < 0 ? "" : TokenText(spec_.eos_id); }
  bool adds_bos() const { return add_bos_; }
  bool adds_eos() const { return add_eos_; }

  // The id of the token of this name in the vocabulary's own writing.
  std::optional<int32_t> FindToken(absl::string_view token_text) const;

  // What the tokenizer was made of: names, chat templates.
  const TokenizerSpec& spec() const { return spec_; }

 protected:
  explicit Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {}

  // Whether a space prefix may stand in front of a text.
  enum class SpacePrefix : uint8_t { kAdd, kNone };
  // What is wrong with a merge.
  enum class MergeFault : uint8_t { kNone, kAlphabet, kRepeated };

  // Checks the spec and fills everything below; the kind of tokenizer sets the defaults of
  // add_bos_ and add_eos_ first.
  absl::Status Init();

  // Fills token_bytes_, which has its size, by types_.
  virtual void FillTokenBytes() = 0;

  // Appends the ids of `text`, which has no special tokens and is not empty.
  virtual absl::Status EncodeText(absl::string_view text, SpacePrefix prefix,
                                  std::vector<int32_t>* ids) const = 0;

  // Calls `add` with both sides of each merge in order. INVALID_ARGUMENT names the first that is
  // not a pair of strings or that `add` finds fault with.
  absl::Status ForEachMerge(
      absl::FunctionRef<MergeFault(absl::string_view, absl::string_view)> add) const;

  TokenizerSpec spec_;
  std::vector<TokenType> types_;          // by id, corrected where a file is known to be wrong
  std::vector<std::string> token_bytes_;  // by id
  std::vector<bool> is_stop_;             // by id
  std::vector<int32_t> stop_ids_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool add_space_prefix_ = false;

 private:
  // A stretch of one origin, up to `end` bytes of the whole text.
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

// Turns tokens, one by one, into text of whole characters, every space as it is: the text goes on
// from what stands before it. Thread-compatible. Copyable plain data:
// a copy taken anywhere goes on from there, and a generation is resumed by feeding its earlier
// tokens. The tokenizer outlives it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer* tokenizer, ControlText control = ControlText::kSkip)
      : tokenizer_(tokenizer), control_(control) {}

  // The characters that `id` completes, perhaps none. Bytes that can no longer become a character
  // come out as U+FFFD. Requires tokenizer->IsValid(id).
  std::string Feed(int32_t id);

  // The end: U+FFFD for an incomplete character, else "". The decoder is then as new.
  std::string Flush();

  // Bytes held back, 0 to 3.
  size_t pending_bytes() const { return tail_.size(); }

 private:
  const Tokenizer* tokenizer_;
  ControlText control_;
  std::string tail_;  // the beginning of a character
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_TOKENIZER_H_

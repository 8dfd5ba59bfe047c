// PreTokenizer: splits text into the words that byte-pair merges never cross.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_PRE_TOKENIZER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::engine {

// The rules for a value of tokenizer.ggml.pre.
struct PreTokenizerRules {
  // Regular expressions (Unicode, Perl's syntax), applied one after the other, each to the pieces
  // of the previous one. Both the matches and the gaps between them become pieces.
  std::vector<std::string> passes;
  bool ignore_merges = false;  // a piece that is a token is not merged
  bool add_bos = false;        // default if the file does not say
};

// "" gives the rules for files without a name. UNIMPLEMENTED lists the known names.
absl::StatusOr<PreTokenizerRules> FindPreTokenizerRules(absl::string_view name);

// The names that FindPreTokenizerRules knows, except "".
std::vector<std::string> KnownPreTokenizers();

// Thread-safe: immutable after Create.
class PreTokenizer {
 public:
  // INTERNAL if a pattern does not compile.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<std::string>& passes);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `emit` with the pieces of `text` in order. Concatenated, they are the text. Requires:
  // valid UTF-8. RESOURCE_EXHAUSTED if a match takes more steps than any text of this length
  // should.
  absl::Status Split(absl::string_view text, absl::FunctionRef<void(absl::string_view)> emit) const;

 private:
  class Pass;
  struct Scratch;

  PreTokenizer();
  absl::Status SplitFrom(size_t pass, absl::string_view text, Scratch* scratch,
                         absl::FunctionRef<void(absl::string_view)> emit) const;

  std::vector<Pass> passes_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_PRE_TOKENIZER_H_

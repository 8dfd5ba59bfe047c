// PreTokenizer: splits text into words. Byte-pair merges never cross the border of a word.
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

// The rules for one value of tokenizer.ggml.pre.
struct PreTokenizerRules {
  // Regular expressions (Unicode, Perl's syntax). Each expression is applied to the pieces that the
  // previous expression produced. Both the matches and the gaps between them become pieces.
  std::vector<std::string> passes;
  bool ignore_merges = false;  // if a whole piece is a token, it is used without merging
  bool add_bos = false;        // whether to add BOS if the file does not say so
};

// Returns the rules of a name. "" gives the rules for files without a name. For an unknown name,
// returns UNIMPLEMENTED with the known names.
absl::StatusOr<PreTokenizerRules> FindPreTokenizerRules(absl::string_view name);

// The names that FindPreTokenizerRules knows, except "".
std::vector<std::string> KnownPreTokenizers();

// Thread-safe: immutable after Create.
class PreTokenizer {
 public:
  // Returns INTERNAL if a pattern does not compile.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<std::string>& passes);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `emit` with the pieces of `text` in order. The concatenation of all pieces is `text`.
  // Requires: `text` is valid UTF-8. Returns RESOURCE_EXHAUSTED if a match takes more steps than is
  // plausible for a text of this length.
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

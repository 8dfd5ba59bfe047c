// PreTokenizer: cuts text into the words that byte-pair merges never cross.
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

// What a name in tokenizer.ggml.pre implies.
struct PreTokenizerRules {
  // Regular expressions (Unicode, Perl's syntax), applied one after the other, each to the pieces
  // that the ones before left: matches and the gaps between them become pieces.
  std::vector<std::string> passes;
  bool ignore_merges = false;  // a piece that is a token is taken whole
  bool add_bos = false;        // where the file does not say
};

// "" is the rule of files that name none. UNIMPLEMENTED lists the names that are known.
absl::StatusOr<PreTokenizerRules> FindPreTokenizerRules(absl::string_view name);

// The names that FindPreTokenizerRules knows, without "".
std::vector<std::string> KnownPreTokenizers();

// Thread-safe: immutable after Create.
class PreTokenizer {
 public:
  // INTERNAL: a pattern that does not compile.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<std::string>& passes);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `emit` with the pieces of `text` in order; their concatenation is the text. Requires
  // valid UTF-8. RESOURCE_EXHAUSTED: a match would take more work than any text of this length
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

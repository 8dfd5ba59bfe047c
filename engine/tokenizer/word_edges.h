// Tests of the characters beside a special token. The classes \s and \w are those of the regex in
// Hugging Face's tokenizers.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_WORD_EDGES_H_
#define TIDEPOOL_ENGINE_TOKENIZER_WORD_EDGES_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace tidepool::engine {

// Returns the size in bytes of the white space (\s*) at the beginning or the end of `text`.
size_t SpacesAtStart(absl::string_view text);
size_t SpacesAtEnd(absl::string_view text);

// Returns whether the first or last character is part of a word (\w). False if the text is empty.
bool StartsInWord(absl::string_view text);
bool EndsInWord(absl::string_view text);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_WORD_EDGES_H_

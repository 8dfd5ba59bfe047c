// Normalize: converts text to the Unicode normalisation form C or KC (UAX #15).
#ifndef TIDEPOOL_ENGINE_TOKENIZER_NORMALIZE_H_
#define TIDEPOOL_ENGINE_TOKENIZER_NORMALIZE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/tokenizer/tokenizer_spec.h"

namespace tidepool::engine {

// Returns the text in the given form. Requires: `text` is valid UTF-8. Thread-safe.
std::string Normalize(absl::string_view text, Normalizer form);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_NORMALIZE_H_

// The data that the tokenizer's tests read: the small vocabulary and the golden files.
#ifndef TIDEPOOL_TESTS_ENGINE_TOKENIZER_TEST_VOCABULARY_H_
#define TIDEPOOL_TESTS_ENGINE_TOKENIZER_TEST_VOCABULARY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/tokenizer/tokenizer_spec.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine {

// Returns tests/engine/tokenizer/golden/NAME, parsed. Ends the test if the file cannot be read.
nlohmann::ordered_json ReadGolden(absl::string_view name);

// Returns a vocabulary with the first 2,000 merges of SmolLM2 and the pre-tokenizer `pre`.
TokenizerSpec SmallSpec(absl::string_view pre);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_TOKENIZER_TEST_VOCABULARY_H_

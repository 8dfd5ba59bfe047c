// A tokenizer that is easy to understand: token b is the byte b, and there are a few other tokens.
#ifndef TIDEPOOL_TESTS_FAKES_BYTE_TOKENIZER_H_
#define TIDEPOOL_TESTS_FAKES_BYTE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::fakes {

// Ids 0 to 255 are bytes.
inline constexpr int32_t kEndToken = 256;    // <|end_of_text|>: ends a generation, no text
inline constexpr int32_t kStartToken = 257;  // <|start|>: control, no text
inline constexpr int32_t kOperaToken = 258;  // "opera": a word of five bytes
inline constexpr int kByteVocabSize = 259;

// Returns a tokenizer with byte-level BPE without merges.
std::unique_ptr<engine::Tokenizer> MakeByteTokenizer();

// Returns the bytes of `text` as token ids.
std::vector<int32_t> ByteTokens(absl::string_view text);

}  // namespace tidepool::fakes

#endif  // TIDEPOOL_TESTS_FAKES_BYTE_TOKENIZER_H_

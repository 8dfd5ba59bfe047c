// Loads the tokenizer of a checkpoint: calls ReadTokenizerSpec and Tokenizer::Create, and puts the
// file's name before each error.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_LOAD_TOKENIZER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_LOAD_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Calls ReadTokenizerSpec, then Tokenizer::Create. Every error begins with the file's name. It is
// one line of limited length, even if the file has long or strange contents. Also returns
// INVALID_ARGUMENT if a byte-level BPE has no merges, because Create would accept it as a tokenizer
// of single bytes.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const Checkpoint& file);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_LOAD_TOKENIZER_H_

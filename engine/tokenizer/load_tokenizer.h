// The tokenizer of a GGUF file, in one step.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_LOAD_TOKENIZER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_LOAD_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// ReadTokenizerSpec, then Tokenizer::Create. Every error begins with the file's name and stays on
// one line of bounded length, whatever the file holds. INVALID_ARGUMENT also where a byte-level BPE
// has no merges: Create would make a tokenizer of single bytes of it.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const Checkpoint& file);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_LOAD_TOKENIZER_H_

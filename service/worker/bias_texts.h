// AddBiasTexts: biases by text as biases by token.
#ifndef TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_
#define TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_

#include "absl/status/status.h"
#include "engine/sampling/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Adds each text's bias to that of each of its tokens, as llama.cpp's server does; sums stay from
// -100 to 100. Special tokens that a text names are meant. Thread-safe. INVALID_ARGUMENT: a text
// without tokens.
absl::Status AddBiasTexts(const v1::Sampling& sampling, const engine::Tokenizer& tokenizer,
                          engine::SamplingParams* params);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_

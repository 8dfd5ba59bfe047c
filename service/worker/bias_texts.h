// AddBiasTexts: converts biases of texts to biases of tokens.
#ifndef TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_
#define TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_

#include "absl/status/status.h"
#include "engine/sampling/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Adds each text's bias to each of its tokens, as llama.cpp's server does. Sums are limited to
// -100..100. A text may name special tokens. Thread-safe. INVALID_ARGUMENT for a text without
// tokens.
absl::Status AddBiasTexts(const v1::Sampling& sampling, const engine::Tokenizer& tokenizer,
                          engine::SamplingParams* params);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_

// AddBiasTexts: converts the biases of texts (logit_bias_text) to biases of tokens.
#ifndef TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_
#define TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_

#include "absl/status/status.h"
#include "engine/sampling/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Adds the bias of each text to each token of the text, as llama.cpp's server does. Sums are
// limited to -100..100. Special tokens written in a text are read as special tokens.
// INVALID_ARGUMENT if a text has no tokens. Thread-safe.
absl::Status AddBiasTexts(const v1::Sampling& sampling, const engine::Tokenizer& tokenizer,
                          engine::SamplingParams* params);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_BIAS_TEXTS_H_

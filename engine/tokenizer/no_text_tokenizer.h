// NoTextTokenizer: the tokenizer of models that have none (tokenizer.ggml.model = "no_vocab").
#ifndef TIDEPOOL_ENGINE_TOKENIZER_NO_TEXT_TOKENIZER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_NO_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Thread-safe: immutable after Create. Created by Tokenizer::Create. Every id decodes to an empty
// text. Encoding a text that is not empty returns INVALID_ARGUMENT.
class NoTextTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

 private:
  explicit NoTextTokenizer(TokenizerSpec spec) : Tokenizer(std::move(spec)) {}

  void FillTokenBytes() override {}
  absl::Status EncodeText(absl::string_view text, SpacePrefix prefix,
                          std::vector<int32_t>* ids) const override;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_NO_TEXT_TOKENIZER_H_

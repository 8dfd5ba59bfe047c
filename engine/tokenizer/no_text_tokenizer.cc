#include "engine/tokenizer/no_text_tokenizer.h"

#include "absl/memory/memory.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

absl::StatusOr<std::unique_ptr<Tokenizer>> NoTextTokenizer::Create(TokenizerSpec spec) {
  auto tokenizer = absl::WrapUnique(new NoTextTokenizer(std::move(spec)));
  RETURN_IF_ERROR(tokenizer->Init());
  return tokenizer;
}

absl::Status NoTextTokenizer::EncodeText(absl::string_view, SpacePrefix,
                                         std::vector<int32_t>*) const {
  return absl::InvalidArgumentError(
      "this model has no tokenizer and cannot read text; send token ids instead");
}

}  // namespace tidepool::engine

// BpeTokenizer: a tokenizer with byte-level byte-pair encoding (tokenizer.ggml.model = "gpt2").
#ifndef TIDEPOOL_ENGINE_TOKENIZER_BPE_TOKENIZER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_BPE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/tokenizer/byte_pair_merger.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Thread-safe: immutable after Create. Created by Tokenizer::Create.
class BpeTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

 private:
  BpeTokenizer(TokenizerSpec spec, PreTokenizerRules rules, PreTokenizer pre_tokenizer);

  void FillTokenBytes() override;
  absl::Status EncodeText(absl::string_view text, SpacePrefix prefix,
                          std::vector<int32_t>* ids) const override;
  absl::Status FillMerges();

  const PreTokenizerRules rules_;
  const PreTokenizer pre_tokenizer_;
  // The bytes of each token that words can consist of, by id. The bytes of all other tokens are "",
  // so that merges never produce a control token.
  std::vector<std::string> word_bytes_;
  std::optional<BytePairMerger> merger_;  // created by FillMerges, which needs word_bytes_
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_BPE_TOKENIZER_H_

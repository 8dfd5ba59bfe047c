// How the fuzz targets of Hugging Face's tokenizers use a tokenizer that was read.
#ifndef TIDEPOOL_TESTS_FUZZ_HF_TOKENIZER_H_
#define TIDEPOOL_TESTS_FUZZ_HF_TOKENIZER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_file.h"

namespace tidepool::fuzz {

// Checks that an error is one line.
inline void CheckMessage(const absl::Status& status) {
  if (status.ok()) return;
  CHECK(!status.message().empty());
  CHECK(!absl::StrContains(status.message(), "\n"));
}

// Encodes and decodes with the tokenizer that the metadata describes, if it describes one.
inline void UseTokenizer(const engine::GgufMetadata& metadata) {
  const std::string header = engine::GgufHeader(metadata);
  const FuzzFile bytes(header.data(), header.size());
  const auto file = engine::GgufFile::Open(bytes.path());
  CheckMessage(file.status());
  if (!file.ok()) return;
  const auto tokenizer = engine::LoadTokenizer(*file);
  CheckMessage(tokenizer.status());
  if (!tokenizer.ok()) return;
  const auto ids = (*tokenizer)
                       ->Encode("The  sky <|im_end|>\xE2\x96\x81 e\xCC\x81\xFF",
                                engine::SpecialTokens::kParse, engine::AddBos::kModelDefault);
  CheckMessage(ids.status());
  if (ids.ok()) CheckMessage((*tokenizer)->Decode(*ids, engine::ControlText::kKeep).status());
}

}  // namespace tidepool::fuzz

#endif  // TIDEPOOL_TESTS_FUZZ_HF_TOKENIZER_H_

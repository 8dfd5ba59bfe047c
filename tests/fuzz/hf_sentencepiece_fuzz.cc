// libFuzzer target: any bytes as a SentencePiece tokenizer.model. If a tokenizer results, it
// encodes and decodes text.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:hf_sentencepiece_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/hf/sentencepiece.h"
#include "tests/fuzz/hf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidepool::engine;  // NOLINT
  const std::string path = "fuzz";
  GgufMetadata metadata;
  const hf::Json config;
  const hf::ConfigTokens tokens;
  const absl::Status read =
      hf::ReadSentencePiece(path, {reinterpret_cast<const char*>(data), size},
                            {.config_path = path, .config = &config, .tokens = &tokens}, &metadata);
  tidepool::fuzz::CheckMessage(read);
  if (read.ok()) tidepool::fuzz::UseTokenizer(metadata);
  return 0;
}

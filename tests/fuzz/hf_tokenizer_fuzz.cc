// libFuzzer target: any bytes as tokenizer.json and tokenizer_config.json of a Hugging Face
// directory. If a tokenizer results, it encodes and decodes text.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:hf_tokenizer_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/chat_template.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/hf/tokenizer_json.h"
#include "tests/fuzz/hf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidepool::engine;  // NOLINT
  using tidepool::fuzz::CheckMessage;
  const std::string path = "fuzz";
  const auto json = hf::ParseJsonObject(path, {reinterpret_cast<const char*>(data), size});
  CheckMessage(json.status());
  if (!json.ok()) return 0;
  GgufMetadata metadata;
  const hf::ConfigTokens tokens;
  CheckMessage(hf::ReadChatTemplate(path, *json, "", &metadata));
  const absl::Status read = hf::ReadTokenizerJson(
      path, *json, {.config_path = path, .config = &*json, .tokens = &tokens}, &metadata);
  CheckMessage(read);
  if (read.ok()) tidepool::fuzz::UseTokenizer(metadata);
  return 0;
}

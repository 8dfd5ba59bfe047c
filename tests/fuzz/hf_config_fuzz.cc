// libFuzzer target: any bytes as config.json and generation_config.json of a Hugging Face
// directory. If they parse, they are converted to the configuration of a model.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:hf_config_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/model/model_config.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_file.h"

namespace {

using namespace tidepool::engine;  // NOLINT

void CheckMessage(const absl::Status& status) {
  if (status.ok()) return;
  CHECK(!status.message().empty());
  CHECK(!absl::StrContains(status.message(), "\n"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = "fuzz";
  const auto json = hf::ParseJsonObject(path, {reinterpret_cast<const char*>(data), size});
  CheckMessage(json.status());
  if (!json.ok()) return 0;
  GgufMetadata metadata;
  hf::ConfigTokens tokens;
  CheckMessage(hf::ReadTokenIds(path, *json, &tokens));
  CheckMessage(hf::ReadGenerationConfig(path, *json, &metadata));
  const auto model = hf::ReadConfig(path, *json, &metadata);
  CheckMessage(model.status());
  if (!model.ok()) return 0;
  const std::string header = GgufHeader(metadata);
  const tidepool::fuzz::FuzzFile bytes(header.data(), header.size());
  const auto file = GgufFile::Open(bytes.path());
  CHECK_OK(file.status());
  CheckMessage(ModelConfig::Parse(*file).status());
  return 0;
}

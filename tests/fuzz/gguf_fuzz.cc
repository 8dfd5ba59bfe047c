// libFuzzer target: any bytes as a GGUF file. A file that parses is read in full, and then loaded
// as a model: its configuration, tokenizer, chat template and weights.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:gguf_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "engine/chat_template/chat_template.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_parser.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer_weights.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_spec.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_file.h"

namespace {

using namespace tidepool::engine;  // NOLINT

void CheckMessage(const absl::Status& status) {
  if (status.ok()) return;
  CHECK(!status.message().empty());
  CHECK(!absl::StrContains(status.message(), "\n"));
}

// Touches every value and every tensor's bytes.
void ReadContents(const GgufContents& contents) {
  for (const auto& entry : contents.entries) CHECK(!GgufFile::FormatValue(entry).empty());
  for (const auto& tensor : contents.tensors) {
    unsigned sum = 0;
    for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    CHECK(sum <= 255 * tensor.bytes);
    CHECK_EQ(tensor.row_bytes() * tensor.rows(), tensor.bytes);
  }
}

void ReadTokenizer(const GgufFile& file) {
  auto spec = ReadTokenizerSpec(file);
  CheckMessage(spec.status());
  if (!spec.ok()) return;
  CheckMessage(ChatTemplate::Parse(spec->chat_template).status());
  const auto tokenizer = Tokenizer::Create(*std::move(spec));
  CheckMessage(tokenizer.status());
  if (!tokenizer.ok()) return;
  const auto ids =
      (*tokenizer)
          ->Encode("The sky <|im_end|> \xC3\xA9", SpecialTokens::kParse, AddBos::kModelDefault);
  CheckMessage(ids.status());
  if (ids.ok()) CheckMessage((*tokenizer)->Decode(*ids, ControlText::kKeep).status());
}

void ReadModel(GgufFile file) {
  ReadTokenizer(file);
  const auto config = ModelConfig::Parse(file);
  CheckMessage(config.status());
  CHECK(file.SampledDigest().size() == 32);
  auto store = WeightStore::Create(std::move(file), {.threads = 1});
  CheckMessage(store.status());
  if (!config.ok() || !store.ok()) return;
  CheckMessage(
      LoadTransformerWeights(*config, store->get(), nullptr, ExpertLoading::kPacked).status());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::StatusOr<GgufContents> contents =
      ParseGguf("fuzz", absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data), size));
  CheckMessage(contents.status());
  if (contents.ok()) ReadContents(*contents);
  const tidepool::fuzz::FuzzFile bytes(data, size);
  auto file = GgufFile::Open(bytes.path());
  CheckMessage(file.status());
  if (file.ok()) ReadModel(*std::move(file));
  return 0;
}

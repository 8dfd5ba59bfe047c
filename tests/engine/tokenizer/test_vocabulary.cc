#include "tests/engine/tokenizer/test_vocabulary.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::engine {

nlohmann::ordered_json ReadGolden(absl::string_view name) {
  const std::string path = absl::StrCat("tests/engine/tokenizer/golden/", name);
  std::ifstream file(path);
  CHECK(file.good()) << "cannot read " << path;
  return nlohmann::ordered_json::parse(file);
}

TokenizerSpec SmallSpec(absl::string_view pre) {
  const nlohmann::ordered_json vocabulary = ReadGolden("small_vocab.json");
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = std::string(pre);
  spec.tokens = vocabulary["tokens"].get<std::vector<std::string>>();
  spec.merges = vocabulary["merges"].get<std::vector<std::string>>();
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  const size_t controls = vocabulary["controls"].get<size_t>();
  std::fill_n(spec.token_types.begin(), controls, TokenType::kControl);
  spec.bos_id = vocabulary["bos_id"].get<int32_t>();
  spec.eos_id = vocabulary["eos_id"].get<int32_t>();
  spec.unknown_id = vocabulary["unknown_id"].get<int32_t>();
  spec.add_bos = false;
  return spec;
}

}  // namespace tidepool::engine

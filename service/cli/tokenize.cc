// tokenize and detokenize: use the tokenizer of a model file without loading the weights.
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/status_macros.h"
#include "service/base/files.h"
#include "service/cli/commands.h"

namespace tidepool::service {
namespace {

absl::StatusOr<std::unique_ptr<engine::Tokenizer>> OpenTokenizer(const std::string& model) {
  ASSIGN_OR_RETURN(const engine::Checkpoint file, engine::OpenCheckpoint(model));
  return engine::LoadTokenizer(file);
}

}  // namespace

absl::Status RunTokenize(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Tokenizer> tokenizer,
                   OpenTokenizer(config.model.path));
  std::string text;
  if (config.input.text.has_value()) {
    text = *config.input.text;
  } else {
    ASSIGN_OR_RETURN(text, ReadFile(config.input.file.value_or("-"), kMaxTextBytes));
  }
  const auto special =
      config.input.parse_special ? engine::SpecialTokens::kParse : engine::SpecialTokens::kAsText;
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   tokenizer->Encode(text, special, engine::AddBos::kNo));
  console->PrintJson({{"token_ids", ids}});
  return console->out_status();
}

absl::Status RunDetokenize(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::Tokenizer> tokenizer,
                   OpenTokenizer(config.model.path));
  const auto control =
      config.input.parse_special ? engine::ControlText::kKeep : engine::ControlText::kSkip;
  ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(config.input.tokens, control));
  console->PrintJson({{"text", text}});
  return console->out_status();
}

}  // namespace tidepool::service

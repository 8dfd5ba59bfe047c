// perplexity: measures how well a model predicts a text file.
#include "engine/evaluation/perplexity.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "service/base/files.h"
#include "service/cli/commands.h"
#include "service/cli/load.h"

namespace tidepool::service {

absl::Status RunPerplexity(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(*config.input.file, kMaxTextBytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::ModelBundle> bundle, LoadBundle(config, console));
  const engine::Tokenizer& tokenizer = *bundle->tokenizer;
  ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      tokenizer.Encode(text, engine::SpecialTokens::kAsText, engine::AddBos::kModelDefault));
  engine::PerplexityOptions options;
  options.context = config.model.context;
  options.chunks = config.input.chunks;
  if (tokenizer.adds_bos()) options.first_token = tokenizer.bos_id();
  if (console->err_is_terminal()) {
    options.progress = [&](int64_t done, int64_t chunks) {
      console->Note(absl::StrFormat("\r\033[Kchunk %d of %d", done, chunks));
    };
  }
  const absl::StatusOr<engine::Perplexity> result =
      engine::ComputePerplexity(bundle->model.get(), ids, options);
  if (console->err_is_terminal()) console->Note("\r\033[K");
  RETURN_IF_ERROR(result.status());
  RETURN_IF_ERROR(bundle->model->Finish());
  const Json json = {{"model", bundle->name},
                     {"file", *config.input.file},
                     {"perplexity", result->perplexity},
                     {"standard_error", result->standard_error},
                     {"chunks", result->chunks},
                     {"context", config.model.context},
                     {"tokens_scored", result->tokens},
                     {"tokens_in_text", ids.size()}};
  return console->PrintResult(config.output.format, json, [&](const Json&) {
    return absl::StrFormat("perplexity %.4f +/- %.4f over %d tokens of %d chunks of %d\n",
                           result->perplexity, result->standard_error, result->tokens,
                           result->chunks, config.model.context);
  });
}

}  // namespace tidepool::service

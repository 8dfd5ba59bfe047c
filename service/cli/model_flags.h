// The flags that name a served model, and setters for the flags that control how a model runs.
#ifndef TIDEPOOL_SERVICE_CLI_MODEL_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_MODEL_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// Returns one group of Flags().
absl::Span<const FlagSpec> ModelFlagSpecs();

// Each function sets the flag's value, or returns why the value is invalid.
absl::Status SetKvMemory(absl::string_view value, Config* config);
absl::Status SetKvDisk(absl::string_view value, Config* config);
absl::Status SetKvType(absl::string_view value, Config* config);
absl::Status SetQuantizeTo(absl::string_view value, Config* config);
absl::Status SetIsa(absl::string_view value, Config* config);
absl::Status SetDevice(absl::string_view value, Config* config);

// Returns v1::Model.aliases: the --alias names, or else the model's file name without directory,
// extension and part number. The result is one line of valid UTF-8.
std::vector<std::string> AliasesOf(const std::vector<std::string>& named, absl::string_view path);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_MODEL_FLAGS_H_

// The flags that say under which names a model is served, and those names; and setters of flags
// that say how a model runs.
#ifndef TIDEPOOL_SERVICE_CLI_MODEL_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_MODEL_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// A part of Flags(), of one group.
absl::Span<const FlagSpec> ModelFlagSpecs();

// Each sets the flag's value, or returns the reason why it cannot be one.
absl::Status SetKvMemory(absl::string_view value, Config* config);
absl::Status SetKvDisk(absl::string_view value, Config* config);
absl::Status SetKvType(absl::string_view value, Config* config);
absl::Status SetQuantizeTo(absl::string_view value, Config* config);
absl::Status SetIsa(absl::string_view value, Config* config);
absl::Status SetDevice(absl::string_view value, Config* config);

// v1::Model.aliases: those that --alias names, else the name of the model's file without its
// folder, its ending and the number of a part. As one line of UTF-8.
std::vector<std::string> AliasesOf(const std::vector<std::string>& named, absl::string_view path);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_MODEL_FLAGS_H_

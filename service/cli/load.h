// Loading a model as a config says, with progress for people.
#ifndef TIDEPOOL_SERVICE_CLI_LOAD_H_
#define TIDEPOOL_SERVICE_CLI_LOAD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model_bundle.h"
#include "service/cli/console.h"
#include "service/config.h"

namespace tidepool::service {

// LoadModel of config.model. Where stderr is a terminal, a line there counts to 100 %.
absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOAD_H_

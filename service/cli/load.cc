#include "service/cli/load.h"

#include "absl/strings/str_format.h"

namespace tidepool::service {

absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console) {
  engine::LoadOptions options;
  options.threads = config.threads;
  options.precision = config.precision;
  options.isa = config.isa;
  options.kv_dtype = config.kv_type;
  int shown = -1;
  if (console->err_is_terminal()) {
    options.progress = [&](double fraction) {
      const int percent = static_cast<int>(fraction * 100);
      if (percent == shown) return;
      shown = percent;
      console->Note(absl::StrFormat("\rloading %s: %d %%", config.model, percent));
    };
  }
  absl::StatusOr<std::unique_ptr<engine::ModelBundle>> bundle =
      engine::LoadModel(config.model, options);
  // Wipes the line: what follows is not progress.
  if (shown >= 0) console->Note("\r\033[K");
  return bundle;
}

}  // namespace tidepool::service

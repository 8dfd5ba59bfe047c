// Loads a model as a config describes, and shows progress.
#ifndef TIDEPOOL_SERVICE_CLI_LOAD_H_
#define TIDEPOOL_SERVICE_CLI_LOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/loading/model_bundle.h"
#include "engine/loading/tiered_model.h"
#include "service/cli/config.h"
#include "service/cli/console.h"

namespace tidepool::service {

// Thread-compatible. Shows the slow parts of a load on stderr. If stderr is a terminal, one line
// counts to 100 %. Otherwise, a line is printed when packing begins and after each tenth of the
// packing. One more line is printed if hashing takes more than 2 s.
class LoadProgressLine {
 public:
  LoadProgressLine(const Config& config, Console* console);
  // Erases the progress line from the terminal.
  ~LoadProgressLine();
  LoadProgressLine(const LoadProgressLine&) = delete;
  LoadProgressLine& operator=(const LoadProgressLine&) = delete;

  // Valid as long as this object lives.
  engine::StageProgress callback();

 private:
  void Show(engine::LoadStage stage, double fraction);
  void Tell(double packed);
  void TellHashing(double fraction);

  const std::string model_;
  Console* const console_;
  std::string shown_;
  int printed_tenths_ = -1;  // number of printed tenths of a pack; -1: none
  const absl::Duration begun_;
  bool printed_hashing_ = false;
};

// Gets a note about a fault that was handled, as one line without newline. Thread-safe.
using NoteLine = std::function<void(absl::string_view line)>;
// Prints each line to the console's stderr.
NoteLine ConsoleNote(Console* console);

// Free bytes of the memory that holds the model's KV: that of the GPU, or of this machine
// (AvailableMemoryBytes). nullopt if unknown.
std::optional<int64_t> FreeBytesFor(const engine::ModelBundle& bundle);

// The options for loading config.model.path. `note` and `progress` are not set.
engine::LoadOptions LoadOptionsOf(const Config& config);

// Loads config.model.path. `note` must live as long as the model.
absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console, NoteLine note);
// The same, with ConsoleNote(console) as `note`.
absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOAD_H_

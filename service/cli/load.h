// Loading a model as a config says, with progress for people.
#ifndef TIDEPOOL_SERVICE_CLI_LOAD_H_
#define TIDEPOOL_SERVICE_CLI_LOAD_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/loading/model_bundle.h"
#include "engine/loading/tiered_model.h"
#include "service/cli/config.h"
#include "service/cli/console.h"

namespace tidepool::service {

// Shows on stderr what of a load takes long: a line that counts to 100 % where that is a terminal.
// Where it is none, a line tells that a pack is being written, and one more each tenth of it; one
// tells that a model is hashed, if that takes more than 2 s.
// Thread-compatible.
class LoadProgressLine {
 public:
  LoadProgressLine(const Config& config, Console* console);
  // Wipes the line: what follows is not progress.
  ~LoadProgressLine();
  LoadProgressLine(const LoadProgressLine&) = delete;
  LoadProgressLine& operator=(const LoadProgressLine&) = delete;

  // Valid as long as this is.
  engine::StageProgress callback();

 private:
  void Show(engine::LoadStage stage, double fraction);
  void Tell(double packed);
  void TellHashing(double fraction);

  const std::string model_;
  Console* const console_;
  std::string shown_;
  int told_ = -1;  // tenths of a pack; -1: none
  const absl::Duration begun_;
  bool told_hashing_ = false;
};

// Takes a line about trouble that is put right, with a verb and without an end; thread-safe.
using NoteLine = std::function<void(absl::string_view line)>;
// Lines on the console's stderr.
NoteLine ConsoleNote(Console* console);

// LoadModel of config.model.path. `note` is used as long as the model is.
absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console, NoteLine note);
// The same, with ConsoleNote.
absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOAD_H_

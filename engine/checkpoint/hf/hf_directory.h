// HfDirectory: reads a model directory that Hugging Face's transformers saved. The directory holds
// config.json, a tokenizer, and safetensors in one file or in shards with an index.
//
//   ASSIGN_OR_RETURN(Checkpoint checkpoint, HfDirectory::Open("SmolLM2-135M-Instruct"));
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_HF_DIRECTORY_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_HF_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/hf/tensors.h"

namespace tidepool::engine {

// Thread-safe: immutable after Open. Adds no data members to Checkpoint, so it can be moved into a
// Checkpoint. Its parts are all files that Open reads, so the checkpoint's digest covers all of
// them.
class HfDirectory : public Checkpoint {
 public:
  // Opens the directory. Errors name the file in it. Returns NOT_FOUND if a file is missing,
  // INVALID_ARGUMENT if its content is invalid, and UNIMPLEMENTED if the model is not supported.
  static absl::StatusOr<HfDirectory> Open(const std::string& path);

 private:
  HfDirectory() = default;

  std::string FilePath(absl::string_view name) const;
  bool HasFile(absl::string_view name) const;
  // Maps a file of the directory, adds it to the parts and returns its text.
  absl::StatusOr<absl::string_view> Map(absl::string_view name, absl::string_view expected);
  absl::StatusOr<hf::Json> MapJson(absl::string_view name);
  // Returns JSON null if there is no such file.
  absl::StatusOr<hf::Json> MapJsonIfThere(absl::string_view name);

  absl::Status ReadWeights(const hf::HfModel& model, GgufMetadata* metadata);
  absl::StatusOr<std::vector<std::string>> WeightFiles(std::map<std::string, std::string>* index);
  absl::Status ReadText(const hf::Json& config, int64_t vocab_size, GgufMetadata* metadata);
  absl::Status SetMetadata(const GgufMetadata& metadata);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_HF_DIRECTORY_H_

// HfDirectory: a directory as Hugging Face's transformers saves one: config.json, safetensors in
// one file or in shards with an index, and tokenizer.json.
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

// A Checkpoint, and nothing beside it: it may be moved into one. Its parts are all files that were
// read, so that a digest of it covers them. Immutable after Open, and then thread-safe.
class HfDirectory : public Checkpoint {
 public:
  // Errors name the file in the directory: NOT_FOUND for one that is missing, INVALID_ARGUMENT for
  // content, UNIMPLEMENTED for a design that is not supported.
  static absl::StatusOr<HfDirectory> Open(const std::string& path);

 private:
  HfDirectory() = default;

  std::string FilePath(absl::string_view name) const;
  bool HasFile(absl::string_view name) const;
  // Maps a file of the directory, which becomes a part; its text.
  absl::StatusOr<absl::string_view> Map(absl::string_view name, absl::string_view expected);
  absl::StatusOr<hf::Json> MapJson(absl::string_view name);
  // Null: there is no such file.
  absl::StatusOr<hf::Json> MapJsonIfThere(absl::string_view name);

  absl::Status ReadWeights(const hf::HfModel& model, int64_t vocab_size);
  absl::StatusOr<std::vector<std::string>> WeightFiles(std::map<std::string, std::string>* index);
  absl::Status ReadText(const hf::Json& config, GgufMetadata* metadata);
  absl::Status SetMetadata(const GgufMetadata& metadata);
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_HF_DIRECTORY_H_

// WorkerModel: the facts about its model that a worker uses and reports, apart from the engine.
#ifndef TIDEPOOL_SERVICE_WORKER_WORKER_MODEL_H_
#define TIDEPOOL_SERVICE_WORKER_WORKER_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat_template/chat_template.h"
#include "engine/sampling/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Immutable while a server uses it. The tokenizer outlives it.
struct WorkerModel {
  std::string name;                  // compared with GenerateRequest.model
  std::vector<std::string> aliases;  // Model.aliases
  std::string architecture;          // such as llama
  std::string digest;                // digest of samples of the checkpoint
  std::string content_digest;        // digest of every byte; empty: unknown
  std::string numerics_id;     // identifies everything that can change the last bits of a response
  std::string backend;         // human-readable, such as "cpu avx2, 2 threads"
  int64_t context_length = 0;  // maximum positions of one sequence
  int layers = 0;
  int hidden_size = 0;
  int experts = 0;
  int experts_used = 0;
  int64_t weight_bytes = 0;
  // Equal to EngineOptions::cache_seed, so that both name prefixes in the KV cache alike.
  std::string cache_seed;
  engine::SamplingParams default_sampling;  // values for fields that a request leaves unset

  const engine::Tokenizer* tokenizer = nullptr;
  // Without a template, the error: the file has none, or it uses features that ChatTemplate lacks.
  absl::StatusOr<engine::ChatTemplate> chat_template =
      absl::FailedPreconditionError("the model file has no chat template");
  v1::ToolSyntax tool_syntax = v1::TOOL_SYNTAX_UNSPECIFIED;  // detected from the template
};

// The fields that clients see, all of them set.
void ToProto(const WorkerModel& model, v1::Model* out);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_WORKER_MODEL_H_

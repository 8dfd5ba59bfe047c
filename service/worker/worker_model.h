// WorkerModel: what a worker tells and needs to know of its model, apart from the engine.
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

// Immutable once a server runs with it. The tokenizer outlives it.
struct WorkerModel {
  std::string name;                  // what GenerateRequest.model asks for
  std::vector<std::string> aliases;  // Model.aliases
  std::string architecture;          // such as llama
  std::string digest;                // names the checkpoint
  std::string content_digest;        // of every byte of it; empty: not known
  std::string numerics_id;           // names what may change the last bits of an answer
  std::string backend;               // for people: "cpu avx2, 2 threads"
  int64_t context_length = 0;        // positions of one sequence that the engine allows
  int layers = 0;
  int hidden_size = 0;
  int experts = 0;
  int experts_used = 0;
  int64_t weight_bytes = 0;
  // The engine's EngineOptions::cache_seed, so that prefixes have the same names in its KV cache.
  std::string cache_seed;
  engine::SamplingParams default_sampling;  // where a request leaves a field unset

  const engine::Tokenizer* tokenizer = nullptr;
  // Why there is none: the file has no template, or one past what ChatTemplate knows.
  absl::StatusOr<engine::ChatTemplate> chat_template =
      absl::FailedPreconditionError("the model file has no chat template");
  v1::ToolSyntax tool_syntax = v1::TOOL_SYNTAX_UNSPECIFIED;  // of that template
};

// What a client sees of it, with every field set.
void ToProto(const WorkerModel& model, v1::Model* out);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_WORKER_MODEL_H_

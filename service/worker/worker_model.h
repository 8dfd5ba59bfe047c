// WorkerModel: what a worker knows and reports about its model. The weights belong to the engine.
#ifndef TIDEPOOL_SERVICE_WORKER_WORKER_MODEL_H_
#define TIDEPOOL_SERVICE_WORKER_WORKER_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat_template/chat_template.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/sampling/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Immutable while a server uses it. The tokenizer must outlive it.
struct WorkerModel {
  std::string name;                  // GenerateRequest.model is compared with it
  std::vector<std::string> aliases;  // Model.aliases
  std::string architecture;          // such as llama
  std::string digest;                // digest of samples of the checkpoint's bytes
  std::string content_digest;        // digest of every byte of the checkpoint; empty: unknown
  std::string numerics_id;     // identifies everything that can change the last bits of a result
  std::string backend;         // human-readable, such as "cpu avx2, 2 threads"
  int64_t context_length = 0;  // maximum number of positions in one sequence
  int layers = 0;
  int hidden_size = 0;
  int experts = 0;
  int experts_used = 0;
  int64_t weight_bytes = 0;
  // Must be equal to EngineOptions::cache_seed, so that the worker and its engine compute the same
  // names for prefixes in the KV cache.
  std::string cache_seed;
  engine::SamplingParams default_sampling;  // values for the fields that a request does not set

  const engine::Tokenizer* tokenizer = nullptr;
  // The compiled constraints of requests. Null: requests with a constraint are refused.
  std::shared_ptr<engine::grammar::GrammarCache> grammars;
  // The chat template. It is an error if the model file has no template, or if its template uses
  // features that ChatTemplate does not support.
  absl::StatusOr<engine::ChatTemplate> chat_template =
      absl::FailedPreconditionError("the model file has no chat template");
  v1::ToolSyntax tool_syntax = v1::TOOL_SYNTAX_UNSPECIFIED;  // derived from the template
  v1::ReasoningMarkers reasoning;  // derived from the template; empty: there are none
};

// Sets all fields of the model that clients see.
void ToProto(const WorkerModel& model, v1::Model* out);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_WORKER_MODEL_H_

// Converts between wire types and the engine's types. All such conversions are here: engine/ uses
// no protos, and clients see no engine types.
#ifndef TIDEPOOL_SERVICE_GRPC_CONVERT_H_
#define TIDEPOOL_SERVICE_GRPC_CONVERT_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine_stats.h"
#include "engine/grammar/grammar_source.h"
#include "engine/sampling/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "tidepool/v1/admin.pb.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Converts the parameters. Fields that are not set get their values from `defaults`. A seed that is
// not set becomes 0; check has_seed().
engine::SamplingParams FromProto(const v1::Sampling& sampling,
                                 const engine::SamplingParams& defaults);
engine::StoppingParams FromProto(const v1::Stopping& stopping);
// Returns max_tokens if the client has set it. nullopt: the client set no limit. See
// engine::LimitMaxTokens.
std::optional<int64_t> AskedMaxTokens(const v1::Stopping& stopping);
// INVALID_ARGUMENT if the prompt's length is not the number of its tokens. The engine checks the
// rest.
absl::StatusOr<engine::GenerationRequest> FromProto(const worker::v1::Start& start,
                                                    absl::Duration deadline);

// Returns nullopt if there is no constraint. The worker compiles it.
std::optional<engine::grammar::GrammarSource> ConstraintOf(const worker::v1::Start& start);
// Copies the request's constraint to `start`. For a chat, also copies the fields that restrict the
// response, such as tool_choice.
void CopyConstraint(const v1::GenerateRequest& request, worker::v1::Start* start);

// The functions below set every field.
void ToProto(const engine::SamplingParams& sampling, v1::Sampling* out);
void ToProto(const engine::StoppingParams& stopping, v1::Stopping* out);
void ToProto(const engine::StreamChunk& chunk, const engine::Tokenizer& tokenizer,
             worker::v1::RunResponse* out);
void ToProto(const engine::EngineStats& stats, v1::WorkerStats* out);

void ToProto(const moe::OffloadStats& stats, v1::OffloadCounters* out);
// Requires: stats.offload is set.
void ToProto(const engine::EngineStats& stats, v1::OffloadStats* out);
// INVALID_ARGUMENT if the policy is unknown. The engine checks the rest.
absl::StatusOr<moe::OffloadChange> FromProto(const v1::SetOffloadRequest& request);
void ToProto(const moe::OffloadSettings& settings, v1::OffloadSettings* out);
// Sets all fields except the worker's name.
void ToProto(const engine::ExpertPlacement& placement, v1::WorkerPlacement* out);

// Returns the part of a worker's message that a front passes on to the client: all fields except
// the attempt.
v1::GenerateResponse ToGenerateResponse(worker::v1::RunResponse&& run);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_CONVERT_H_

// The one place where wire types become the engine's and back. No proto reaches engine/, and no
// engine type reaches a client.
#ifndef TIDEPOOL_SERVICE_CONVERT_H_
#define TIDEPOOL_SERVICE_CONVERT_H_

#include <grpcpp/support/status.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "service/store/session_store.h"
#include "service/worker/worker_model.h"
#include "tidepool/v1/admin.pb.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/v1/sessions.pb.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Codes are the same numbers on both sides. Messages are cut to what a header holds. A
// base::RetryAfterOf hint goes along as google.rpc.RetryInfo.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Key of the trailing metadata of a Run whose status is the worker's own word: what gRPC makes up
// when a connection breaks has the same codes. Its value: of a worker that stays, and of one that
// drains and refused the run or gave it up.
inline constexpr char kToldByWorker[] = "tidepool-told-by-worker";
inline constexpr char kWorkerStays[] = "1";
inline constexpr char kWorkerDrains[] = "drains";
// Key of the initial metadata that a worker sends at once when it takes a Prepare or a Run: without
// it a call that fails never got there.
inline constexpr char kTakenByWorker[] = "tidepool-taken-by-worker";
// Key of the metadata of a Detokenize that the front itself needs, for a request of this principal.
inline constexpr char kForRequestOf[] = "tidepool-for-request-of-bin";

// Everything about a request that can be told without its model. INVALID_ARGUMENT names the field
// and its limit; UNIMPLEMENTED names a field that is not served yet.
absl::Status CheckGenerateRequest(const v1::GenerateRequest& request);

// Answers of one request at most.
inline constexpr int32_t kMaxChoices = 128;

// PrepareResponse.understands of this release. 1: prompt_logprobs, echo, return_progress, min_tokens,
// logit_bias_text, add_generation_prompt, continue_final_message.
inline constexpr int32_t kUnderstands = 1;
// UNIMPLEMENTED names a field that a worker which understands this much would not see.
absl::Status CheckUnderstood(const v1::GenerateRequest& request, int32_t understands);

// A conversation by itself: messages, roles, texts, JSON. INVALID_ARGUMENT names the field.
absl::Status CheckChat(const v1::Chat& chat);

// 1 to 128 of letters, digits, '-', '_', '.', ':'. INVALID_ARGUMENT.
absl::Status CheckSessionId(absl::string_view session_id);

// The request's parameters, with `defaults` for what it leaves unset. A seed that is unset stays 0:
// see has_seed().
engine::SamplingParams FromProto(const v1::Sampling& sampling,
                                 const engine::SamplingParams& defaults);
engine::StoppingParams FromProto(const v1::Stopping& stopping);
// INVALID_ARGUMENT: the prompt's length does not fit its tokens. The engine checks the rest.
absl::StatusOr<engine::GenerationRequest> FromProto(const worker::v1::Start& start,
                                                    absl::Duration deadline);

// With every field set.
void ToProto(const engine::SamplingParams& sampling, v1::Sampling* out);
void ToProto(const engine::StoppingParams& stopping, v1::Stopping* out);
void ToProto(const engine::StreamChunk& chunk, const engine::Tokenizer& tokenizer,
             worker::v1::RunResponse* out);
void ToProto(const engine::EngineStats& stats, v1::WorkerStats* out);
void ToProto(const WorkerModel& model, v1::Model* out);

void ToProto(const moe::OffloadStats& stats, v1::OffloadCounters* out);
// Requires: stats.offload.
void ToProto(const engine::EngineStats& stats, v1::OffloadStats* out);
// INVALID_ARGUMENT: an unknown policy. The engine checks the rest.
absl::StatusOr<moe::OffloadChange> FromProto(const v1::SetOffloadRequest& request);
void ToProto(const moe::OffloadSettings& settings, v1::OffloadSettings* out);
// All but whose it is.
void ToProto(const engine::ExpertPlacement& placement, v1::WorkerPlacement* out);

// What a front relays of a worker's answer: all but the attempt.
v1::GenerateResponse ToGenerateResponse(worker::v1::RunResponse&& run);

StoredMessage FromProto(const v1::ChatMessage& message);
void ToProto(const StoredMessage& message, v1::ChatMessage* out);
void ToProto(const SessionInfo& info, v1::Session* out);
// With its log.
void ToProto(const SessionLogData& log, v1::Session* out);
// Of a turn's end; FINISH_REASON_UNSPECIFIED while it runs.
v1::FinishReason ToProto(TurnFinish finish);
TurnFinish FromProto(v1::FinishReason finish);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CONVERT_H_

#include "service/grpc/convert.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/base/check.h"

namespace tidepool::service {
namespace {

v1::FinishReason ToProto(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return v1::STOP;
    case engine::FinishReason::kStopString:
      return v1::STOP_STRING;
    case engine::FinishReason::kLength:
      return v1::LENGTH;
    case engine::FinishReason::kCancelled:
      return v1::CANCELLED;
  }
  CHECK(false) << "finish reason " << static_cast<int>(reason);
}

void ToProto(const engine::Usage& usage, v1::Usage* out) {
  out->set_prompt_tokens(usage.prompt_tokens);
  out->set_cached_tokens(usage.cached_tokens);
  out->set_completion_tokens(usage.completion_tokens);
  out->set_queue_seconds(absl::ToDoubleSeconds(usage.queue_time));
  out->set_prefill_seconds(absl::ToDoubleSeconds(usage.prefill_time));
  out->set_decode_seconds(absl::ToDoubleSeconds(usage.decode_time));
  out->set_expert_hits(usage.expert_hits);
  out->set_expert_misses(usage.expert_misses);
  out->set_expert_demand_bytes(usage.expert_demand_bytes);
  out->set_expert_stall_seconds(absl::ToDoubleSeconds(usage.expert_stall_time));
}

void ToProto(const engine::TokenLogprob& token, const engine::Tokenizer& tokenizer,
             v1::TokenLogprob* out) {
  const auto bytes = [&](int32_t id) { return std::string(tokenizer.TokenBytes(id)); };
  out->set_token_id(token.token_id);
  out->set_logprob(token.logprob);
  out->set_token(bytes(token.token_id));
  out->set_rank(token.rank);
  for (const auto& [id, logprob] : token.top) {
    v1::TopLogprob* top = out->add_top();
    top->set_token_id(id);
    top->set_logprob(logprob);
    top->set_token(bytes(id));
  }
}

void ToProto(const engine::PromptProgress& progress, v1::PromptProgress* out) {
  out->set_total(progress.total);
  out->set_cached(progress.cached);
  out->set_processed(progress.processed);
  out->set_seconds(absl::ToDoubleSeconds(progress.since_start));
}

}  // namespace

engine::SamplingParams FromProto(const v1::Sampling& sampling,
                                 const engine::SamplingParams& defaults) {
  engine::SamplingParams out = defaults;
  if (sampling.has_temperature()) out.temperature = sampling.temperature();
  if (sampling.has_top_k()) out.top_k = sampling.top_k();
  if (sampling.has_top_p()) out.top_p = sampling.top_p();
  if (sampling.has_min_p()) out.min_p = sampling.min_p();
  if (sampling.has_seed()) out.seed = sampling.seed();
  if (sampling.has_repetition_penalty()) out.repetition_penalty = sampling.repetition_penalty();
  if (sampling.has_frequency_penalty()) out.frequency_penalty = sampling.frequency_penalty();
  if (sampling.has_presence_penalty()) out.presence_penalty = sampling.presence_penalty();
  for (const auto& [id, bias] : sampling.logit_bias()) out.logit_bias.emplace_back(id, bias);
  // A proto map has no order. Sort, so that equal requests have equal parameters.
  std::sort(out.logit_bias.begin(), out.logit_bias.end());
  if (sampling.has_typical_p()) out.typical_p = sampling.typical_p();
  if (sampling.has_top_n_sigma()) out.top_n_sigma = sampling.top_n_sigma();
  if (sampling.has_xtc_probability()) out.xtc_probability = sampling.xtc_probability();
  if (sampling.has_xtc_threshold()) out.xtc_threshold = sampling.xtc_threshold();
  if (sampling.has_dry_multiplier()) out.dry_multiplier = sampling.dry_multiplier();
  if (sampling.has_dry_base()) out.dry_base = sampling.dry_base();
  if (sampling.has_dry_allowed_length()) out.dry_allowed_length = sampling.dry_allowed_length();
  if (sampling.has_dry_penalty_last_n()) out.dry_penalty_last_n = sampling.dry_penalty_last_n();
  if (sampling.dry_sequence_breakers_size() > 0) {
    out.dry_sequence_breakers.assign(sampling.dry_sequence_breakers().begin(),
                                     sampling.dry_sequence_breakers().end());
  }
  out.bad_words.assign(sampling.bad_words().begin(), sampling.bad_words().end());
  out.allowed_token_ids.assign(sampling.allowed_token_ids().begin(),
                               sampling.allowed_token_ids().end());
  return out;
}

std::optional<int64_t> AskedMaxTokens(const v1::Stopping& stopping) {
  if (!stopping.has_max_tokens()) return std::nullopt;
  return stopping.max_tokens();
}

engine::StoppingParams FromProto(const v1::Stopping& stopping) {
  engine::StoppingParams out;
  out.max_tokens = stopping.max_tokens();
  out.stop.assign(stopping.stop().begin(), stopping.stop().end());
  out.stop_token_ids.assign(stopping.stop_token_ids().begin(), stopping.stop_token_ids().end());
  out.ignore_eos = stopping.ignore_eos();
  out.include_stop = stopping.include_stop();
  out.min_tokens = stopping.min_tokens();
  return out;
}

absl::StatusOr<engine::GenerationRequest> FromProto(const worker::v1::Start& start,
                                                    absl::Duration deadline) {
  const worker::v1::PrepareResponse& prepared = start.prepared();
  if (start.prompt_length() != prepared.token_ids_size()) {
    return absl::InvalidArgumentError(absl::StrCat("start.prompt_length is ", start.prompt_length(),
                                                   ", but ", prepared.token_ids_size(),
                                                   " prompt tokens were sent"));
  }
  engine::GenerationRequest out;
  out.token_ids.reserve(prepared.token_ids_size() + start.output_token_ids_size());
  out.token_ids.assign(prepared.token_ids().begin(), prepared.token_ids().end());
  out.token_ids.insert(out.token_ids.end(), start.output_token_ids().begin(),
                       start.output_token_ids().end());
  out.prompt_length = start.prompt_length();
  out.choice = start.choice();
  out.sampling = FromProto(prepared.sampling(), engine::SamplingParams());
  out.stopping = FromProto(prepared.stopping());
  out.stopping.shown_tokens.assign(prepared.marker_token_ids().begin(),
                                   prepared.marker_token_ids().end());
  out.logprobs = start.logprobs();
  out.top_logprobs = start.top_logprobs();
  out.processed_logprobs = start.processed_logprobs();
  if (start.has_prompt_logprobs()) out.prompt_logprobs = start.prompt_logprobs();
  out.prompt_logprobs_from = start.prompt_logprobs_from();
  out.progress = start.return_progress();
  out.priority = start.priority();
  out.deadline = deadline;
  out.credit = start.credit();
  out.principal = start.caller().principal();
  out.cache_salt = out.principal;
  return out;
}

void ToProto(const engine::SamplingParams& sampling, v1::Sampling* out) {
  out->set_temperature(sampling.temperature);
  out->set_top_k(sampling.top_k);
  out->set_top_p(sampling.top_p);
  out->set_min_p(sampling.min_p);
  out->set_seed(sampling.seed);
  out->set_repetition_penalty(sampling.repetition_penalty);
  out->set_frequency_penalty(sampling.frequency_penalty);
  out->set_presence_penalty(sampling.presence_penalty);
  for (const auto& [id, bias] : sampling.logit_bias) (*out->mutable_logit_bias())[id] = bias;
  out->set_typical_p(sampling.typical_p);
  out->set_top_n_sigma(sampling.top_n_sigma);
  out->set_xtc_probability(sampling.xtc_probability);
  out->set_xtc_threshold(sampling.xtc_threshold);
  out->set_dry_multiplier(sampling.dry_multiplier);
  out->set_dry_base(sampling.dry_base);
  out->set_dry_allowed_length(sampling.dry_allowed_length);
  out->set_dry_penalty_last_n(sampling.dry_penalty_last_n);
  out->mutable_dry_sequence_breakers()->Assign(sampling.dry_sequence_breakers.begin(),
                                               sampling.dry_sequence_breakers.end());
  out->mutable_bad_words()->Assign(sampling.bad_words.begin(), sampling.bad_words.end());
  out->mutable_allowed_token_ids()->Assign(sampling.allowed_token_ids.begin(),
                                           sampling.allowed_token_ids.end());
}

void ToProto(const engine::StoppingParams& stopping, v1::Stopping* out) {
  out->set_max_tokens(stopping.max_tokens);
  out->mutable_stop()->Assign(stopping.stop.begin(), stopping.stop.end());
  out->mutable_stop_token_ids()->Assign(stopping.stop_token_ids.begin(),
                                        stopping.stop_token_ids.end());
  out->set_ignore_eos(stopping.ignore_eos);
  out->set_include_stop(stopping.include_stop);
  out->set_min_tokens(stopping.min_tokens);
}

void ToProto(const engine::StreamChunk& chunk, const engine::Tokenizer& tokenizer,
             worker::v1::RunResponse* out) {
  out->set_position(chunk.position);
  out->mutable_token_ids()->Assign(chunk.token_ids.begin(), chunk.token_ids.end());
  out->set_text(chunk.text);
  for (const engine::TokenLogprob& token : chunk.logprobs) {
    ToProto(token, tokenizer, out->add_logprobs());
  }
  if (!chunk.prompt_logprobs.empty()) out->set_prompt_position(chunk.prompt_position);
  for (const engine::TokenLogprob& token : chunk.prompt_logprobs) {
    ToProto(token, tokenizer, out->add_prompt_logprobs());
  }
  if (chunk.progress.has_value()) ToProto(*chunk.progress, out->mutable_progress());
  if (!chunk.finish.has_value()) return;
  out->set_finish_reason(ToProto(*chunk.finish));
  ToProto(chunk.usage, out->mutable_usage());
}

void ToProto(const engine::KvDiskStats& disk, const engine::KvRestoreStats& restores,
             v1::KvDiskStats* out) {
  out->set_limit_bytes(disk.limit_bytes);
  out->set_used_bytes(disk.bytes);
  out->set_blocks(disk.blocks);
  out->set_written_blocks_total(disk.written_blocks);
  out->set_read_blocks_total(disk.read_blocks);
  out->set_dropped_blocks_total(disk.dropped_blocks);
  out->set_damaged_blocks_total(disk.damaged_blocks);
  out->set_failed_reads_total(disk.failed_reads);
  out->set_failed_writes_total(disk.failed_writes);
  out->set_restores_total(restores.restores);
  out->set_restored_tokens_total(restores.tokens);
  out->set_restores_given_up_total(restores.given_up);
}

void ToProto(const engine::EngineStats& stats, v1::WorkerStats* out) {
  if (stats.offload.has_value()) {
    ToProto(stats, out->mutable_offload());
  }
  out->set_sequences_running(stats.sequences_running);
  out->set_sequences_waiting(stats.sequences_waiting);
  out->set_kv_blocks_total(stats.kv_blocks_total);
  out->set_kv_blocks_free(stats.kv_blocks_free);
  out->set_kv_blocks_cached(stats.kv_blocks_cached);
  out->set_kv_block_tokens(stats.kv_block_tokens);
  out->set_kv_state_bytes(stats.kv_state_bytes);
  out->set_kv_checkpoints(stats.kv_checkpoints);
  if (stats.kv_disk.has_value()) ToProto(*stats.kv_disk, stats.kv_restores, out->mutable_kv_disk());
  out->set_prompt_tokens_total(stats.prompt_tokens);
  out->set_cached_prompt_tokens_total(stats.cached_prompt_tokens);
  out->set_generated_tokens_total(stats.generated_tokens);
  out->set_requests_finished_total(stats.requests_finished);
  out->set_requests_cancelled_total(stats.requests_cancelled);
  out->set_requests_failed_total(stats.requests_failed);
  out->set_preemptions_total(stats.preemptions);
  out->set_deadline_refusals_total(stats.deadline_refusals);
  out->set_steps_total(stats.steps);
  out->set_expert_hits_total(stats.expert_hits);
  out->set_expert_misses_total(stats.expert_misses);
  out->set_progress(stats.progress);
  out->set_workspace_high_water_bytes(stats.workspace_high_water_bytes);
}

v1::GenerateResponse ToGenerateResponse(worker::v1::RunResponse&& run) {
  v1::GenerateResponse out;
  out.set_position(run.position());
  out.mutable_token_ids()->Swap(run.mutable_token_ids());
  out.set_text(std::move(*run.mutable_text()));
  out.mutable_logprobs()->Swap(run.mutable_logprobs());
  out.mutable_prompt_logprobs()->Swap(run.mutable_prompt_logprobs());
  if (run.has_progress()) *out.mutable_progress() = run.progress();
  out.set_finish_reason(run.finish_reason());
  if (run.has_usage()) *out.mutable_usage() = std::move(*run.mutable_usage());
  return out;
}

}  // namespace tidepool::service

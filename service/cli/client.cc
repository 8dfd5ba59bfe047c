#include "service/cli/client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "service/cli/client_channel.h"
#include "service/cli/proto_json.h"
#include "tidepool/v1/admin.grpc.pb.h"
#include "tidepool/v1/inference.grpc.pb.h"
#include "tidepool/v1/sessions.grpc.pb.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kShortCall = absl::Seconds(30);

void FillDry(const DryFlags& flags, v1::Sampling* sampling) {
  if (flags.multiplier) sampling->set_dry_multiplier(*flags.multiplier);
  if (flags.base) sampling->set_dry_base(*flags.base);
  if (flags.allowed_length) sampling->set_dry_allowed_length(*flags.allowed_length);
  if (flags.penalty_last_n) sampling->set_dry_penalty_last_n(*flags.penalty_last_n);
  for (const std::string& breaker : flags.sequence_breakers) {
    sampling->add_dry_sequence_breakers(breaker);
  }
}

void FillSampling(const GenerationFlags& flags, v1::Sampling* sampling) {
  if (flags.temperature) sampling->set_temperature(*flags.temperature);
  if (flags.top_k) sampling->set_top_k(*flags.top_k);
  if (flags.top_p) sampling->set_top_p(*flags.top_p);
  if (flags.min_p) sampling->set_min_p(*flags.min_p);
  if (flags.typical_p) sampling->set_typical_p(*flags.typical_p);
  if (flags.top_n_sigma) sampling->set_top_n_sigma(*flags.top_n_sigma);
  if (flags.xtc_probability) sampling->set_xtc_probability(*flags.xtc_probability);
  if (flags.xtc_threshold) sampling->set_xtc_threshold(*flags.xtc_threshold);
  FillDry(flags.dry, sampling);
  if (flags.seed) sampling->set_seed(*flags.seed);
  if (flags.repetition_penalty) sampling->set_repetition_penalty(*flags.repetition_penalty);
  if (flags.frequency_penalty) sampling->set_frequency_penalty(*flags.frequency_penalty);
  if (flags.presence_penalty) sampling->set_presence_penalty(*flags.presence_penalty);
  for (const auto& [id, bias] : flags.logit_bias) (*sampling->mutable_logit_bias())[id] = bias;
  for (const std::string& word : flags.bad_words) sampling->add_bad_words(word);
}

v1::GenerateRequest MakeRequest(const Question& question) {
  v1::GenerateRequest request;
  if (question.text) {
    request.set_text(*question.text);
  } else if (!question.token_ids.empty()) {
    request.mutable_token_ids()->mutable_ids()->Assign(question.token_ids.begin(),
                                                       question.token_ids.end());
  } else {
    for (const ChatLine& line : question.messages) {
      v1::ChatMessage* message = request.mutable_chat()->add_messages();
      message->set_role(line.role);
      message->set_content(line.content);
    }
  }
  if (!question.session.empty()) request.set_session_id(question.session);
  FillSampling(question.generation, request.mutable_sampling());
  v1::Stopping* stopping = request.mutable_stopping();
  if (question.generation.max_tokens) stopping->set_max_tokens(*question.generation.max_tokens);
  for (const std::string& stop : question.generation.stop) stopping->add_stop(stop);
  if (question.generation.ignore_eos) stopping->set_ignore_eos(true);
  return request;
}

v1::SetOffloadRequest MakeRequest(const OffloadFlags& flags) {
  v1::SetOffloadRequest request;
  if (!flags.worker_id.empty()) request.set_worker_id(flags.worker_id);
  if (flags.policy) request.set_policy(std::string(moe::PolicyName(*flags.policy)));
  if (flags.refresh_interval) request.set_refresh_interval(*flags.refresh_interval);
  if (flags.memory && flags.memory->kind == engine::ExpertMemoryKind::kShare) {
    request.set_expert_memory_share(flags.memory->share);
  } else if (flags.memory) {
    request.set_expert_memory_bytes(flags.memory->bytes);
  }
  if (flags.prefetch) request.set_prefetch(*flags.prefetch == moe::Prefetch::kOn);
  return request;
}

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  if (timeout != absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
}

class GrpcClient : public Client {
 public:
  GrpcClient(std::shared_ptr<grpc::Channel> channel, std::string name)
      : name_(std::move(name)),
        inference_(v1::Inference::NewStub(channel)),
        sessions_(v1::Sessions::NewStub(channel)),
        admin_(v1::Admin::NewStub(channel)) {}

  AskResult Ask(const Question& question, const ResponseHooks& hooks) override {
    // Shared, because another thread may cancel the call while it ends.
    const auto context = std::make_shared<grpc::ClientContext>();
    SetDeadline(question.generation.timeout, context.get());
    if (hooks.on_start) hooks.on_start([context] { context->TryCancel(); });
    const base::Clock& clock = base::Clock::Real();
    const absl::Duration start = clock.Monotonic();
    AskResult result;
    ClientResponse& response = result.response;
    const std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader =
        inference_->Generate(context.get(), MakeRequest(question));
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      if (++response.messages == 1) response.first_message = clock.Monotonic() - start;
      response.text += message.text();
      response.token_ids.insert(response.token_ids.end(), message.token_ids().begin(),
                                message.token_ids().end());
      if (hooks.on_text && !message.text().empty()) hooks.on_text(message.text());
      if (message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
        response.finish_reason = v1::FinishReason_Name(message.finish_reason());
        response.usage = ToJson(message.usage());
        response.prompt_tokens = message.usage().prompt_tokens();
        response.cached_tokens = message.usage().cached_tokens();
      }
    }
    result.status = ToStatus(reader->Finish());
    response.total = clock.Monotonic() - start;
    return result;
  }

  absl::StatusOr<int64_t> OpenSession(const std::string& session) override {
    v1::GetSessionRequest get;
    get.set_session_id(session);
    v1::Session found;
    grpc::ClientContext get_context;
    SetDeadline(kShortCall, &get_context);
    const grpc::Status status = sessions_->GetSession(&get_context, get, &found);
    if (status.ok()) return found.turn_count();
    if (status.error_code() != grpc::StatusCode::NOT_FOUND) return ToStatus(status);
    v1::CreateSessionRequest create;
    create.set_session_id(session);
    grpc::ClientContext create_context;
    SetDeadline(kShortCall, &create_context);
    RETURN_IF_ERROR(ToStatus(sessions_->CreateSession(&create_context, create, &found)));
    return 0;
  }

  absl::StatusOr<Json> Stats(absl::Duration timeout) override {
    grpc::ClientContext context;
    SetDeadline(timeout, &context);
    v1::GetStatsResponse response;
    RETURN_IF_ERROR(ToStatus(admin_->GetStats(&context, v1::GetStatsRequest(), &response)));
    return ToJson(response);
  }

  absl::StatusOr<Json> Offload(const OffloadFlags& flags, absl::Duration timeout) override {
    grpc::ClientContext context;
    SetDeadline(timeout, &context);
    if (flags.refresh) {
      v1::RefreshExpertsRequest request;
      if (!flags.worker_id.empty()) request.set_worker_id(flags.worker_id);
      v1::RefreshExpertsResponse response;
      RETURN_IF_ERROR(ToStatus(admin_->RefreshExperts(&context, request, &response)));
      return ToJson(response);
    }
    v1::SetOffloadResponse response;
    RETURN_IF_ERROR(ToStatus(admin_->SetOffload(&context, MakeRequest(flags), &response)));
    return ToJson(response);
  }

  absl::StatusOr<Json> Placement(absl::Duration timeout) override {
    grpc::ClientContext context;
    SetDeadline(timeout, &context);
    v1::GetPlacementResponse response;
    RETURN_IF_ERROR(ToStatus(admin_->GetPlacement(&context, v1::GetPlacementRequest(), &response)));
    return ToJson(response);
  }

 private:
  absl::Status ToStatus(const grpc::Status& status) const { return ToClientStatus(status, name_); }

  const std::string name_;
  const std::unique_ptr<v1::Inference::Stub> inference_;
  const std::unique_ptr<v1::Sessions::Stub> sessions_;
  const std::unique_ptr<v1::Admin::Stub> admin_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const Config& config) {
  ASSIGN_OR_RETURN(const auto channels, OpenClientChannels(config, 1));
  return Over(channels.front(), config.client.server);
}

std::unique_ptr<Client> Client::Over(std::shared_ptr<grpc::Channel> channel, std::string name) {
  return std::make_unique<GrpcClient>(std::move(channel), std::move(name));
}

}  // namespace tidepool::service

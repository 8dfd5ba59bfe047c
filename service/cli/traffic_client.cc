#include "service/cli/traffic_client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "service/cli/client_channel.h"
#include "service/grpc/status.h"
#include "tidepool/v1/inference.grpc.pb.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kModelPatience = absl::Seconds(30);

v1::GenerateRequest MakeRequest(const TrafficRequest& request) {
  v1::GenerateRequest message;
  message.mutable_token_ids()->mutable_ids()->Assign(request.prompt.begin(), request.prompt.end());
  message.mutable_sampling()->set_temperature(0);
  message.mutable_stopping()->set_max_tokens(request.output_tokens);
  message.mutable_stopping()->set_ignore_eos(true);
  if (request.priority.has_value()) message.set_priority(*request.priority);
  return message;
}

// Thread-safe. The running calls.
class RunningCalls {
 public:
  void Enter(const void* call, std::shared_ptr<grpc::ClientContext> context) {
    base::MutexLock lock(&mutex_);
    running_.emplace(call, std::move(context));
  }
  void Leave(const void* call) {
    base::MutexLock lock(&mutex_);
    running_.erase(call);
    changed_.NotifyAll();
  }
  void CancelAll() {
    std::vector<std::shared_ptr<grpc::ClientContext>> contexts;
    {
      base::MutexLock lock(&mutex_);
      for (const auto& [call, context] : running_) contexts.push_back(context);
    }
    for (const auto& context : contexts) context->TryCancel();
  }
  void WaitEmpty() {
    base::MutexLock lock(&mutex_);
    while (!running_.empty()) changed_.Wait(&mutex_);
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<const void*, std::shared_ptr<grpc::ClientContext>> running_ TIDEPOOL_GUARDED_BY(mutex_);
};

// One Generate call. Deletes itself when it ends.
class Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(const TrafficRequest& request, RunningCalls* running,
       std::function<void(TrafficResponse)> done)
      : request_(MakeRequest(request)), running_(running), done_(std::move(done)) {}

  void Start(v1::Inference::Stub* stub) {
    running_->Enter(this, context_);
    stub->async()->Generate(context_.get(), &request_, this);
    StartRead(&message_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (message_.token_ids_size() > 0) {
      response_.arrivals.push_back(
          {base::Clock::Real().Monotonic(), int64_t{message_.token_ids_size()}});
    }
    if (message_.has_usage()) {
      response_.prompt_tokens = message_.usage().prompt_tokens();
      response_.cached_tokens = message_.usage().cached_tokens();
    }
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    response_.status = FromGrpcStatus(status);
    done_(std::move(response_));
    running_->Leave(this);
    delete this;
  }

 private:
  // Shared, because another thread may cancel the call while it ends.
  const std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  const v1::GenerateRequest request_;
  RunningCalls* const running_;
  const std::function<void(TrafficResponse)> done_;
  v1::GenerateResponse message_;
  TrafficResponse response_;
};

class GrpcTrafficClient final : public TrafficClient {
 public:
  GrpcTrafficClient(std::string name, const std::vector<std::shared_ptr<grpc::Channel>>& channels)
      : name_(std::move(name)) {
    for (const auto& channel : channels) stubs_.push_back(v1::Inference::NewStub(channel));
  }
  ~GrpcTrafficClient() override {
    CancelAll();
    running_.WaitEmpty();
  }

  absl::StatusOr<ServedModel> FindModel() override {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kModelPatience));
    v1::Model model;
    RETURN_IF_ERROR(
        ToClientStatus(stubs_.front()->GetModel(&context, v1::GetModelRequest(), &model), name_));
    if (model.vocab_size() < 1) {
      return absl::UnimplementedError(
          absl::StrCat(name_, ": the server does not report the size of its model's vocabulary"));
    }
    return ServedModel{.name = model.name(),
                       .vocab_size = model.vocab_size(),
                       .context_length = model.context_length()};
  }

  void Send(const TrafficRequest& request, std::function<void(TrafficResponse)> done) override {
    auto* call = new Call(request, &running_, std::move(done));
    call->Start(stubs_[next_++ % stubs_.size()].get());
  }

  void CancelAll() override { running_.CancelAll(); }

 private:
  const std::string name_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
  std::atomic<size_t> next_ = 0;
  RunningCalls running_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrafficClient>> TrafficClient::Connect(const Config& config) {
  ASSIGN_OR_RETURN(const auto channels, OpenClientChannels(config, config.traffic.connections));
  return std::make_unique<GrpcTrafficClient>(config.client.server, channels);
}

}  // namespace tidepool::service

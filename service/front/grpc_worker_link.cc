#include "service/front/grpc_worker_link.h"

#include <grpcpp/grpcpp.h>

#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "service/front/back_off.h"
#include "service/grpc/status.h"
#include "tidepool/v1/admin.grpc.pb.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::service {
namespace {

constexpr BackOff kWatchBackOff = {.first = absl::Milliseconds(100), .last = absl::Seconds(2)};

// gRPC's API takes a wall-clock time. gRPC converts this time at once to a time of its own steady
// clock.
void SetDeadline(absl::Duration deadline, grpc::ClientContext* context) {
  if (deadline == absl::InfiniteDuration()) return;
  const base::Clock& clock = base::Clock::Real();
  context->set_deadline(absl::ToChronoTime(clock.Now() + (deadline - clock.Monotonic())));
}

// Returns whether the worker has refused this front's credentials. This is not the client's fault,
// so the client gets UNAVAILABLE. The log names the reason when the stream of states ends.
bool IsFrontRefused(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
}

absl::Status FrontRefused(const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat("worker ", address, " refuses this front; the front's log says why"));
}

// Converts the final status of a call. If this front cancels a call, nobody gets its status. So
// CANCELLED comes from the worker, for example from gRPC in a server that shuts down. A client that
// still waits must not get this status.
absl::Status EndOf(const grpc::Status& status, const std::string& address) {
  if (IsFrontRefused(status)) return FrontRefused(address);
  if (status.error_code() != grpc::StatusCode::CANCELLED) return FromGrpcStatus(status);
  return absl::UnavailableError(
      absl::StrCat("worker ", address, " cancelled the call: ", status.error_message()));
}

// Returns whether gRPC assigned the call to a connection. Only then, peer() is the address of a
// socket. Otherwise peer() is the target name of the channel.
bool WasSent(const grpc::ClientContext& context) {
  return absl::StartsWith(context.peer(), "ipv4:") || absl::StartsWith(context.peer(), "ipv6:");
}

// Returns who ended a call for which the worker has sent no status.
EndedBy WhoLost(const grpc::Status& status, const grpc::ClientContext& context, bool taken) {
  if (IsFrontRefused(status)) return EndedBy::kAway;
  if (taken) return EndedBy::kCrash;
  const bool broken = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  return broken && WasSent(context) ? EndedBy::kUnanswered : EndedBy::kAway;
}

// The gRPC stream of a Run. It owns itself between StartCall and OnDone. The RunCall that
// represents it may be destroyed at any time. Everything runs on the loop, except gRPC's callbacks
// (OnReadDone and so on).
class RunReactor final
    : public grpc::ClientBidiReactor<worker::v1::RunRequest, worker::v1::RunResponse>,
      public std::enable_shared_from_this<RunReactor> {
 public:
  RunReactor(const WorkerLinkLoop& loop, std::string address, RunEvents events)
      : loop_(loop.executor),
        calls_(loop.calls),
        address_(std::move(address)),
        events_(std::move(events)) {}

  void Open(worker::v1::Worker::Stub* stub, worker::v1::Start start, absl::Duration deadline) {
    self_ = shared_from_this();
    calls_->Enter().IgnoreError();  // This cannot fail, because these calls are never closed.
    SetDeadline(deadline, &context_);
    stub->async()->Run(&context_, this);
    *outgoing_.mutable_start() = std::move(start);
    writing_ = true;
    AddHold();  // needed because the loop, not a callback, writes messages with credit
    StartWrite(&outgoing_);
    StartRead(&incoming_);
    StartCall();
  }

  void AddCredit(int64_t tokens) {
    credit_ += tokens;
    WriteCredit();
  }

  void Detach() {
    detached_ = true;
    context_.TryCancel();
  }

 private:
  void OnReadInitialMetadataDone(bool ok) override {
    taken_ = ok && context_.GetServerInitialMetadata().count(kTakenByWorker) > 0;
  }

  void OnWriteDone(bool ok) override {
    loop_->Post([self = shared_from_this(), ok] {
      self->writing_ = false;
      if (ok) self->WriteCredit();
    });
  }

  void OnReadDone(bool ok) override {
    loop_->Post([self = shared_from_this(), ok] {
      if (!ok) return self->Close();
      worker::v1::RunResponse response = std::move(self->incoming_);
      self->incoming_.Clear();
      if (!self->detached_) self->events_.on_response(std::move(response));
      self->StartRead(&self->incoming_);
    });
  }

  void OnDone(const grpc::Status& status) override {
    loop_->Post([self = shared_from_this(), status] {
      self->self_.reset();
      self->calls_->Leave();
      if (self->detached_) return;
      self->events_.on_end(EndOf(status, self->address_), self->WhoEnded(status));
    });
  }

  EndedBy WhoEnded(const grpc::Status& status) const {
    const auto& trailer = context_.GetServerTrailingMetadata();
    const auto sender = trailer.find(kSentByWorker);
    if (IsFrontRefused(status) || sender == trailer.end()) return WhoLost(status, context_, taken_);
    return sender->second == kWorkerDrains ? EndedBy::kDrain : EndedBy::kWorker;
  }

  void WriteCredit() {
    if (writing_ || closed_ || credit_ == 0) return;
    outgoing_.Clear();
    outgoing_.set_credit(std::exchange(credit_, 0));
    writing_ = true;
    StartWrite(&outgoing_);
  }

  // The stream has ended. After the hold is removed, no write may begin.
  void Close() {
    closed_ = true;
    RemoveHold();
  }

  Executor* loop_;
  ActiveCalls* calls_;
  const std::string address_;
  RunEvents events_;
  std::shared_ptr<RunReactor> self_;
  grpc::ClientContext context_;
  worker::v1::RunRequest outgoing_;
  worker::v1::RunResponse incoming_;
  int64_t credit_ = 0;
  bool writing_ = false;
  bool closed_ = false;
  bool detached_ = false;
  bool taken_ = false;  // written before OnDone, read after OnDone
};

class GrpcRunCall final : public RunCall {
 public:
  explicit GrpcRunCall(std::shared_ptr<RunReactor> reactor) : reactor_(std::move(reactor)) {}
  ~GrpcRunCall() override { reactor_->Detach(); }
  void AddCredit(int64_t tokens) override { reactor_->AddCredit(tokens); }

 private:
  std::shared_ptr<RunReactor> reactor_;
};

// One stream of states. Like RunReactor, it owns itself until OnDone.
class WatchReactor final : public grpc::ClientReadReactor<worker::v1::WatchResponse>,
                           public std::enable_shared_from_this<WatchReactor> {
 public:
  WatchReactor(const WorkerLinkLoop& loop,
               std::function<void(const worker::v1::WatchResponse&)> on_state,
               std::function<void(absl::Status)> on_end)
      : loop_(loop.executor),
        calls_(loop.calls),
        on_state_(std::move(on_state)),
        on_end_(std::move(on_end)) {}

  void Open(worker::v1::Worker::Stub* stub) {
    self_ = shared_from_this();
    calls_->Enter().IgnoreError();
    stub->async()->Watch(&context_, &request_, this);
    StartRead(&state_);
    StartCall();
  }

  void Detach() {
    detached_ = true;
    context_.TryCancel();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    loop_->Post([self = shared_from_this(), state = std::move(state_)] {
      if (!self->detached_) self->on_state_(state);
    });
    state_.Clear();
    StartRead(&state_);
  }
  void OnDone(const grpc::Status& status) override {
    loop_->Post([self = shared_from_this(), status] {
      self->self_.reset();
      self->calls_->Leave();
      if (!self->detached_) self->on_end_(FromGrpcStatus(status));
    });
  }

  Executor* loop_;
  ActiveCalls* calls_;
  std::function<void(const worker::v1::WatchResponse&)> on_state_;
  std::function<void(absl::Status)> on_end_;
  std::shared_ptr<WatchReactor> self_;
  grpc::ClientContext context_;
  worker::v1::WatchRequest request_;
  worker::v1::WatchResponse state_;
  bool detached_ = false;
};

// What a unary call needs until it is complete.
template <typename Request, typename Response>
struct UnaryCall {
  grpc::ClientContext context;
  Request request;
  Response response;
};

class GrpcWorkerLink final : public WorkerLink {
 public:
  GrpcWorkerLink(std::shared_ptr<grpc::Channel> channel, std::string address,
                 const WorkerLinkLoop& loop)
      : address_(std::move(address)),
        loop_(loop),
        stub_(worker::v1::Worker::NewStub(channel)),
        admin_(v1::Admin::NewStub(channel)),
        alive_(std::make_shared<bool>(true)) {}
  ~GrpcWorkerLink() override {
    if (watch_ != nullptr) watch_->Detach();
  }

  const std::string& address() const override { return address_; }

  void Prepare(worker::v1::PrepareRequest request, absl::Duration deadline,
               Done<worker::v1::PrepareResponse> done) override {
    Call<worker::v1::PrepareRequest, worker::v1::PrepareResponse>(
        std::move(request), deadline, std::move(done),
        [this](auto... arguments) { stub_->async()->Prepare(arguments...); });
  }

  std::unique_ptr<RunCall> Run(worker::v1::Start start, absl::Duration deadline,
                               RunEvents events) override {
    auto reactor = std::make_shared<RunReactor>(loop_, address_, std::move(events));
    reactor->Open(stub_.get(), std::move(start), deadline);
    return std::make_unique<GrpcRunCall>(std::move(reactor));
  }

  void Tokenize(v1::TokenizeRequest request, absl::Duration deadline,
                Done<v1::TokenizeResponse> done) override {
    Call<v1::TokenizeRequest, v1::TokenizeResponse>(
        std::move(request), deadline, std::move(done),
        [this](auto... arguments) { stub_->async()->Tokenize(arguments...); });
  }

  void Detokenize(v1::DetokenizeRequest request, absl::Duration deadline,
                  Done<v1::DetokenizeResponse> done) override {
    Call<v1::DetokenizeRequest, v1::DetokenizeResponse>(
        std::move(request), deadline, std::move(done),
        [this](auto... arguments) { stub_->async()->Detokenize(arguments...); });
  }

  void TextOf(v1::DetokenizeRequest request, const std::string& principal, absl::Duration deadline,
              Done<v1::DetokenizeResponse> done) override {
    Call<v1::DetokenizeRequest, v1::DetokenizeResponse>(
        std::move(request), deadline, std::move(done),
        [this, &principal](grpc::ClientContext* context, auto... arguments) {
          context->AddMetadata(kForRequestOf, principal);
          stub_->async()->Detokenize(context, arguments...);
        });
  }

  void GetStats(absl::Duration deadline, Done<v1::GetStatsResponse> done) override {
    Call<v1::GetStatsRequest, v1::GetStatsResponse>(
        v1::GetStatsRequest(), deadline, std::move(done),
        [this](auto... arguments) { admin_->async()->GetStats(arguments...); });
  }

  void SetOffload(v1::SetOffloadRequest request, absl::Duration deadline,
                  Done<v1::SetOffloadResponse> done) override {
    Call<v1::SetOffloadRequest, v1::SetOffloadResponse>(
        std::move(request), deadline, std::move(done),
        [this](auto... arguments) { admin_->async()->SetOffload(arguments...); });
  }

  void RefreshExperts(v1::RefreshExpertsRequest request, absl::Duration deadline,
                      Done<v1::RefreshExpertsResponse> done) override {
    Call<v1::RefreshExpertsRequest, v1::RefreshExpertsResponse>(
        std::move(request), deadline, std::move(done),
        [this](auto... arguments) { admin_->async()->RefreshExperts(arguments...); });
  }

  void GetPlacement(v1::GetPlacementRequest request, absl::Duration deadline,
                    Done<v1::GetPlacementResponse> done) override {
    Call<v1::GetPlacementRequest, v1::GetPlacementResponse>(
        std::move(request), deadline, std::move(done),
        [this](auto... arguments) { admin_->async()->GetPlacement(arguments...); });
  }

  void Drain(v1::DrainRequest request, absl::Duration deadline,
             Done<v1::DrainResponse> done) override {
    Call<v1::DrainRequest, v1::DrainResponse>(
        std::move(request), deadline, std::move(done),
        [this](auto... arguments) { admin_->async()->Drain(arguments...); });
  }

  void Watch(std::function<void(const worker::v1::WatchResponse&)> on_state,
             std::function<void(absl::Status)> on_lost) override {
    on_state_ = std::move(on_state);
    on_lost_ = std::move(on_lost);
    OpenWatch();
  }

 private:
  template <typename Request, typename Response, typename Start>
  void Call(Request request, absl::Duration deadline, Done<Response> done, Start start) {
    auto call = std::make_shared<UnaryCall<Request, Response>>();
    call->request = std::move(request);
    SetDeadline(deadline, &call->context);
    loop_.calls->Enter().IgnoreError();
    start(&call->context, &call->request, &call->response,
          std::function<void(grpc::Status)>([call, loop = loop_, address = address_,
                                             done = std::move(done)](const grpc::Status& status) {
            loop.executor->Post([call, calls = loop.calls, address, done, status] {
              calls->Leave();
              if (status.ok()) return done(std::move(call->response));
              const bool taken = call->context.GetServerInitialMetadata().count(kTakenByWorker) > 0;
              done(WithEndedBy(EndOf(status, address), WhoLost(status, call->context, taken)));
            });
          }));
  }

  void OpenWatch() {
    watch_has_state_ = false;
    watch_ = std::make_shared<WatchReactor>(
        loop_,
        [this](const worker::v1::WatchResponse& state) {
          watch_has_state_ = true;
          watch_failures_ = 0;
          on_state_(state);
        },
        [this](const absl::Status& status) { OnWatchEnd(status); });
    watch_->Open(stub_.get());
  }

  void OnWatchEnd(const absl::Status& status) {
    watch_.reset();
    if (status.ok() && watch_has_state_) {
      // Reopen the stream without back-off, because nothing has failed. The handshake of the new
      // connection already takes some time.
      on_lost_(status);
      return OpenWatch();
    }
    on_lost_(status.ok()
                 ? absl::UnavailableError("the stream of states ended before the first state")
                 : status);
    const absl::Duration wait = kWatchBackOff.Wait(++watch_failures_, &random_);
    loop_.executor->PostAfter(wait, [this, weak = std::weak_ptr<bool>(alive_)] {
      if (weak.lock() != nullptr) OpenWatch();
    });
  }

  const std::string address_;
  const WorkerLinkLoop loop_;
  std::unique_ptr<worker::v1::Worker::Stub> stub_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::shared_ptr<bool> alive_;
  std::shared_ptr<WatchReactor> watch_;
  std::function<void(const worker::v1::WatchResponse&)> on_state_;
  std::function<void(absl::Status)> on_lost_;
  bool watch_has_state_ = false;  // a state has arrived on the current stream
  int watch_failures_ = 0;        // failures since the last success
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace

std::shared_ptr<grpc::Channel> MakeWorkerChannel(const std::string& address,
                                                 const std::string& name, int64_t max_message_bytes,
                                                 std::shared_ptr<ClientSecurity> security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Despite its name, this option also sets the minimum timeout of one attempt to connect,
  // including the TLS handshake (MIN_CONNECT_TIMEOUT in gRPC's doc/connection-backoff.md). With the
  // default of 20 s, a worker that vanishes during an attempt and comes back would not be noticed
  // until the attempt ends.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kWorkerConnectTimeout)));
  // A worker that was restarted can have a new address under its old name. The default is 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 5000);
  // The stream of states keeps the connection in use. Pings are needed to detect a worker that has
  // disappeared without closing the connection.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 15000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  if (!name.empty()) arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, name);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(max_message_bytes));
  return ClientSecurity::OpenChannel(std::move(security), address, arguments);
}

std::unique_ptr<WorkerLink> MakeGrpcWorkerLink(std::shared_ptr<grpc::Channel> channel,
                                               std::string address, const WorkerLinkLoop& loop) {
  return std::make_unique<GrpcWorkerLink>(std::move(channel), std::move(address), loop);
}

}  // namespace tidepool::service

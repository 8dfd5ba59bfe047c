#include "service/front/front_services.h"

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>
#include <utility>

#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "service/auth/grpc_caller.h"
#include "service/grpc/check_request.h"
#include "service/grpc/grpc_trace.h"
#include "service/grpc/raw_unary.h"
#include "service/grpc/stats_watch_reactor.h"
#include "tidepool/v1/admin.grpc.pb.h"
#include "tidepool/v1/inference.grpc.pb.h"
#include "tidepool/v1/sessions.grpc.pb.h"

namespace tidepool::service {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

struct FrontDeps {
  FrontCore* core;
  ActiveCalls* calls;
  Gate gate;
};

// The caller and the deadline of its call.
struct Asker {
  Caller caller;
  absl::Duration deadline;
};

absl::StatusOr<GenerationInput> ReadGeneration(const FrontDeps& deps, const ByteBuffer& bytes,
                                               const CallbackServerContext& context) {
  ASSIGN_OR_RETURN(Caller caller, CallerOf(context, deps.gate));
  GenerationInput input = {.principal = std::move(caller.principal),
                           .role = caller.role,
                           .limits = caller.limits,
                           .span = BeginSpan(TraceOf(context)),
                           .deadline = DeadlineOf(context)};
  RETURN_IF_ERROR(ParseBytes(bytes, &input.request));
  input.checked = CheckGenerateRequest(input.request);
  input.digests = DigestsOf(input.request);
  if (input.checked->ok()) input.tools = ToolsOf(input.request);
  return input;
}

// The gRPC stream of a Generate call. It deletes itself on the loop, after all tasks that it has
// posted have run.
class GenerateReactor final : public grpc::ServerWriteReactor<ByteBuffer>, public GenerationSink {
 public:
  GenerateReactor(const FrontDeps& deps, const ByteBuffer& bytes, CallbackServerContext* context)
      : deps_(deps), context_(context) {
    absl::StatusOr<GenerationInput> input = ReadGeneration(deps, bytes, *context);
    absl::Status status = input.status();
    if (status.ok()) status = deps_.calls->Enter(), entered_ = status.ok();
    if (!status.ok()) {
      grpc::ServerWriteReactor<ByteBuffer>::Finish(ToGrpcStatus(status));
      return;
    }
    loop()->Post([this, input = *std::move(input)]() mutable {
      generation_ = deps_.core->Generate(std::move(input), this);
    });
  }

  void Write(v1::GenerateResponse response) override {
    bytes_ = ToBytes(response);
    writing_ = true;
    write_ = deps_.core->untaken_writes()->Begin([this] {
      if (generation_ != nullptr) generation_->Cancel(NothingTaken());
    });
    StartWrite(&bytes_);
  }
  void Finish(absl::Status status) override {
    AddRetryPushback(status, context_);
    grpc::ServerWriteReactor<ByteBuffer>::Finish(ToGrpcStatus(status));
    // gRPC sends the status after the pending write. A client that reads this write later still
    // gets the status, but we wait only for a limited time.
    if (!writing_) return;
    write_ = deps_.core->untaken_writes()->Begin([this] {
      base::MutexLock lock(&mutex_);
      if (!done_) context_->TryCancel();
    });
  }

  void OnWriteDone(bool ok) override {
    loop()->Post([this, ok] {
      writing_ = false;
      write_.Reset();
      if (generation_ == nullptr) return;
      ok ? generation_->OnWritten() : generation_->Cancel(ClientGone());
    });
  }
  void OnCancel() override {
    loop()->Post([this] {
      if (generation_ != nullptr) generation_->Cancel(ClientGone());
    });
  }
  void OnDone() override {
    {
      base::MutexLock lock(&mutex_);
      done_ = true;
    }
    loop()->Post([this] { delete this; });
  }

 private:
  ~GenerateReactor() override {
    if (entered_) deps_.calls->Leave();
  }

  static absl::Status ClientGone() {
    return absl::CancelledError("the client cancelled, or its deadline passed");
  }
  static absl::Status NothingTaken() {
    return absl::AbortedError(
        "the client read nothing from this stream for too long, although output was waiting; send "
        "the request again, with a request_id and resume_after to resume it");
  }
  Executor* loop() { return deps_.core->loop(); }

  const FrontDeps deps_;
  CallbackServerContext* const context_;  // gRPC destroys it after OnDone
  bool entered_ = false;
  std::shared_ptr<ResponseStream> generation_;  // used on the loop only
  WriteTimeouts::Write write_;                  // used on the loop only
  bool writing_ = false;                        // used on the loop only
  ByteBuffer bytes_;
  base::Mutex mutex_;
  // True if gRPC has destroyed the context. The loop may not know this yet.
  bool done_ TIDEPOOL_GUARDED_BY(mutex_) = false;
};

// A gRPC call of Complete. It works like GenerateReactor, but sends one response.
class CompleteReactor final : public ServerUnaryReactor {
 public:
  CompleteReactor(const FrontDeps& deps, const ByteBuffer& bytes, ByteBuffer* response_bytes,
                  CallbackServerContext* context)
      : deps_(deps) {
    absl::StatusOr<GenerationInput> input = ReadGeneration(deps, bytes, *context);
    absl::Status status = input.status();
    if (status.ok()) status = deps_.calls->Enter(), entered_ = status.ok();
    if (!status.ok()) {
      Finish(ToGrpcStatus(status));
      return;
    }
    whole_.emplace(deps_.core->response_budget().Begin(input->principal));
    loop()->Post([this, response_bytes, context, input = *std::move(input)]() mutable {
      deps_.core->Complete(
          std::move(input), &*whole_,
          [this, response_bytes, context](absl::StatusOr<v1::CompleteResponse> response) {
            if (response.ok()) *response_bytes = ToBytes(*response);
            AddRetryPushback(response.status(), context);
            Finish(ToGrpcStatus(response.status()));
          },
          [this](std::shared_ptr<ResponseStream> stream) { generation_ = std::move(stream); });
    });
  }

  void OnCancel() override {
    loop()->Post([this] {
      if (generation_ != nullptr) generation_->Cancel(absl::CancelledError("cancelled"));
    });
  }
  void OnDone() override {
    loop()->Post([this] { delete this; });
  }

 private:
  ~CompleteReactor() override {
    if (entered_) deps_.calls->Leave();
  }
  Executor* loop() { return deps_.core->loop(); }

  const FrontDeps deps_;
  bool entered_ = false;
  std::optional<WholeResponse> whole_;          // used on the loop only, until the response is sent
  std::shared_ptr<ResponseStream> generation_;  // used on the loop only
};

// Handles a unary call for FrontCore: parses the request, counts the call, and runs `handler` on
// the loop.
template <typename Request, typename Response, typename Handler>
ServerUnaryReactor* OnLoop(const FrontDeps& deps, CallbackServerContext* context,
                           const ByteBuffer* request, ByteBuffer* response, Handler handler) {
  return AnswerUnary<Request, Response>(
      {deps.gate, deps.calls}, context, request, response,
      [core = deps.core, deadline = DeadlineOf(*context), handler = std::move(handler)](
          Caller caller, Request parsed, auto done) {
        core->loop()->Post([core, handler, asker = Asker{std::move(caller), deadline},
                            parsed = std::move(parsed), done = std::move(done)]() mutable {
          handler(core, asker, std::move(parsed), std::move(done));
        });
      });
}

using InferenceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_Complete<v1::Inference::WithRawCallbackMethod_Tokenize<
        v1::Inference::WithRawCallbackMethod_Detokenize<
            v1::Inference::WithRawCallbackMethod_ListModels<
                v1::Inference::WithRawCallbackMethod_GetModel<v1::Inference::Service>>>>>>;

class InferenceService final : public InferenceBase {
 public:
  explicit InferenceService(const FrontDeps& deps) : deps_(deps) {}

  grpc::ServerWriteReactor<ByteBuffer>* Generate(CallbackServerContext* context,
                                                 const ByteBuffer* request) override {
    return new GenerateReactor(deps_, *request, context);
  }
  ServerUnaryReactor* Complete(CallbackServerContext* context, const ByteBuffer* request,
                               ByteBuffer* response) override {
    return new CompleteReactor(deps_, *request, response, context);
  }
  ServerUnaryReactor* Tokenize(CallbackServerContext* context, const ByteBuffer* request,
                               ByteBuffer* response) override {
    return OnLoop<v1::TokenizeRequest, v1::TokenizeResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker& asker, v1::TokenizeRequest asked, auto done) {
          core->texts()->Tokenize(std::move(asked), {asker.caller.principal, asker.deadline},
                                  std::move(done));
        });
  }
  ServerUnaryReactor* Detokenize(CallbackServerContext* context, const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return OnLoop<v1::DetokenizeRequest, v1::DetokenizeResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker& asker, v1::DetokenizeRequest asked, auto done) {
          core->texts()->Detokenize(std::move(asked), {asker.caller.principal, asker.deadline},
                                    std::move(done));
        });
  }
  ServerUnaryReactor* ListModels(CallbackServerContext* context, const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return OnLoop<v1::ListModelsRequest, v1::ListModelsResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker&, const v1::ListModelsRequest&, auto done) {
          core->ListModels(std::move(done));
        });
  }
  ServerUnaryReactor* GetModel(CallbackServerContext* context, const ByteBuffer* request,
                               ByteBuffer* response) override {
    return OnLoop<v1::GetModelRequest, v1::Model>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker&, const v1::GetModelRequest& asked, auto done) {
          core->GetModel(asked, std::move(done));
        });
  }

 private:
  const FrontDeps deps_;
};

using SessionsBase = v1::Sessions::WithRawCallbackMethod_CreateSession<
    v1::Sessions::WithRawCallbackMethod_GetSession<v1::Sessions::WithRawCallbackMethod_ListSessions<
        v1::Sessions::WithRawCallbackMethod_DeleteSession<
            v1::Sessions::WithRawCallbackMethod_ForkSession<
                v1::Sessions::WithRawCallbackMethod_TruncateSession<v1::Sessions::Service>>>>>>;

class SessionsService final : public SessionsBase {
 public:
  explicit SessionsService(const FrontDeps& deps) : deps_(deps) {}

  ServerUnaryReactor* CreateSession(CallbackServerContext* context, const ByteBuffer* request,
                                    ByteBuffer* response) override {
    return ForCaller(context, request, response, &SessionCalls::Create);
  }
  ServerUnaryReactor* GetSession(CallbackServerContext* context, const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return ForCaller(context, request, response, &SessionCalls::Get);
  }
  ServerUnaryReactor* ListSessions(CallbackServerContext* context, const ByteBuffer* request,
                                   ByteBuffer* response) override {
    return ForCaller(context, request, response, &SessionCalls::List);
  }
  ServerUnaryReactor* DeleteSession(CallbackServerContext* context, const ByteBuffer* request,
                                    ByteBuffer* response) override {
    return ForCaller(context, request, response, &SessionCalls::Delete);
  }
  ServerUnaryReactor* ForkSession(CallbackServerContext* context, const ByteBuffer* request,
                                  ByteBuffer* response) override {
    return ForCaller(context, request, response, &SessionCalls::Fork);
  }
  ServerUnaryReactor* TruncateSession(CallbackServerContext* context, const ByteBuffer* request,
                                      ByteBuffer* response) override {
    return ForCaller(context, request, response, &SessionCalls::Truncate);
  }

 private:
  // Calls `method` on the loop with the caller's principal.
  template <typename Request, typename Response>
  ServerUnaryReactor* ForCaller(CallbackServerContext* context, const ByteBuffer* request,
                                ByteBuffer* response,
                                void (SessionCalls::*method)(const Request&, const std::string&,
                                                             SessionCalls::Done<Response>)) {
    return OnLoop<Request, Response>(
        deps_, context, request, response,
        [method](FrontCore* core, const Asker& asker, const Request& asked, auto done) {
          (core->sessions()->*method)(asked, asker.caller.principal, std::move(done));
        });
  }

  const FrontDeps deps_;
};

using AdminBase =
    v1::Admin::WithRawCallbackMethod_GetStats<v1::Admin::WithRawCallbackMethod_WatchStats<
        v1::Admin::WithRawCallbackMethod_SetOffload<v1::Admin::WithRawCallbackMethod_RefreshExperts<
            v1::Admin::WithRawCallbackMethod_GetPlacement<
                v1::Admin::WithRawCallbackMethod_Drain<v1::Admin::Service>>>>>>;

class AdminService final : public AdminBase {
 public:
  explicit AdminService(const FrontDeps& deps) : deps_(deps) {}

  ServerUnaryReactor* GetStats(CallbackServerContext* context, const ByteBuffer* request,
                               ByteBuffer* response) override {
    return OnLoop<v1::GetStatsRequest, v1::GetStatsResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker&, const v1::GetStatsRequest& asked, auto done) {
          core->stats()->Get(asked, std::move(done));
        });
  }
  grpc::ServerWriteReactor<ByteBuffer>* WatchStats(CallbackServerContext* context,
                                                   const ByteBuffer* request) override {
    return new StatsWatchReactor(
        deps_.core->loop(), deps_.gate, context, *request,
        [core = deps_.core](const v1::WatchStatsRequest& asked, StatsWatchSink* sink) {
          return core->stats()->Watch(asked, sink);
        });
  }
  ServerUnaryReactor* SetOffload(CallbackServerContext* context, const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return OnLoop<v1::SetOffloadRequest, v1::SetOffloadResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker& asker, v1::SetOffloadRequest asked, auto done) {
          core->admin()->SetOffload(std::move(asked), asker.deadline, std::move(done));
        });
  }
  ServerUnaryReactor* RefreshExperts(CallbackServerContext* context, const ByteBuffer* request,
                                     ByteBuffer* response) override {
    return OnLoop<v1::RefreshExpertsRequest, v1::RefreshExpertsResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker& asker, v1::RefreshExpertsRequest asked, auto done) {
          core->admin()->RefreshExperts(std::move(asked), asker.deadline, std::move(done));
        });
  }
  ServerUnaryReactor* GetPlacement(CallbackServerContext* context, const ByteBuffer* request,
                                   ByteBuffer* response) override {
    return OnLoop<v1::GetPlacementRequest, v1::GetPlacementResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker& asker, v1::GetPlacementRequest asked, auto done) {
          core->admin()->GetPlacement(std::move(asked), asker.deadline, std::move(done));
        });
  }
  ServerUnaryReactor* Drain(CallbackServerContext* context, const ByteBuffer* request,
                            ByteBuffer* response) override {
    return OnLoop<v1::DrainRequest, v1::DrainResponse>(
        deps_, context, request, response,
        [](FrontCore* core, const Asker& asker, v1::DrainRequest asked, auto done) {
          core->admin()->Drain(std::move(asked), asker.deadline, std::move(done));
        });
  }

 private:
  const FrontDeps deps_;
};

}  // namespace

FrontServices MakeFrontServices(FrontCore* core, ActiveCalls* calls,
                                const Authenticator* authenticator,
                                absl::Duration max_connection_age) {
  const FrontDeps for_clients = {.core = core,
                                 .calls = calls,
                                 .gate = {.authenticator = authenticator,
                                          .access = Access::kClients,
                                          .max_connection_age = max_connection_age}};
  FrontDeps for_operators = for_clients;
  for_operators.gate.access = Access::kOperators;
  return {.inference = std::make_unique<InferenceService>(for_clients),
          .sessions = std::make_unique<SessionsService>(for_clients),
          .admin = std::make_unique<AdminService>(for_operators)};
}

}  // namespace tidepool::service

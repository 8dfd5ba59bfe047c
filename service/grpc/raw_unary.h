// AnswerUnary: handles a unary RPC. It checks the caller and parses the request itself.
//
// gRPC itself returns UNIMPLEMENTED without a message if protobuf cannot parse a request (because
// of invalid UTF-8 or damaged bytes). So our services receive raw bytes, and return an error that
// says what is wrong.
#ifndef TIDEPOOL_SERVICE_GRPC_RAW_UNARY_H_
#define TIDEPOOL_SERVICE_GRPC_RAW_UNARY_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/retry_after.h"
#include "service/auth/grpc_caller.h"
#include "service/grpc/counted_reactor.h"
#include "service/grpc/status.h"
#include "service/grpc/wire_check.h"

namespace tidepool::service {

// Parses a message. If a string is invalid UTF-8, INVALID_ARGUMENT names the first such field.
template <typename Message>
absl::Status ParseBytes(const grpc::ByteBuffer& bytes, Message* message) {
  grpc::ByteBuffer copy = bytes;  // a copy, because parsing consumes it
  if (grpc::SerializationTraits<Message>::Deserialize(&copy, message).ok()) {
    return absl::OkStatus();
  }
  std::vector<grpc::Slice> slices;
  std::string flat;
  if (bytes.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      flat.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  return ExplainBadMessage(flat, *Message::descriptor());
}

template <typename Message>
grpc::ByteBuffer ToBytes(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status = grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  CHECK(status.ok()) << status.error_message();
  return bytes;
}

// If `status` has a retry hint, adds it as metadata that gRPC's own clients obey. Call it before
// Finish.
inline void AddRetryPushback(const absl::Status& status, grpc::ServerContextBase* context) {
  const std::optional<absl::Duration> wait = base::RetryAfterOf(status);
  if (!wait.has_value()) return;
  context->AddTrailingMetadata("grpc-retry-pushback-ms",
                               absl::StrCat(absl::ToInt64Milliseconds(*wait)));
}

// The access rule of a unary RPC, and the object that counts its running calls.
struct UnaryTerms {
  const Gate& gate;
  ActiveCalls* calls;  // must outlive the server
};

// Calls `handler(caller, request, done)`. The handler must call `done` once, on any thread, now or
// later. If a service needs the client's deadline, its handler must capture it.
template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* AnswerUnary(const UnaryTerms& terms, grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                      Handler handler) {
  auto* const reactor = new CountedReactor();
  absl::StatusOr<Caller> caller = CallerOf(*context, terms.gate);
  if (!caller.ok()) {
    reactor->Finish(ToGrpcStatus(caller.status()));
    return reactor;
  }
  Request parsed;
  if (const absl::Status status = ParseBytes(*request, &parsed); !status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }
  if (const absl::Status status = reactor->Enter(terms.calls); !status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }
  handler(*std::move(caller), std::move(parsed),
          [context, reactor, response](absl::StatusOr<Response> result) {
            if (result.ok()) *response = ToBytes(*result);
            AddRetryPushback(result.status(), context);
            reactor->Finish(ToGrpcStatus(result.status()));
          });
  return reactor;
}

// Returns a call's deadline on the monotonic clock, so that it does not move if the wall clock is
// set. Returns InfiniteDuration if the call has no deadline.
inline absl::Duration DeadlineOf(const grpc::ServerContextBase& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
  const base::Clock& clock = base::Clock::Real();
  return clock.Monotonic() + (absl::FromChrono(deadline) - clock.Now());
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_RAW_UNARY_H_

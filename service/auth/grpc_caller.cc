#include "service/auth/grpc_caller.h"

#include <grpc/grpc_security_constants.h>

#include <memory>
#include <vector>

namespace tidepool::service {
namespace {

constexpr char kAuthorization[] = "authorization";

bool IsTls(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr) return false;
  const std::vector<grpc::string_ref> kinds =
      peer->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return !kinds.empty() && kinds.front() == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
}

}  // namespace

absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, const Gate& gate) {
  Credentials credentials;
  const auto headers = context.client_metadata().equal_range(kAuthorization);
  for (auto header = headers.first; header != headers.second; ++header) {
    if (!credentials.authorization.empty()) {
      return absl::UnauthenticatedError("the header authorization was sent more than once");
    }
    credentials.authorization = absl::string_view(header->second.data(), header->second.size());
  }
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer != nullptr && peer->IsPeerAuthenticated()) {
    // Only DNS names and URIs are used. Other kinds of names are ignored, because a CA may also
    // sign e-mail addresses of its users.
    for (const char* kind : {GRPC_PEER_DNS_PROPERTY_NAME, GRPC_PEER_URI_PROPERTY_NAME}) {
      for (const grpc::string_ref& name : peer->FindPropertyValues(kind)) {
        credentials.certificate_names.emplace_back(name.data(), name.size());
      }
    }
  }
  return Admit(gate.authenticator, credentials, gate.access);
}

StreamTerm::StreamTerm(const grpc::ServerContextBase* context, const Gate& gate)
    : context_(context),
      gate_(gate),
      end_(IsTls(*context) ? gate.clock->Monotonic() + gate.max_connection_age
                           : absl::InfiniteDuration()) {}

bool StreamTerm::IsOver() const { return gate_.clock->Monotonic() >= end_; }

absl::Status StreamTerm::Check() const {
  if (IsOver()) {
    return absl::UnavailableError(
        "the stream has reached the maximum age of a connection (--max-connection-age); start "
        "another");
  }
  return CallerOf(*context_, gate_).status();
}

}  // namespace tidepool::service

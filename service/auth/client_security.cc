#include "service/auth/client_security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/client_interceptor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

namespace experimental = grpc::experimental;

constexpr size_t kMaxTokenBytes = 4096;
constexpr unsigned kRefreshSeconds = 1;

absl::StatusOr<std::string> ReadToken(const std::string& path, absl::string_view content) {
  const absl::string_view token = absl::StripAsciiWhitespace(content);
  const bool well = !token.empty() && std::all_of(token.begin(), token.end(),
                                                  [](char c) { return absl::ascii_isgraph(c); });
  if (well) return std::string(token);
  return absl::InvalidArgumentError(
      absl::StrCat("token file ", path, " must contain one line with one token"));
}

// Adds the token to every call. gRPC's own call credentials cannot be used, because they require
// TLS, and a server on a loopback address needs no TLS.
class TokenInterceptor final : public experimental::Interceptor {
 public:
  explicit TokenInterceptor(std::string token) : token_(std::move(token)) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", absl::StrCat("Bearer ", token_));
    }
    methods->Proceed();
  }

 private:
  const std::string token_;
};

class TokenInterceptors final : public experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptors(std::shared_ptr<ClientSecurity> security)
      : security_(std::move(security)) {}

  experimental::Interceptor* CreateClientInterceptor(experimental::ClientRpcInfo*) override {
    std::string token = security_->Token();
    return token.empty() ? nullptr : new TokenInterceptor(std::move(token));
  }

 private:
  const std::shared_ptr<ClientSecurity> security_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<ClientSecurity>> ClientSecurity::Open(
    const ClientSecurityOptions& options) {
  if (options.token_file.empty() && options.tls.ca.empty()) return nullptr;
  auto security = std::shared_ptr<ClientSecurity>(new ClientSecurity(options.log));
  if (!options.token_file.empty()) RETURN_IF_ERROR(security->LoadToken(options.token_file));
  if (!options.tls.ca.empty()) RETURN_IF_ERROR(security->LoadTls(options.tls));
  return security;
}

absl::Status ClientSecurity::LoadToken(const std::string& path) {
  ASSIGN_OR_RETURN(
      token_, WatchedFiles<std::string>::Open({path}, kMaxTokenBytes,
                                              [path](const std::vector<std::string>& contents) {
                                                return ReadToken(path, contents[0]);
                                              }));
  watch_.Add(absl::StrCat("token file ", path), [this] { return token_->Reread(); });
  return absl::OkStatus();
}

absl::Status ClientSecurity::LoadTls(const TlsFiles& files) {
  // Our watch of the files only reports errors in them. gRPC's own watcher loads them for new
  // connections.
  ASSIGN_OR_RETURN(tls_, WatchTlsFiles(files));
  watch_.Add(absl::StrCat("CA ", files.ca), [this] { return tls_->Reread(); });
  experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<experimental::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.ca, kRefreshSeconds));
  options.watch_root_certs();
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  credentials_ = experimental::TlsCredentials(options);
  return absl::OkStatus();
}

std::shared_ptr<grpc::Channel> ClientSecurity::OpenChannel(
    std::shared_ptr<ClientSecurity> security, const std::string& address,
    const grpc::ChannelArguments& arguments) {
  if (security == nullptr) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  std::vector<std::unique_ptr<experimental::ClientInterceptorFactoryInterface>> interceptors;
  const std::shared_ptr<grpc::ChannelCredentials> credentials = security->credentials_;
  interceptors.push_back(std::make_unique<TokenInterceptors>(std::move(security)));
  return experimental::CreateCustomChannelWithInterceptors(address, credentials, arguments,
                                                           std::move(interceptors));
}

}  // namespace tidepool::service

#include "service/auth/grpc_tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {
namespace {

// gRPC's C API requests the certificate for each connection (grpc_security.h). The C++ API of gRPC
// 1.51 only has its own file watcher. This watcher would use a key that does not match its
// certificate.
class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadingCredentials(const WatchedFiles<TlsIdentity>* identity) : identity_(identity) {
    const auto clients = identity_->Get()->ca_pem.empty()
                             ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                             : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(clients, Fetch, this));
    CHECK(credentials_ != nullptr);
  }
  ~ReloadingCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    CHECK(false) << "rpcs check tokens themselves, over plain text too";
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* credentials = static_cast<ReloadingCredentials*>(self);
    std::shared_ptr<const TlsIdentity> now = credentials->identity_->Get();
    base::MutexLock lock(&credentials->mutex_);
    if (now == credentials->given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {now->key_pem.c_str(), now->certificate_pem.c_str()};
    // gRPC 1.51 aborts if there are no roots, even if it does not need them because it requests no
    // client certificate. So pass the certificate itself.
    const std::string& roots = now->ca_pem.empty() ? now->certificate_pem : now->ca_pem;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    credentials->given_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const WatchedFiles<TlsIdentity>* const identity_;
  grpc_server_credentials* credentials_;
  base::Mutex mutex_;
  std::shared_ptr<const TlsIdentity> given_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(
    const WatchedFiles<TlsIdentity>* identity) {
  CHECK(!identity->Get()->certificate_pem.empty());
  return std::make_shared<ReloadingCredentials>(identity);
}

}  // namespace tidepool::service

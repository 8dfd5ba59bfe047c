// TlsIdentity: a certificate, its key and trusted CAs, read from PEM files for TLS handshakes.
#ifndef TIDEPOOL_SERVICE_AUTH_TLS_IDENTITY_H_
#define TIDEPOOL_SERVICE_AUTH_TLS_IDENTITY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/auth/watched_files.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tidepool::service {

// Paths of PEM files. If a certificate is set, its key must be set, too. The certificate file
// contains the whole chain, with the certificate of the server or client first.
struct TlsFiles {
  std::string certificate;  // empty: no certificate
  std::string key;
  // file with CAs, of which one must have signed the peer's certificate; ServerSecurityOptions and
  // ClientSecurityOptions explain what an empty path means
  std::string ca;
};

// The contents of the files. The key matches the certificate. Thread-safe, because the value is
// const.
struct TlsIdentity {
  std::string certificate_pem;  // empty: no certificate
  std::string key_pem;
  std::string ca_pem;                           // empty: no CA
  absl::Time expires = absl::InfiniteFuture();  // when the certificate expires
  // For servers: the context for TLS 1.2 and 1.3. With a CA, it requires that the CA has signed the
  // peer's certificate. Null without a certificate.
  std::shared_ptr<ssl_ctx_st> server_context;
};

inline constexpr size_t kMaxPemBytes = size_t{4} << 20;

// Reads and checks the files. INVALID_ARGUMENT names a file that is not PEM, or a key that does not
// match its certificate. Other errors are those of ReadFile. The validity period is not checked,
// because this machine's clock may be wrong, and peers check it anyway.
absl::StatusOr<std::unique_ptr<WatchedFiles<TlsIdentity>>> WatchTlsFiles(const TlsFiles& files);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_TLS_IDENTITY_H_

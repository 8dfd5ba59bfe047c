// TlsIdentity: a certificate, its key and trusted CAs for TLS handshakes, from PEM files.
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

// Paths. A certificate needs its key. The certificate file contains the whole chain, the leaf
// first.
struct TlsFiles {
  std::string certificate;  // empty: none
  std::string key;
  std::string ca;  // CAs for the peer's certificate; the user defines what empty means
};

// The contents of matching files. Thread-safe, because it is const.
struct TlsIdentity {
  std::string certificate_pem;  // empty: none
  std::string key_pem;
  std::string ca_pem;                           // empty: none
  absl::Time expires = absl::InfiniteFuture();  // when the certificate expires
  // For servers, TLS 1.2 and 1.3; null without a certificate. With a CA, peers need a certificate
  // that it signed.
  std::shared_ptr<ssl_ctx_st> server_context;
};

inline constexpr size_t kMaxPemBytes = size_t{4} << 20;

// Reads and checks the files. INVALID_ARGUMENT names a file that is not PEM, or a key that does not
// match its certificate; other errors as in ReadFile. Does not check the validity period, because
// the clock may be wrong, and peers check it anyway.
absl::StatusOr<std::unique_ptr<WatchedFiles<TlsIdentity>>> WatchTlsFiles(const TlsFiles& files);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_TLS_IDENTITY_H_

// TlsIdentity: what a server or a client shows in a TLS handshake, and whom it trusts, from PEM
// files.
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

// Paths. A certificate and its key come together; the certificate's file holds its chain behind it.
struct TlsFiles {
  std::string certificate;  // empty: none
  std::string key;
  std::string ca;  // who signs the peer's certificate; empty: see what uses it
};

// The files' contents, which fit each other. Thread-safe: const.
struct TlsIdentity {
  std::string certificate_pem;  // empty: none
  std::string key_pem;
  std::string ca_pem;  // empty: none
  absl::Time expires = absl::InfiniteFuture();  // of the certificate
  // For servers (null without a certificate): TLS 1.2 and 1.3. With a CA, peers must show a
  // certificate of it.
  std::shared_ptr<ssl_ctx_st> server_context;
};

inline constexpr size_t kMostPemBytes = size_t{4} << 20;

// Reads and checks them. INVALID_ARGUMENT names the file that is no PEM, or the key that is not its
// certificate's; others as of ReadFile. A certificate's times are not looked at: clocks are wrong at
// times, and peers look at them anyway.
absl::StatusOr<std::unique_ptr<WatchedFiles<TlsIdentity>>> WatchTlsFiles(const TlsFiles& files);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_TLS_IDENTITY_H_

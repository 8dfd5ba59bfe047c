// ServerSecurity: access control of a server. Its files are reloaded when they change.
#ifndef TIDEPOOL_SERVICE_AUTH_SERVER_SECURITY_H_
#define TIDEPOOL_SERVICE_AUTH_SERVER_SECURITY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "service/auth/authenticator.h"
#include "service/auth/file_watch.h"
#include "service/auth/tls_identity.h"
#include "service/auth/token_table.h"
#include "service/auth/watched_files.h"
#include "service/base/log_level.h"

namespace tidepool::service {

struct ServerSecurityOptions {
  std::string token_file;  // empty: no tokens are accepted
  // Empty: plain text. If a CA is set, clients must present a certificate of that CA.
  TlsFiles tls;
  // DNS names or URIs. A client whose certificate contains one of them is a front and needs no
  // token.
  std::vector<std::string> front_names;
  LogSink log;  // called on any thread; may be empty
};

// Thread-safe. If the new version of a file is damaged, the log says so, and the previous version
// stays in use.
class ServerSecurity final : public Authenticator {
 public:
  // Errors name the file and the reason.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Open(const ServerSecurityOptions& options);

  // Returns null if there is no authentication. Then every call is allowed.
  const Authenticator* authenticator() const {
    return tokens_ == nullptr && front_names_.empty() ? nullptr : this;
  }
  // Returns null for plain text.
  const WatchedFiles<TlsIdentity>* tls() const { return tls_.get(); }

  absl::StatusOr<Caller> Identify(const Credentials& credentials, absl::Time now) const override;
  // Logs a warning. At most one line is written per second.
  void OnRefused(const absl::Status& answer) const override;

 private:
  explicit ServerSecurity(const ServerSecurityOptions& options)
      : log_(options.log), front_names_(options.front_names), watch_(options.log) {}
  absl::Status LoadTokens(const std::string& path);
  absl::Status LoadTls(const TlsFiles& files);
  // Logs a warning before the certificate expires, and another one when it has expired.
  void TellOfExpiry(const std::string& path);

  const LogSink log_;
  const std::vector<std::string> front_names_;
  std::unique_ptr<WatchedFiles<TokenTable>> tokens_;  // null: no tokens are accepted
  std::unique_ptr<WatchedFiles<TlsIdentity>> tls_;    // null: plain text
  mutable base::Mutex refused_mutex_;
  mutable int64_t refused_unlogged_ TIDEPOOL_GUARDED_BY(refused_mutex_) = 0;
  mutable absl::Duration next_refused_line_ TIDEPOOL_GUARDED_BY(refused_mutex_) =
      -absl::InfiniteDuration();  // on the monotonic clock
  std::string logged_expiry_;     // the last warning; after Open, used only on the thread of watch_
  FileWatch watch_;               // last, so it is destroyed first
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_SERVER_SECURITY_H_

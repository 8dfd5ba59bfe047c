// ServerSecurity: access control of a server, from files that are reloaded when they change.
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
  std::string token_file;  // empty: no tokens
  // Empty: plain text. With a CA, clients must present a certificate of it.
  TlsFiles tls;
  // A client with a certificate for one of these names (DNS or URI) is a front and needs no token.
  std::vector<std::string> front_names;
  LogSink log;  // called on any thread; may be empty
};

// Thread-safe. If the new version of a file is damaged, the log reports it and the previous version
// stays in use.
class ServerSecurity final : public Authenticator {
 public:
  // Errors name the file and the reason.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Open(const ServerSecurityOptions& options);

  // Null: no authentication; every call is allowed.
  const Authenticator* authenticator() const {
    return tokens_ == nullptr && front_names_.empty() ? nullptr : this;
  }
  // Null: plain text.
  const WatchedFiles<TlsIdentity>* tls() const { return tls_.get(); }

  absl::StatusOr<Caller> Identify(const Credentials& credentials, absl::Time now) const override;
  // Logs a warning, at most once per second.
  void OnRefused(const absl::Status& answer) const override;

 private:
  explicit ServerSecurity(const ServerSecurityOptions& options)
      : log_(options.log), front_names_(options.front_names), watch_(options.log) {}
  absl::Status LoadTokens(const std::string& path);
  absl::Status LoadTls(const TlsFiles& files);
  // Warns before a certificate expires, and again when it has expired.
  void TellOfExpiry(const std::string& path);

  const LogSink log_;
  const std::vector<std::string> front_names_;
  std::unique_ptr<WatchedFiles<TokenTable>> tokens_;  // null: no tokens
  std::unique_ptr<WatchedFiles<TlsIdentity>> tls_;    // null: plain text
  mutable base::Mutex refused_mutex_;
  mutable int64_t refused_untold_ TIDEPOOL_GUARDED_BY(refused_mutex_) = 0;
  mutable absl::Duration next_refused_line_ TIDEPOOL_GUARDED_BY(refused_mutex_) =
      -absl::InfiniteDuration();  // on the monotonic clock
  std::string told_of_expiry_;    // the last warning; after Open only used by the watch's thread
  FileWatch watch_;               // last, so destroyed first
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_SERVER_SECURITY_H_

// ClientSecurity: the credentials that Tidepool's own clients send, and how they verify servers.
#ifndef TIDEPOOL_SERVICE_AUTH_CLIENT_SECURITY_H_
#define TIDEPOOL_SERVICE_AUTH_CLIENT_SECURITY_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "service/auth/file_watch.h"
#include "service/auth/tls_identity.h"
#include "service/auth/watched_files.h"
#include "service/base/log_level.h"

namespace tidepool::service {

struct ClientSecurityOptions {
  std::string token_file;  // the file's only line is the token; empty: send no token
  // With a CA, connections use TLS, and the server must have a certificate of this CA for its host
  // name. `certificate`, if set, is sent as the client certificate. Without a CA, connections are
  // in plain text.
  TlsFiles tls;
  LogSink log;  // called on any thread; may be empty
};

// Thread-safe. Files are reloaded when they change. If a new version is damaged, the log says so,
// and the previous version stays in use.
class ClientSecurity {
 public:
  // Returns null if the options name no file. Errors name the file and the reason. They never quote
  // the file's contents.
  static absl::StatusOr<std::shared_ptr<ClientSecurity>> Open(const ClientSecurityOptions& options);

  // Opens a channel, which keeps `security` alive. If `security` is null, the channel uses plain
  // text and no token.
  static std::shared_ptr<grpc::Channel> OpenChannel(std::shared_ptr<ClientSecurity> security,
                                                    const std::string& address,
                                                    const grpc::ChannelArguments& arguments);

  // Returns the token, or "" if there is none.
  std::string Token() const { return token_ == nullptr ? "" : *token_->Get(); }

 private:
  explicit ClientSecurity(const LogSink& log) : watch_(log) {}
  absl::Status LoadToken(const std::string& path);
  absl::Status LoadTls(const TlsFiles& files);

  std::unique_ptr<WatchedFiles<std::string>> token_;  // null: there is no token
  std::unique_ptr<WatchedFiles<TlsIdentity>> tls_;    // null: plain text
  std::shared_ptr<grpc::ChannelCredentials> credentials_ = grpc::InsecureChannelCredentials();
  FileWatch watch_;  // last, so it is destroyed first
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_CLIENT_SECURITY_H_

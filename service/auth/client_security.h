// ClientSecurity: what a client of ours shows servers, and what it asks of them.
#ifndef TIDEPOOL_SERVICE_AUTH_CLIENT_SECURITY_H_
#define TIDEPOOL_SERVICE_AUTH_CLIENT_SECURITY_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "service/auth/file_watch.h"
#include "service/auth/tls_identity.h"
#include "service/auth/watched_files.h"
#include "service/log_level.h"

namespace tidepool::service {

struct ClientSecurityOptions {
  std::string token_file;  // the token itself, on a line of its own; empty: none is shown
  // With a CA, servers are spoken to over TLS and must show a certificate of it for the name that
  // they were called by; a certificate of our own is what they see. Without one: plain text.
  TlsFiles tls;
  LogSink log;             // any thread; may be empty
};

// Thread-safe. Files are read again when they change; a new version that is damaged is told to the
// log, and the one before stays in force.
class ClientSecurity {
 public:
  // Null where the options name no file: nothing is to be watched. Errors name the file and what is
  // wrong with it, and repeat nothing of it.
  static absl::StatusOr<std::shared_ptr<ClientSecurity>> Open(const ClientSecurityOptions& options);

  // The channel keeps `security` alive; null: plain text and no token.
  static std::shared_ptr<grpc::Channel> OpenChannel(std::shared_ptr<ClientSecurity> security,
                                                    const std::string& address,
                                                    const grpc::ChannelArguments& arguments);

  // Empty: none.
  std::string Token() const { return token_ == nullptr ? "" : *token_->Get(); }

 private:
  explicit ClientSecurity(const LogSink& log) : watch_(log) {}
  absl::Status LoadToken(const std::string& path);
  absl::Status LoadTls(const TlsFiles& files);

  std::unique_ptr<WatchedFiles<std::string>> token_;  // null: none
  std::unique_ptr<WatchedFiles<TlsIdentity>> tls_;    // null: plain text
  std::shared_ptr<grpc::ChannelCredentials> credentials_ = grpc::InsecureChannelCredentials();
  FileWatch watch_;                                   // ends first
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_CLIENT_SECURITY_H_

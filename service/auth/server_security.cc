#include "service/auth/server_security.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kExpiryWarning = absl::Hours(7 * 24);
constexpr absl::Duration kBetweenRefusedLines = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<ServerSecurity>> ServerSecurity::Open(
    const ServerSecurityOptions& options) {
  auto security = std::unique_ptr<ServerSecurity>(new ServerSecurity(options));
  if (!options.token_file.empty()) RETURN_IF_ERROR(security->LoadTokens(options.token_file));
  if (!options.tls.certificate.empty()) RETURN_IF_ERROR(security->LoadTls(options.tls));
  return security;
}

absl::Status ServerSecurity::LoadTokens(const std::string& path) {
  const std::string name = absl::StrCat("token file ", path);
  const auto parse =
      [name](const std::vector<std::string>& contents) -> absl::StatusOr<TokenTable> {
    absl::StatusOr<TokenTable> table = TokenTable::Parse(contents[0]);
    if (table.ok()) return table;
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", table.status().message()));
  };
  ASSIGN_OR_RETURN(tokens_,
                   WatchedFiles<TokenTable>::Open({path}, TokenTable::kMaxFileBytes, parse));
  watch_.Add(name, [this] { return tokens_->Reread(); });
  return absl::OkStatus();
}

absl::Status ServerSecurity::LoadTls(const TlsFiles& files) {
  ASSIGN_OR_RETURN(tls_, WatchTlsFiles(files));
  TellOfExpiry(files.certificate);
  watch_.Add(absl::StrCat("certificate ", files.certificate), [this, path = files.certificate] {
    absl::StatusOr<Rereading> found = tls_->Reread();
    TellOfExpiry(path);
    return found;
  });
  return absl::OkStatus();
}

void ServerSecurity::TellOfExpiry(const std::string& path) {
  const absl::Time end = tls_->Get()->expires;
  const absl::Duration left = end - base::Clock::Real().Now();
  if (!log_ || left > kExpiryWarning) return;
  std::string line = absl::StrCat("certificate ", path,
                                  left > absl::ZeroDuration() ? " expires on " : " expired on ",
                                  absl::FormatTime("%Y-%m-%d %H:%M UTC", end, absl::UTCTimeZone()),
                                  "; clients refuse an expired certificate: replace it");
  if (line == logged_expiry_) return;
  log_(LogLevel::kWarn, line);
  logged_expiry_ = std::move(line);
}

absl::StatusOr<Caller> ServerSecurity::Identify(const Credentials& credentials,
                                                absl::Time now) const {
  if (credentials.authorization.empty()) {
    for (const std::string& name : credentials.certificate_names) {
      if (std::find(front_names_.begin(), front_names_.end(), name) != front_names_.end()) {
        return Caller{.principal = name, .role = Role::kFront, .limits = {}};
      }
    }
  }
  if (tokens_ == nullptr) {
    return absl::UnauthenticatedError(
        "the certificate does not contain a name of --front-name, and this worker accepts no "
        "tokens");
  }
  ASSIGN_OR_RETURN(const absl::string_view token, TokenOf(credentials));
  return tokens_->Get()->Find(token, now);
}

void ServerSecurity::OnRefused(const absl::Status& answer) const {
  if (!log_) return;
  int64_t others = 0;
  {
    base::MutexLock lock(&refused_mutex_);
    const absl::Duration now = base::Clock::Real().Monotonic();
    if (now < next_refused_line_) {
      ++refused_unlogged_;
      return;
    }
    next_refused_line_ = now + kBetweenRefusedLines;
    others = std::exchange(refused_unlogged_, 0);
  }
  std::string line = absl::StrCat("a caller was refused: ", answer.message());
  if (others > 0) absl::StrAppend(&line, " (", others, " more since the last such line)");
  log_(LogLevel::kWarn, line);
}

}  // namespace tidepool::service

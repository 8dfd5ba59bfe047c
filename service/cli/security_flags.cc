#include "service/cli/security_flags.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/auth/token_table.h"
#include "service/base/units.h"
#include "service/cli/flag_setters.h"
#include "service/cli/server_flags.h"
#include "service/http/host_check.h"

namespace tidepool::service {
namespace {

constexpr CommandSet kServing = Bit(Command::kServe) | Bit(Command::kFront) | Bit(Command::kWorker);
constexpr CommandSet kHttp = Bit(Command::kServe) | Bit(Command::kFront);
constexpr CommandSet kAsking = Bit(Command::kGenerate) | Bit(Command::kChat) |
                               Bit(Command::kBench) | Bit(Command::kStats) | Bit(Command::kOffload);
constexpr CommandSet kToken = Bit(Command::kToken);

absl::Status AddCorsOrigin(absl::string_view value, Config* config) {
  return config->security.cors_origins.Add(value);
}

absl::Status AddHttpHost(absl::string_view value, Config* config) {
  RETURN_IF_ERROR(CheckHostName(value));
  config->security.http_hosts.emplace_back(value);
  return absl::OkStatus();
}

// gRPC stores the age as int milliseconds and treats INT_MAX, 24.8 days, as no limit.
constexpr absl::Duration kMaxConnectionAge = absl::Hours(24 * 24);

absl::Status SetMaxConnectionAge(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(const absl::Duration age, ParseTime(value));
  if (age < absl::Seconds(1) || age > kMaxConnectionAge) {
    return absl::InvalidArgumentError(absl::StrCat(
        "accepted: 1s to ", absl::ToInt64Hours(kMaxConnectionAge), "h, which is 24 days"));
  }
  config->security.max_connection_age = age;
  return absl::OkStatus();
}

absl::Status SetPrincipal(absl::string_view value, Config* config) {
  RETURN_IF_ERROR(CheckPrincipal(value));
  config->token.caller.principal = std::string(value);
  return absl::OkStatus();
}

absl::Status SetRole(absl::string_view value, Config* config) {
  config->token.caller.role = ParseRole(value);
  if (config->token.caller.role.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not user, admin or front"));
}

template <auto member, int64_t most>
absl::Status SetLimit(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->token.caller.limits.*member, ParseInteger(value, 1, most));
  return absl::OkStatus();
}

absl::Status SetMaxPriority(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(const int64_t priority, ParseInteger(value, kLowestPriority, kHighestPriority));
  config->token.caller.limits.max_priority = static_cast<int32_t>(priority);
  return absl::OkStatus();
}

absl::Status SetExpires(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->token.expires, ParseExpiry(value));
  return absl::OkStatus();
}

constexpr absl::string_view kSecurity = "Security";
constexpr FlagKind kValue = FlagKind::kValue;
constexpr FlagKind kSwitch = FlagKind::kSwitch;
using S = SecurityFlags;
using L = PrincipalLimits;

constexpr FlagSpec kFlags[] = {
    {"admin-listen", 0, kSecurity, "HOST:PORT", "--listen",
     "separate address for the Admin service; port 0 selects a free port", kServing, kValue,
     SetAddress<&Config::listen, &ListenFlags::admin>},
    {"probe-listen", 0, kSecurity, "HOST:PORT", "none",
     "additional address for health checks only, without TLS and tokens (for the kubelet)",
     kServing, kValue, SetAddress<&Config::listen, &ListenFlags::probe>},
    {"auth-token-file", 0, kSecurity, "FILE", "",
     "file with one line for each allowed token: the principal, the role (user, admin or front) "
     "and the token's SHA-256. 'tidepool token new' writes such lines. The file is read again when "
     "it changes",
     kServing, kValue, SetString<&Config::security, &S::auth_token_file>},
    {"allow-unauthenticated", 0, kSecurity, "", "off",
     "accept unauthenticated clients on non-loopback addresses", kServing, kSwitch,
     SetSwitch<&Config::security, &S::allow_unauthenticated>},
    {"cors-origin", 0, kSecurity, "ORIGIN", "none",
     "allow web pages of this origin to call the HTTP API; repeatable. ORIGIN is "
     "SCHEME://HOST[:PORT] (port * is any port), SCHEME://* for local apps such as tauri://*, or * "
     "for all pages, which requires --auth-token-file",
     kHttp, FlagKind::kRepeats, AddCorsOrigin},
    {"http-host", 0, kSecurity, "NAME", "names of this machine",
     "also accept HTTP requests with the Host header NAME, for example those that a proxy on this "
     "machine forwards; only if --http is a loopback address; repeatable",
     kHttp, FlagKind::kRepeats, AddHttpHost},
    {"tls-cert", 0, kSecurity, "FILE", "",
     "PEM file with the server's certificate, followed by its chain; gRPC and HTTP then use TLS. "
     "This file and the files of --tls-key and --tls-client-ca are read again when they change",
     kServing, kValue, SetString<&Config::security, &S::tls_cert>},
    {"tls-key", 0, kSecurity, "FILE", "", "private key of --tls-cert, without a password", kServing,
     kValue, SetString<&Config::security, &S::tls_key>},
    {"tls-client-ca", 0, kSecurity, "FILE", "",
     "file of CA certificates; a client must have a certificate of one of these CAs", kServing,
     kValue, SetString<&Config::security, &S::tls_client_ca>},
    {"max-connection-age", 0, kSecurity, "TIME", "1h",
     "age from which on a TLS connection accepts no more requests. The connection closes when its "
     "running requests end. Clients open new connections, for which certificates are checked again",
     kServing, kValue, SetMaxConnectionAge},
    {"front-name", 0, kSecurity, "NAME", "",
     "accept a client certificate with this DNS name or URI as a front; repeatable",
     Bit(Command::kWorker), FlagKind::kRepeats, AddString<&Config::security, &S::front_names>},
    {"worker-tls-ca", 0, kSecurity, "FILE", "",
     "connect to workers over TLS and trust the CAs in this file. A worker's certificate must "
     "match "
     "the host in --worker. The files of all --worker-tls-* flags and of --worker-token-file are "
     "read again when they change",
     Bit(Command::kFront), kValue, SetString<&Config::security, &S::worker_tls_ca>},
    {"worker-tls-cert", 0, kSecurity, "FILE", "", "certificate that the front presents to workers",
     Bit(Command::kFront), kValue, SetString<&Config::security, &S::worker_tls_cert>},
    {"worker-tls-key", 0, kSecurity, "FILE", "", "private key of --worker-tls-cert",
     Bit(Command::kFront), kValue, SetString<&Config::security, &S::worker_tls_key>},
    {"worker-token-file", 0, kSecurity, "FILE", "",
     "file with one line: the token that the front sends to workers. In the workers' token files "
     "it must have the role front",
     Bit(Command::kFront), kValue, SetString<&Config::security, &S::worker_token_file>},
    {"tls-ca", 0, kSecurity, "FILE", "",
     "connect to the server over TLS and trust the CAs in this file. The server's certificate must "
     "match the host in --server",
     kAsking, kValue, SetString<&Config::security, &S::tls_ca>},
    {"tls-cert", 0, kSecurity, "FILE", "", "client certificate to present to the server", kAsking,
     kValue, SetString<&Config::security, &S::tls_cert>},
    {"tls-key", 0, kSecurity, "FILE", "", "private key of --tls-cert", kAsking, kValue,
     SetString<&Config::security, &S::tls_key>},
    {"token-file", 0, kSecurity, "FILE", "", "file with one line: the token to send to the server",
     kAsking, kValue, SetString<&Config::security, &S::token_file>},

    {"store-password-file", 0, kSecurity, "FILE", "",
     "file with one line: the password of the Redis server in --store. It is read at the start",
     Bit(Command::kServe) | Bit(Command::kFront) | Bit(Command::kSessions), kValue,
     SetString<&Config::security, &S::store_password_file>},
    {"action", 0, kSecurity, "ACTION", "",
     "what to do: new (the only action); may also be the first argument", kToken, kValue,
     SetAnyString<&Config::input, &InputFlags::action>},
    {"principal", 0, kSecurity, "NAME", "", "name of the caller that the token identifies", kToken,
     kValue, SetPrincipal},
    {"role", 0, kSecurity, "ROLE", "user",
     "what the caller may do: user (generate and keep sessions), admin (also inspect and change "
     "the server), or front (connect to workers)",
     kToken, kValue, SetRole},
    {"rate", 0, kSecurity, "N", "no limit", "maximum number of generations per minute", kToken,
     kValue, SetLimit<&L::per_minute, kMaxPerMinute>},
    {"concurrency", 0, kSecurity, "N", "no limit",
     "maximum number of generations that run at the same time", kToken, kValue,
     SetLimit<&L::at_once, kMaxAtOnce>},
    {"max-priority", 0, kSecurity, "N", "0",
     "highest priority that the caller's requests may have: -100 to 100", kToken, kValue,
     SetMaxPriority},
    {"expires", 0, kSecurity, "TIME", "never",
     "when the token expires: a date such as 2027-01-01, or a time such as 2027-01-01T12:00:00Z",
     kToken, kValue, SetExpires},
    {"token-file", 0, kSecurity, "FILE", "",
     "write the token to this file (mode 0600) instead of the terminal", kToken, kValue,
     SetString<&Config::security, &S::token_file>},
};

absl::Status NeedOther(absl::string_view flag, const std::string& value, absl::string_view other,
                       const std::string& its_value) {
  if (value.empty() || !its_value.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " needs ", other, " as well"));
}

absl::Status NeedPair(absl::string_view a, const std::string& value_a, absl::string_view b,
                      const std::string& value_b) {
  RETURN_IF_ERROR(NeedOther(a, value_a, b, value_b));
  return NeedOther(b, value_b, a, value_a);
}

absl::Status NeedCallersKnown(absl::string_view flag, const std::string& listen) {
  if (listen.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(listen));
  if (IsLoopback(address.host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", listen,
                   " can be reached from other machines and nobody is authenticated; allow only "
                   "some callers with "
                   "--auth-token-file FILE (tidepool token new creates its lines), or all with "
                   "--allow-unauthenticated"));
}

// Checks the flags about web pages if HTTP is served.
absl::Status ValidateWebAccess(const Config& config) {
  const SecurityFlags& security = config.security;
  const absl::string_view flag = !security.cors_origins.empty() ? "--cors-origin"
                                 : !security.http_hosts.empty() ? "--http-host"
                                                                : "";
  if (!flag.empty() && config.listen.http.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is for HTTP, and --http is off; leave one of them out"));
  }
  if (security.cors_origins.any() && security.auth_token_file.empty()) {
    return absl::InvalidArgumentError(
        "--cors-origin * lets every web page call the API; require tokens with "
        "--auth-token-file FILE, or allow only some origins");
  }
  if (security.http_hosts.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostPort http, ParseHostPort(config.listen.http));
  if (IsLoopback(http.host) && !security.allow_unauthenticated) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--http-host has no effect: at --http ", config.listen.http,
                   security.allow_unauthenticated ? " with --allow-unauthenticated" : "",
                   " requests for any host are served; leave it out"));
}

}  // namespace

absl::Span<const FlagSpec> SecurityFlagSpecs() { return kFlags; }

absl::Status ValidateServerSecurity(const Config& config) {
  const SecurityFlags& security = config.security;
  RETURN_IF_ERROR(ValidateWebAccess(config));
  RETURN_IF_ERROR(NeedPair("--tls-cert", security.tls_cert, "--tls-key", security.tls_key));
  RETURN_IF_ERROR(NeedPair("--worker-tls-cert", security.worker_tls_cert, "--worker-tls-key",
                           security.worker_tls_key));
  RETURN_IF_ERROR(
      NeedOther("--tls-client-ca", security.tls_client_ca, "--tls-cert", security.tls_cert));
  RETURN_IF_ERROR(NeedOther("--worker-tls-cert", security.worker_tls_cert, "--worker-tls-ca",
                            security.worker_tls_ca));
  if (security.max_connection_age.has_value() && security.tls_cert.empty()) {
    return absl::InvalidArgumentError("--max-connection-age needs --tls-cert as well");
  }
  if (!security.front_names.empty()) {
    RETURN_IF_ERROR(NeedOther("--front-name", security.front_names[0], "--tls-client-ca",
                              security.tls_client_ca));
  }
  const bool known = !security.auth_token_file.empty() || !security.front_names.empty();
  if (known && security.allow_unauthenticated) {
    return absl::InvalidArgumentError(
        absl::StrCat(security.auth_token_file.empty() ? "--front-name" : "--auth-token-file",
                     " and --allow-unauthenticated contradict each other; leave one out"));
  }
  if (known || security.allow_unauthenticated) return absl::OkStatus();
  RETURN_IF_ERROR(NeedCallersKnown("--listen", config.listen.grpc));
  RETURN_IF_ERROR(NeedCallersKnown("--admin-listen", config.listen.admin));
  return NeedCallersKnown("--http", config.command == Command::kWorker ? "" : config.listen.http);
}

absl::Status ValidateClientSecurity(const Config& config) {
  const SecurityFlags& security = config.security;
  RETURN_IF_ERROR(NeedPair("--tls-cert", security.tls_cert, "--tls-key", security.tls_key));
  return NeedOther("--tls-cert", security.tls_cert, "--tls-ca", security.tls_ca);
}

}  // namespace tidepool::service

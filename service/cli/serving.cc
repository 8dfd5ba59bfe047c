// serve, front and worker: from the start to the end of a server.
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "moe/policy/placement_policy.h"
#include "service/auth/server_security.h"
#include "service/cli/commands.h"
#include "service/cli/flags.h"
#include "service/cli/local_server.h"
#include "service/cli/log.h"
#include "service/cli/reload.h"
#include "service/cli/signals.h"
#include "service/cli/units.h"
#include "service/store/redis_address.h"

namespace tidepool::service {
namespace {

// Thread-safe. What signals ask for. To stop is the end of the process before there is a server,
// then the beginning of the end, and the second time the end at once. Admin's Drain begins the end,
// too.
class SignalRequests {
 public:
  enum class Request : uint8_t { kStop, kReread };

  // From now on a signal is for `server`, which outlives the signals.
  void ServerIs(Server* server) {
    base::MutexLock lock(&mutex_);
    server_ = server;
  }

  void Ask(Request request) {
    Server* hurry = nullptr;
    {
      base::MutexLock lock(&mutex_);
      if (request == Request::kStop) {
        // Nothing has been promised yet, and a load cannot be stopped half-way.
        if (server_ == nullptr) std::_Exit(0);
        if (std::exchange(signalled_, true)) hurry = server_;
        stop_ = true;
      } else {
        reread_ = true;
      }
      changed_.NotifyAll();
    }
    if (hurry != nullptr) hurry->Shutdown({});
  }

  void OnDrain() {
    base::MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }

  // Waits for one.
  Request Next() {
    base::MutexLock lock(&mutex_);
    while (!stop_ && !reread_) changed_.Wait(&mutex_);
    if (stop_) return Request::kStop;
    reread_ = false;
    return Request::kReread;
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  Server* server_ TIDEPOOL_GUARDED_BY(mutex_) = nullptr;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool signalled_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool reread_ TIDEPOOL_GUARDED_BY(mutex_) = false;
};

// The address as another program on this machine can dial it.
std::string Dialable(const std::string& address) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return address;
  if (parts->host == "0.0.0.0") return absl::StrCat("127.0.0.1:", parts->port);
  if (parts->host == "::") return absl::StrCat("[::1]:", parts->port);
  return address;
}

std::string ExampleCall(const Config& config, const std::string& address) {
  const SecurityFlags& security = config.security;
  std::string call = "grpcurl -plaintext ";
  if (!security.tls_cert.empty()) call = "grpcurl -cacert ca.pem ";
  if (!security.tls_client_ca.empty()) absl::StrAppend(&call, "-cert cert.pem -key key.pem ");
  if (!security.auth_token_file.empty()) {
    absl::StrAppend(&call, "-H \"authorization: Bearer $TOKEN\" ");
  }
  if (config.command == Command::kWorker) {
    return absl::StrCat(call, address, " tidepool.v1.Admin/GetStats");
  }
  return absl::StrCat(
      call, "-d '{\"text\":\"The sky is\",\"stopping\":{\"maxTokens\":16}}' ", address,
      " tidepool.v1.Inference/Generate");
}

std::string ModelLines(const LocalServer& local) {
  const WorkerModel& model = local.model();
  std::string text =
      absl::StrFormat("  model     %s (%s), context %d tokens, %s of weights, %s\n", model.name,
                      model.architecture, model.context_length,
                      FormatBytes(static_cast<double>(model.weight_bytes)), model.backend);
  if (const auto& offload = local.offload(); offload.has_value()) {
    absl::StrAppendFormat(
        &text, "  experts   %d of %d in %s of memory, the others read as needed (%s)\n",
        offload->slots, offload->experts,
        FormatBytes(static_cast<double>(offload->expert_memory_bytes)),
        moe::PolicyName(offload->policy));
  }
  return text;
}

Json ModelJson(const LocalServer& local) {
  const WorkerModel& model = local.model();
  Json json = {{"model", model.name},
               {"context_length", model.context_length},
               {"backend", model.backend}};
  if (const auto& offload = local.offload(); offload.has_value()) {
    json["offload"] = {{"policy", std::string(moe::PolicyName(offload->policy))},
                       {"expert_memory_bytes", offload->expert_memory_bytes},
                       {"slots", offload->slots},
                       {"experts", offload->experts}};
  }
  return json;
}

// Endpoints and a call to try. `local` is null for a front.
void Announce(const Config& config, const Server& server, const LocalServer* local,
              Console* console) {
  const bool own_admin = config.command == Command::kWorker && !server.admin_address().empty();
  const std::string call =
      ExampleCall(config, Dialable(own_admin ? server.admin_address() : server.address()));
  const std::string role(SpecOf(config.command).name);
  if (config.output == OutputFormat::kJson) {
    Json json = {{"role", role}, {"grpc", server.address()}, {"port", server.port()}};
    if (local != nullptr) json.update(ModelJson(*local));
    if (!server.admin_address().empty()) json["admin"] = server.admin_address();
    if (!server.probe_address().empty()) json["probes"] = server.probe_address();
    if (!server.http_address().empty()) json["http"] = server.http_address();
    if (config.command != Command::kWorker) json["store"] = StoreName(config.store);
    json["try"] = call;
    console->PrintJson(json);
    return;
  }
  const absl::string_view tls = config.security.tls_cert.empty() ? "" : " over TLS";
  std::string text = absl::StrFormat("%s: gRPC%s on %s, with health and reflection\n", role, tls,
                                     server.address());
  if (!server.admin_address().empty()) {
    absl::StrAppend(&text, "  Admin     ", server.admin_address(), "\n");
  }
  if (!server.probe_address().empty()) {
    absl::StrAppend(&text, "  probes    ", server.probe_address(), ", health alone\n");
  }
  if (!server.http_address().empty()) {
    absl::StrAppend(&text, "  HTTP      ", server.http_address(), tls, ", OpenAI-compatible",
                    server.http_address() == config.http || config.http_named
                        ? ""
                        : absl::StrCat(" (", config.http, " is taken)"),
                    "\n");
  }
  if (local != nullptr) absl::StrAppend(&text, ModelLines(*local));
  for (const std::string& worker : config.workers)
    absl::StrAppend(&text, "  worker    ", worker, "\n");
  for (const std::string& name : config.worker_names)
    absl::StrAppend(&text, "  workers   ", name, ", each address of it\n");
  if (config.command != Command::kWorker)
    absl::StrAppend(&text, "  sessions  ", StoreName(config.store), "\n");
  absl::StrAppend(&text, "Try:\n  ", call, "\n");
  console->Print(text);
}

absl::StatusOr<std::unique_ptr<ServerSecurity>> OpenSecurity(const Config& config, Log* log) {
  const SecurityFlags& flags = config.security;
  return ServerSecurity::Open(
      {.token_file = flags.auth_token_file,
       .tls = {.certificate = flags.tls_cert, .key = flags.tls_key, .ca = flags.tls_client_ca},
       .front_names = flags.front_names,
       .log = log->Sink()});
}

// Each connection takes a file, and shells start programs with room for a thousand.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Brings what runs up to what the command line and its file say now.
void Reread(const ConfigReader& read, ParsedConfig* running, Server* server, Log* log) {
  const absl::StatusOr<ParsedConfig> found = read();
  if (!found.ok()) {
    return log->Write(LogLevel::kError,
                      absl::StrCat("SIGHUP: ", found.status().message(), "; all stays as it was"));
  }
  const ConfigChanges changes = TakeChanges(*found, running);
  log->SetLevel(running->config.log_level);
  server->Change(LiveOptionsOf(running->config));
  log->Info(absl::StrCat("SIGHUP: ", running->file, " was read again; ",
                         changes.taken.empty() ? "nothing" : absl::StrJoin(changes.taken, ", "),
                         " changed"));
  if (!changes.left.empty()) {
    log->Write(LogLevel::kWarn, absl::StrCat("SIGHUP: ", absl::StrJoin(changes.left, ", "),
                                             " cannot change while serving, and will at the next "
                                             "start"));
  }
}

}  // namespace

absl::Status RunServing(ParsedConfig parsed, const ConfigReader& read, Console* console) {
  const Config& config = parsed.config;
  // Before the server, so that it outlives no call of the watcher's.
  SignalRequests requests;
  RaiseFileLimit();
  std::optional<Log> log;
  std::unique_ptr<ServerSecurity> security;
  std::unique_ptr<LocalServer> local;
  std::unique_ptr<Server> front;
  // Before every other thread, which then leave the signals to it.
  const SignalWatcher watcher({SIGINT, SIGTERM, SIGHUP}, [&](int signal) {
    // Without a file to read it tells that the terminal is gone.
    const bool reread = signal == SIGHUP && !parsed.file.empty();
    requests.Ask(reread ? SignalRequests::Request::kReread : SignalRequests::Request::kStop);
  });
  log.emplace(config.log_level, config.log_format);
  ASSIGN_OR_RETURN(security, OpenSecurity(config, &*log));
  const Surroundings surroundings = {.log = &*log,
                                     .tls = security->tls(),
                                     .authenticator = security->authenticator(),
                                     .drain = [&requests] { requests.OnDrain(); }};

  Server* server = nullptr;
  if (config.command == Command::kFront) {
    ASSIGN_OR_RETURN(front, StartFront(config, surroundings));
    server = front.get();
  } else {
    const LocalRole role =
        config.command == Command::kWorker ? LocalRole::kWorker : LocalRole::kServe;
    ASSIGN_OR_RETURN(local, StartLocalServer(config, role, surroundings, console));
    server = &local->server();
  }
  requests.ServerIs(server);
  Announce(config, *server, local.get(), console);
  RETURN_IF_ERROR(console->out_status());
  while (requests.Next() == SignalRequests::Request::kReread) {
    Reread(read, &parsed, server, &*log);
  }
  log->Info(absl::StrCat("stopping: new requests are taken for ",
                         absl::FormatDuration(config.drain_grace), ", running answers have ",
                         absl::FormatDuration(config.drain_timeout),
                         "; a second signal ends at once"));
  server->Shutdown({.grace = config.drain_grace, .drain = config.drain_timeout});
  log->Info("stopped");
  return absl::OkStatus();
}

}  // namespace tidepool::service

// serve, front and worker: run a server from start to shutdown.
#include <sys/resource.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "moe/policy/placement_policy.h"
#include "service/auth/server_security.h"
#include "service/base/units.h"
#include "service/cli/commands.h"
#include "service/cli/flags.h"
#include "service/cli/line_writer.h"
#include "service/cli/local_server.h"
#include "service/cli/log.h"
#include "service/cli/reload.h"
#include "service/cli/signals.h"
#include "service/cli/stop_signals.h"
#include "service/store/redis_address.h"

namespace tidepool::service {
namespace {

// Time for an orderly shutdown after a second signal.
constexpr absl::Duration kHurry = absl::Seconds(10);
// Time in which clients can read the end of their streams after a second signal.
constexpr absl::Duration kHurriedCancel = absl::Milliseconds(250);
// Maximum time to write the last log lines at shutdown. kShortFlush applies after a second signal.
constexpr absl::Duration kFlush = absl::Seconds(2);
constexpr absl::Duration kShortFlush = absl::Milliseconds(100);

// Returns an address that other programs on this machine can connect to.
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
  return absl::StrCat(call, "-d '{\"text\":\"The sky is\",\"stopping\":{\"maxTokens\":16}}' ",
                      address, " tidepool.v1.Inference/Generate");
}

std::string ModelLines(const LocalServer& local) {
  const WorkerModel& model = local.model();
  std::string text =
      absl::StrFormat("  model     %s (%s), context %d tokens, %s of weights, %s\n",
                      OneLine(model.name), OneLine(model.architecture), model.context_length,
                      FormatBytes(static_cast<double>(model.weight_bytes)), model.backend);
  if (!model.aliases.empty()) {
    absl::StrAppend(&text, "  id        ", OneLine(absl::StrJoin(model.aliases, ", ")), "\n");
  }
  if (const auto& offload = local.offload(); offload.has_value()) {
    absl::StrAppendFormat(&text,
                          "  experts   %d of %d in %s of memory, the others read as needed (%s)\n",
                          offload->slots, offload->experts,
                          FormatBytes(static_cast<double>(offload->expert_memory_bytes)),
                          moe::PolicyName(offload->policy));
  }
  return text;
}

Json ModelJson(const LocalServer& local) {
  const WorkerModel& model = local.model();
  Json json = {{"model", model.name},
               {"aliases", model.aliases},
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

// Prints the endpoints and an example call. `local` is null for a front.
void Announce(const Config& config, const Server& server, const LocalServer* local,
              Console* console) {
  const bool own_admin = config.command == Command::kWorker && !server.admin_address().empty();
  const std::string call =
      ExampleCall(config, Dialable(own_admin ? server.admin_address() : server.address()));
  const std::string role(SpecOf(config.command).name);
  if (config.output.format == OutputFormat::kJson) {
    Json json = {{"role", role}, {"grpc", server.address()}, {"port", server.port()}};
    if (local != nullptr) json.update(ModelJson(*local));
    if (!server.admin_address().empty()) json["admin"] = server.admin_address();
    if (!server.probe_address().empty()) json["probes"] = server.probe_address();
    if (!server.http_address().empty()) json["http"] = server.http_address();
    if (config.command != Command::kWorker) json["store"] = StoreName(config.store.location);
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
    absl::StrAppend(&text, "  probes    ", server.probe_address(), ", only health\n");
  }
  if (!server.http_address().empty()) {
    absl::StrAppend(&text, "  HTTP      ", server.http_address(), tls, ", OpenAI-compatible",
                    server.http_address() == config.listen.http || config.listen.http_named
                        ? ""
                        : absl::StrCat(" (", config.listen.http, " is taken)"),
                    "\n");
  }
  if (local != nullptr) absl::StrAppend(&text, ModelLines(*local));
  for (const std::string& worker : config.front.workers) {
    absl::StrAppend(&text, "  worker    ", worker, "\n");
  }
  for (const std::string& name : config.front.worker_names) {
    absl::StrAppend(&text, "  workers   ", name, " (all its addresses)\n");
  }
  if (config.command != Command::kWorker) {
    absl::StrAppend(&text, "  sessions  ", StoreName(config.store.location), "\n");
  }
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

// Each connection needs a file descriptor, and the usual soft limit is 1024.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Reads the command line and its file again and applies the changes to the running server.
void Reread(const ConfigReader& read, ParsedConfig* running, Server* server, Log* log) {
  const absl::StatusOr<ParsedConfig> found = read();
  if (!found.ok()) {
    return log->Write(LogLevel::kError, absl::StrCat("SIGHUP: ", found.status().message(),
                                                     "; configuration unchanged"));
  }
  const ConfigChanges changes = TakeChanges(*found, running);
  log->SetLevel(running->config.log.level);
  server->Change(LiveOptionsOf(running->config));
  log->Info(absl::StrCat("SIGHUP: ", running->file, " was read again; ",
                         changes.taken.empty() ? "nothing" : absl::StrJoin(changes.taken, ", "),
                         " changed"));
  if (!changes.left.empty()) {
    log->Write(LogLevel::kWarn,
               absl::StrCat("SIGHUP: ", absl::StrJoin(changes.left, ", "),
                            " cannot change while the server runs; the new values take effect "
                            "at the next start"));
  }
}

}  // namespace

absl::Status RunServing(ParsedConfig parsed, const ConfigReader& read, Console* console) {
  const Config& config = parsed.config;
  RaiseFileLimit();
  StopSignals requests(kHurry);
  // Created before the server's threads, so that they inherit the blocked signals. Destroyed after
  // them, so that a second signal can end the process during the shutdown.
  const SignalWatcher watcher({SIGINT, SIGTERM, SIGHUP}, [&](int signal) {
    // Without a --config file, SIGHUP means that the terminal was closed.
    const bool reread = signal == SIGHUP && !parsed.file.empty();
    reread ? requests.Reread() : requests.Stop(signal);
  });
  LineWriter* const lines =
      console->NeverWait({.dropped_note = [format = config.log.format](int64_t count) {
        return DroppedLinesNote(format, count);
      }});
  // Write the last log lines here, while signals are still handled. If the reader of the log is
  // stuck, a signal can then end the process.
  const absl::Cleanup flush = [lines, &requests] {
    if (!lines->Flush(requests.hurried() ? kShortFlush : kFlush)) lines->Hurry();
  };
  Log log(config.log.level, config.log.format, lines);
  console->LinesTo(log.Sink());
  const absl::Cleanup no_log = [console] { console->LinesTo(LogSink()); };
  std::unique_ptr<ServerSecurity> security;
  std::unique_ptr<LocalServer> local;
  std::unique_ptr<Server> front;
  ASSIGN_OR_RETURN(security, OpenSecurity(config, &log));
  const Surroundings surroundings = {.log = &log,
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
  requests.ServerIs([server] { server->Shutdown({.cancel = kHurriedCancel}); });
  const absl::Cleanup leave = [&requests] { requests.ServerLeaves(); };
  Announce(config, *server, local.get(), console);
  RETURN_IF_ERROR(console->out_status());
  while (requests.Next() == StopSignals::Request::kReread) {
    Reread(read, &parsed, server, &log);
  }
  log.Info(absl::StrCat(
      "stopping: new requests are accepted for ", absl::FormatDuration(config.serving.drain_grace),
      ", and running responses may continue for ",
      absl::FormatDuration(config.serving.drain_timeout), "; a second signal ends them at once"));
  server->Shutdown({.grace = config.serving.drain_grace, .drain = config.serving.drain_timeout});
  log.Info("stopped");
  return absl::OkStatus();
}

}  // namespace tidepool::service

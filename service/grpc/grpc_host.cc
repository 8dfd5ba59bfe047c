#include "service/grpc/grpc_host.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "grpc/health/v1/health.pb.h"
#include "kernels/base/status_macros.h"
#include "service/auth/grpc_tls.h"
#include "service/base/shutdown_accepted_sockets.h"
#include "service/grpc/grpc_process.h"

namespace tidepool::service {
namespace {

constexpr int kMaxStreamsPerConnection = 1024;
constexpr int kMaxHeaderBytes = 16 << 10;
constexpr int kHandshakeMs = 10'000;
constexpr size_t kMemoryQuotaBytes = size_t{512} << 20;
// The synchronous threads are only for reflection, our only synchronous service. Anyone may call
// reflection without a token, and each of its streams uses a thread until the client ends the
// stream. When all threads are in use, more streams get RESOURCE_EXHAUSTED.
constexpr int kMaxReflectionThreads = 16;
constexpr int64_t kMaxProbeBytes = 4 << 10;

struct ListenAddress {
  std::string host;  // without the brackets of IPv6
  int port = -1;
};

absl::StatusOr<ListenAddress> ParseListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  ListenAddress address;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(absl::string_view(listen).substr(colon + 1), &address.port) ||
      address.port < 0 || address.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", listen,
        "' is not a valid listen address; accepted: HOST:PORT with a port from 0 to 65535"));
  }
  absl::string_view host = absl::string_view(listen).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  address.host = std::string(host);
  return address;
}

// Sets options that apply to the whole process.
void ConfigureLibraries() {
  KeepCallbackQueue();
  // Turns off protobuf's log, because our errors already describe messages that cannot be parsed.
  google::protobuf::SetLogHandler(nullptr);
  grpc::EnableDefaultHealthCheckService(true);
  // gRPC's own health service has no descriptor. We link our own, so that reflection can describe
  // it.
  grpc::health::v1::HealthCheckRequest::descriptor();
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

// When a connection has this age, plus or minus a tenth, gRPC sends GOAWAY and accepts no more
// calls on it. The client opens another connection for new calls. No grace period is set, because
// at its end gRPC would end running calls with UNAVAILABLE. But a response may take any time, and a
// front would count the end of a run as a crash. Streams that never end by themselves are ended by
// StreamTerm. Only health and reflection streams are not limited, and these are public anyway.
void LimitConnectionAge(absl::Duration age, grpc::ServerBuilder* builder) {
  if (age == absl::InfiniteDuration()) return;
  // gRPC reads INT_MAX as "no limit", so stay below it.
  const absl::Duration longest = absl::Milliseconds(std::numeric_limits<int>::max() - 1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(std::min(age, longest))));
}

void SetLimits(const GrpcHostOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder->SetMaxSendMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->SetResourceQuota(grpc::ResourceQuota("tidepool")
                                .Resize(kMemoryQuotaBytes)
                                .SetMaxThreads(kMaxReflectionThreads));
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxHeaderBytes);
  // Closes connections of clients that send nothing, with or without TLS.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  // Allows clients to ping every 10 s while a stream is idle. By default, gRPC would respond to
  // such pings with GOAWAY.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Detects clients that have disappeared without closing the connection.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  if (options.tls != nullptr) LimitConnectionAge(options.max_connection_age, builder);
  // These threads are for reflection.
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcHost>> GrpcHost::Start(const GrpcHostOptions& options) {
  auto host = std::unique_ptr<GrpcHost>(new GrpcHost());
  host->max_message_bytes_ = options.max_message_bytes;
  host->health_names_ = options.health_names;
  host->health_names_.insert(host->health_names_.end(), {"", "readiness"});

  ConfigureLibraries();
  grpc::ServerBuilder builder;
  SetLimits(options, &builder);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  std::unique_ptr<GrpcListener::Acceptor> acceptor;
  if (!options.listen.empty()) {
    RETURN_IF_ERROR(host->Listen(options.listen, options.listen_flag));
    host->credentials_ = options.tls == nullptr ? grpc::InsecureServerCredentials()
                                                : ReloadingServerCredentials(options.tls);
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        host->credentials_);
  }
  host->server_ = builder.BuildAndStart();
  if (host->server_ == nullptr) return absl::InternalError("the gRPC server cannot start");
  host->SetReady(false);
  host->SetLive(true);
  if (acceptor != nullptr) host->listener_->Start(std::move(acceptor));
  return host;
}

absl::Status GrpcHost::Listen(const std::string& listen, absl::string_view flag) {
  ASSIGN_OR_RETURN(const ListenAddress asked, ParseListen(listen));
  absl::StatusOr<std::unique_ptr<GrpcListener>> listener =
      GrpcListener::Listen(asked.host, asked.port);
  if (!listener.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", listen, ": ",
                                               listener.status().message(),
                                               "; choose another address with ", flag));
  }
  listener_ = *std::move(listener);
  port_ = listener_->port();
  address_ = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port_);
  return absl::OkStatus();
}

GrpcHost::~GrpcHost() {
  if (server_ != nullptr) Shutdown();
}

std::shared_ptr<grpc::Channel> GrpcHost::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return server_->InProcessChannel(arguments);
}

void GrpcHost::SetReady(bool ready) {
  base::MutexLock lock(&health_mutex_);
  if (draining_ && ready) return;
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  for (const std::string& name : health_names_) health->SetServingStatus(name, ready);
}

void GrpcHost::SetLive(bool live) {
  server_->GetHealthCheckService()->SetServingStatus("liveness", live);
}

void GrpcHost::StopReady() {
  {
    base::MutexLock lock(&health_mutex_);
    draining_ = true;
  }
  SetReady(false);
}

void GrpcHost::Shutdown(absl::Duration last_bytes) {
  base::MutexLock lock(&shutdown_mutex_);
  if (std::exchange(down_, true)) return;
  // Shut down the connections first, while their calls are still running. Once gRPC's own shutdown
  // has begun, gRPC ends each call that still arrives with CANCELLED, as if the client had
  // cancelled the call (https://github.com/grpc/grpc/issues/41785). With open connections, clients
  // would get this wrong status until they notice the shutdown.
  if (listener_ != nullptr) {
    listener_->Stop();
    ShutdownAcceptedSockets(listener_->addresses(), last_bytes);
  }
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
}

absl::StatusOr<std::string> GrpcHosts::Add(const GrpcHostOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<GrpcHost> host, GrpcHost::Start(options));
  hosts_.push_back(std::move(host));
  return hosts_.back()->address();
}

absl::StatusOr<std::unique_ptr<GrpcHosts>> GrpcHosts::Start(const GrpcHostOptions& main,
                                                            const MorePorts& more) {
  auto hosts = std::make_unique<GrpcHosts>();
  RETURN_IF_ERROR(hosts->Add(main).status());
  if (!more.admin_listen.empty()) {
    GrpcHostOptions admin = main;
    admin.listen = more.admin_listen;
    admin.listen_flag = "--admin-listen";
    admin.services = more.admin_services;
    ASSIGN_OR_RETURN(hosts->admin_address_, hosts->Add(admin));
  }
  if (!more.probe_listen.empty()) {
    GrpcHostOptions probe = main;
    probe.listen = more.probe_listen;
    probe.listen_flag = "--probe-listen";
    probe.services.clear();
    probe.max_message_bytes = kMaxProbeBytes;
    probe.tls = nullptr;
    ASSIGN_OR_RETURN(hosts->probe_address_, hosts->Add(probe));
  }
  return hosts;
}

void GrpcHosts::SetReady(bool ready) {
  for (const auto& host : hosts_) host->SetReady(ready);
}

void GrpcHosts::SetLive(bool live) {
  for (const auto& host : hosts_) host->SetLive(live);
}

void GrpcHosts::StopReady() {
  for (const auto& host : hosts_) host->StopReady();
}

void GrpcHosts::Shutdown(absl::Duration last_bytes) {
  for (const auto& host : hosts_) host->Shutdown(last_bytes);
}

}  // namespace tidepool::service

#include "service/cli/local_server.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/engine.h"
#include "engine/kv/kv_cache.h"
#include "engine/loading/memory_plan.h"
#include "engine/loading/model_bundle.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "service/auth/client_security.h"
#include "service/base/units.h"
#include "service/cli/console.h"
#include "service/cli/load.h"
#include "service/cli/model_flags.h"
#include "service/cli/open_store.h"
#include "service/cli/sampling_defaults.h"
#include "service/tools/tool_syntax.h"
#include "service/worker/worker_model.h"

namespace tidepool::service {
namespace {

// The context to serve: --context, or else the context of the model. It is reduced if the KV memory
// cannot hold it.
absl::StatusOr<int64_t> ContextLength(const Config& config, const engine::ModelBundle& bundle) {
  const int64_t trained = bundle.config.context_length;
  const int64_t capacity =
      engine::KvCapacityTokens(bundle.model->kv_specs(), config.model.kv_memory_bytes,
                               std::max(engine::kPrefillRows, bundle.offload_prefill_rows));
  if (config.model.context > trained) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--context %d: %s was trained for %d tokens; use a smaller value",
                        config.model.context, bundle.name, trained));
  }
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (config.model.kv_memory_bytes > memory) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--kv-memory is %s, but this machine has %s; use a smaller value",
                        FormatBytes(static_cast<double>(config.model.kv_memory_bytes)),
                        FormatBytes(static_cast<double>(memory))));
  }
  if (capacity < 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--kv-memory %s does not hold the KV of one block of tokens; raise it",
                        FormatBytes(static_cast<double>(config.model.kv_memory_bytes))));
  }
  const int64_t wanted =
      config.model.context > 0 ? config.model.context : std::min(trained, capacity);
  if (wanted > capacity) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--kv-memory %s holds the KV of %d tokens, but the context has %d; raise --kv-memory, "
        "or lower --context",
        FormatBytes(static_cast<double>(config.model.kv_memory_bytes)), capacity, wanted));
  }
  return wanted;
}

// Opens and closes the store before the model is loaded. So the start fails early if the store is
// in use or cannot be created. The store does not stay open, and no file is created, because a
// signal may end the process during the load. The log lines of the store are added to `said`, so
// that they are not logged twice.
absl::Status TryStore(const Config& config, const LogSink& log, std::set<std::string>* said) {
  const NewStoreFile file(config.store.location);
  const auto note = [&](LogLevel level, absl::string_view line, LogFields fields) {
    said->emplace(line);
    log(level, line, fields);
  };
  return OpenStore(config, MissingStore::kMake, note).status();
}

// Returns a sink that drops one occurrence of each line in `said`.
LogSink Unsaid(const LogSink& log, std::set<std::string> said) {
  const auto left = std::make_shared<std::set<std::string>>(std::move(said));
  return [log, left](LogLevel level, absl::string_view line, LogFields fields) {
    if (left->erase(std::string(line)) == 0) log(level, line, fields);
  };
}

// Returns a function that logs the model's warnings while it is served. Null if there is no log.
NoteLine WarnLine(const ServerOptions& options) {
  if (!options.log) return {};
  return [log = options.log](absl::string_view line) { log(LogLevel::kWarn, line); };
}

ServerOptions MakeServerOptions(const Config& config, const Surroundings& surroundings) {
  ServerOptions options;
  options.listen = config.listen.grpc;
  options.admin_listen = config.listen.admin;
  options.probe_listen = config.listen.probe;
  options.http = config.listen.http;
  if (!config.listen.http_named) options.http_port_taken = ServerOptions::PortTaken::kTakeAnother;
  options.worker_name = config.serving.worker_name;
  options.stall_timeout = config.serving.stall_timeout;
  options.live = LiveOptionsOf(config);
  options.process.drain = surroundings.drain;
  options.tls = surroundings.tls;
  if (const auto age = config.security.max_connection_age) options.max_connection_age = *age;
  options.authenticator = surroundings.authenticator;
  options.web.cors = config.security.cors_origins;
  options.web.hosts.names = config.security.http_hosts;
  if (config.security.allow_unauthenticated) options.web.pages = Pages::kAny;
  if (surroundings.log != nullptr) options.log = surroundings.log->Sink();
  return options;
}

class LocalServerImpl : public LocalServer {
 public:
  explicit LocalServerImpl(Console* console) : console_(console) {}
  ~LocalServerImpl() override {
    server_.reset();
    engine_.reset();
    if (bundle_ == nullptr) return;
    const absl::Status ended = bundle_->model->Finish();
    if (!ended.ok()) console_->NoteLine(ended.message());
  }

  // `note` is passed to LoadBundle.
  absl::Status Load(Config config, Console* console, NoteLine note) {
    ASSIGN_OR_RETURN(bundle_, LoadBundle(config, console, std::move(note)));
    config.model.kv_memory_bytes = bundle_->plan.kv_bytes;
    const moe::OffloadControl* experts = bundle_->model->offload_control();
    if (experts != nullptr) offload_ = experts->Settings();
    ASSIGN_OR_RETURN(const int64_t context, ContextLength(config, *bundle_));
    engine::EngineOptions options;
    options.context_length = context;
    options.kv_memory_bytes = config.model.kv_memory_bytes;
    options.max_sequences = config.serving.max_sequences;
    options.max_queued = config.serving.max_queued;
    options.max_concurrent_prefills = config.serving.max_concurrent_prefills;
    options.prefill_chunk = engine::kPrefillRows;
    options.attention_depth = engine::AttentionDepth(bundle_->config);
    options.offload_prefill_chunk = bundle_->offload_prefill_rows;
    options.limits =
        engine::StepLimits(bundle_->config.vocab_size, config.serving.max_sequences,
                           std::max(options.prefill_chunk, options.offload_prefill_chunk));
    options.cache_seed = absl::StrCat(bundle_->content_digest, "/", bundle_->numerics_id);
    if (config.model.kv_disk_bytes > 0) {
      options.kv_disk_path = absl::StrCat(config.model.kv_disk_folder, "/", bundle_->digest, ".kv");
      options.kv_disk_bytes = config.model.kv_disk_bytes;
    }
    FillModel(options);
    model_.aliases = AliasesOf(config.model.aliases, config.model.path);
    ASSIGN_OR_RETURN(model_.default_sampling,
                     ReadDefaultSampling(bundle_->weights->file(), bundle_->config.vocab_size));
    ASSIGN_OR_RETURN(engine_, engine::Engine::Create(bundle_->model.get(), bundle_->tokenizer.get(),
                                                     &base::Clock::Real(), options));
    return absl::OkStatus();
  }

  absl::Status Start(LocalRole role, std::unique_ptr<SessionStore> store,
                     const ServerOptions& options) {
    if (role == LocalRole::kWorker) {
      ASSIGN_OR_RETURN(server_, StartWorkerServer(&model_, engine_.get(), options));
    } else {
      ASSIGN_OR_RETURN(server_, StartServe(&model_, engine_.get(), std::move(store), options));
    }
    return absl::OkStatus();
  }

  // Returns the free bytes of the memory that the model runs in, less the reserve of the start. The
  // function may be called as long as this object exists.
  std::function<std::optional<int64_t>()> AvailableMemory() const {
    return [bundle = bundle_.get()] {
      std::optional<int64_t> available = FreeBytesFor(*bundle);
      if (available.has_value()) *available -= bundle->plan.reserve_bytes;
      return available;
    };
  }

  Server& server() override { return *server_; }
  const WorkerModel& model() const override { return model_; }
  const std::optional<moe::OffloadSettings>& offload() const override { return offload_; }

 private:
  void FillModel(const engine::EngineOptions& options) {
    const engine::ModelConfig& config = bundle_->config;
    model_.name = bundle_->name;
    model_.architecture = config.architecture;
    model_.digest = bundle_->digest;
    model_.content_digest = bundle_->content_digest;
    model_.numerics_id = bundle_->numerics_id;
    model_.backend = bundle_->backend->Description();
    model_.context_length = options.context_length;
    model_.layers = static_cast<int>(config.layers.size());
    model_.hidden_size = config.hidden_size;
    model_.experts = config.moe.experts;
    model_.experts_used = config.moe.experts_used;
    model_.weight_bytes = static_cast<int64_t>(bundle_->weight_bytes);
    model_.cache_seed = options.cache_seed;
    model_.tokenizer = bundle_->tokenizer.get();
    model_.grammars = std::make_shared<engine::grammar::GrammarCache>(model_.tokenizer);
    model_.chat_template = bundle_->chat_template;
    const std::string& source = bundle_->tokenizer->spec().chat_template;
    model_.tool_syntax = ToolSyntaxOf(source);
    model_.reasoning = ReasoningMarkersOf(source);
  }

  Console* const console_;
  // The members are in this order because each must outlive the ones below it, which use it.
  std::unique_ptr<engine::ModelBundle> bundle_;
  WorkerModel model_;
  std::optional<moe::OffloadSettings> offload_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace

LiveOptions LiveOptionsOf(const Config& config) {
  LiveOptions live = {.front_limits = {.session_ttl = config.store.session_ttl,
                                       .max_session_tokens = config.store.max_session_tokens,
                                       .request_ttl = config.front.request_ttl,
                                       .orphan_ttl = config.front.orphan_ttl},
                      .log_prompts = config.log.prompts,
                      .workers = {.addresses = config.front.workers, .names = {}},
                      .max_queued = config.serving.max_queued};
  for (const std::string& name : config.front.worker_names) {
    const HostPort parts = ParseHostPort(name).value();  // the flag's setter has checked it
    live.workers.names.push_back({.host = parts.host, .port = parts.port});
  }
  return live;
}

absl::StatusOr<std::unique_ptr<LocalServer>> StartLocalServer(const Config& config, LocalRole role,
                                                              const Surroundings& surroundings,
                                                              Console* console) {
  Config stored = config;
  if (role != LocalRole::kServe) stored.store.location = ":memory:";
  ServerOptions options = MakeServerOptions(config, surroundings);
  std::set<std::string> said;
  if (role != LocalRole::kWorker) {
    if (absl::Status tried = TryStore(stored, options.log, &said); !tried.ok()) {
      // If the model's path is wrong, report this first.
      RETURN_IF_ERROR(engine::OpenCheckpoint(config.model.path).status());
      return tried;
    }
  }
  if (role == LocalRole::kPrivate) {
    options.listen.clear();
    options.http.clear();
  }
  auto server = std::make_unique<LocalServerImpl>(console);
  NoteLine note = WarnLine(options);
  if (!note) note = ConsoleNote(console);
  RETURN_IF_ERROR(server->Load(config, console, std::move(note)));
  options.process.available_memory = server->AvailableMemory();
  NewStoreFile file(stored.store.location);
  std::unique_ptr<SessionStore> store;
  if (role != LocalRole::kWorker) {
    ASSIGN_OR_RETURN(store,
                     OpenStore(stored, MissingStore::kMake, Unsaid(options.log, std::move(said))));
  }
  RETURN_IF_ERROR(server->Start(role, std::move(store), options));
  file.Keep();
  return server;
}

absl::StatusOr<std::unique_ptr<Server>> StartFront(const Config& config,
                                                   const Surroundings& surroundings) {
  NewStoreFile file(config.store.location);
  ServerOptions options = MakeServerOptions(config, surroundings);
  ASSIGN_OR_RETURN(options.worker_security,
                   ClientSecurity::Open({.token_file = config.security.worker_token_file,
                                         .tls = {.certificate = config.security.worker_tls_cert,
                                                 .key = config.security.worker_tls_key,
                                                 .ca = config.security.worker_tls_ca},
                                         .log = options.log}));
  ASSIGN_OR_RETURN(std::unique_ptr<SessionStore> store,
                   OpenStore(config, MissingStore::kMake, options.log));
  ASSIGN_OR_RETURN(std::unique_ptr<Server> server, StartFrontServer(std::move(store), options));
  file.Keep();
  return server;
}

}  // namespace tidepool::service

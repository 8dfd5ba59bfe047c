// Config: everything that a command line and its --config file can say, checked. ParseConfig is the
// only way to make one.
#ifndef TIDEPOOL_SERVICE_CLI_CONFIG_H_
#define TIDEPOOL_SERVICE_CLI_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/checkpoint/ggml_type.h"
#include "engine/loading/expert_options.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/tensor.h"
#include "service/auth/caller.h"
#include "service/base/log_level.h"
#include "service/http/cors_origins.h"

namespace tidepool::service {

enum class Command : uint8_t {
  kServe,
  kFront,
  kWorker,
  kGenerate,
  kChat,
  kLogits,
  kTokenize,
  kDetokenize,
  kInspect,
  kStats,
  kBench,
  kQuantize,
  kPerplexity,
  kPack,
  kReplay,
  kSessions,
  kOffload,
  kToken,
};
inline constexpr int kCommandCount = 18;

// The failures that stored sessions survive.
enum class StoreDurability : uint8_t { kProcess, kPower };

// What the command writes to stdout: text for people, or one JSON object.
enum class OutputFormat : uint8_t { kText, kJson };

// The model and how it runs.
struct ModelFlags {
  std::string path;
  std::vector<std::string> aliases;
  int threads = 0;      // 0: from the CPU affinity and the cgroup's cpu.max
  int64_t context = 0;  // 0: what the model was trained for, as far as the KV memory holds it
  size_t kv_memory_bytes = 0;                   // 0: engine::DefaultKvBytes
  int64_t kv_disk_bytes = 0;                    // 0: no KV on disk
  std::string kv_disk_folder;                   // for its file; set if kv_disk_bytes is
  std::optional<kernels::DType> kv_type;        // unset: f16, and f32 with kExact
  std::optional<engine::GgmlType> quantize_to;  // unset: weights keep their types
  kernels::Precision precision = kernels::Precision::kFast;
  kernels::Isa isa = kernels::Isa::kBest;
  engine::ExpertOptions experts;  // limits only where flags set them
};

// The addresses of a server: HOST:PORT.
struct ListenFlags {
  std::string grpc = "127.0.0.1:50051";
  std::string http = "127.0.0.1:8080";  // empty: no HTTP
  bool http_named = false;              // by the user: no other port will do
  std::string admin;                    // empty: Admin is served at `grpc`
  std::string probe;                    // empty: health is served at `grpc` alone
};

// How a server or a worker runs requests, and how it stops.
struct ServingFlags {
  std::string worker_name;
  int64_t max_sequences = 64;
  int64_t max_concurrent_prefills = 4;
  int64_t max_queued = 1024;
  absl::Duration stall_timeout = absl::Minutes(1);   // without progress; then liveness fails
  absl::Duration drain_grace = absl::Seconds(1);     // SIGTERM: new work is still accepted
  absl::Duration drain_timeout = absl::Seconds(30);  // after that: for running work
};

// A front's workers, and how long it keeps responses.
struct FrontFlags {
  std::vector<std::string> workers;                // HOST:PORT, one each
  std::vector<std::string> worker_names;           // NAME:PORT: all addresses of the DNS name
  absl::Duration request_ttl = absl::Minutes(10);  // of responses with a request_id
  absl::Duration orphan_ttl = absl::Seconds(30);   // of running ones without a client
};

// The session store and what it may hold.
struct StoreFlags {
  std::string location;  // a file, redis://, or ":memory:", which keeps nothing
  StoreDurability durability = StoreDurability::kProcess;
  bool allow_unsafe = false;  // a Redis server without durability
  absl::Duration session_ttl = absl::InfiniteDuration();
  int64_t max_sessions = 0;        // per principal; 0: any number
  int64_t max_session_tokens = 0;  // 0: the model's context
};

// What a command works on. Of prompt, chat, text, file and tokens at most one is set.
struct InputFlags {
  std::string action;  // sessions: export, import or verify; token: new
  std::optional<std::string> prompt;
  std::optional<std::string> chat;
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::vector<int32_t> tokens;
  std::string system;          // the system message; empty: none
  bool parse_special = false;  // tokenize and detokenize
  int64_t chunks = 0;          // perplexity: maximum number; 0: all
};

// The server that a command talks to; empty: the model runs in this process.
struct ClientFlags {
  std::string server;
  std::string session;
};

struct OutputFlags {
  OutputFormat format = OutputFormat::kText;
  std::string file;      // --out
  bool force = false;    // replace an existing file
  bool tensors = false;  // inspect: list them
  bool once = false;     // stats: one reading
};

struct LogitsFlags {
  bool all_positions = false;
  std::string dump;  // folder; empty: none
  int64_t chunk = 512;
};

struct QuantizeFlags {
  std::string type;
  std::string head_type;  // empty: chosen for the type
};

struct LogFlags {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  PromptLogging prompts = PromptLogging::kNever;
};

// Sampling and stopping as asked for; unset fields are left to the server.
struct GenerationFlags {
  std::optional<int64_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<uint64_t> seed;
  std::optional<float> repetition_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> presence_penalty;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  absl::Duration timeout = absl::InfiniteDuration();
};

// What bench measures in this process. An empty list means the default; 0 leaves a test out.
struct BenchFlags {
  std::vector<int64_t> prompt_tokens;
  std::vector<int64_t> output_tokens;
  std::vector<int64_t> batch_sizes;
  int64_t repetitions = 5;
};

// The load that bench puts on a server: at `rate`, or from `concurrency` callers; the other is 0.
struct TrafficFlags {
  double rate = 0;                              // requests a second
  int64_t concurrency = 0;                      // callers that send one request after the other
  absl::Duration duration = absl::Seconds(30);  // measured, after the warm-up
  absl::Duration warm_up = absl::Seconds(5);
  int64_t shared_prompt_tokens = 0;
  std::vector<int32_t> priorities;
  int64_t connections = 8;
  int64_t retries = 0;
  uint64_t seed = 1;
};

// Slots of a replay: a count, or a share of all experts.
struct ReplaySlots {
  int64_t count = 0;
  float percent = 0;  // used if count is 0
};

struct ReplayFlags {
  std::string trace;
  std::string profile;  // trace for the policy static; empty: none
  std::vector<ReplaySlots> slots;
  std::vector<std::string> policies;
  int64_t refresh_interval = 1;
  double read_bytes_per_s = 1.5e9;
  double memory_bytes_per_s = 10e9;
};

// What offload changes at a server; unset fields stay as they are.
struct OffloadFlags {
  std::string worker_id;  // empty: all workers
  std::optional<moe::PolicyKind> policy;
  std::optional<int64_t> refresh_interval;
  std::optional<engine::ExpertMemory> memory;  // never kAuto
  std::optional<moe::Prefetch> prefetch;
  bool refresh = false;  // at the next step; changes nothing else

  bool changes() const { return policy || refresh_interval || memory || prefetch; }
};

// Who may call a server, and the credentials of a client.
struct SecurityFlags {
  // Of a server, or of a client; PEM files.
  std::string tls_cert;  // of a server: empty: plain text
  std::string tls_key;
  std::string tls_client_ca;
  std::optional<absl::Duration> max_connection_age;  // of a server with TLS
  std::vector<std::string> front_names;
  std::string tls_ca;  // of a client; empty: plain text
  // Of a front as a client of its workers.
  std::string worker_tls_ca;  // empty: plain text
  std::string worker_tls_cert;
  std::string worker_tls_key;

  std::string auth_token_file;  // empty: nobody is authenticated
  bool allow_unauthenticated = false;
  CorsOrigins cors_origins;             // of web pages that may call the HTTP API
  std::vector<std::string> http_hosts;  // accepted on loopback besides this machine's names
  std::string worker_token_file;        // of a front, for its workers; empty: none
  std::string token_file;               // of a client; empty: none
  std::string store_password_file;      // of Redis; empty: that of the store's URL
};

// The token that `token new` creates.
struct TokenFlags {
  Caller caller = {
      .principal = "", .role = Role::kUser, .limits = {.max_priority = kUsualMaxPriority}};
  absl::Time expires = absl::InfiniteFuture();
};

// One struct per concern: a command reads those that it needs.
struct Config {
  Command command = Command::kServe;
  ModelFlags model;
  ListenFlags listen;
  ServingFlags serving;
  FrontFlags front;
  StoreFlags store;
  SecurityFlags security;
  LogFlags log;
  InputFlags input;
  ClientFlags client;
  GenerationFlags generation;
  OutputFlags output;
  LogitsFlags logits;
  QuantizeFlags quantize;
  BenchFlags bench;
  TrafficFlags traffic;
  ReplayFlags replay;
  OffloadFlags offload;
  TokenFlags token;
};

// The environment variables that matter.
struct Environment {
  std::string home;            // $HOME
  std::string xdg_state_home;  // $XDG_STATE_HOME
  std::string xdg_cache_home;  // $XDG_CACHE_HOME
};

// The texts given for each flag, by the flag's name.
using FlagValues = std::map<std::string, std::vector<std::string>>;

struct ParsedConfig {
  Config config;
  FlagValues values;  // of the command line and the file, as far as `config` was made from them
  std::string file;   // --config; empty: none
  // --help or --version: the text to print; there is nothing else to do.
  std::optional<std::string> print;
};

// `args` are the arguments after the program's name. A flag on the command line wins over the same
// key of the --config file. Errors mean exit code 2. They are one line that names the flag (or
// file, line and key), what is wrong and what is accepted, with the nearest known name for an
// unknown one: INVALID_ARGUMENT, or UNIMPLEMENTED for flags and commands that a later version will
// serve.
absl::StatusOr<ParsedConfig> ParseConfig(absl::Span<const std::string> args,
                                         const Environment& environment);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONFIG_H_

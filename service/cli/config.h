// Config: the checked values of a command line and its --config file. Only ParseConfig creates one.
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
#include "kernels/device.h"
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
  kGrammar,
};
inline constexpr int kCommandCount = 19;

// The failures that committed sessions survive: the death of the process, or also a power failure.
enum class StoreDurability : uint8_t { kProcess, kPower };

// Format of a command's stdout: text for people, or one JSON object.
enum class OutputFormat : uint8_t { kText, kJson };

// Which model is loaded, and how it runs.
struct ModelFlags {
  std::string path;
  std::vector<std::string> aliases;
  int threads = 0;             // 0: from the CPU affinity and the cgroup's cpu.max
  int64_t context = 0;         // 0: the training context, or less if the KV memory is smaller
  size_t kv_memory_bytes = 0;  // 0: engine::DefaultKvBytes
  int64_t kv_disk_bytes = 0;   // 0: no KV cache on disk
  std::string kv_disk_folder;  // directory of the KV file; set if kv_disk_bytes is
  std::optional<kernels::DType> kv_type;        // unset: f16, or f32 with kExact
  std::optional<engine::GgmlType> quantize_to;  // unset: weights keep their types
  kernels::Precision precision = kernels::Precision::kFast;
  kernels::Isa isa = kernels::Isa::kBest;
  kernels::Device device = kernels::Device::kCpu;
  engine::ExpertOptions experts;  // limits are set only by flags
};

// The addresses of a server: HOST:PORT.
struct ListenFlags {
  std::string grpc = "127.0.0.1:50051";
  std::string http = "127.0.0.1:8080";  // empty: no HTTP
  bool http_named = false;              // the user set --http: fail if the port is in use
  std::string admin;                    // empty: Admin is served at `grpc`
  std::string probe;                    // empty: only `grpc` serves health
};

// How a server or a worker runs requests, and how it stops.
struct ServingFlags {
  std::string worker_name;
  int64_t max_sequences = 64;
  int64_t max_concurrent_prefills = 4;
  int64_t max_queued = 1024;
  absl::Duration stall_timeout = absl::Minutes(1);  // time without progress until liveness fails
  absl::Duration drain_grace = absl::Seconds(1);    // time to accept new requests after SIGTERM
  // time after drain_grace in which running requests may finish
  absl::Duration drain_timeout = absl::Seconds(30);
};

// The workers of a front, and the time for which it keeps responses for clients that reconnect.
struct FrontFlags {
  std::vector<std::string> workers;                // one HOST:PORT per worker
  std::vector<std::string> worker_names;           // NAME:PORT: all addresses of the DNS name
  absl::Duration request_ttl = absl::Minutes(10);  // how long responses with a request_id are kept
  absl::Duration orphan_ttl = absl::Seconds(30);   // how long a response runs without its client
};

// The session store and its limits.
struct StoreFlags {
  std::string location;  // a file, redis://, or ":memory:", which is lost on exit
  StoreDurability durability = StoreDurability::kProcess;
  bool allow_unsafe = false;  // allow a Redis server without durability
  std::string state_folder;   // directory for the store's other files; empty: $HOME is not set
  absl::Duration session_ttl = absl::InfiniteDuration();
  int64_t max_sessions = 0;        // per principal; 0: no limit
  int64_t max_session_tokens = 0;  // 0: the model's context
};

// The input of a command. Of prompt, chat, text, file and tokens, at most one is set.
struct InputFlags {
  std::string action;  // sessions: export, import or verify; token: new
  std::optional<std::string> prompt;
  std::optional<std::string> chat;
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::vector<int32_t> tokens;
  std::string system;          // the system message; empty: none
  bool parse_special = false;  // for tokenize and detokenize
  int64_t chunks = 0;          // perplexity: maximum number; 0: all
};

// The server that a command calls. Empty: the model runs in this process.
struct ClientFlags {
  std::string server;
  std::string session;
};

struct OutputFlags {
  OutputFormat format = OutputFormat::kText;
  std::string file;      // --out
  bool force = false;    // replace an existing file
  bool tensors = false;  // inspect: list the tensors
  bool once = false;     // stats: print one reading and exit
};

struct LogitsFlags {
  bool all_positions = false;
  std::string dump;  // folder; empty: none
  int64_t chunk = 512;
};

struct QuantizeFlags {
  std::string type;
  std::string head_type;  // empty: derived from the type
};

struct LogFlags {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  PromptLogging prompts = PromptLogging::kNever;
};

struct DryFlags {
  std::optional<float> multiplier;
  std::optional<float> base;
  std::optional<int32_t> allowed_length;
  std::optional<int32_t> penalty_last_n;
  std::vector<std::string> sequence_breakers;
};

// Sampling and stopping parameters that the user set. The server chooses the other ones.
struct GenerationFlags {
  std::optional<int64_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> typical_p;
  std::optional<float> top_n_sigma;
  std::optional<float> xtc_probability;
  std::optional<float> xtc_threshold;
  DryFlags dry;
  std::optional<uint64_t> seed;
  std::optional<float> repetition_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> presence_penalty;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::string> bad_words;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  absl::Duration timeout = absl::InfiniteDuration();
};

// What bench measures in this process. An empty list means the default. 0 skips a test.
struct BenchFlags {
  std::vector<int64_t> prompt_tokens;
  std::vector<int64_t> output_tokens;
  std::vector<int64_t> batch_sizes;
  int64_t repetitions = 5;
};

// The load that bench sends to a server. Either `rate` or `concurrency` is set; the other one is 0.
struct TrafficFlags {
  double rate = 0;                              // requests a second
  int64_t concurrency = 0;                      // callers that each send one request at a time
  absl::Duration duration = absl::Seconds(30);  // measured time, after the warm-up
  absl::Duration warm_up = absl::Seconds(5);
  int64_t shared_prompt_tokens = 0;
  std::vector<int32_t> priorities;
  int64_t connections = 8;
  int64_t retries = 0;
  uint64_t seed = 1;
};

// The slots of a replay: a number of experts, or a percentage of all.
struct ReplaySlots {
  int64_t count = 0;
  float percent = 0;  // used if count is 0
};

struct ReplayFlags {
  std::string trace;
  std::string profile;  // trace from which the static policy counts uses; empty: none
  std::vector<ReplaySlots> slots;
  std::vector<std::string> policies;
  int64_t refresh_interval = 1;
  double read_bytes_per_s = 1.5e9;
  double memory_bytes_per_s = 10e9;
  std::string device_costs;  // costs file of a device's tier to simulate; empty: none
};

// The grammar command: one of the four is set.
struct GrammarFlags {
  std::string schema;  // file
  std::optional<std::string> regex;
  std::string grammar;  // file
  std::string batch;    // file
};

// The change that the offload command makes at a server. Unset fields do not change.
struct OffloadFlags {
  std::string worker_id;  // empty: all workers
  std::optional<moe::PolicyKind> policy;
  std::optional<int64_t> refresh_interval;
  std::optional<engine::ExpertMemory> memory;  // never kAuto
  std::optional<moe::Prefetch> prefetch;
  bool refresh = false;  // refresh at the next step; requires that no other field is set

  bool changes() const { return policy || refresh_interval || memory || prefetch; }
};

// Access control of a server, and credentials of a client.
struct SecurityFlags {
  // TLS files in PEM format.
  std::string tls_cert;  // server's certificate; empty: plain text
  std::string tls_key;
  std::string tls_client_ca;
  std::optional<absl::Duration> max_connection_age;  // for a server with TLS
  std::vector<std::string> front_names;
  std::string tls_ca;  // CA for a client; empty: plain text
  // TLS from a front to its workers.
  std::string worker_tls_ca;  // empty: plain text
  std::string worker_tls_cert;
  std::string worker_tls_key;

  std::string auth_token_file;  // server's tokens; empty: no authentication
  bool allow_unauthenticated = false;
  CorsOrigins cors_origins;  // origins of web pages that may call the HTTP API
  // Host names to accept on loopback in addition to local ones
  std::vector<std::string> http_hosts;
  std::string worker_token_file;    // token that a front sends to workers; empty: none
  std::string token_file;           // token that a client sends; empty: none
  std::string store_password_file;  // Redis password; empty: use the one in the URL
};

// The token that `token new` creates.
struct TokenFlags {
  Caller caller = {
      .principal = "", .role = Role::kUser, .limits = {.max_priority = kUsualMaxPriority}};
  absl::Time expires = absl::InfiniteFuture();
};

// One struct per topic. A command reads only the structs that it needs.
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
  GrammarFlags grammar;
};

// The environment variables that Tidepool reads.
struct Environment {
  std::string home;            // $HOME
  std::string xdg_state_home;  // $XDG_STATE_HOME
  std::string xdg_cache_home;  // $XDG_CACHE_HOME
};

// The values given for each flag, by flag name.
using FlagValues = std::map<std::string, std::vector<std::string>>;

struct ParsedConfig {
  Config config;
  FlagValues values;  // the flag values that `config` was made from: command line and file
  std::string file;   // --config; empty: none
  // The text to print for --help or --version. If it is set, the process prints it and exits.
  std::optional<std::string> print;
};

// `args` are the arguments after the program's name. A flag on the command line overrides the same
// key of the --config file. Every error means exit code 2. The error is one line that names the
// flag (or the file, line and key), the fault and the accepted values. If a name is unknown, the
// error suggests the nearest known name. The code is INVALID_ARGUMENT, or UNIMPLEMENTED for flags
// and commands that are reserved for a later version.
absl::StatusOr<ParsedConfig> ParseConfig(absl::Span<const std::string> args,
                                         const Environment& environment);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONFIG_H_

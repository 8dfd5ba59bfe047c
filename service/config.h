// Config: everything that a command line and its --config file can say, checked. ParseConfig is the
// only way to make one.
#ifndef TIDEPOOL_SERVICE_CONFIG_H_
#define TIDEPOOL_SERVICE_CONFIG_H_

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
#include "engine/expert_options.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/tensor.h"
#include "service/auth/caller.h"
#include "service/http/cors_origins.h"
#include "service/log_level.h"

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

// What the session store survives.
enum class StoreDurability : uint8_t { kProcess, kPower };

// What the command writes to stdout: for people, or one JSON object.
enum class OutputFormat : uint8_t { kText, kJson };

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

// What bench measures. Empty lists take the defaults; a 0 leaves a kind of test out.
struct BenchFlags {
  std::vector<int64_t> prompt_tokens;
  std::vector<int64_t> output_tokens;
  std::vector<int64_t> batch_sizes;
  int64_t repetitions = 5;
};

// How bench loads a server: at `rate`, or from so many callers; one of the two is 0.
struct TrafficFlags {
  double rate = 0;                              // requests a second
  int64_t concurrency = 0;                      // callers that send one request after the other
  absl::Duration duration = absl::Seconds(30);  // measured, behind the warm-up
  absl::Duration warm_up = absl::Seconds(5);
  int64_t shared_prompt_tokens = 0;
  std::vector<int32_t> priorities;
  int64_t connections = 8;
  int64_t retries = 0;
  uint64_t seed = 1;
};

// How many slots a replay has: a count, or a share of all experts.
struct ReplaySlots {
  int64_t count = 0;
  float percent = 0;  // where count is 0
};

struct ReplayFlags {
  std::string trace;
  std::string profile;  // trace that `static` is made from; empty: it knows nothing
  std::vector<ReplaySlots> slots;
  std::vector<std::string> policies;
  int64_t refresh_interval = 1;
  double read_bytes_per_s = 1.5e9;
  double memory_bytes_per_s = 10e9;
};

// What offload changes at a server; unset fields stay.
struct OffloadFlags {
  std::string worker_id;  // empty: all workers
  std::optional<moe::PolicyKind> policy;
  std::optional<int64_t> refresh_interval;
  std::optional<engine::ExpertMemory> memory;  // never kAuto
  std::optional<moe::Prefetch> prefetch;
  bool refresh = false;  // now, and nothing else

  bool changes() const { return policy || refresh_interval || memory || prefetch; }
};

// Who may call a server, and what a client shows it.
struct SecurityFlags {
  // Of a server, or of a client; files in PEM form.
  std::string tls_cert;  // a server's: empty: plain text
  std::string tls_key;
  std::string tls_client_ca;
  std::optional<absl::Duration> max_connection_age;  // of a server with TLS
  std::vector<std::string> front_names;
  std::string tls_ca;  // a client's: empty: plain text
  // Of a front towards its workers.
  std::string worker_tls_ca;  // empty: plain text
  std::string worker_tls_cert;
  std::string worker_tls_key;

  std::string auth_token_file;  // empty: nobody is authenticated
  bool allow_unauthenticated = false;
  CorsOrigins cors_origins;             // of pages that may ask over HTTP and read the response
  std::vector<std::string> http_hosts;  // served at a loopback address beside this machine's names
  std::string worker_token_file;        // of a front; empty: it shows its workers none
  std::string token_file;               // of a client; empty: it shows none
  std::string store_password_file;      // of a store on Redis; empty: what `store` says
};

// What `token new` makes.
struct TokenFlags {
  Caller caller = {
      .principal = "", .role = Role::kUser, .limits = {.max_priority = kUsualMaxPriority}};
  absl::Time expires = absl::InfiniteFuture();
};

struct Config {
  Command command = Command::kServe;

  // The model and how it is run.
  std::string model;
  std::vector<std::string> aliases;
  int threads = 0;      // 0: from the CPU affinity and the cgroup's cpu.max
  int64_t context = 0;  // 0: what the model was trained for, as far as the KV memory holds it
  size_t kv_memory_bytes = 0;             // 0: engine::DefaultKvBytes
  int64_t kv_disk_bytes = 0;              // 0: no KV on a disk
  std::string kv_disk_folder;             // of its file; set where kv_disk_bytes is
  std::optional<kernels::DType> kv_type;  // unset: f16, and f32 with kExact
  kernels::Precision precision = kernels::Precision::kFast;
  kernels::Isa isa = kernels::Isa::kBest;
  engine::ExpertOptions experts;  // limits only as far as flags say

  // Serving.
  std::string listen = "127.0.0.1:50051";
  std::string http = "127.0.0.1:8080";    // empty: no HTTP
  bool http_named = false;                // by the user: another port will not do
  std::string admin_listen;               // empty: Admin is at `listen`
  std::string probe_listen;               // empty: health is at `listen` alone
  std::vector<std::string> workers;       // HOST:PORT, one each
  std::vector<std::string> worker_names;  // NAME:PORT, as many as the name has addresses
  std::string name;                       // of a worker
  std::string store;  // file of the session store, or redis://; ":memory:" keeps nothing
  StoreDurability durability = StoreDurability::kProcess;
  bool store_unsafe = false;  // take a Redis server that may forget
  absl::Duration session_ttl = absl::InfiniteDuration();
  absl::Duration request_ttl = absl::Minutes(10);  // how long answers with a request_id are kept
  absl::Duration orphan_ttl = absl::Seconds(30);   // how long they go on without a client
  int64_t max_sessions = 0;                        // of one principal; 0: any number
  int64_t max_session_tokens = 0;                  // 0: the model's context
  int64_t max_sequences = 64;
  int64_t max_concurrent_prefills = 4;
  int64_t max_queued = 1024;
  absl::Duration stall_timeout = absl::Minutes(1);   // an engine that stands still is not alive
  absl::Duration drain_grace = absl::Seconds(1);     // new work is still taken after SIGTERM
  absl::Duration drain_timeout = absl::Seconds(30);  // and running work goes on after that

  // Input of generate, chat, logits, tokenize and detokenize. At most one is set.
  std::optional<std::string> prompt;
  std::optional<std::string> chat;
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::vector<int32_t> tokens;
  std::string system;  // chat: the system message; empty: none
  bool parse_special = false;

  // Where generate, chat, bench, stats and offload find their server; empty: in this process, with
  // `model`.
  std::string server;
  std::string session;
  GenerationFlags generation;

  // inspect.
  bool tensors = false;

  // logits.
  bool all_positions = false;
  std::string out;
  std::string dump;
  int64_t chunk = 512;

  SecurityFlags security;
  TokenFlags token;

  BenchFlags bench;
  TrafficFlags traffic;
  ReplayFlags replay;
  OffloadFlags offload;

  // quantize; it writes to `out`.
  std::string type;
  std::string head_type;  // empty: chosen for the type
  bool force = false;     // quantize and pack: replace what is there

  int64_t chunks = 0;  // perplexity: how many at most; 0: all

  std::string action;  // sessions: export, import or verify; token: new
  bool once = false;   // stats: one reading
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  PromptLogging log_prompts = PromptLogging::kNever;
  OutputFormat output = OutputFormat::kText;
};

// What of the process's environment matters.
struct Environment {
  std::string home;            // $HOME
  std::string xdg_state_home;  // $XDG_STATE_HOME
  std::string xdg_cache_home;  // $XDG_CACHE_HOME
};

// Values of flags by name, as texts.
using FlagValues = std::map<std::string, std::vector<std::string>>;

struct ParsedConfig {
  Config config;
  FlagValues values;  // of the command line and the file: those that `config` was made from
  std::string file;   // of --config; empty: none
  // --help or --version: to be written to stdout, and nothing else to be done.
  std::optional<std::string> print;
};

// `args` are those behind the program's name. A flag on the command line wins over the same key of
// the --config file. Errors are INVALID_ARGUMENT, one line that names the flag (or file and key),
// what is wrong and what is accepted, with the nearest right name for an unknown one; UNIMPLEMENTED
// for a flag or a command that is known and not served yet. All of them mean exit code 2.
absl::StatusOr<ParsedConfig> ParseConfig(absl::Span<const std::string> args,
                                         const Environment& environment);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CONFIG_H_

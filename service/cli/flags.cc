#include "service/cli/flags.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/expert_flags.h"
#include "service/cli/flag_setters.h"
#include "service/cli/log_flags.h"
#include "service/cli/model_flags.h"
#include "service/cli/replay_flags.h"
#include "service/cli/security_flags.h"
#include "service/cli/server_flags.h"
#include "service/cli/traffic_flags.h"

namespace tidepool::service {
namespace {

using kernels::Precision;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

constexpr CommandSet kServing = Bit(Command::kServe) | Bit(Command::kFront) | Bit(Command::kWorker);
constexpr CommandSet kTalking = Bit(Command::kGenerate) | Bit(Command::kChat);
constexpr CommandSet kEngine = Bit(Command::kServe) | Bit(Command::kWorker) | kTalking;
constexpr CommandSet kRunning =
    kEngine | Bit(Command::kLogits) | Bit(Command::kBench) | Bit(Command::kPerplexity);
constexpr CommandSet kReading = kRunning | Bit(Command::kTokenize) | Bit(Command::kDetokenize) |
                                Bit(Command::kInspect) | Bit(Command::kQuantize) |
                                Bit(Command::kPack);
// The commands that plan the memory of a model.
constexpr CommandSet kPlanning = kRunning | Bit(Command::kInspect);
// The commands that store sessions.
constexpr CommandSet kKeeping = Bit(Command::kServe) | Bit(Command::kFront);
constexpr CommandSet kAll = (CommandSet{1} << kCommandCount) - 1;

absl::Status SetTokens(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->input.tokens, ParseTokenIds(value));
  return absl::OkStatus();
}

absl::Status AddLogitBias(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->generation.logit_bias.emplace_back(), ParseLogitBias(value));
  return absl::OkStatus();
}

constexpr absl::string_view kInput = "Input";
constexpr absl::string_view kModel = "Model";
constexpr absl::string_view kExperts = "Experts";
constexpr absl::string_view kSampling = "Sampling";
constexpr absl::string_view kStopping = "Stopping";
constexpr absl::string_view kServer = "Server";
constexpr absl::string_view kTests = "Tests";
constexpr absl::string_view kResult = "Result";
constexpr absl::string_view kGeneral = "General";

constexpr FlagKind kSwitch = FlagKind::kSwitch;
constexpr FlagKind kValue = FlagKind::kValue;
constexpr FlagKind kRepeats = FlagKind::kRepeats;
using G = GenerationFlags;

constexpr FlagSpec kFlags[] = {
    {"prompt", 'p', kInput, "TEXT", "", "prompt text to continue", Bit(Command::kGenerate), kValue,
     SetAnyString<&Config::input, &InputFlags::prompt>},
    {"chat", 0, kInput, "TEXT", "", "one user message, rendered by the model's chat template",
     Bit(Command::kGenerate), kValue, SetAnyString<&Config::input, &InputFlags::chat>},
    {"schema", 0, kInput, "FILE", "", "JSON schema that the text must match",
     Bit(Command::kGrammar), kValue, SetString<&Config::grammar, &GrammarFlags::schema>},
    {"regex", 0, kInput, "REGEX", "", "regular expression that the whole text must match",
     Bit(Command::kGrammar), kValue, SetAnyString<&Config::grammar, &GrammarFlags::regex>},
    {"grammar", 0, kInput, "FILE", "", "grammar in llama.cpp's GBNF that the text must match",
     Bit(Command::kGrammar), kValue, SetString<&Config::grammar, &GrammarFlags::grammar>},
    {"batch", 0, kInput, "FILE", "", "JSON lines with constraints and texts; - is stdin",
     Bit(Command::kGrammar), kValue, SetString<&Config::grammar, &GrammarFlags::batch>},
    {"text", 0, kInput, "TEXT", "", "text to check", Bit(Command::kGrammar), kValue,
     SetAnyString<&Config::input, &InputFlags::text>},
    {"text", 0, kInput, "TEXT", "", "text to tokenize", Bit(Command::kTokenize), kValue,
     SetAnyString<&Config::input, &InputFlags::text>},
    {"file", 'f', kInput, "FILE", "", "read the text from a file; - is stdin",
     Bit(Command::kGenerate), kValue, SetString<&Config::input, &InputFlags::file>},
    {"file", 'f', kInput, "FILE", "stdin", "read the text from a file", Bit(Command::kTokenize),
     kValue, SetString<&Config::input, &InputFlags::file>},
    {"file", 'f', kInput, "FILE", "", "text to score, in UTF-8; - is stdin",
     Bit(Command::kPerplexity), kValue, SetString<&Config::input, &InputFlags::file>},
    {"chunks", 0, kInput, "N", "all", "maximum number of chunks to score",
     Bit(Command::kPerplexity), kValue,
     SetInteger<1, (int64_t{1} << 31), &Config::input, &InputFlags::chunks>},
    {"tokens", 0, kInput, "IDS", "", "token ids, such as 1,2,3",
     Bit(Command::kGenerate) | Bit(Command::kLogits) | Bit(Command::kDetokenize), kValue,
     SetTokens},
    {"trace", 0, kInput, "FILE", "", "routing trace to simulate: JSON lines, plain or zstd",
     Bit(Command::kReplay), kValue, SetString<&Config::replay, &ReplayFlags::trace>},
    {"profile", 0, kInput, "FILE", "",
     "routing trace for --policy static, which keeps the experts used most in it",
     Bit(Command::kReplay), kValue, SetString<&Config::replay, &ReplayFlags::profile>},
    {"action", 0, kInput, "ACTION", "",
     "what to do: export, import or verify; may also be the first argument",
     Bit(Command::kSessions), kValue, SetString<&Config::input, &InputFlags::action>},
    {"file", 'f', kInput, "FILE", "stdin", "file with the sessions to import",
     Bit(Command::kSessions), kValue, SetString<&Config::input, &InputFlags::file>},
    {"system", 0, kInput, "TEXT", "", "system message at the start of the conversation", kTalking,
     kValue, SetString<&Config::input, &InputFlags::system>},
    {"special", 0, kInput, "", "off",
     "convert the names of special tokens in the text, such as <|im_end|>, to those tokens",
     Bit(Command::kTokenize), kSwitch, SetSwitch<&Config::input, &InputFlags::parse_special>},
    {"special", 0, kInput, "", "off", "show special tokens by their names",
     Bit(Command::kDetokenize), kSwitch, SetSwitch<&Config::input, &InputFlags::parse_special>},

    {"model", 'm', kModel, "FILE", "",
     "model to load: a GGUF file (any part of a split file), or a Hugging Face directory",
     kReading | Bit(Command::kGrammar), kValue, SetString<&Config::model, &ModelFlags::path>},
    {"threads", 't', kModel, "N", "number of CPUs that this process may use",
     "number of compute threads; results do not depend on it",
     kRunning | Bit(Command::kQuantize) | Bit(Command::kPack), kValue,
     SetInteger<1, 1024, &Config::model, &ModelFlags::threads>},
    {"context", 'c', kModel, "N", "the model's context, or less if --kv-memory cannot hold it",
     "maximum number of tokens of one sequence, prompt and output together", kEngine, kValue,
     SetInteger<1, (int64_t{1} << 31), &Config::model, &ModelFlags::context>},
    {"context", 'c', kModel, "N", "512", "number of tokens in a chunk", Bit(Command::kPerplexity),
     kValue, SetInteger<4, (int64_t{1} << 31), &Config::model, &ModelFlags::context>},
    {"kv-memory", 0, kModel, "SIZE", "1GiB, or a quarter of the free memory if that is less",
     "memory of the device for the KV cache of all sequences", kEngine | Bit(Command::kInspect),
     kValue, SetKvMemory},
    {"kv-disk", 0, kModel, "SIZE", "none",
     "disk space for KV that does not fit into memory. KV on disk survives a restart. It is read "
     "back if that is faster than computing it. The file is in --cache-dir, or in "
     "$XDG_CACHE_HOME/tidepool or ~/.cache/tidepool. It also needs memory: up to 64 MiB, and 320 "
     "bytes for every 32 tokens that fit into the file",
     Bit(Command::kServe) | Bit(Command::kWorker), kValue, SetKvDisk},
    {"kv-type", 0, kModel, "TYPE", "f16; f32 with --exact",
     "element type of the KV cache: f32, f16, bf16, q8_0", kRunning, kValue, SetKvType},
    {"quantize-to", 0, kModel, "TYPE", "the file's types",
     "convert weights to this type while loading, like the command quantize: F16, BF16, Q8_0, "
     "Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4",
     kRunning | Bit(Command::kPack), kValue, SetQuantizeTo},
    {"exact", 0, kModel, "", "off", "use float32 for activations, sums and KV; slow, for reference",
     kRunning, kSwitch,
     SetEither<Precision::kFast, Precision::kExact, &Config::model, &ModelFlags::precision>},
    {"isa", 0, kModel, "ISA", "auto",
     "instruction set: auto, portable, avx2, avx512, avx512vnni; results do not depend on it",
     kRunning, kValue, SetIsa},
    {"device", 0, kModel, "DEVICE", "cpu",
     "device that runs the model: cpu, or cuda for the first NVIDIA GPU. With cuda, weights and KV "
     "are in the GPU's memory, and so are the experts that fit (--expert-memory)",
     kPlanning, kValue, SetDevice},

    {"expert-memory", 0, kExperts, "SIZE", "auto",
     "memory of the device for routed experts. SIZE is a size; a percentage of the bytes of all "
     "experts (100%: every expert stays in memory); or auto: the free memory that --kv-memory, "
     "--kv-disk and --reserve-memory leave. Each expert takes as much memory as the largest one. "
     "The flag has no effect on models without experts",
     kPlanning, kValue, SetExpertMemory},
    {"host-expert-memory", 0, kExperts, "SIZE", "auto",
     "with --device cuda: memory of this machine, not of the GPU, for routed experts. SIZE has the "
     "same forms as for --expert-memory. The memory is pinned, so the system cannot swap it. The "
     "CPU computes experts from it, or they are copied to the GPU, whichever is sooner. Experts "
     "that do not fit are read from disk",
     kPlanning, kValue, SetHostExpertMemory},
    {"reserve-memory", 0, kExperts, "SIZE",
     "of this machine's memory, the smaller of 1.5GiB and a quarter of what is free; of a GPU's "
     "memory, the larger of 1.5GiB and 10% of what is free",
     "memory that --expert-memory auto and --host-expert-memory auto leave free", kPlanning, kValue,
     SetReserveMemory},
    {"offload-policy", 0, kExperts, "POLICY", "adaptive",
     "policy that decides which experts stay in memory: adaptive, tide, lru, static", kRunning,
     kValue, SetOffloadPolicy},
    {"refresh-interval", 0, kExperts, "N", "1",
     "number of steps after which --offload-policy tide chooses the experts in memory again",
     kRunning, kValue, SetRefreshInterval},
    {"prefetch", 0, kExperts, "on|off", "on",
     "read the experts of the next layer in advance if they can be predicted", kRunning, kValue,
     SetPrefetch},
    {"expert-reader", 0, kExperts, "KIND", "auto",
     "method of reading experts: uring, threads, or auto (uring, or threads if the kernel refuses "
     "io_uring)",
     kRunning, kValue, SetExpertReader},
    {"trace-experts", 0, kExperts, "FILE", "",
     "write the experts that each layer uses in each step to this file, for the command replay; "
     "the file is compressed if its name ends in .zst",
     kRunning, kValue,
     SetString<&Config::model, &ModelFlags::experts, &engine::ExpertOptions::trace_path>},
    {"cache-dir", 0, kExperts, "DIR", "beside the model",
     "directory for pack files (the model's experts, stored so that each can be read alone) and "
     "for the file of --kv-disk; also for the model's digest if the model's directory is not "
     "writable",
     kRunning | Bit(Command::kPack), kValue,
     SetString<&Config::model, &ModelFlags::experts, &engine::ExpertOptions::cache_dir>},

    {"profile", 0, kExperts, "FILE", "",
     "file written by --trace-experts; --offload-policy static keeps the experts used most in it. "
     "Without this file, static keeps the same number of experts in each layer",
     kRunning, kValue,
     SetString<&Config::model, &ModelFlags::experts, &engine::ExpertOptions::profile_path>},
    {"expert-memory", 0, kExperts, "SIZE", "unchanged",
     "memory for routed experts: a size, or a percentage of the bytes of all experts",
     Bit(Command::kOffload), kValue, ChangeExpertMemory},
    {"offload-policy", 0, kExperts, "POLICY", "unchanged",
     "policy that decides which experts stay in memory: adaptive, tide, lru, static",
     Bit(Command::kOffload), kValue, ChangeOffloadPolicy},
    {"refresh-interval", 0, kExperts, "N", "unchanged",
     "number of steps after which --offload-policy tide chooses the experts in memory again",
     Bit(Command::kOffload), kValue, ChangeRefreshInterval},
    {"prefetch", 0, kExperts, "on|off", "unchanged",
     "read the experts of the next layer in advance if they can be predicted",
     Bit(Command::kOffload), kValue, ChangePrefetch},
    {"refresh", 0, kExperts, "", "off",
     "at the next step, choose the experts in memory again, for --offload-policy tide",
     Bit(Command::kOffload), kSwitch, SetSwitch<&Config::offload, &OffloadFlags::refresh>},

    {"temperature", 0, kSampling, "X", "that of the model file, or 0",
     "sampling temperature; 0 is greedy", kTalking, kValue,
     SetNumber<0, 100, &Config::generation, &G::temperature>},
    {"top-k", 0, kSampling, "K", "that of the model file, or 0",
     "keep the K most probable tokens; 0 keeps all", kTalking, kValue,
     SetInteger<0, (int64_t{1} << 31) - 1, &Config::generation, &G::top_k>},
    {"top-p", 0, kSampling, "P", "that of the model file, or 1",
     "keep the most probable tokens whose probabilities add up to P", kTalking, kValue,
     SetPositiveNumber<1, &Config::generation, &G::top_p>},
    {"min-p", 0, kSampling, "P", "that of the model file, or 0",
     "drop each token whose probability is less than P times that of the most probable token",
     kTalking, kValue, SetNumber<0, 1, &Config::generation, &G::min_p>},
    {"typical-p", 0, kSampling, "P", "that of the model file, or 1",
     "keep the tokens whose information (-ln p) is nearest to the entropy of all tokens, "
     "until their probabilities add up to P",
     kTalking, kValue, SetPositiveNumber<1, &Config::generation, &G::typical_p>},
    {"top-n-sigma", 0, kSampling, "N", "0",
     "keep the tokens whose logits are within N standard deviations of the largest; 0 keeps all",
     kTalking, kValue, SetNumber<0, 1000, &Config::generation, &G::top_n_sigma>},
    {"xtc-probability", 0, kSampling, "P", "that of the model file, or 0",
     "probability of excluding all tokens that reach --xtc-threshold, except the least probable",
     kTalking, kValue, SetNumber<0, 1, &Config::generation, &G::xtc_probability>},
    {"xtc-threshold", 0, kSampling, "P", "that of the model file, or 0.1",
     "least probability of the tokens that XTC excludes", kTalking, kValue,
     SetNumber<0, 1, &Config::generation, &G::xtc_threshold>},
    {"dry-multiplier", 0, kSampling, "X", "0",
     "DRY: lower the logit of a token that continues a repetition of n tokens by X * BASE^(n - "
     "LENGTH); 0 turns it off",
     kTalking, kValue, SetNumber<0, 1000, &Config::generation, &G::dry, &DryFlags::multiplier>},
    {"dry-base", 0, kSampling, "BASE", "1.75", "base of the DRY penalty", kTalking, kValue,
     SetNumber<1, 1000, &Config::generation, &G::dry, &DryFlags::base>},
    {"dry-allowed-length", 0, kSampling, "LENGTH", "2", "longest repetition without a DRY penalty",
     kTalking, kValue,
     SetInteger<0, (int64_t{1} << 31) - 1, &Config::generation, &G::dry,
                &DryFlags::allowed_length>},
    {"dry-penalty-last-n", 0, kSampling, "N", "-1",
     "number of last tokens that DRY searches for repetitions; -1: all", kTalking, kValue,
     SetInteger<-1, (int64_t{1} << 31) - 1, &Config::generation, &G::dry,
                &DryFlags::penalty_last_n>},
    {"dry-sequence-breaker", 0, kSampling, "TEXT", "line break, : \" and *",
     "text that ends a repetition for DRY, instead of the default ones; repeatable", kTalking,
     kRepeats, AddString<&Config::generation, &G::dry, &DryFlags::sequence_breakers>},
    {"bad-word", 0, kSampling, "TEXT", "",
     "text that the response must not contain, in its usual tokens; repeatable", kTalking, kRepeats,
     AddString<&Config::generation, &G::bad_words>},
    {"seed", 0, kSampling, "N", "random",
     "seed of the sampling; the same seed gives the same tokens", kTalking, kValue,
     SetInteger<0, kMaxInt64, &Config::generation, &G::seed>},
    {"repetition-penalty", 0, kSampling, "X", "1",
     "make tokens that occurred before less likely: positive logits are divided by X, negative "
     "ones multiplied",
     kTalking, kValue, SetPositiveNumber<100, &Config::generation, &G::repetition_penalty>},
    {"frequency-penalty", 0, kSampling, "X", "0",
     "number to subtract from the logit of a token for each time that it occurs in the output",
     kTalking, kValue, SetNumber<-2, 2, &Config::generation, &G::frequency_penalty>},
    {"presence-penalty", 0, kSampling, "X", "0",
     "number to subtract once from the logit of each token that occurs in the output", kTalking,
     kValue, SetNumber<-2, 2, &Config::generation, &G::presence_penalty>},
    {"logit-bias", 0, kSampling, "ID=X", "", "add X to the logit of the token ID; repeatable",
     kTalking, kRepeats, AddLogitBias},

    {"max-tokens", 'n', kStopping, "N", "to the end of the context",
     "maximum number of output tokens", kTalking, kValue,
     SetInteger<1, kMaxInt64, &Config::generation, &G::max_tokens>},
    {"stop", 0, kStopping, "TEXT", "",
     "end the response before this text, if the model generates it; repeatable", kTalking, kRepeats,
     AddString<&Config::generation, &G::stop>},
    {"ignore-eos", 0, kStopping, "", "off", "do not stop at the model's end tokens", kTalking,
     kSwitch, SetSwitch<&Config::generation, &G::ignore_eos>},
    {"timeout", 0, kStopping, "TIME", "none", "maximum duration of a response", kTalking, kValue,
     SetTime<&Config::generation, &G::timeout>},

    {"listen", 0, kServer, "HOST:PORT", "127.0.0.1:50051",
     "address for gRPC; port 0 selects a free port", kServing, kValue,
     SetAddress<&Config::listen, &ListenFlags::grpc>},
    {"http", 0, kServer, "HOST:PORT|off", "127.0.0.1:8080, or a free port if 8080 is taken",
     "address for the OpenAI-compatible HTTP API; port 0 selects a free port", kKeeping, kValue,
     SetHttp},
    {"worker", 0, kServer, "HOST:PORT", "", "address of a worker; repeatable", Bit(Command::kFront),
     kRepeats, AddWorker},
    {"workers", 0, kServer, "NAME:PORT", "",
     "DNS name whose addresses are workers; may be written as dns:///NAME:PORT; repeatable",
     Bit(Command::kFront), kRepeats, AddWorkerName},
    {"name", 0, kServer, "NAME", "random at each start",
     "name of the worker; use the same name after a restart, so that sessions return to the worker",
     Bit(Command::kWorker), kValue, SetString<&Config::serving, &ServingFlags::worker_name>},
    {"store", 0, kServer, "FILE",
     "$XDG_STATE_HOME/tidepool/sessions.db or ~/.local/state/tidepool/sessions.db",
     "session store: an SQLite file (created if it does not exist), a Redis server "
     "(redis://[:PASSWORD@]HOST:PORT[/DB]), or :memory:, which is lost when the process ends",
     kKeeping | Bit(Command::kSessions), kValue, SetStore},
    {"durability", 0, kServer, "KIND", "process",
     "failure that stored sessions survive: process (kill -9), or power (also power loss of the "
     "machine)",
     kKeeping | Bit(Command::kSessions), kValue, SetDurability},
    {"store-unsafe", 0, kServer, "", "off",
     "accept a Redis server whose settings can lose sessions", kKeeping | Bit(Command::kSessions),
     kSwitch, SetSwitch<&Config::store, &StoreFlags::allow_unsafe>},
    {"session-ttl", 0, kServer, "TIME", "none",
     "delete sessions that were not changed for this time", kKeeping, kValue, SetSessionTtl},
    {"max-sessions", 0, kServer, "N", "no limit", "maximum number of sessions of a principal",
     kKeeping, kValue,
     SetInteger<1, (int64_t{1} << 40), &Config::store, &StoreFlags::max_sessions>},
    {"max-session-tokens", 0, kServer, "N", "the model's context",
     "maximum number of tokens in a session", kKeeping, kValue,
     SetInteger<2, (int64_t{1} << 31), &Config::store, &StoreFlags::max_session_tokens>},
    {"request-ttl", 0, kServer, "TIME", "10m",
     "time for which a complete response with a request_id is kept, so that its client can read it "
     "again",
     kKeeping, kValue, SetTime<&Config::front, &FrontFlags::request_ttl>},
    {"orphan-ttl", 0, kServer, "TIME", "30s",
     "time for which a response with a request_id continues after its client has disconnected",
     kKeeping, kValue, SetTime<&Config::front, &FrontFlags::orphan_ttl>},
    {"max-sequences", 0, kServer, "N", "64",
     "maximum number of sequences that are computed at the same time",
     Bit(Command::kServe) | Bit(Command::kWorker), kValue,
     SetInteger<1, 4096, &Config::serving, &ServingFlags::max_sequences>},
    {"max-concurrent-prefills", 0, kServer, "N", "4",
     "maximum number of partly computed prompts that hold KV at the same time",
     Bit(Command::kServe) | Bit(Command::kWorker), kValue,
     SetInteger<1, 4096, &Config::serving, &ServingFlags::max_concurrent_prefills>},
    {"max-queued", 0, kServer, "N", "1024",
     "maximum number of requests that wait; further requests are refused",
     Bit(Command::kServe) | Bit(Command::kWorker), kValue,
     SetInteger<0, 1 << 20, &Config::serving, &ServingFlags::max_queued>},
    {"stall-timeout", 0, kServer, "TIME", "1m",
     "time without progress after which liveness fails (slow reads count as progress)",
     Bit(Command::kServe) | Bit(Command::kWorker), kValue, SetStallTimeout},
    {"drain-grace", 0, kServer, "TIME", "1s",
     "time after SIGTERM in which new requests are still accepted; readiness fails at once",
     kServing, kValue, SetTime<&Config::serving, &ServingFlags::drain_grace>},
    {"drain-timeout", 0, kServer, "TIME", "30s",
     "time after --drain-grace in which running responses may continue; a worker hands responses "
     "that would take longer to other workers",
     kServing, kValue, SetTime<&Config::serving, &ServingFlags::drain_timeout>},
    {"server", 0, kServer, "HOST:PORT", "",
     "address of the server that computes the response; without it, --model is loaded into this "
     "process",
     kTalking, kValue, SetAddress<&Config::client, &ClientFlags::server>},
    {"server", 0, kServer, "HOST:PORT", "127.0.0.1:50051", "address of the server",
     Bit(Command::kStats) | Bit(Command::kOffload), kValue,
     SetAddress<&Config::client, &ClientFlags::server>},
    {"worker-id", 0, kServer, "ID", "all workers", "worker to show or change",
     Bit(Command::kOffload), kValue, SetString<&Config::offload, &OffloadFlags::worker_id>},
    {"session", 0, kServer, "ID", "", "session to continue; created if it does not exist", kTalking,
     kValue, SetString<&Config::client, &ClientFlags::session>},

    {"prompt-tokens", 'p', kTests, "N,N,...", "512",
     "prompt lengths to measure; 0 skips this test; with --server, each request uses one of them "
     "at random",
     Bit(Command::kBench), kRepeats,
     AddIntegers<0, 1 << 20, &Config::bench, &BenchFlags::prompt_tokens>},
    {"output-tokens", 'n', kTests, "N,N,...", "128",
     "numbers of tokens to generate; 0 skips this test; with --server, each request uses one of "
     "them at random",
     Bit(Command::kBench), kRepeats,
     AddIntegers<0, 1 << 20, &Config::bench, &BenchFlags::output_tokens>},
    {"batch", 'b', kTests, "N,N,...", "1", "numbers of sequences that are decoded at the same time",
     Bit(Command::kBench), kRepeats,
     AddIntegers<1, 4096, &Config::bench, &BenchFlags::batch_sizes>},
    {"repetitions", 'r', kTests, "N", "5", "number of measurements of each test, after a warm-up",
     Bit(Command::kBench), kValue, SetInteger<1, 1000, &Config::bench, &BenchFlags::repetitions>},

    {"slots", 0, kTests, "N,N,...", "",
     "number of experts that fit into memory, or a percentage of all experts such as 25%",
     Bit(Command::kReplay), kRepeats, AddReplaySlots},
    {"policy", 0, kTests, "P,P,...", "all",
     "policies to simulate: adaptive, tide, lru, static, belady, hindsight", Bit(Command::kReplay),
     kRepeats, AddReplayPolicies},
    {"refresh-interval", 0, kTests, "N", "1",
     "number of steps after which --policy tide chooses the experts in memory again",
     Bit(Command::kReplay), kValue,
     SetInteger<1, int64_t{1} << 31, &Config::replay, &ReplayFlags::refresh_interval>},
    {"read-bandwidth", 0, kTests, "SIZE", "1.5GB",
     "bytes per second at which missing experts are read from disk", Bit(Command::kReplay), kValue,
     SetReplayReadBandwidth},
    {"memory-bandwidth", 0, kTests, "SIZE", "10GB",
     "bytes per second at which experts in memory are computed", Bit(Command::kReplay), kValue,
     SetReplayMemoryBandwidth},
    {"device-costs", 0, kTests, "FILE", "",
     "simulate the slots of a GPU above the host's memory, with the costs in this JSON file",
     Bit(Command::kReplay), kValue, SetString<&Config::replay, &ReplayFlags::device_costs>},

    {"all", 0, kResult, "", "off", "write the logits of every position, not only of the last one",
     Bit(Command::kLogits), kSwitch, SetSwitch<&Config::logits, &LogitsFlags::all_positions>},
    {"out", 'o', kResult, "FILE", "", ".npy file (float32) for the logits", Bit(Command::kLogits),
     kValue, SetString<&Config::output, &OutputFlags::file>},
    {"out", 'o', kResult, "FILE", "", "GGUF file to write; may also be the second argument",
     Bit(Command::kQuantize), kValue, SetString<&Config::output, &OutputFlags::file>},
    {"out", 'o', kResult, "FILE", "stdout", "file for the export", Bit(Command::kSessions), kValue,
     SetString<&Config::output, &OutputFlags::file>},
    {"type", 0, kResult, "TYPE", "",
     "type of the matrices: F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, "
     "IQ4_NL, "
     "MXFP4",
     Bit(Command::kQuantize), kValue, SetString<&Config::quantize, &QuantizeFlags::type>},
    {"head-type", 0, kResult, "TYPE", "Q6_K if --type has fewer bits, otherwise --type",
     "type of the output head", Bit(Command::kQuantize), kValue,
     SetString<&Config::quantize, &QuantizeFlags::head_type>},
    {"force", 0, kResult, "", "off", "overwrite an existing file",
     Bit(Command::kQuantize) | Bit(Command::kPack) | Bit(Command::kSessions), kSwitch,
     SetSwitch<&Config::output, &OutputFlags::force>},
    {"dump", 0, kResult, "DIR", "",
     "directory, new or empty, for the outputs of the embedding, of each layer and of the final "
     "norm, as .npy files (float32 [tokens, hidden]). Without --all, the file of the norm has "
     "only the last row",
     Bit(Command::kLogits), kValue, SetString<&Config::logits, &LogitsFlags::dump>},
    {"chunk", 0, kResult, "N", "512",
     "maximum number of tokens in a forward pass; results do not depend on it",
     Bit(Command::kLogits), kValue, SetInteger<1, 1 << 20, &Config::logits, &LogitsFlags::chunk>},
    {"tensors", 0, kResult, "", "off",
     "list every tensor after the summary; --json always lists them", Bit(Command::kInspect),
     kSwitch, SetSwitch<&Config::output, &OutputFlags::tensors>},
    {"once", 0, kResult, "", "off", "print once and exit", Bit(Command::kStats), kSwitch,
     SetSwitch<&Config::output, &OutputFlags::once>},
    {"json", 0, kResult, "", "off",
     "print one JSON object to stdout; progress and logs go to stderr", kAll, kSwitch,
     SetEither<OutputFormat::kText, OutputFormat::kJson, &Config::output, &OutputFlags::format>},

    {"config", 0, kGeneral, "FILE", "", "TOML file with flags; its keys are the names of flags",
     kAll, kValue, nullptr},
    {"help", 'h', kGeneral, "", "", "show this help", kAll, kSwitch, nullptr},
};

}  // namespace

absl::Span<const FlagSpec> Flags() {
  static const std::vector<FlagSpec>* const all = [] {
    auto* flags = new std::vector<FlagSpec>(std::begin(kFlags), std::end(kFlags));
    const auto insert_before = [flags](const auto& is_place, absl::Span<const FlagSpec> more) {
      flags->insert(std::find_if(flags->begin(), flags->end(), is_place), more.begin(), more.end());
    };
    insert_before([](const FlagSpec& flag) { return flag.name == "threads"; }, ModelFlagSpecs());
    insert_before([](const FlagSpec& flag) { return flag.group == kTests; }, SecurityFlagSpecs());
    insert_before([](const FlagSpec& flag) { return flag.group == kResult; }, TrafficFlagSpecs());
    insert_before([](const FlagSpec& flag) { return flag.name == "help"; }, LogFlagSpecs());
    return flags;
  }();
  return *all;
}

}  // namespace tidepool::service

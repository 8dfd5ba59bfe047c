#include "kernels/base/check.h"
#include "service/cli/flags.h"

namespace tidepool::service {
namespace {

constexpr absl::string_view kInAndOut[] = {"model", "out"};
constexpr absl::string_view kAction[] = {"action"};

constexpr CommandSpec kCommands[] = {
    {Command::kServe, "serve", "serve a model over gRPC, everything in one process",
     "Loads the model, prints its endpoints, and serves until SIGTERM or SIGINT. Running "
     "responses\n"
     "may then finish within --drain-timeout. A second signal cuts them off.",
     "tidepool serve --model model.gguf"},
    {Command::kFront, "front", "the client-facing half of serve; sends work to workers",
     "Holds the sessions and no model. Workers can join and leave at any time. SIGHUP reloads "
     "--config.",
     "tidepool front --worker 10.0.0.2:50061 --worker 10.0.0.3:50061"},
    {Command::kWorker, "worker", "the half of serve that runs the model, for fronts only", "",
     "tidepool worker --model model.gguf --listen 127.0.0.1:50061"},
    {Command::kGenerate, "generate", "stream one response to the terminal",
     "In this process (--model) or from a server (--server).",
     "tidepool generate --model model.gguf --prompt \"The sky is\" --max-tokens 16"},
    {Command::kChat, "chat", "chat on the terminal",
     "One line is one message. Ctrl-C stops an answer; /quit, /exit or end of input ends it;\n"
     "/help lists the commands.",
     "tidepool chat --server 127.0.0.1:50051 --session notes"},
    {Command::kLogits, "logits", "write the logits for given tokens", "",
     "tidepool logits --model model.gguf --tokens 1,2,3 --all --out logits.npy"},
    {Command::kTokenize, "tokenize", "text to token ids", "",
     "tidepool tokenize --model model.gguf --text \"The sky is\""},
    {Command::kDetokenize, "detokenize", "token ids to text", "",
     "tidepool detokenize --model model.gguf --tokens 504,6376"},
    {Command::kInspect, "inspect", "show a model file's contents and its memory needs", "",
     "tidepool inspect --model model.gguf"},
    {Command::kStats, "stats", "show a running server's counters, live or once",
     "Where experts are kept under a memory budget, a map of them follows, as far as the terminal\n"
     "has room: a line for each layer and a character for each expert, or for a few of them. - + * "
     "#\n"
     "are in memory, a blank and . : ! are not, from unused to used most in the last seconds; at "
     "the\n"
     "end stands the layer's hit rate. NO_COLOR keeps it plain.",
     "tidepool stats --server 127.0.0.1:50051 --once"},
    {Command::kBench, "bench", "measure prefill, decode and batched decode of a model",
     "pp512 is a prompt of 512 tokens, tg128 makes 128 tokens one by one, tg128@8 does so for 8\n"
     "sequences at once and counts the tokens of all. What runs is the model's forward pass with\n"
     "its logits, from an empty KV, as in llama-bench: no tokenizer, sampler or server. Shown are\n"
     "the median of the repetitions and their extremes, the bytes that a token has to read at\n"
     "least (weights and experts once a pass, KV once a sequence), and which share of this\n"
     "machine's memory bandwidth that is; the bandwidth is that of summing up 1 GiB, or what is\n"
     "half of the free memory and then said, with the same threads, measured last. Lists and\n"
     "repeated flags multiply the tests.\n"
     "With --server it is a load generator: random prompts, answers of exactly --output-tokens, "
     "at\n"
     "--rate or from --concurrency callers; see docs/operations.md, Overload, for what it reports.",
     "tidepool bench --model model.gguf -p 512 -n 128 -b 1,8"},
    {Command::kQuantize, "quantize", "write a model as a GGUF file of another weight type",
     "Matrices take the type; norms, biases and routers stay as they are. The output head (or the\n"
     "embedding that serves as one) takes --head-type. Where a type's blocks do not divide a\n"
     "tensor's rows, Q4_K becomes Q5_0, Q5_K becomes Q5_1, Q6_K becomes Q8_0, others F16; the\n"
     "report names them. Scales are searched for the least squared error. Start from F32, F16 or\n"
     "BF16 where you can: what an earlier quantisation lost does not come back. Memory taken does\n"
     "not grow with the model, and the file appears only when it is complete.",
     "tidepool quantize model-f16.gguf model-q4_k.gguf --type Q4_K", kInAndOut},
    {Command::kPerplexity, "perplexity", "measure how well a model predicts a text",
     "As llama.cpp's tool of that name, so that figures compare: the text, with the model's BOS "
     "in\n"
     "front if it has that habit, is cut into chunks of --context tokens; the first token of each\n"
     "chunk gives way to BOS, under the same condition; tokens of a chunk's second half are "
     "scored\n"
     "with all that precedes them in the chunk. Perplexity is exp of the mean negative log\n"
     "likelihood; behind +/- stands its standard error. The text needs two chunks at least; the\n"
     "rest behind the last whole chunk is left out.",
     "tidepool perplexity --model model.gguf --file text.txt"},
    {Command::kPack, "pack", "write a model's experts into a pack file for reads on demand",
     "A model whose experts do not all lie in memory reads them from its pack file: the experts "
     "as\n"
     "kernels want them, one aligned and checksummed record each. It lies beside the model, as\n"
     "MODEL.tidepack, or in --cache-dir. Commands that need one write it at their first start; "
     "this\n"
     "one does so beforehand. A pack of another checkpoint or version is replaced.",
     "tidepool pack --model model.gguf"},
    {Command::kReplay, "replay", "simulate placement policies on a routing trace",
     "What a policy would have had resident, had it served the forwards of a trace (written by\n"
     "--trace-experts) with so many slots. A lookup is an expert that a layer of a forward needs;\n"
     "a hit found it resident when the layer's routing became known. belady is the offline\n"
     "optimum, hindsight the best fixed placement; static without --profile spreads its slots\n"
     "evenly. A step is estimated so: in each layer the resident experts run one after the other\n"
     "while the missing ones are read one after the other, each runs when it is there and its\n"
     "predecessor is done, and running reads the expert once from memory. Attention and all else\n"
     "is left out.",
     "tidepool replay --trace trace.jsonl.zst --slots 25%,50% --policy tide,lru --json"},
    {Command::kSessions, "sessions", "export, import or verify the sessions of a store",
     "export writes every session as one JSON line; import reads such lines into a store, keeps\n"
     "ids, and reports sessions whose id is taken by another one; verify reads everything and\n"
     "names the sessions that are damaged. A file is worked on when no server has it open, Redis\n"
     "at any time.",
     "tidepool sessions export --store sessions.db --out sessions.jsonl", kAction},
    {Command::kOffload, "offload", "show or change how a running server keeps its experts",
     "Shows what is in force, after a change if one is asked for. It is made between two steps, "
     "at\n"
     "all workers or at one, and lasts until the worker ends; running answers go on with the same\n"
     "tokens. --offload-policy static keeps the experts of the worker's --profile, or else those\n"
     "most used since its start.",
     "tidepool offload --server 127.0.0.1:50051 --expert-memory 4GiB"},
    {Command::kToken, "token", "create a token and its line for the server's token file",
     "The line, with the token's SHA-256, goes to stdout, ready to be appended to the file that a\n"
     "server reads as --auth-token-file; the token goes to stderr, or to --token-file.",
     "tidepool token new --principal alice --token-file alice.token >> tokens", kAction},
};

constexpr absl::string_view kFutureFlags[] = {
    "max-experts-per-layer",
    "rank",
    "ranks",
    "rendezvous",
};

}  // namespace

absl::Span<const CommandSpec> Commands() { return kCommands; }

const CommandSpec& SpecOf(Command command) {
  const CommandSpec& spec = kCommands[static_cast<int>(command)];
  CHECK(spec.command == command);
  return spec;
}

absl::Span<const absl::string_view> FutureFlags() { return kFutureFlags; }
absl::Span<const absl::string_view> FutureCommands() { return {}; }

}  // namespace tidepool::service

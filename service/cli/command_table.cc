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
     "may then finish within --drain-timeout. A second signal ends them at once.",
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
     "One line is one message. Ctrl-C stops a response; /quit, /exit or end of input ends it;\n"
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
     "With a memory budget for experts, a map of them follows, as far as the terminal has room: "
     "one line\n"
     "for each layer, and one character for each expert or for a few neighbouring ones. - + * # "
     "are in\n"
     "memory; a blank, . : and ! are not. Within both groups the characters go from unused to used "
     "most\n"
     "in the last seconds. Each line ends with the layer's hit rate. NO_COLOR turns colours off.",
     "tidepool stats --server 127.0.0.1:50051 --once"},
    {Command::kBench, "bench", "measure prefill, decode and batched decode of a model",
     "pp512 computes a prompt of 512 tokens; tg128 generates 128 tokens one by one; tg128@8 does "
     "that for\n"
     "8 sequences at once and counts the tokens of all. Only the model's forward pass runs, as in\n"
     "llama-bench: no tokenizer, no sampler, no server. The table shows the median, minimum and "
     "maximum of\n"
     "the repetitions, the bytes that a token must read at least (weights and experts once a pass, "
     "KV once\n"
     "a sequence), and the share of this machine's memory bandwidth that this is. The bandwidth "
     "is\n"
     "measured last, with the same threads, by adding up 1 GiB (or half of the free memory if that "
     "is\n"
     "less; the table says so). Lists and repeated flags multiply the tests.\n"
     "With --server this command generates load: random prompts and responses of --output-tokens, "
     "at\n"
     "--rate or from --concurrency callers. docs/operations.md, Overload, explains its report.",
     "tidepool bench --model model.gguf -p 512 -n 128 -b 1,8"},
    {Command::kQuantize, "quantize", "write a model as a GGUF file of another weight type",
     "Matrices are converted to the type; norms, biases and routers stay as they are. The output "
     "head (or\n"
     "the embedding that serves as one) is converted to --head-type. If a type's blocks do not "
     "divide a\n"
     "tensor's rows, Q4_K becomes Q5_0, Q5_K becomes Q5_1, Q6_K becomes Q8_0, and others become "
     "F16; the\n"
     "report names such tensors. Scales are chosen for the least squared error. Start from F32, "
     "F16 or\n"
     "BF16 if you can, because an earlier quantisation cannot be undone. The memory needed does "
     "not depend\n"
     "on the model's size, and the output file appears only when it is complete.",
     "tidepool quantize model-f16.gguf model-q4_k.gguf --type Q4_K", kInAndOut},
    {Command::kPerplexity, "perplexity", "measure how well a model predicts a text",
     "Computes the same figure as llama.cpp's tool of that name. The text is split into chunks of\n"
     "--context tokens. If the model adds BOS to texts, the whole text begins with it, and it "
     "replaces the\n"
     "first token of each chunk. Only tokens of a chunk's second half are scored, each with all "
     "tokens\n"
     "before it in the chunk. Perplexity is exp of the mean negative log likelihood; the number "
     "after +/-\n"
     "is its standard error. The text needs at least two chunks. Tokens after the last whole chunk "
     "are\n"
     "left out.",
     "tidepool perplexity --model model.gguf --file text.txt"},
    {Command::kPack, "pack", "write a model's experts into a pack file for reads on demand",
     "If the experts do not all fit into memory, they are read from the pack file. It has one "
     "aligned,\n"
     "checksummed record for each expert, in the layout that the kernels use, and is written "
     "beside the\n"
     "model as MODEL.tidepack, or into --cache-dir. Commands that need a pack file write it at "
     "their first\n"
     "start; this command writes it beforehand. A pack of another checkpoint or version is "
     "replaced.",
     "tidepool pack --model model.gguf"},
    {Command::kReplay, "replay", "simulate placement policies on a routing trace",
     "Simulates which experts a policy would have kept in memory with --slots slots, for the "
     "forward\n"
     "passes of a trace that --trace-experts wrote. A lookup is an expert that a layer of a "
     "forward pass\n"
     "needs. It is a hit if the expert was in memory when the layer's routing became known. belady "
     "is the\n"
     "offline optimum, and hindsight the best fixed placement. static without --profile spreads "
     "its slots\n"
     "evenly. The estimated time of a step assumes that each layer runs its experts one after the "
     "other\n"
     "and reads missing ones one after the other meanwhile. An expert runs when it has been read "
     "and the\n"
     "expert before it has finished; its weights are then read once from memory. Attention and all "
     "other\n"
     "work are ignored.",
     "tidepool replay --trace trace.jsonl.zst --slots 25%,50% --policy tide,lru --json"},
    {Command::kSessions, "sessions", "export, import or verify the sessions of a store",
     "export writes every session as one JSON line; import reads such lines into a store, keeps\n"
     "ids, and reports sessions whose id is taken by another one; verify reads everything and\n"
     "names the sessions that are damaged. Stop the server before working on a file;\n"
     "Redis can be used at any time.",
     "tidepool sessions export --store sessions.db --out sessions.jsonl", kAction},
    {Command::kOffload, "offload", "show or change how a running server keeps its experts",
     "Shows the settings in force, after the change if one is requested. A change takes effect "
     "between two\n"
     "steps, at all workers or at one, and lasts until the worker ends. Running responses continue "
     "with\n"
     "the same tokens. --offload-policy static keeps the experts of the worker's --profile, or "
     "those used\n"
     "most since its start if it has none.",
     "tidepool offload --server 127.0.0.1:50051 --expert-memory 4GiB"},
    {Command::kToken, "token", "create a token and its line for the server's token file",
     "Prints the line to stdout. Append it to the file that a server reads as --auth-token-file; "
     "it\n"
     "contains only the token's SHA-256. The token itself goes to stderr, or to --token-file.",
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

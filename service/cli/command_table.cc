// The commands, with the texts of their --help and the flags that they take.
#include "kernels/base/check.h"
#include "service/cli/flags.h"

namespace tidepool::service {
namespace {

constexpr absl::string_view kInAndOut[] = {"model", "out"};
constexpr absl::string_view kAction[] = {"action"};

constexpr CommandSpec kCommands[] = {
    {Command::kServe, "serve",
     "serve a model over gRPC and HTTP, with front and worker in one process",
     "Loads the model, prints its endpoints, and serves until SIGTERM or SIGINT. Running\n"
     "responses may then finish within --drain-timeout. A second signal ends them at once.",
     "tidepool serve --model model.gguf"},
    {Command::kFront, "front",
     "run a front: clients call it, and it sends their requests to workers",
     "A front stores the sessions. It does not load a model. Workers can start and stop at any\n"
     "time. SIGHUP reloads --config.",
     "tidepool front --worker 10.0.0.2:50061 --worker 10.0.0.3:50061"},
    {Command::kWorker, "worker",
     "run a worker: it loads the model and computes the requests of fronts", "",
     "tidepool worker --model model.gguf --listen 127.0.0.1:50061"},
    {Command::kGenerate, "generate", "stream one response to the terminal",
     "The response is computed in this process (--model) or by a server (--server).",
     "tidepool generate --model model.gguf --prompt \"The sky is\" --max-tokens 16"},
    {Command::kChat, "chat", "chat with a model on the terminal",
     "Each line is a message. Ctrl-C stops a response. /quit, /exit or the end of input ends\n"
     "the chat. /help lists the commands.",
     "tidepool chat --server 127.0.0.1:50051 --session notes"},
    {Command::kLogits, "logits", "compute the logits for given tokens and write them to a file", "",
     "tidepool logits --model model.gguf --tokens 1,2,3 --all --out logits.npy"},
    {Command::kTokenize, "tokenize", "convert text to token ids", "",
     "tidepool tokenize --model model.gguf --text \"The sky is\""},
    {Command::kDetokenize, "detokenize", "convert token ids to text", "",
     "tidepool detokenize --model model.gguf --tokens 504,6376"},
    {Command::kInspect, "inspect",
     "show the contents of a model file and the memory that the model needs", "",
     "tidepool inspect --model model.gguf"},
    {Command::kStats, "stats", "show the counters of a running server, once or continuously",
     "If experts have a memory budget, a map of them is shown below the counters, if the\n"
     "terminal has room. It has one line per layer, and one character per expert (or per few\n"
     "neighbouring experts). The characters - + * # are experts in memory, from unused to most\n"
     "used in the last seconds. A blank and . : ! are experts that are not in memory, in the\n"
     "same order. Each line ends with the hit rate of the layer.\n"
     "The environment variable NO_COLOR turns colours off.",
     "tidepool stats --server 127.0.0.1:50051 --once"},
    {Command::kBench, "bench", "measure the speed of a model, or of a running server",
     "Without --server, this command measures prefill, decoding and batched decoding. pp512\n"
     "computes a prompt of 512 tokens. tg128 generates 128 tokens one by one. tg128@8 does the\n"
     "same for 8 sequences at once and counts the tokens of all of them. Only the model's\n"
     "forward pass runs, as in llama-bench: no tokenizer, no sampler, no server. The table\n"
     "shows the median, minimum and maximum speed of the repetitions. It also shows the bytes\n"
     "that must be read for a token, and the share of the machine's memory bandwidth that this\n"
     "is. Weights and experts are read once per forward pass, and KV once per sequence. The\n"
     "bandwidth is measured last, with the same threads, by adding up 1 GiB of numbers. If\n"
     "half of the free memory is less than 1 GiB, that half is used, and the table says so. If\n"
     "several flags have lists, every combination of their values is measured.\n"
     "With --server, this command sends random prompts to a server, at --rate or from\n"
     "--concurrency callers. Each response has --output-tokens tokens. The section Overload of\n"
     "docs/operations.md explains the report.",
     "tidepool bench --model model.gguf -p 512 -n 128 -b 1,8"},
    {Command::kQuantize, "quantize", "write a model as a GGUF file with another weight type",
     "Matrices are converted to --type. Norms and biases are not converted, and routers become\n"
     "F32. The output head (or the embedding, if the model has no separate head) is converted to\n"
     "--head-type. If the row length of a tensor is not a multiple of the type's block size,\n"
     "another type is used: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, and F16 for the\n"
     "others. The report names such tensors. Scales are chosen for the least squared error. If\n"
     "you can, start from F32, F16 or BF16, because the loss of an earlier quantisation cannot\n"
     "be undone. The command uses constant memory, and creates the output file only when it is\n"
     "complete.",
     "tidepool quantize model-f16.gguf model-q4_k.gguf --type Q4_K", kInAndOut},
    {Command::kPerplexity, "perplexity", "measure how well a model predicts a text",
     "The method is that of llama.cpp's perplexity tool. The text is split into chunks of\n"
     "--context tokens. Tokens after the last whole chunk are ignored. The text must have at\n"
     "least two chunks. If the model adds BOS to texts, BOS is the first token of the whole\n"
     "text, and it replaces the first token of each chunk. Only tokens of a chunk's second\n"
     "half are scored. Each of them is predicted from all tokens before it in the chunk.\n"
     "Perplexity is exp of the mean negative log likelihood. The number after +/- is its\n"
     "standard error.",
     "tidepool perplexity --model model.gguf --file text.txt"},
    {Command::kPack, "pack", "write a model's experts into a pack file",
     "If the experts do not all fit into memory, they are read from a pack file. It has one\n"
     "aligned record with a checksum for each expert, in the layout that the kernels use. The\n"
     "file is MODEL.tidepack beside the model, or is in --cache-dir. A command that needs a\n"
     "pack file writes it at its first start; this command writes it in advance. A pack file\n"
     "of another model or version is replaced.",
     "tidepool pack --model model.gguf"},
    {Command::kReplay, "replay", "simulate placement policies on a routing trace",
     "A placement policy decides which experts are in memory. This command simulates policies\n"
     "with --slots slots (the memory of one expert each), for the forward passes of a trace\n"
     "that --trace-experts wrote. A lookup is an expert that a layer needs in a forward pass.\n"
     "It is a hit if the expert was in memory when the layer's routing became known. The\n"
     "policy belady is the optimum if the future is known. hindsight is the best placement\n"
     "that never changes. static without --profile gives each layer the same number of slots.\n"
     "The time of a step is an estimate. It assumes that each layer computes its experts one\n"
     "after the other, and meanwhile reads the missing ones one after the other. An expert is\n"
     "computed when it has been read and the expert before it is finished. Its weights are\n"
     "then read once from memory. Attention and all other work are ignored.\n"
     "With --device-costs, the slots are those of a GPU, and all experts are in the host's\n"
     "memory. The report then has the speed of decoding that the costs predict, the share of\n"
     "the misses that the CPU computes, and the share that is copied to the GPU. docs/gpu.md\n"
     "describes the file.",
     "tidepool replay --trace trace.jsonl.zst --slots 25%,50% --policy tide,lru --json"},
    {Command::kSessions, "sessions", "export, import or verify the sessions of a store",
     "export writes each session as one JSON line. import reads such lines into a store. It\n"
     "keeps the ids, and reports a session if the store has another session with the same id.\n"
     "verify reads the whole store and names damaged sessions. If the store is a file, stop\n"
     "its server first. A store in Redis can be used at any time.",
     "tidepool sessions export --store sessions.db --out sessions.jsonl", kAction},
    {Command::kOffload, "offload", "show or change which experts a running server keeps in memory",
     "The command first makes the change, if one is requested, and then shows the current\n"
     "settings. A change takes effect between two steps, at all workers or at --worker-id, and\n"
     "lasts until the worker ends. It does not change the tokens of running responses.\n"
     "--offload-policy static keeps the experts that are used most in the worker's --profile.\n"
     "If the worker has no profile, it keeps those used most since the worker's start.",
     "tidepool offload --server 127.0.0.1:50051 --expert-memory 4GiB"},
    {Command::kToken, "token", "create a token, and its line for a server's token file",
     "The line is printed to stdout. Append it to the file that a server reads as\n"
     "--auth-token-file. The line contains only the token's SHA-256. The token itself is\n"
     "printed to stderr, or written to --token-file.",
     "tidepool token new --principal alice --token-file alice.token >> tokens", kAction},
    {Command::kGrammar, "grammar", "check texts against a JSON schema, a regex or a grammar",
     "The command compiles the constraint as a server does for a request. A constraint that\n"
     "cannot be enforced exactly is refused, with the place and the reason. With --model, it\n"
     "also computes the tokens that are allowed before each token of a text (a mask), and\n"
     "shows the times. Only the tokenizer is loaded. Each line of a --batch file is an object\n"
     "such as {\"schema\": {\"type\": \"integer\"}, \"texts\": [\"1\", \"x\"]}, with regex,\n"
     "grammar or choice instead of schema. With --json, each line has a result line.",
     "tidepool grammar --regex \"(19|20)[0-9]{2}\" --text 1984"},
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

// Prompt and generation speed of one model file, without an engine around the forward pass.
//
//   model_bench MODEL.gguf [--prompt 512] [--generate 128] [--sequences 8] [--threads 2]
//
// Prints one JSON object: {"pp512": tokens/s, "tg128": tokens/s, "tg128@8": tokens/s}. One short
// warm-up comes first. The prompt is one batch whose last row wants logits; generation is one row
// of each sequence at a time, with logits, for one sequence and for as many as asked for.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/model/contiguous_kv.h"
#include "engine/model_bundle.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

struct Arguments {
  std::string model;
  int prompt = 512;
  int generate = 128;
  int sequences = 1;
  int threads = 0;
};

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    int* const value = word == "--prompt"      ? &arguments.prompt
                       : word == "--generate"  ? &arguments.generate
                       : word == "--sequences" ? &arguments.sequences
                       : word == "--threads"   ? &arguments.threads
                                               : nullptr;
    if (value == nullptr) {
      arguments.model = word;
    } else if (i + 1 >= argc || !absl::SimpleAtoi(argv[++i], value) || *value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(word, " needs a number above 0"));
    }
  }
  if (arguments.model.empty()) {
    return absl::InvalidArgumentError(
        "usage: model_bench MODEL.gguf [--prompt N] [--generate N] [--sequences N] [--threads N]");
  }
  return arguments;
}

// Runs tokens [first, first + count) of each of `sequences` sequences as one batch, the last rows'
// logits wanted.
absl::Status Step(Model* model, const ContiguousKv& kv, int sequences, int first, int count,
                  kernels::Arena* workspace) {
  Batch batch;
  for (int s = 0; s < sequences; ++s) {
    Span& span = batch.spans.emplace_back();
    span.first_slot = first;
    for (int i = first; i < first + count; ++i) {
      span.token_ids.push_back((7 * i + 31 * s + 100) % (model->vocab_size() / 2));
    }
    span.logit_rows = {count - 1};
    span.blocks = kv.blocks(s);
  }
  return model->Forward(batch, kv.view(), workspace).status();
}

absl::StatusOr<double> TokensPerSecond(int tokens, const std::function<absl::Status()>& run) {
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(run());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return tokens / elapsed.count();
}

absl::Status Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelBundle> bundle,
                   LoadModel(arguments.model, {.threads = arguments.threads}));
  Model* const model = bundle->model.get();
  const int slots = std::max(arguments.prompt, arguments.generate);
  const ContiguousKv kv(model->kv_specs(), arguments.sequences, slots);
  const int rows = std::max(arguments.prompt, arguments.sequences);
  kernels::Arena workspace(
      model->WorkspaceBytes({.rows = rows, .logit_rows = arguments.sequences}));
  const auto prompt = [&] { return Step(model, kv, 1, 0, arguments.prompt, &workspace); };
  const auto generate = [&](int sequences, int tokens) {
    for (int i = 0; i < tokens; ++i) {
      RETURN_IF_ERROR(Step(model, kv, sequences, i, 1, &workspace));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(prompt());
  RETURN_IF_ERROR(generate(arguments.sequences, std::min(8, arguments.generate)));
  ASSIGN_OR_RETURN(const double pp, TokensPerSecond(arguments.prompt, prompt));
  std::printf("{\"pp%d\": %.2f", arguments.prompt, pp);
  for (int sequences = 1;; sequences = arguments.sequences) {
    ASSIGN_OR_RETURN(const double tg, TokensPerSecond(sequences * arguments.generate, [&] {
                       return generate(sequences, arguments.generate);
                     }));
    std::printf(", \"tg%d%s\": %.2f", arguments.generate,
                sequences == 1 ? "" : absl::StrCat("@", sequences).c_str(), tg);
    if (sequences == arguments.sequences) break;
  }
  std::printf("}\n");
  return absl::OkStatus();
}

}  // namespace
}  // namespace tidepool::engine

int main(int argc, char** argv) {
  const auto arguments = tidepool::engine::Parse(argc, argv);
  const absl::Status status =
      arguments.ok() ? tidepool::engine::Run(*arguments) : arguments.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "model_bench: %s\n", std::string(status.message()).c_str());
  return arguments.ok() ? 1 : 2;
}

// Prompt and generation speed of one model file, without an engine around the forward pass.
//
//   model_bench MODEL.gguf [--prompt 512] [--generate 128] [--threads 2]
//
// Prints one JSON object: {"pp512": tokens/s, "tg128": tokens/s}. One short warm-up comes first. The
// prompt is one batch whose last row wants logits; generation is one row at a time, with logits.
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
  int threads = 0;
};

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    int* const value = word == "--prompt"     ? &arguments.prompt
                       : word == "--generate" ? &arguments.generate
                       : word == "--threads"  ? &arguments.threads
                                              : nullptr;
    if (value == nullptr) {
      arguments.model = word;
    } else if (i + 1 >= argc || !absl::SimpleAtoi(argv[++i], value) || *value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(word, " needs a number above 0"));
    }
  }
  if (arguments.model.empty()) {
    return absl::InvalidArgumentError(
        "usage: model_bench MODEL.gguf [--prompt N] [--generate N] [--threads N]");
  }
  return arguments;
}

// Runs tokens [first, first + count) of a sequence as one batch, the last row's logits wanted.
absl::Status Step(Model* model, const ContiguousKv& kv, int first, int count,
                  kernels::Arena* workspace) {
  Batch batch;
  Span& span = batch.spans.emplace_back();
  span.first_slot = first;
  for (int i = first; i < first + count; ++i) {
    span.token_ids.push_back((7 * i + 100) % (model->vocab_size() / 2));
  }
  span.logit_rows = {count - 1};
  span.blocks = kv.blocks(0);
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
  const ContiguousKv kv(model->kv_specs(), 1, slots);
  kernels::Arena workspace(model->WorkspaceBytes({.rows = slots, .logit_rows = 1}));
  const auto prompt = [&] { return Step(model, kv, 0, arguments.prompt, &workspace); };
  const auto generate = [&](int tokens) {
    for (int i = 0; i < tokens; ++i) RETURN_IF_ERROR(Step(model, kv, i, 1, &workspace));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(prompt());
  RETURN_IF_ERROR(generate(std::min(8, arguments.generate)));
  ASSIGN_OR_RETURN(const double pp, TokensPerSecond(arguments.prompt, prompt));
  ASSIGN_OR_RETURN(const double tg, TokensPerSecond(arguments.generate,
                                                    [&] { return generate(arguments.generate); }));
  std::printf("{\"pp%d\": %.2f, \"tg%d\": %.2f}\n", arguments.prompt, pp, arguments.generate, tg);
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

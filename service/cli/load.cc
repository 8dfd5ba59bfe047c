#include "service/cli/load.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "service/cli/machine.h"

namespace tidepool::service {
namespace {

using engine::LoadStage;

absl::string_view Verb(LoadStage stage) {
  switch (stage) {
    case LoadStage::kPacking:
      return "packing the experts of";
    case LoadStage::kLoading:
      return "loading";
    case LoadStage::kReadingExperts:
      return "reading the experts of";
  }
  return "";
}

// Of the KV cache that the command keeps beside the weights; the others' is small.
int64_t KvBytes(const Config& config) {
  switch (config.command) {
    case Command::kServe:
    case Command::kWorker:
    case Command::kGenerate:
    case Command::kChat:
      return static_cast<int64_t>(config.kv_memory_bytes);
    default:
      return 0;
  }
}

// Of the largest of bench's tests, in whole blocks.
int64_t KvTokens(const Config& config) {
  if (config.command != Command::kBench) return 0;
  const auto most = [](const std::vector<int64_t>& counts) {
    const auto largest = std::max_element(counts.begin(), counts.end());
    return largest == counts.end() ? 0 : *largest;
  };
  const auto blocks = [](int64_t tokens) {
    return (tokens + kernels::kKvBlockTokens - 1) / kernels::kKvBlockTokens;
  };
  return std::max(blocks(most(config.bench.prompt_tokens)),
                  blocks(most(config.bench.output_tokens)) * most(config.bench.batch_sizes)) *
         kernels::kKvBlockTokens;
}

}  // namespace

LoadProgressLine::LoadProgressLine(const Config& config, Console* console)
    : model_(config.model), console_(console) {}

LoadProgressLine::~LoadProgressLine() {
  if (!shown_.empty()) console_->Note("\r\033[K");
}

engine::StageProgress LoadProgressLine::callback() {
  return [this](LoadStage stage, double fraction) { Show(stage, fraction); };
}

void LoadProgressLine::Show(LoadStage stage, double fraction) {
  if (!console_->err_is_terminal()) {
    if (stage == LoadStage::kPacking) Tell(fraction);
    return;
  }
  std::string line =
      absl::StrFormat("%s %s: %d %%", Verb(stage), model_, static_cast<int>(fraction * 100));
  if (line == shown_) return;
  shown_ = std::move(line);
  console_->Note(absl::StrCat("\r\033[K", shown_));
}

// A pack takes minutes where a disk is slow: who reads a log sees that it goes on.
void LoadProgressLine::Tell(double packed) {
  const std::string what = absl::StrCat("tidepool: packing the experts of ", model_);
  if (told_ < 0) console_->Note(absl::StrCat(what, ", once\n"));
  const int tenths = static_cast<int>(packed * 10);
  if (tenths > 0 && tenths > told_) {
    console_->Note(absl::StrFormat("%s: %d %%\n", what, tenths * 10));
  }
  told_ = std::max(told_, tenths);
}

absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console) {
  LoadProgressLine progress(config, console);
  engine::LoadOptions options;
  options.threads = config.threads;
  options.precision = config.precision;
  options.isa = config.isa;
  options.kv_dtype = config.kv_type;
  options.experts = config.experts;
  options.experts.limits.available_bytes = AvailableMemoryBytes();
  options.experts.limits.kv_bytes = KvBytes(config);
  options.experts.limits.kv_tokens = KvTokens(config);
  options.experts.limits.kv_disk_bytes = config.kv_disk_bytes;
  options.progress = progress.callback();
  auto bundle = engine::LoadModel(config.model, options);
  const bool unguided =
      config.experts.policy.kind == moe::PolicyKind::kStatic && config.experts.profile_path.empty();
  if (unguided && bundle.ok() && (*bundle)->tiered != nullptr) {
    console->Note(
        "tidepool: --offload-policy static knows no use of experts and spreads its slots evenly; "
        "give it --profile TRACE, which --trace-experts writes\n");
  }
  return bundle;
}

}  // namespace tidepool::service

#include "service/cli/load.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "service/cli/machine.h"
#include "service/cli/placement_text.h"

namespace tidepool::service {
namespace {

using engine::LoadStage;

absl::string_view Verb(LoadStage stage) {
  switch (stage) {
    case LoadStage::kHashing:
      return "hashing";
    case LoadStage::kPacking:
      return "packing the experts of";
    case LoadStage::kLoading:
      return "loading";
    case LoadStage::kReadingExperts:
      return "reading the experts of";
  }
  return "";
}

// Hashing is shown only if it takes longer than this. After 2 s, a user might believe that the
// program hangs.
constexpr absl::Duration kLongHashing = absl::Seconds(2);

// Whether the command runs an engine, or plans to do so.
bool RunsEngine(const Config& config) {
  switch (config.command) {
    case Command::kServe:
    case Command::kWorker:
    case Command::kGenerate:
    case Command::kChat:
    case Command::kInspect:
      return true;
    default:
      return false;
  }
}

// Bytes of KV cache that the command allocates in addition to the weights. -1 for the default.
int64_t KvBytes(const Config& config) {
  if (!RunsEngine(config)) return 0;
  const auto bytes = static_cast<int64_t>(config.model.kv_memory_bytes);
  return bytes == 0 ? -1 : bytes;
}

int64_t MaxSequences(const Config& config) {
  if (RunsEngine(config)) return config.serving.max_sequences;
  const std::vector<int64_t>& sizes = config.bench.batch_sizes;
  if (config.command != Command::kBench || sizes.empty()) return 1;
  return std::max<int64_t>(1, *std::max_element(sizes.begin(), sizes.end()));
}

// KV tokens of bench's largest test, rounded up to whole blocks.
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
    : model_(config.model.path), console_(console), begun_(base::Clock::Real().Monotonic()) {}

LoadProgressLine::~LoadProgressLine() {
  if (!shown_.empty()) console_->Note("\r\033[K");
}

engine::StageProgress LoadProgressLine::callback() {
  return [this](LoadStage stage, double fraction) { Show(stage, fraction); };
}

void LoadProgressLine::Show(LoadStage stage, double fraction) {
  if (stage == LoadStage::kHashing && base::Clock::Real().Monotonic() - begun_ < kLongHashing) {
    return;
  }
  if (!console_->err_is_terminal()) {
    if (stage == LoadStage::kHashing) TellHashing(fraction);
    if (stage == LoadStage::kPacking) Tell(fraction);
    return;
  }
  std::string line =
      absl::StrFormat("%s %s: %d %%", Verb(stage), model_, static_cast<int>(fraction * 100));
  if (line == shown_) return;
  shown_ = std::move(line);
  console_->Note(absl::StrCat("\r\033[K", shown_));
}

// On a slow disk, packing takes minutes. These lines show in a log that the process still makes
// progress.
void LoadProgressLine::Tell(double packed) {
  const std::string what = absl::StrCat("packing the experts of ", model_);
  if (printed_tenths_ < 0) console_->NoteLine(absl::StrCat(what, ", once"), LogLevel::kInfo);
  const int tenths = static_cast<int>(packed * 10);
  if (tenths > 0 && tenths > printed_tenths_) {
    console_->NoteLine(absl::StrFormat("%s: %d %%", what, tenths * 10), LogLevel::kInfo);
  }
  printed_tenths_ = std::max(printed_tenths_, tenths);
}

void LoadProgressLine::TellHashing(double fraction) {
  if (printed_hashing_ || fraction >= 1) return;
  printed_hashing_ = true;
  console_->NoteLine(
      absl::StrFormat("hashing %s, once: %d %%", model_, static_cast<int>(fraction * 100)),
      LogLevel::kInfo);
}

NoteLine ConsoleNote(Console* console) {
  return [console](absl::string_view line) { console->NoteLine(line); };
}

std::optional<int64_t> FreeBytesFor(const engine::ModelBundle& bundle) {
  const kernels::Memory* memory = bundle.model->memory();
  if (memory->on_host()) return AvailableMemoryBytes();
  const std::optional<size_t> available = memory->available();
  if (!available.has_value()) return std::nullopt;
  return static_cast<int64_t>(*available);
}

engine::LoadOptions LoadOptionsOf(const Config& config) {
  engine::LoadOptions options;
  options.threads = config.model.threads;
  options.precision = config.model.precision;
  options.isa = config.model.isa;
  options.device = config.model.device;
  options.kv_dtype = config.model.kv_type;
  options.quantize_to = config.model.quantize_to;
  options.experts = config.model.experts;
  options.experts.limits.available_bytes = AvailableMemoryBytes();
  options.experts.limits.kv_bytes = KvBytes(config);
  options.experts.limits.kv_tokens = KvTokens(config);
  options.experts.limits.kv_disk_bytes = config.model.kv_disk_bytes;
  options.max_sequences = MaxSequences(config);
  return options;
}

absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console) {
  return LoadBundle(config, console, ConsoleNote(console));
}

absl::StatusOr<std::unique_ptr<engine::ModelBundle>> LoadBundle(const Config& config,
                                                                Console* console, NoteLine note) {
  LoadProgressLine progress(config, console);
  engine::LoadOptions options = LoadOptionsOf(config);
  options.experts.note = note;
  options.progress = progress.callback();
  if (config.command == Command::kServe || config.command == Command::kWorker) {
    options.planned = [console](const engine::MemoryPlan& plan) {
      if (!plan.on_device) return;
      console->NoteLine(absl::StrCat("placement: ", absl::StrJoin(PlacementLines(plan), "; ")),
                        LogLevel::kInfo);
    };
  }
  auto bundle = engine::LoadModel(config.model.path, options);
  if (bundle.ok() && !(*bundle)->digest_recorded.ok()) {
    note(absl::StrCat("the digest of ", config.model.path,
                      " cannot be saved, so the next start computes it again: ",
                      (*bundle)->digest_recorded.message(),
                      "; set --cache-dir DIR to a writable folder"));
  }
  const bool unguided = config.model.experts.policy.kind == moe::PolicyKind::kStatic &&
                        config.model.experts.profile_path.empty();
  if (unguided && bundle.ok() && (*bundle)->model->offload_control() != nullptr) {
    console->NoteLine(
        "--offload-policy static has no --profile, so each layer gets the same number of slots; "
        "set "
        "--profile to a file that --trace-experts wrote");
  }
  const bool asked = config.model.experts.memory.kind != engine::ExpertMemoryKind::kAuto;
  if (asked && bundle.ok() && (*bundle)->config.moe.experts == 0) {
    console->NoteLine(absl::StrCat("--expert-memory has no effect: ", config.model.path,
                                   " has no experts, and all its weights are in memory"));
  }
  return bundle;
}

}  // namespace tidepool::service

// quantize: converts a model file to a GGUF file with another weight type.
#include "engine/checkpoint/quantize.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/requantize.h"
#include "engine/loading/available_cpus.h"
#include "engine/model/model_config.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/check_tensors.h"
#include "service/cli/commands.h"
#include "service/cli/signals.h"

namespace tidepool::service {
namespace {

using engine::GgmlType;
using engine::GgmlTypeName;
using engine::TensorChoice;
using engine::TensorFate;

constexpr uint32_t kTypeIds = 64;

absl::StatusOr<GgmlType> ParseType(absl::string_view flag, absl::string_view name) {
  std::vector<absl::string_view> accepted;
  for (uint32_t id = 0; id < kTypeIds; ++id) {
    const engine::GgmlTypeInfo* info = engine::FindGgmlType(id);
    if (info == nullptr || !engine::CanQuantize(info->type)) continue;
    if (absl::EqualsIgnoreCase(info->name, name)) return info->type;
    accepted.push_back(info->name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": \"", name, "\" is not one of ", absl::StrJoin(accepted, ", ")));
}

// Opens the model. Refuses a directory whose config.json contradicts its tensors, because the
// output would not load. A GGUF file may be for other programs only, so its tensors are not
// checked.
absl::StatusOr<engine::Checkpoint> OpenChecked(const std::string& path) {
  ASSIGN_OR_RETURN(engine::Checkpoint file, engine::OpenCheckpoint(path));
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return file;
  ASSIGN_OR_RETURN(const engine::ModelConfig model, engine::ModelConfig::Parse(file));
  RETURN_IF_ERROR(CheckTensors(model, &file));
  return file;
}

// Returns a warning if the weights of the input are already quantised, or "".
std::string RequantizingNote(const engine::Checkpoint& file,
                             const std::vector<TensorChoice>& choices) {
  std::map<std::string, int> types;
  for (const TensorChoice& choice : choices) {
    if (choice.from == choice.to || engine::TypeInfo(choice.from).block_elements == 1) continue;
    ++types[std::string(GgmlTypeName(choice.from))];
  }
  if (types.empty()) return "";
  const std::string counts = absl::StrJoin(
      types, ", ", [](std::string* out, const std::pair<const std::string, int>& type) {
        absl::StrAppend(out, type.second, " of ", type.first);
      });
  return absl::StrCat("tidepool: warning: tensors of ", file.path(), " are quantised already (",
                      counts,
                      "): the loss of that quantisation remains; F16, BF16 or F32 weights give a "
                      "better result\n");
}

Json Describe(const Config& config, GgmlType type, const engine::RequantizeReport& report) {
  std::map<std::string, int64_t> types;
  Json fallbacks = Json::array();
  for (const TensorChoice& choice : report.tensors) {
    ++types[std::string(GgmlTypeName(choice.to))];
    if (choice.fate != TensorFate::kFallback) continue;
    fallbacks.push_back({{"name", choice.name}, {"type", std::string(GgmlTypeName(choice.to))}});
  }
  Json json;
  json["model"] = config.model.path;
  json["out"] = config.output.file;
  json["type"] = std::string(GgmlTypeName(type));
  json["tensors"] = report.tensors.size();
  json["types"] = types;
  json["fallbacks"] = std::move(fallbacks);
  json["bytes_in"] = report.bytes_in;
  json["bytes_out"] = report.bytes_out;
  return json;
}

std::string Text(const Json& json) {
  std::string text = absl::StrFormat("%s: %s, from %s\n", json["out"].get<std::string>(),
                                     FormatBytes(json["bytes_out"].get<double>()),
                                     FormatBytes(json["bytes_in"].get<double>()));
  for (const auto& [name, count] : json["types"].items()) {
    absl::StrAppendFormat(&text, "  %-8s%6d tensors\n", name, count.get<int64_t>());
  }
  std::map<std::string, std::vector<std::string>> fallbacks;
  for (const Json& fallback : json["fallbacks"]) {
    fallbacks[fallback["type"]].push_back(fallback["name"]);
  }
  for (const auto& [type, names] : fallbacks) {
    absl::StrAppendFormat(&text,
                          "%d of them (the first is %s) are %s: their rows are not a multiple of "
                          "the block size of --type\n",
                          names.size(), names.front(), type);
  }
  return text;
}

}  // namespace

absl::Status RunQuantize(const Config& config, Console* console) {
  std::atomic<bool> stopped{false};
  const SignalWatcher watcher({SIGINT, SIGTERM}, [&](int) { stopped = true; });
  engine::RequantizeOptions options;
  ASSIGN_OR_RETURN(options.type, ParseType("--type", config.quantize.type));
  if (!config.quantize.head_type.empty()) {
    ASSIGN_OR_RETURN(options.head_type, ParseType("--head-type", config.quantize.head_type));
  }
  options.threads = config.model.threads > 0 ? config.model.threads : engine::AvailableCpus();
  std::error_code error;
  if (std::filesystem::equivalent(config.model.path, config.output.file, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.output.file,
                     " is the model that is read; name another file, and rename it afterwards"));
  }
  options.existing =
      config.output.force ? base::ExistingFile::kReplace : base::ExistingFile::kRefuse;
  if (!config.output.force && std::filesystem::exists(config.output.file)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.output.file, " already exists; --force replaces it"));
  }
  ASSIGN_OR_RETURN(const engine::Checkpoint file, OpenChecked(config.model.path));
  const std::string note = RequantizingNote(file, engine::ChooseTypes(file, options));
  if (!note.empty()) console->Note(note);
  options.progress = [&](absl::string_view tensor, double fraction) {
    if (stopped) return absl::CancelledError("stopped by a signal; nothing was written");
    if (console->err_is_terminal()) {
      console->Note(absl::StrFormat("\r\033[K%3.0f %% %s", fraction * 100, tensor));
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<engine::RequantizeReport> report =
      engine::Requantize(file, config.output.file, options);
  if (console->err_is_terminal()) console->Note("\r\033[K");
  RETURN_IF_ERROR(report.status());
  const Json json = Describe(config, options.type, *report);
  return console->PrintResult(config.output.format, json, Text);
}

}  // namespace tidepool::service

// inspect: describes a model file, and how much of it fits into memory.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/chat_template/chat_template.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/content_digest.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/kv/kv_layout.h"
#include "engine/loading/memory_plan.h"
#include "engine/loading/model_bundle.h"
#include "engine/model/kv_spec.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "engine/tokenizer/load_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/backend.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/check_tensors.h"
#include "service/cli/commands.h"
#include "service/cli/load.h"
#include "service/cli/model_bytes.h"
#include "service/cli/placement_text.h"

namespace tidepool::service {
namespace {

using engine::Checkpoint;
using engine::GgufTensor;

struct Totals {
  int64_t elements = 0;
  int64_t file_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t expert_bytes = 0;  // size in memory, after loading
  struct OfType {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, OfType> types;
};

Totals Add(const Checkpoint& file) {
  Totals totals;
  for (const GgufTensor& tensor : file.tensors()) {
    totals.elements += tensor.elements();
    totals.file_bytes += static_cast<int64_t>(tensor.bytes);
    const int64_t resident = ResidentBytes(tensor);
    totals.resident_bytes += resident;
    if (IsExpertTensor(tensor.name)) totals.expert_bytes += resident;
    Totals::OfType& type = totals.types[std::string(engine::GgmlTypeName(tensor.type))];
    ++type.tensors;
    type.bytes += static_cast<int64_t>(tensor.bytes);
  }
  return totals;
}

// Null if the digest is not stored. Loading the model computes it.
Json ContentDigestOf(const Checkpoint& file) {
  const auto digest = engine::KnownContentDigest(file, {});
  return digest.has_value() ? Json(*digest) : Json();
}

Json DescribeFile(const Checkpoint& file, const Totals& totals) {
  Json types = Json::object();
  for (const auto& [name, type] : totals.types) {
    types[name] = {{"tensors", type.tensors}, {"bytes", type.bytes}};
  }
  Json json;
  json["file"] = file.path();
  json["format"] = file.format();
  json["parts"] = file.part_count();
  json["file_bytes"] = file.file_bytes();
  json["digest"] = file.SampledDigest();
  json["content_digest"] = ContentDigestOf(file);
  json["parameters"] = totals.elements;
  json["types"] = std::move(types);
  return json;
}

void DescribeModel(const engine::ModelConfig& config, Json* json) {
  const engine::LayerConfig& layer = config.attention_layer();
  Json& model = *json;
  model["architecture"] = config.architecture;
  model["name"] = config.name;
  model["layers"] = config.layers.size();
  model["recurrent_layers"] =
      std::count_if(config.layers.begin(), config.layers.end(),
                    [](const engine::LayerConfig& one) { return !one.has_attention(); });
  // Draft layers predict further tokens. Their tensors are not loaded.
  model["unused_draft_layers"] = config.draft_layers;
  model["hidden_size"] = config.hidden_size;
  model["heads"] = layer.heads;
  model["kv_heads"] = layer.kv_heads;
  model["head_dim"] = layer.head_dim;
  model["ffn_width"] = config.layers.front().ffn_width;
  model["vocab_size"] = config.vocab_size;
  model["context_length"] = config.context_length;
  model["experts"] = config.moe.experts;
  model["experts_used"] = config.moe.experts_used;
  model["expert_width"] = config.moe.expert_width;
  model["shared_expert_width"] = config.moe.shared_width;
}

using KvBytes = int64_t engine::KvCost::*;

// The KV bytes for each type that --kv-type accepts.
Json KvBytesByType(const engine::ModelConfig& config, KvBytes bytes) {
  using kernels::DType;
  Json json;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    if (!config.CanStoreKv(dtype)) continue;
    json[absl::AsciiStrToLower(kernels::DTypeName(dtype))] =
        engine::KvCostOf(engine::KvSpecsOf(config, dtype)).*bytes;
  }
  return json;
}

// Describes which parts of the model would be in which memory, and whether all parts fit. `plan`
// may be RESOURCE_EXHAUSTED.
void DescribePlan(const absl::StatusOr<engine::MemoryPlan>& plan, const Totals& totals,
                  Json* json) {
  Json& memory = *json;
  if (!plan.ok()) {
    memory["fits"] = false;
    memory["placement"] = {{"error", std::string(plan.status().message())}};
    return;
  }
  const std::optional<int64_t> available = plan->available_bytes;
  memory["available_bytes"] = available.has_value() ? Json(*available) : Json(nullptr);
  memory["kv_bytes"] = plan->kv_bytes;
  if (available.has_value()) {
    memory["fits"] = totals.resident_bytes + plan->kv_bytes + plan->workspace_bytes <= *available;
  }
  memory["placement"] = PlacementJson(*plan);
  if (plan->sizes.experts == 0) return;
  memory["experts"] = plan->sizes.experts;
  memory["experts_in_memory"] = plan->offloads() ? plan->slots : plan->sizes.experts;
}

Json DescribeMemory(const engine::ModelConfig& config, const Totals& totals) {
  constexpr int64_t kStepRows = 512;
  const std::vector<engine::KvSpec> f16 = engine::KvSpecsOf(config, kernels::DType::kF16);
  const engine::KvCost cost = engine::KvCostOf(f16);
  const int64_t one_gib_tokens = cost.bytes_per_token == 0
                                     ? config.context_length
                                     : engine::KvCapacityTokens(f16, size_t{1} << 30, kStepRows);
  Json json;
  json["weight_bytes"] = totals.resident_bytes;
  json["expert_bytes"] = totals.expert_bytes;
  // Sizes of one routed expert of one layer, the unit that is loaded and evicted.
  const int64_t experts = int64_t{config.moe_layers()} * config.moe.experts;
  json["bytes_per_expert"] = experts == 0 ? 0 : totals.expert_bytes / experts;
  json["kv_bytes_per_token"] = KvBytesByType(config, &engine::KvCost::bytes_per_token);
  json["kv_window_bytes"] = KvBytesByType(config, &engine::KvCost::window_bytes);
  json["state_bytes"] = cost.state_bytes;
  json["state_bytes_per_sequence"] = engine::kStatesPerSequence * cost.state_bytes;
  json["kv_tokens_per_gib_f16"] = one_gib_tokens;
  json["full_context_kv_bytes_f16"] = cost.bytes_per_token * config.context_length +
                                      cost.window_bytes +
                                      engine::kStatesPerSequence * cost.state_bytes;
  // Null if unknown.
  json["available_bytes"] = nullptr;
  json["fits"] = nullptr;
  return json;
}

Json DescribeTokenizer(const engine::Tokenizer& t) {
  const engine::TokenizerSpec& spec = t.spec();
  Json json;
  json["supported"] = true;
  json["model"] = spec.model;
  json["pre"] = spec.pre;
  json["tokens"] = spec.tokens.size();
  if (spec.chat_template.empty()) {
    json["chat_template"] = "none";
  } else {
    const absl::Status status = engine::ChatTemplate::Parse(spec.chat_template).status();
    json["chat_template"] = status.ok() ? "yes" : absl::StrCat("not served: ", status.message());
  }
  json["bos_id"] = t.bos_id();
  json["eos_id"] = t.eos_id();
  json["adds_bos"] = t.adds_bos();
  json["stop_ids"] = std::vector<int32_t>(t.stop_ids().begin(), t.stop_ids().end());
  return json;
}

Json DescribeTensors(const Checkpoint& file) {
  Json tensors = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    Json shape = Json::array();
    for (int d = 0; d < tensor.dim_count; ++d) shape.push_back(tensor.dims[d]);
    tensors.push_back({{"name", std::string(tensor.name)},
                       {"type", std::string(engine::GgmlTypeName(tensor.type))},
                       {"shape", std::move(shape)},
                       {"bytes", tensor.bytes}});
  }
  return tensors;
}

std::string Bytes(const Json& json) { return FormatBytes(json.get<double>()); }

std::string Verdict(const Json& memory) {
  const std::string kv = absl::StrCat(Bytes(memory["kv_bytes"]), " of KV");
  const Json kept = memory.value("experts_in_memory", Json(nullptr));
  if (kept.is_number() && kept < memory["experts"]) {
    return absl::StrFormat(
        "%d of %d experts fit, with the other weights, %s and a reserve; others are read as needed",
        kept.get<int64_t>(), memory["experts"].get<int64_t>(), kv);
  }
  const bool fits = kept.is_number() || memory["fits"].get<bool>();
  return absl::StrCat("weights and ", kv, fits ? " fit" : " do not fit");
}

std::string MemoryText(const Json& json) {
  const Json& memory = json["memory"];
  std::string text =
      absl::StrFormat("Memory\n  weights           %s\n", Bytes(memory["weight_bytes"]));
  if (memory["expert_bytes"].get<int64_t>() > 0) {
    absl::StrAppendFormat(&text, "    of them experts %s, %s each\n", Bytes(memory["expert_bytes"]),
                          Bytes(memory["bytes_per_expert"]));
  }
  std::vector<std::string> kinds;
  for (const auto& [type, bytes] : memory["kv_bytes_per_token"].items()) {
    kinds.push_back(absl::StrCat(Bytes(bytes), " in ", type));
  }
  absl::StrAppendFormat(&text, "  KV of one token   %s\n", absl::StrJoin(kinds, ", "));
  if (memory["kv_window_bytes"].contains("f16") && memory["kv_window_bytes"]["f16"] > 0) {
    absl::StrAppendFormat(&text, "  KV of all windows in f16: %s\n",
                          Bytes(memory["kv_window_bytes"]["f16"]));
  }
  if (memory["state_bytes"] > 0) {
    absl::StrAppendFormat(&text, "  recurrent state   %s, %s for each running sequence\n",
                          Bytes(memory["state_bytes"]), Bytes(memory["state_bytes_per_sequence"]));
  }
  absl::StrAppendFormat(&text, "  1 GiB of f16 KV   %d tokens\n",
                        memory["kv_tokens_per_gib_f16"].get<int64_t>());
  absl::StrAppendFormat(&text, "  KV of the whole context in f16: %s\n",
                        Bytes(memory["full_context_kv_bytes_f16"]));
  const Json& placement = memory["placement"];
  if (placement.contains("error")) {
    return absl::StrCat(text, "  does not fit here: ", Shown(placement["error"]), "\n");
  }
  if (memory["fits"].is_null()) return text + "  available here    unknown\n";
  absl::StrAppendFormat(&text, "  available here    %s: %s\n", Bytes(memory["available_bytes"]),
                        Verdict(memory));
  return text;
}

std::string ModelText(const Json& json) {
  if (!json["supported"].get<bool>()) {
    return absl::StrCat("Model\n  not served: ", Shown(json["reason"]), "\n");
  }
  std::string text = "Model\n";
  for (absl::string_view key :
       {"architecture", "name", "layers", "recurrent_layers", "unused_draft_layers", "hidden_size",
        "heads", "kv_heads", "head_dim", "ffn_width", "vocab_size", "context_length", "experts",
        "experts_used", "expert_width", "shared_expert_width"}) {
    const Json& value = json[std::string(key)];
    if (value.is_number() && value.get<int64_t>() == 0) continue;
    std::string label(key);
    std::replace(label.begin(), label.end(), '_', ' ');
    absl::StrAppendFormat(&text, "  %-20s%s\n", label, Shown(value));
  }
  return text;
}

std::string TokenizerText(const Json& json) {
  const Json& tokenizer = json["tokenizer"];
  std::string text = "Tokenizer\n";
  for (const auto& [key, value] : tokenizer.items()) {
    std::string label = key;
    std::replace(label.begin(), label.end(), '_', ' ');
    absl::StrAppendFormat(&text, "  %-20s%s\n", label, Shown(value));
  }
  return text;
}

std::string TensorsText(const Json& json) {
  std::string text = "\nTensors\n";
  for (const Json& tensor : json["tensors"]) {
    absl::StrAppendFormat(&text, "  %-40s %-8s %-22s %12s\n", Shown(tensor["name"]),
                          tensor["type"].get<std::string>(), ToLine(tensor["shape"]),
                          Bytes(tensor["bytes"]));
  }
  return text;
}

// `placement` has a line for each kind of memory.
std::string Summary(const Json& json, const std::vector<std::string>& placement) {
  std::string text = absl::StrFormat("%s: %s, %s, %.1f million parameters\n\n", Shown(json["file"]),
                                     json["format"].get<std::string>(), Bytes(json["file_bytes"]),
                                     json["parameters"].get<double>() / 1e6);
  absl::StrAppend(&text, ModelText(json), "\nTypes\n");
  for (const auto& [name, type] : json["types"].items()) {
    absl::StrAppendFormat(&text, "  %-8s%6d tensors  %12s\n", name, type["tensors"].get<int64_t>(),
                          Bytes(type["bytes"]));
  }
  absl::StrAppend(&text, "\n", TokenizerText(json));
  if (json.contains("memory")) absl::StrAppend(&text, "\n", MemoryText(json));
  if (!placement.empty()) absl::StrAppend(&text, "\nPlacement\n");
  for (const std::string& line : placement) absl::StrAppend(&text, "  ", line, "\n");
  return text;
}

// If this version does not support the model, inspect still describes the file. If the file
// contradicts itself, inspect fails.
bool IsUnserved(const absl::Status& status) { return absl::IsUnimplemented(status); }

Json Unserved(const absl::Status& status) {
  return {{"supported", false}, {"reason", std::string(status.message())}};
}

}  // namespace

absl::Status RunInspect(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(Checkpoint file, engine::OpenCheckpoint(config.model.path));
  const Totals totals = Add(file);
  Json json = DescribeFile(file, totals);
  const absl::StatusOr<engine::ModelConfig> model = engine::ModelConfig::Parse(file);
  const absl::StatusOr<std::unique_ptr<engine::Tokenizer>> tokenizer = engine::LoadTokenizer(file);
  if (!model.ok() && !IsUnserved(model.status())) return model.status();
  // Another architecture may use a tokenizer that we do not support.
  if (model.ok() && !tokenizer.ok() && !IsUnserved(tokenizer.status())) return tokenizer.status();
  Json tensors = DescribeTensors(file);
  std::vector<std::string> placement;
  if (model.ok()) {
    RETURN_IF_ERROR(CheckTensors(*model, &file));
    json["supported"] = true;
    DescribeModel(*model, &json);
    json["memory"] = DescribeMemory(*model, totals);
    const absl::StatusOr<engine::MemoryPlan> plan =
        engine::PlanModel(config.model.path, LoadOptionsOf(config));
    if (!plan.ok() && !absl::IsResourceExhausted(plan.status())) return plan.status();
    DescribePlan(plan, totals, &json["memory"]);
    if (plan.ok()) placement = PlacementLines(*plan);
  } else {
    json.update(Unserved(model.status()));
  }
  json["tokenizer"] =
      tokenizer.ok() ? DescribeTokenizer(**tokenizer) : Unserved(tokenizer.status());
  json["tensors"] = std::move(tensors);
  return console->PrintResult(config.output.format, json, [&](const Json& all) {
    return Summary(all, placement) + (config.output.tensors ? TensorsText(all) : "");
  });
}

}  // namespace tidepool::service

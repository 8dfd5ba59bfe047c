// The part of ReadConfig that reads which layers have no attention, and the sizes of their mixers.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/hf/config_parts.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr absl::string_view kFullAttention = "full_attention";
constexpr absl::string_view kInterval = "full_attention_interval";
// LFM2's list of the layers with attention, in old files.
constexpr absl::string_view kAttentionLayers = "full_attn_idxs";
constexpr int64_t kMaxConvWidth = 8;

bool Is(const Json& type, absl::string_view name) {
  return type.is_string() && type.get_ref<const std::string&>() == name;
}

class MixerReader {
 public:
  MixerReader(const JsonMembers& config, HfModel* model, GgufMetadata* metadata)
      : config_(config), model_(*model), metadata_(*metadata) {}

  absl::Status Read() {
    RETURN_IF_ERROR(ReadLayers());
    if (model_.parts.Has(Part::kShortConv)) {
      RETURN_IF_ERROR(ReadWidth("conv_L_cache", "shortconv.l_cache"));
      WriteKvHeads();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(ReadWidth("linear_conv_kernel_dim", "ssm.conv_kernel"));
    RETURN_IF_ERROR(ReadDelta());
    WriteRecurrentLayers(model_, 0, &metadata_);
    return absl::OkStatus();
  }

 private:
  std::string Name(absl::string_view suffix) const {
    return absl::StrCat(model_.family->architecture, ".", suffix);
  }
  void SetU32(absl::string_view suffix, int64_t value) {
    metadata_.SetU32(Name(suffix), static_cast<uint32_t>(value));
  }

  // layer_types has precedence over the older keys.
  absl::Status ReadLayers() {
    const int64_t layers = model_.layers();
    ASSIGN_OR_RETURN(const int64_t interval, config_.IntOr(kInterval, 4, 1, kMaxLayers));
    ASSIGN_OR_RETURN(const std::vector<int64_t> listed, config_.IntsOr(kAttentionLayers));
    const Json* types = config_.Find("layer_types");
    if (types != nullptr) return ReadTypes(*types);
    for (int64_t i = 0; i < layers; ++i) {
      const bool is_listed = std::find(listed.begin(), listed.end(), i) != listed.end();
      model_.recurrent[i] =
          model_.parts.Has(Part::kShortConv)
              ? config_.Has(kAttentionLayers) && !is_listed  // without the list: all layers
              : (i + 1) % interval != 0;
    }
    return absl::OkStatus();
  }

  absl::Status ReadTypes(const Json& types) {
    const absl::string_view recurrent = model_.family->recurrent;
    const auto is_type = [&](const Json& type) {
      return Is(type, kFullAttention) || Is(type, recurrent);
    };
    if (!types.is_array() || static_cast<int64_t>(types.size()) != model_.layers() ||
        !std::all_of(types.begin(), types.end(), is_type)) {
      return config_.Unsupported(
          "layer_types", absl::StrCat(Shown(types), " is not supported, expected ", model_.layers(),
                                      " times ", kFullAttention, " or ", recurrent));
    }
    for (int64_t i = 0; i < model_.layers(); ++i) model_.recurrent[i] = Is(types[i], recurrent);
    return absl::OkStatus();
  }

  absl::Status ReadWidth(absl::string_view key, absl::string_view suffix) {
    ASSIGN_OR_RETURN(model_.conv_width, config_.Int(key, 2, kMaxConvWidth));
    SetU32(suffix, model_.conv_width);
    return absl::OkStatus();
  }

  absl::Status ReadDelta() {
    DeltaSizes& delta = model_.delta;
    constexpr absl::string_view kKeyHeads = "linear_num_key_heads";
    ASSIGN_OR_RETURN(delta.k_dim, config_.Int("linear_key_head_dim", 1, kMaxHeadDim));
    ASSIGN_OR_RETURN(delta.v_dim, config_.Int("linear_value_head_dim", 1, kMaxHeadDim));
    ASSIGN_OR_RETURN(delta.k_heads, config_.Int(kKeyHeads, 1, kMaxHeads));
    ASSIGN_OR_RETURN(delta.v_heads, config_.Int("linear_num_value_heads", 1, kMaxHeads));
    if (delta.v_heads % delta.k_heads != 0) {
      return config_.Error(kKeyHeads, absl::StrCat(delta.k_heads, ", expected a divisor of ",
                                                   delta.v_heads, ", linear_num_value_heads"));
    }
    SetU32("ssm.state_size", delta.k_dim);
    SetU32("ssm.group_count", delta.k_heads);
    SetU32("ssm.time_step_rank", delta.v_heads);
    SetU32("ssm.inner_size", delta.v_size());
    return absl::OkStatus();
  }

  // In GGUF, layers without attention have 0 KV heads.
  void WriteKvHeads() {
    std::vector<int32_t> heads;
    for (const bool recurrent : model_.recurrent) {
      heads.push_back(recurrent ? 0 : static_cast<int32_t>(model_.kv_heads));
    }
    metadata_.SetI32s(Name("attention.head_count_kv"), heads);
  }

  const JsonMembers& config_;
  HfModel& model_;
  GgufMetadata& metadata_;
};

}  // namespace

absl::Status ReadMixers(const JsonMembers& config, HfModel* model, GgufMetadata* metadata) {
  if (model->family->recurrent.empty()) return absl::OkStatus();
  return MixerReader(config, model, metadata).Read();
}

void WriteRecurrentLayers(const HfModel& model, int64_t draft_layers, GgufMetadata* metadata) {
  std::vector<bool> recurrent = model.recurrent;
  recurrent.resize(model.layers() + draft_layers, false);
  metadata->SetBools(absl::StrCat(model.family->architecture, ".attention.recurrent_layers"),
                     recurrent);
}

}  // namespace tidepool::engine::hf

// The part of ModelConfig::Parse that reads which layers have attention, and the sizes of the
// mixers of the other layers.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/model/config_keys.h"

namespace tidepool::engine {
namespace {

constexpr absl::string_view kKvHeads = "attention.head_count_kv";
constexpr absl::string_view kRecurrentLayers = "attention.recurrent_layers";
constexpr absl::string_view kInterval = "full_attention_interval";

// Returns for each layer whether it has no attention. LFM2 says this by 0 KV heads. Qwen3-Next and
// later models have one bool for each layer, or say that every n-th layer has attention.
absl::StatusOr<std::vector<bool>> ReadRecurrent(const ConfigSource& source, int64_t count) {
  const auto [file, keys, family] = source;
  std::vector<bool> recurrent(count);
  if (family.recurrent == Mixer::kShortConv) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> kv_heads,
                     keys.PerLayer(kKvHeads, count, 0, kMaxHeads));
    std::transform(kv_heads.begin(), kv_heads.end(), recurrent.begin(),
                   [](int64_t heads) { return heads == 0; });
    return recurrent;
  }
  ASSIGN_OR_RETURN(const int64_t interval, keys.IntOr(kInterval, 4, 1, kMaxLayers));
  if (keys.Has(kRecurrentLayers)) return keys.BoolPerLayer(kRecurrentLayers, count);
  for (int64_t i = 0; i < count; ++i) recurrent[i] = (i + 1) % interval != 0;
  return recurrent;
}

absl::StatusOr<DeltaNetConfig> ReadDeltaNet(const ConfigSource& source) {
  constexpr absl::string_view kGroups = "ssm.group_count";
  constexpr absl::string_view kInnerSize = "ssm.inner_size";
  const auto [file, keys, family] = source;
  DeltaNetConfig delta = {.order = family.delta_order};
  ASSIGN_OR_RETURN(delta.k_dim, keys.Int("ssm.state_size", 1, kernels::kMaxDeltaKeyDim));
  ASSIGN_OR_RETURN(delta.k_heads, keys.Int(kGroups, 1, kMaxHeads));
  ASSIGN_OR_RETURN(delta.v_heads, keys.Int("ssm.time_step_rank", 1, kMaxHeads));
  if (delta.v_heads % delta.k_heads != 0) {
    return keys.Invalid(kGroups, absl::StrCat(delta.k_heads, ", expected a divisor of ",
                                              delta.v_heads, ", ssm.time_step_rank"));
  }
  ASSIGN_OR_RETURN(const int64_t inner, keys.Int(kInnerSize, 1, kMaxWidth));
  if (inner % delta.v_heads != 0) {
    return keys.Invalid(kInnerSize, absl::StrCat(inner, ", expected a multiple of ", delta.v_heads,
                                                 ", ssm.time_step_rank"));
  }
  delta.v_dim = static_cast<int>(inner / delta.v_heads);
  return delta;
}

}  // namespace

absl::Status ReadMixers(const ConfigSource& source, ModelConfig* config) {
  const auto [file, keys, family] = source;
  if (family.recurrent == Mixer::kAttention) return absl::OkStatus();
  const auto layers = static_cast<int64_t>(config->layers.size());
  ASSIGN_OR_RETURN(const std::vector<bool> recurrent,
                   ReadRecurrent(source, layers + config->draft_layers));
  if (std::find(recurrent.begin(), recurrent.begin() + layers, false) ==
      recurrent.begin() + layers) {
    const absl::string_view key = family.recurrent == Mixer::kShortConv ? kKvHeads
                                  : keys.Has(kRecurrentLayers)          ? kRecurrentLayers
                                                                        : kInterval;
    return keys.Unsupported(key, "no layer has attention, expected at least one that has");
  }
  const bool is_delta = family.recurrent == Mixer::kDeltaNet;
  DeltaNetConfig delta;
  if (is_delta) {
    ASSIGN_OR_RETURN(delta, ReadDeltaNet(source));
  }
  ASSIGN_OR_RETURN(const int64_t width, keys.Int(is_delta ? "ssm.conv_kernel" : "shortconv.l_cache",
                                                 2, kernels::kMaxConvKernel));
  for (int64_t i = 0; i < layers; ++i) {
    if (!recurrent[i]) continue;
    LayerConfig& layer = config->layers[i];
    layer.mixer = family.recurrent;
    layer.conv_width = static_cast<int>(width);
    layer.delta = delta;
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine

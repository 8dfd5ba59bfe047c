// The part of ModelConfig::Parse that reads the settings of attention.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/model/config_keys.h"

namespace tidepool::engine {
namespace {

absl::Status ReadHeads(const Keys& keys, int64_t count, ModelConfig* config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> heads,
                   keys.PerLayer("attention.head_count", count, 0, kMaxHeads));
  std::vector<int64_t> kv_heads = heads;
  if (keys.Has("attention.head_count_kv")) {
    ASSIGN_OR_RETURN(kv_heads, keys.PerLayer("attention.head_count_kv", count, 0, kMaxHeads));
  }
  for (size_t i = 0; i < config->layers.size(); ++i) {
    if (!config->layers[i].has_attention()) continue;
    if (heads[i] == 0 || kv_heads[i] == 0) {
      return keys.Unsupported(
          heads[i] == 0 ? "attention.head_count" : "attention.head_count_kv",
          absl::StrCat("0 in layer ", i, ": layers without attention are not supported"));
    }
    if (heads[i] % kv_heads[i] != 0) {
      return keys.Invalid("attention.head_count_kv",
                          absl::StrCat(kv_heads[i], " in layer ", i, ", expected a divisor of the ",
                                       heads[i], " heads"));
    }
    config->layers[i].heads = static_cast<int>(heads[i]);
    config->layers[i].kv_heads = static_cast<int>(kv_heads[i]);
  }
  return absl::OkStatus();
}

absl::Status ReadHeadDim(const Keys& keys, ModelConfig* config) {
  const int heads = config->attention_layer().heads;
  if (!keys.Has("attention.key_length")) {
    const bool uniform = std::all_of(config->layers.begin(), config->layers.end(),
                                     [heads](const LayerConfig& layer) {
                                       return !layer.has_attention() || layer.heads == heads;
                                     });
    if (!uniform || config->hidden_size % heads != 0) {
      return keys.Invalid(
          "attention.key_length",
          absl::StrCat("missing, expected this key: embedding_length ", config->hidden_size,
                       " cannot be divided among ",
                       uniform ? absl::StrCat(heads) : "a varying number of", " heads"));
    }
  }
  ASSIGN_OR_RETURN(const int64_t dim,
                   keys.IntOr("attention.key_length", config->hidden_size / heads, 1, kMaxHeadDim));
  ASSIGN_OR_RETURN(const int64_t value_dim,
                   keys.IntOr("attention.value_length", dim, 1, kMaxHeadDim));
  RETURN_IF_ERROR(keys.CheckRange("attention.key_length", dim, 1, kMaxHeadDim));
  if (value_dim != dim) {
    return keys.Unsupported(
        "attention.value_length",
        absl::StrCat(value_dim, " is not supported, expected ", dim, ", as attention.key_length"));
  }
  ASSIGN_OR_RETURN(
      const double scale,
      keys.FloatOr("attention.scale", 1 / std::sqrt(static_cast<double>(dim)), 0, kMaxScale));
  for (LayerConfig& layer : config->layers) {
    if (!layer.has_attention()) continue;
    layer.head_dim = static_cast<int>(dim);
    layer.attention_scale = static_cast<float>(scale);
  }
  return absl::OkStatus();
}

// Reads the sizes of multi-head latent attention. attention.key_length and value_length are the
// sizes of the stored keys and values. The keys with the suffix _mla have the sizes of the heads.
absl::Status ReadMla(const Keys& keys, ModelConfig* config) {
  MlaConfig mla;
  ASSIGN_OR_RETURN(mla.kv_rank, keys.Int("attention.kv_lora_rank", 1, kMaxWidth));
  ASSIGN_OR_RETURN(mla.q_rank, keys.IntOr("attention.q_lora_rank", 0, 0, kMaxWidth));
  ASSIGN_OR_RETURN(mla.rope_dim, keys.Int("rope.dimension_count", 1, kMaxHeadDim));
  ASSIGN_OR_RETURN(const int64_t dim,
                   keys.Int("attention.key_length_mla", mla.rope_dim + 1, kMaxHeadDim));
  ASSIGN_OR_RETURN(mla.value_dim, keys.Int("attention.value_length_mla", 1, kMaxHeadDim));
  const int64_t stored = mla.kv_rank + mla.rope_dim;
  ASSIGN_OR_RETURN(const int64_t key_length,
                   keys.IntOr("attention.key_length", stored, stored, stored));
  ASSIGN_OR_RETURN(const int64_t value_length,
                   keys.IntOr("attention.value_length", mla.kv_rank, mla.kv_rank, mla.kv_rank));
  RETURN_IF_ERROR(keys.CheckRange("attention.kv_lora_rank", value_length, 1, kMaxHeadDim));
  // In llama.cpp's files, all norms have one epsilon. mla_norm_rms_epsilon is our own key, which
  // HfDirectory sets.
  ASSIGN_OR_RETURN(const double norm_eps,
                   keys.FloatOr("attention.mla_norm_rms_epsilon", config->norm_eps, 0, 1));
  mla.norm_eps = static_cast<float>(norm_eps);
  mla.nope_dim = static_cast<int>(dim - mla.rope_dim);
  ASSIGN_OR_RETURN(
      const double scale,
      keys.FloatOr("attention.scale", 1 / std::sqrt(static_cast<double>(dim)), 0, kMaxScale));
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    if (layer.kv_heads != 1) {
      return keys.Unsupported("attention.head_count_kv",
                              absl::StrCat(layer.kv_heads, " in layer ", i,
                                           " is not supported, expected 1: convert the model with "
                                           "a newer version of llama.cpp"));
    }
    layer.head_dim = static_cast<int>(key_length);
    layer.mla = mla;
    layer.attention_scale = static_cast<float>(scale);
  }
  return absl::OkStatus();
}

// Reads which layers have a window. The key has one bool for each layer, or a period: every
// period-th layer has no window.
absl::StatusOr<std::vector<bool>> ReadWindowPattern(const ConfigSource& source, int64_t count) {
  constexpr absl::string_view kPattern = "attention.sliding_window_pattern";
  const auto [file, keys, family] = source;
  const GgufEntry* entry = file.Find(keys.Name(kPattern));
  if (entry != nullptr && entry->is_array) return keys.BoolPerLayer(kPattern, count);
  ASSIGN_OR_RETURN(const int64_t period, keys.IntOr(kPattern, family.full_period, 0, kMaxLayers));
  std::vector<bool> windows(count, family.window || entry != nullptr);
  for (int64_t i = 0; period > 0 && i < count; ++i) {
    if ((i + 1) % period == 0) windows[i] = false;
  }
  return windows;
}

absl::Status ReadWindows(const ConfigSource& source, int64_t count, ModelConfig* config) {
  const auto [file, keys, family] = source;
  ASSIGN_OR_RETURN(const int64_t window,
                   keys.IntOr("attention.sliding_window", family.default_window, 0, kMaxContext));
  ASSIGN_OR_RETURN(const std::vector<bool> windows, ReadWindowPattern(source, count));
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    if (windows[i] && layer.has_attention()) layer.sliding_window = window;
  }
  return absl::OkStatus();
}

bool HasQkNorm(const ConfigSource& source) {
  return !source.family.qk_norm_by_tensor ||
         source.file.FindTensor("blk.0.attn_q_norm.weight") != nullptr;
}

}  // namespace

absl::Status ReadLayers(const ConfigSource& source, ModelConfig* config) {
  const auto [file, keys, family] = source;
  ASSIGN_OR_RETURN(const int64_t count, keys.Int("block_count", 1, kMaxLayers));
  if (family.draft_layers) {
    ASSIGN_OR_RETURN(config->draft_layers, keys.IntOr("nextn_predict_layers", 0, 0, count - 1));
  }
  config->layers.resize(count - config->draft_layers);
  RETURN_IF_ERROR(ReadMixers(source, config));
  RETURN_IF_ERROR(ReadHeads(keys, count, config));
  RETURN_IF_ERROR(family.mla ? ReadMla(keys, config) : ReadHeadDim(keys, config));
  RETURN_IF_ERROR(ReadWindows(source, count, config));
  float softcap = 0;
  if (family.softcaps) {
    ASSIGN_OR_RETURN(softcap, keys.ScaleOr("attn_logit_softcapping", 0));
  }
  const bool qk_norm = HasQkNorm(source);
  for (LayerConfig& layer : config->layers) {
    if (layer.has_attention()) {
      layer.gated = family.gated_attention;
      layer.attention_softcap = softcap;
      layer.qk_norm = qk_norm ? family.qk_norm : QkNorm::kNone;
    }
    layer.norms = family.norms;
    layer.glu = family.glu;
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine

#include "engine/model/model_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/model/config_keys.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

using kernels::RopeStyle;

// Properties that follow from general.architecture and have no key.
struct Family {
  absl::string_view name;
  RopeStyle style;
  bool qk_norm;
  enum class Experts : uint8_t { kNever, kMaybe, kAlways } experts;
  bool shared_expert;
  bool normalize_weights;
  // Whether attention.sliding_window applies. In Qwen's configurations, a separate switch without a
  // key disables it.
  bool window;
};

constexpr Family kFamilies[] = {
    {"llama", RopeStyle::kInterleaved, false, Family::Experts::kMaybe, false, true, true},
    {"qwen2", RopeStyle::kHalves, false, Family::Experts::kNever, false, false, false},
    {"qwen2moe", RopeStyle::kHalves, false, Family::Experts::kAlways, true, false, false},
    {"qwen3", RopeStyle::kHalves, true, Family::Experts::kNever, false, false, false},
    {"qwen3moe", RopeStyle::kHalves, true, Family::Experts::kAlways, false, true, false},
};

// Keys of other architectures, and the values with which they have no effect. (Zero always means
// off.)
struct ForeignKey {
  absl::string_view suffix;
  double neutral = 0;
};

constexpr ForeignKey kForeignKeys[] = {
    {"attn_logit_softcapping"},
    {"final_logit_softcapping"},
    {"router_logit_softcapping"},
    {"logit_scale", 1},
    {"residual_scale", 1},
    {"embedding_scale", 1},
    {"attention.scale"},
    {"attention.output_scale", 1},
    {"attention.temperature_scale"},
    {"attention.clamp_kqv"},
    {"attention.max_alibi_bias"},
    {"attention.key_length_mla"},
    {"attention.value_length_mla"},
    {"attention.kv_lora_rank"},
    {"attention.q_lora_rank"},
    {"attention.shared_kv_layers"},
    {"attention.sliding_window_pattern"},
    {"attention.recurrent_layers"},
    {"attention.indexer.head_count"},
    {"embedding_length_per_layer_input"},
    {"expert_gating_func", 1},
    {"expert_weights_scale", 1},
    {"expert_group_count", 1},
    {"expert_group_used_count", 1},
    {"experts_per_group"},
    {"full_attention_interval", 1},
    {"interleave_moe_layer_step", 1},
    {"moe_every_n_layers", 1},
    {"moe_latent_size"},
    {"n_deepstack_layers"},
    {"nextn_predict_layers"},
    {"rope.dimension_sections"},
    {"rope.scaling.alpha"},
    {"rope.scaling.yarn_log_multiplier"},
    {"ssm.state_size"},
    {"swin_norm"},
    {"use_parallel_residual"},
};

absl::StatusOr<const Family*> FindFamily(const Checkpoint& file) {
  ASSIGN_OR_RETURN(const absl::string_view kind, file.StringOr("general.type", "model"));
  if (kind != "model") {
    return absl::UnimplementedError(
        file.Error("general.type", absl::StrCat(Checkpoint::FormatValue(*file.Find("general.type")),
                                                " is not supported, expected \"model\""))
            .message());
  }
  ASSIGN_OR_RETURN(const absl::string_view name, file.String("general.architecture"));
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
    absl::StrAppend(&known, known.empty() ? "" : ", ", family.name);
  }
  return absl::UnimplementedError(
      file.Error("general.architecture",
                 absl::StrCat(Checkpoint::FormatValue(*file.Find("general.architecture")),
                              " is not supported, expected one of ", known))
          .message());
}

// True if the entry's value has no effect.
absl::StatusOr<bool> IsNeutral(const Checkpoint& file, const GgufEntry& entry, double neutral) {
  if (entry.is_array) return false;
  switch (entry.type) {
    case GgufValueType::kString:
      return false;
    case GgufValueType::kBool: {
      ASSIGN_OR_RETURN(const bool value, file.Bool(entry.key));
      return !value;
    }
    case GgufValueType::kFloat32:
    case GgufValueType::kFloat64: {
      ASSIGN_OR_RETURN(const double value, file.Float(entry.key));
      return value == 0 || value == neutral;
    }
    default: {
      ASSIGN_OR_RETURN(const int64_t value, file.Int(entry.key));
      return value == 0 || static_cast<double>(value) == neutral;
    }
  }
}

absl::Status RejectForeignKeys(const Checkpoint& file, const Keys& keys) {
  for (const ForeignKey& foreign : kForeignKeys) {
    const GgufEntry* entry = file.Find(keys.Name(foreign.suffix));
    if (entry == nullptr) continue;
    ASSIGN_OR_RETURN(const bool neutral, IsNeutral(file, *entry, foreign.neutral));
    if (!neutral) {
      return keys.Unsupported(foreign.suffix, absl::StrCat(Checkpoint::FormatValue(*entry),
                                                           " is not supported, expected ",
                                                           foreign.neutral, " or no such key"));
    }
  }
  ASSIGN_OR_RETURN(const bool causal, file.BoolOr(keys.Name("attention.causal"), true));
  if (!causal) {
    return keys.Unsupported("attention.causal", "false is not supported, expected true");
  }
  return absl::OkStatus();
}

absl::string_view NameFromPath(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  return absl::StripSuffix(path, ".gguf");
}

// The name on one line of valid UTF-8.
std::string DisplayName(absl::string_view raw) {
  constexpr size_t kMaxBytes = 200;
  std::string name;
  base::AppendUtf8Lossy(raw.substr(0, kMaxBytes), &name);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  return name;
}

// Rows of the embedding, which is the size of the logits. The tokenizer may have fewer tokens,
// because files are padded.
absl::Status ReadVocabulary(const Checkpoint& file, const Keys& keys, ModelConfig* config) {
  constexpr absl::string_view kTokens = "tokenizer.ggml.tokens";
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  const GgufEntry* tokens = file.Find(kTokens);
  const int64_t named =
      tokens != nullptr && tokens->is_array ? static_cast<int64_t>(tokens->count) : 0;
  int64_t size = named;
  if (embedding != nullptr) {
    size = embedding->dims[1];
  } else if (named == 0) {
    ASSIGN_OR_RETURN(size, keys.Int("vocab_size", 1, kMaxVocabulary));
  }
  if (size > kMaxVocabulary) {
    return file.Error(kTokens, absl::StrCat(size, " tokens, expected at most ", kMaxVocabulary));
  }
  if (named > size) {
    return file.Error("token_embd.weight",
                      absl::StrCat("shape ", embedding->ShapeString(), ", expected ", named,
                                   " rows, one for each of the tokenizer's tokens"));
  }
  config->vocab_size = static_cast<int>(size);
  return absl::OkStatus();
}

absl::Status ReadLayers(const Family& family, const Keys& keys, ModelConfig* config) {
  ASSIGN_OR_RETURN(const int64_t count, keys.Int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(const std::vector<int64_t> heads,
                   keys.PerLayer("attention.head_count", count, 0, kMaxHeads));
  std::vector<int64_t> kv_heads = heads;
  if (keys.Has("attention.head_count_kv")) {
    ASSIGN_OR_RETURN(kv_heads, keys.PerLayer("attention.head_count_kv", count, 0, kMaxHeads));
  }
  int64_t window = 0;
  if (family.window) {
    ASSIGN_OR_RETURN(window, keys.IntOr("attention.sliding_window", 0, 0, kMaxContext));
  }
  config->layers.resize(count);
  for (int64_t i = 0; i < count; ++i) {
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
    config->layers[i].sliding_window = window;
  }
  return absl::OkStatus();
}

absl::Status ReadHeadDim(const Keys& keys, ModelConfig* config) {
  const int heads = config->layers[0].heads;
  if (!keys.Has("attention.key_length")) {
    const bool uniform =
        std::all_of(config->layers.begin(), config->layers.end(),
                    [heads](const LayerConfig& layer) { return layer.heads == heads; });
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
  config->head_dim = static_cast<int>(dim);
  return absl::OkStatus();
}

absl::Status ReadDenseFfn(const Keys& keys, ModelConfig* config) {
  const int64_t count = static_cast<int64_t>(config->layers.size());
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                   keys.PerLayer("feed_forward_length", count, 0, kMaxWidth));
  for (int64_t i = 0; i < count; ++i) {
    LayerConfig& layer = config->layers[i];
    if (layer.ffn == FfnKind::kMoe) continue;
    if (widths[i] == 0) {
      return keys.Unsupported(
          "feed_forward_length",
          absl::StrCat("0 in layer ", i, ": layers without an FFN are not supported"));
    }
    layer.ffn_width = static_cast<int>(widths[i]);
  }
  return absl::OkStatus();
}

// Reads the widths of experts. The first conversions of Mixtral and Qwen1.5-MoE only have
// feed_forward_length. In Mixtral, it is the width of one expert. In Qwen, it is the width of the
// shared expert, which equals the chosen experts' widths together.
absl::Status ReadExpertWidths(const Family& family, const Keys& keys, MoeConfig* moe) {
  int64_t expert_width = 0;
  int64_t shared_width = 0;
  ASSIGN_OR_RETURN(expert_width, keys.IntOr("expert_feed_forward_length", 0, 0, kMaxWidth));
  ASSIGN_OR_RETURN(shared_width, keys.IntOr("expert_shared_feed_forward_length", 0, 0, kMaxWidth));
  if (!family.shared_expert && shared_width > 0) {
    return keys.Unsupported("expert_shared_feed_forward_length",
                            absl::StrCat(shared_width,
                                         " is not supported, expected no shared "
                                         "expert in architecture ",
                                         family.name));
  }
  if (expert_width == 0 || (family.shared_expert && shared_width == 0)) {
    ASSIGN_OR_RETURN(const int64_t width, keys.Int("feed_forward_length", 1, kMaxWidth));
    const bool is_qwen = family.experts == Family::Experts::kAlways;
    if (expert_width == 0) expert_width = is_qwen ? width / moe->experts_used : width;
    if (family.shared_expert && shared_width == 0) shared_width = width;
  }
  RETURN_IF_ERROR(keys.CheckRange("expert_feed_forward_length", expert_width, 1, kMaxWidth));
  moe->expert_width = static_cast<int>(expert_width);
  moe->shared_width = static_cast<int>(shared_width);
  return absl::OkStatus();
}

absl::Status ReadExperts(const Checkpoint& file, const Family& family, const Keys& keys,
                         ModelConfig* config) {
  ASSIGN_OR_RETURN(const int64_t experts, keys.IntOr("expert_count", 0, 0, kMaxExperts));
  if (experts == 0) {
    if (family.experts != Family::Experts::kAlways) return absl::OkStatus();
    return keys.Invalid("expert_count", absl::StrCat("none, expected 1 to ", kMaxExperts,
                                                     " in architecture ", family.name));
  }
  if (family.experts == Family::Experts::kNever) {
    return keys.Unsupported("expert_count", absl::StrCat(experts,
                                                         ", expected no experts in "
                                                         "architecture ",
                                                         family.name));
  }
  MoeConfig& moe = config->moe;
  ASSIGN_OR_RETURN(const int64_t used, keys.Int("expert_used_count", 1, experts));
  moe.experts = static_cast<int>(experts);
  moe.experts_used = static_cast<int>(used);
  ASSIGN_OR_RETURN(moe.normalize_weights,
                   file.BoolOr(keys.Name("expert_weights_norm"), family.normalize_weights));
  RETURN_IF_ERROR(ReadExpertWidths(family, keys, &moe));
  const int64_t count = static_cast<int64_t>(config->layers.size());
  ASSIGN_OR_RETURN(const int64_t dense, keys.IntOr("leading_dense_block_count", 0, 0, count));
  for (int64_t i = dense; i < count; ++i) config->layers[i].ffn = FfnKind::kMoe;
  return absl::OkStatus();
}

bool HasDenseLayer(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerConfig& layer) { return layer.ffn == FfnKind::kDense; });
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::Parse(const Checkpoint& file) {
  ASSIGN_OR_RETURN(const Family* family, FindFamily(file));
  const Keys keys(file, family->name);
  RETURN_IF_ERROR(RejectForeignKeys(file, keys));

  ModelConfig config;
  config.architecture = std::string(family->name);
  ASSIGN_OR_RETURN(const absl::string_view name, file.StringOr("general.name", ""));
  config.name = DisplayName(name.empty() ? NameFromPath(file.path()) : name);
  ASSIGN_OR_RETURN(config.hidden_size, keys.Int("embedding_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.context_length, keys.Int("context_length", 1, kMaxContext));
  // Epsilon has no default: it is an error if it is missing.
  ASSIGN_OR_RETURN(const double eps, file.Float(keys.Name("attention.layer_norm_rms_epsilon")));
  config.norm_eps = static_cast<float>(eps);
  if (!(config.norm_eps > 0 && config.norm_eps < 1)) {
    return keys.Invalid("attention.layer_norm_rms_epsilon",
                        absl::StrCat(eps, ", expected a number above 0 and below 1"));
  }
  config.qk_norm = family->qk_norm;
  RETURN_IF_ERROR(ReadVocabulary(file, keys, &config));
  RETURN_IF_ERROR(ReadLayers(*family, keys, &config));
  RETURN_IF_ERROR(ReadHeadDim(keys, &config));
  RETURN_IF_ERROR(ReadExperts(file, *family, keys, &config));
  if (HasDenseLayer(config)) RETURN_IF_ERROR(ReadDenseFfn(keys, &config));
  config.rope.style = family->style;
  RETURN_IF_ERROR(ReadRope(file, keys, &config));
  return config;
}

int ModelConfig::moe_layers() const {
  return static_cast<int>(std::count_if(layers.begin(), layers.end(), [](const LayerConfig& layer) {
    return layer.ffn == FfnKind::kMoe;
  }));
}

int64_t KvBytesPerToken(const ModelConfig& config, kernels::DType dtype) {
  int64_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    bytes += int64_t{2} * layer.kv_heads * kernels::KvHeadBytes(dtype, config.head_dim) /
             kernels::kKvBlockTokens;
  }
  return bytes;
}

int64_t AttentionDepth(const ModelConfig& config) {
  int64_t weights = 0;
  int64_t per_token = 0;
  const int64_t hidden = config.hidden_size;
  for (const LayerConfig& layer : config.layers) {
    const int64_t neurons =
        layer.ffn == FfnKind::kDense
            ? layer.ffn_width
            : config.moe.experts_used * config.moe.expert_width + config.moe.shared_width;
    weights += hidden * (2 * (layer.heads + layer.kv_heads) * config.head_dim + 3 * neurons);
    if (layer.sliding_window == 0) per_token += int64_t{2} * layer.heads * config.head_dim;
  }
  return per_token == 0 ? 0 : weights / per_token;
}

}  // namespace tidepool::engine

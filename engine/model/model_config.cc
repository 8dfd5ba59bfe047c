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

absl::string_view NameFromPath(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  return absl::StripSuffix(path, ".gguf");
}

// Returns the name as one line of valid UTF-8.
std::string DisplayName(absl::string_view raw) {
  constexpr size_t kMaxBytes = 200;
  std::string name;
  base::AppendUtf8Lossy(raw.substr(0, kMaxBytes), &name);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  return name;
}

// Reads the number of rows of the embedding, which is the number of logits. The tokenizer may have
// fewer tokens, because some files pad the embedding.
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
    return file.Error(
        "token_embd.weight",
        absl::StrCat(size, " rows, expected ", named, ", one for each of the tokenizer's tokens"));
  }
  config->vocab_size = static_cast<int>(size);
  return absl::OkStatus();
}

// Reads Granite's factors and the soft-cap of logits.
absl::Status ReadMultipliers(const ConfigSource& source, ModelConfig* config) {
  const auto [file, keys, family] = source;
  if (family.softcaps) {
    ASSIGN_OR_RETURN(config->logit_softcap, keys.ScaleOr("final_logit_softcapping", 0));
  }
  if (family.scaled_embedding) {
    config->embedding_scale =
        static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
  }
  if (!family.multipliers) return absl::OkStatus();
  // Zero means that the file does not have the key.
  ASSIGN_OR_RETURN(const float embedding, keys.ScaleOr("embedding_scale", 0));
  ASSIGN_OR_RETURN(const float residual, keys.ScaleOr("residual_scale", 0));
  ASSIGN_OR_RETURN(const float divisor, keys.ScaleOr("logit_scale", 0));
  if (embedding != 0) config->embedding_scale = embedding;
  if (residual != 0) config->residual_scale = residual;
  if (divisor != 0) config->logit_scale = 1 / divisor;
  return absl::OkStatus();
}

// Returns the number of weights of a layer's mixer, divided by the hidden size.
int64_t MixerWidth(const LayerConfig& layer, int64_t hidden) {
  switch (layer.mixer) {
    case Mixer::kAttention:
      return int64_t{2} * (layer.heads + layer.kv_heads) * layer.head_dim;
    case Mixer::kDeltaNet:
      return layer.delta.channels() + 2 * layer.delta.v_size();
    case Mixer::kShortConv:
      return 4 * hidden;
  }
  return 0;
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::Parse(const Checkpoint& file) {
  ASSIGN_OR_RETURN(const Family* family, FindFamily(file));
  const Keys keys(file, family->architecture);
  const ConfigSource source = {file, keys, *family};

  ModelConfig config;
  config.architecture = std::string(family->architecture);
  ASSIGN_OR_RETURN(const absl::string_view name, file.StringOr("general.name", ""));
  config.name = DisplayName(name.empty() ? NameFromPath(file.path()) : name);
  ASSIGN_OR_RETURN(config.hidden_size, keys.Int("embedding_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.context_length, keys.Int("context_length", 1, kMaxContext));
  // Epsilon has no default. If it is missing, this is an error.
  ASSIGN_OR_RETURN(const double eps, file.Float(keys.Name("attention.layer_norm_rms_epsilon")));
  config.norm_eps = static_cast<float>(eps);
  if (!(config.norm_eps > 0 && config.norm_eps < 1)) {
    return keys.Invalid("attention.layer_norm_rms_epsilon",
                        absl::StrCat(eps, ", expected a number above 0 and below 1"));
  }
  RETURN_IF_ERROR(ReadVocabulary(file, keys, &config));
  RETURN_IF_ERROR(ReadLayers(source, &config));
  RETURN_IF_ERROR(ReadFfns(source, &config));
  RETURN_IF_ERROR(ReadMultipliers(source, &config));
  RETURN_IF_ERROR(ReadRopes(source, &config));
  if (family->adjust != nullptr) RETURN_IF_ERROR(family->adjust(file, keys, &config));
  RETURN_IF_ERROR(RejectUnknownKeys(file, keys));
  return config;
}

int ModelConfig::moe_layers() const {
  return static_cast<int>(std::count_if(layers.begin(), layers.end(), [](const LayerConfig& layer) {
    return layer.ffn == FfnKind::kMoe;
  }));
}

const LayerConfig& ModelConfig::attention_layer() const {
  return *std::find_if(layers.begin(), layers.end(),
                       [](const LayerConfig& layer) { return layer.has_attention(); });
}

bool ModelConfig::CanStoreKv(kernels::DType dtype) const {
  return std::all_of(layers.begin(), layers.end(), [dtype](const LayerConfig& layer) {
    return !layer.has_attention() || (kernels::IsKvType(dtype, layer.head_dim) &&
                                      kernels::IsKvType(dtype, layer.value_dim()));
  });
}

int64_t KvBytesPerToken(const ModelConfig& config, kernels::DType dtype) {
  int64_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    if (!layer.has_attention()) continue;
    const int64_t parts = layer.has_mla() ? 1 : 2;  // keys and values, or only keys with MLA
    bytes += parts * layer.kv_heads * kernels::KvHeadBytes(dtype, layer.head_dim) /
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
    weights += hidden * (MixerWidth(layer, hidden) + 3 * neurons);
    if (layer.has_attention() && layer.sliding_window == 0)
      per_token += int64_t{2} * layer.heads * layer.head_dim;
  }
  return per_token == 0 ? 0 : weights / per_token;
}

}  // namespace tidepool::engine

// The part of ModelConfig::Parse that reads the rotary positions.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "engine/checkpoint/yarn.h"
#include "engine/model/config_keys.h"

namespace tidepool::engine {
namespace {

// What a checkpoint's keys say about scaling.
struct Scaling {
  absl::string_view type;
  double factor = 1;
  int64_t original_context = 0;
  float scale = 1;       // factor on cos and sin
  double attention = 1;  // factor on q k^T
};

// Applies YaRN. Dimensions that rotate slowly are interpolated by the factor, and dimensions that
// rotate fast do not change. Between the two, the effect increases gradually, from the dimension
// with beta_fast rotations in the original context to the one with beta_slow rotations.
absl::Status ApplyYarn(const ConfigSource& source, double base, Scaling* read, RopeConfig* rope) {
  Scaling& scaling = *read;
  const auto [file, keys, family] = source;
  ASSIGN_OR_RETURN(const double fast, keys.FloatOr("rope.scaling.yarn_beta_fast", 32, 0));
  ASSIGN_OR_RETURN(const double slow, keys.FloatOr("rope.scaling.yarn_beta_slow", 1, 0));
  ASSIGN_OR_RETURN(const double extrapolation, keys.FloatOr("rope.scaling.yarn_ext_factor", 1, -2));
  ASSIGN_OR_RETURN(const double attention,
                   keys.FloatOr("rope.scaling.yarn_attn_factor", 1, 0, kMaxRopeScale));
  ASSIGN_OR_RETURN(const bool truncate,
                   file.BoolOr(keys.Name("rope.scaling.yarn_truncate"), family.yarn_truncate));
  // Converters write -1 if the value is the default.
  if (extrapolation != 1 && extrapolation != -1) {
    return keys.Unsupported("rope.scaling.yarn_ext_factor",
                            absl::StrCat(extrapolation, " is not supported, expected 1"));
  }
  const YarnRotation rotation = {.base = base,
                                 .dims = rope->dims,
                                 .original_context = scaling.original_context,
                                 .truncate = truncate};
  const double start = std::max(0.0, rotation.LowerBound(fast));
  const double end = std::min(rope->dims - 1.0, rotation.UpperBound(slow));
  for (size_t i = 0; i < rope->inv_freq.size(); ++i) {
    const double ramp = (static_cast<double>(i) - start) / std::max(0.001, end - start);
    const double share = std::clamp(ramp, 0.0, 1.0);
    rope->inv_freq[i] *= share / scaling.factor + 1 - share;
  }
  const double logarithm = scaling.factor > 1 ? std::log(scaling.factor) : 0;
  if (family.mla) {
    // Only a part of a key rotates. So the scores, and not cos and sin, are multiplied by the
    // square of the magnitude. yarn_rotary_factor is our own key, which HfDirectory sets.
    ASSIGN_OR_RETURN(const double multiplier,
                     keys.FloatOr("rope.scaling.yarn_log_multiplier", 0, -1, kMaxRopeScale));
    ASSIGN_OR_RETURN(const double rotary,
                     keys.FloatOr("rope.scaling.yarn_rotary_factor", 1, 0, kMaxRopeScale));
    rope->scale *= static_cast<float>(rotary);
    scaling.attention = (1 + multiplier * logarithm) * (1 + multiplier * logarithm);
    return absl::OkStatus();
  }
  rope->scale *= static_cast<float>((1 + 0.1 * logarithm) * attention);
  return absl::OkStatus();
}

// Reads the scaling. A factor without a type means linear scaling. Old files call the factor
// rope.scale_linear. A factor of 0 means no scaling.
absl::StatusOr<Scaling> ReadScaling(const ConfigSource& source, const ModelConfig& config) {
  const auto [file, keys, family] = source;
  Scaling scaling;
  ASSIGN_OR_RETURN(scaling.type, file.StringOr(keys.Name("rope.scaling.type"), "linear"));
  const absl::string_view factor_key =
      keys.Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  ASSIGN_OR_RETURN(const double raw_factor, file.FloatOr(keys.Name(factor_key), 1));
  scaling.factor = raw_factor == 0 ? 1 : raw_factor;
  // A factor below 1 increases the frequencies of all pairs, of which the highest is 1. The angles
  // must stay within kMaxRopeAngle.
  const double least = static_cast<double>(config.context_length) / kMaxRopeAngle;
  if (!std::isfinite(scaling.factor) || scaling.factor < least) {
    return keys.Invalid(factor_key,
                        absl::StrCat(raw_factor, ", expected a positive number (at least ", least,
                                     " for ", config.context_length, " positions)"));
  }
  ASSIGN_OR_RETURN(scaling.original_context, keys.IntOr("rope.scaling.original_context_length",
                                                        config.context_length, 1, kMaxContext));
  ASSIGN_OR_RETURN(const double attention,
                   keys.FloatOr("rope.scaling.attn_factor", 1, 0, kMaxRopeScale));
  scaling.scale = static_cast<float>(attention);
  return scaling;
}

absl::Status ApplyScaling(const ConfigSource& source, double base, Scaling* read,
                          RopeConfig* rope) {
  const Scaling& scaling = *read;
  rope->scale = scaling.scale;
  if (scaling.type == "none" || scaling.type == "longrope") return absl::OkStatus();
  if (scaling.type == "linear") {
    for (double& frequency : rope->inv_freq) frequency /= scaling.factor;
    return absl::OkStatus();
  }
  if (scaling.type == "yarn") return ApplyYarn(source, base, read, rope);
  const auto& keys = source.keys;
  return keys.Unsupported(
      "rope.scaling.type",
      absl::StrCat(Checkpoint::FormatValue(*source.file.Find(keys.Name("rope.scaling.type"))),
                   " is not supported, expected none, linear, yarn or "
                   "longrope"));
}

// Sets the names of the tensors with divisors of the frequencies. Models with LongRoPE have two
// such tensors, and Llama 3 has one.
void NameDivisors(const Checkpoint& file, const Scaling& scaling, RopeConfig* rope) {
  constexpr absl::string_view kShort = "rope_factors_short.weight";
  constexpr absl::string_view kLong = "rope_factors_long.weight";
  constexpr absl::string_view kFrequencies = "rope_freqs.weight";
  if (file.FindTensor(kLong) != nullptr) {
    rope->divisors = std::string(kShort);
    rope->long_divisors = std::string(kLong);
    rope->short_slots = scaling.original_context;
  } else if (file.FindTensor(kFrequencies) != nullptr) {
    rope->divisors = std::string(kFrequencies);
  }
}

RopeConfig Unscaled(kernels::RopeStyle style, int64_t dims, double base) {
  RopeConfig rope = {.style = style, .dims = static_cast<int>(dims)};
  rope.inv_freq.resize(dims / 2);
  for (int64_t i = 0; i < dims / 2; ++i) {
    rope.inv_freq[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
  }
  return rope;
}

// Reads the rotation of layers with a window. Returns nullopt if all layers rotate in the same way.
absl::StatusOr<std::optional<RopeConfig>> ReadWindowRope(const ConfigSource& source, int64_t dims,
                                                         double base) {
  const auto [file, keys, family] = source;
  const double fallback = family.window_rope_base > 0 ? family.window_rope_base : base;
  ASSIGN_OR_RETURN(const double own, keys.FloatOr("rope.freq_base_swa", fallback, 1));
  if (family.window_rope == WindowRope::kShared && own == base) return std::nullopt;
  return Unscaled(family.rope, dims, own);
}

// Reads the sections of MRoPE. A fourth section may be missing.
absl::Status ReadSections(const ConfigSource& source, RopeConfig* rope) {
  constexpr absl::string_view kSections = "rope.dimension_sections";
  const auto [file, keys, family] = source;
  if (!family.rope_sections || !keys.Has(kSections)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> sections, file.Ints(keys.Name(kSections)));
  int64_t pairs = 0;
  bool valid = sections.size() == 3 || sections.size() == 4;
  for (size_t i = 0; valid && i < sections.size(); ++i) {
    valid = sections[i] >= 0 && sections[i] <= rope->dims / 2;
    pairs += sections[i];
    rope->sections[i] = static_cast<int>(sections[i]);
  }
  if (valid && pairs <= rope->dims / 2) return absl::OkStatus();
  return keys.Invalid(
      kSections,
      absl::StrCat(Checkpoint::FormatValue(*file.Find(keys.Name(kSections))),
                   ", expected 3 or 4 numbers of pairs, at most ", rope->dims / 2, " in all"));
}

// Sets `rope` of each layer. `windows` is the index of the rotation of layers with a window.
absl::Status AssignRopes(const ConfigSource& source, int windows, ModelConfig* config) {
  const auto [file, keys, family] = source;
  const auto count = static_cast<int64_t>(config->layers.size());
  std::vector<bool> rotates(count, true);
  // Granite has this key to switch the rotation of all layers off. In other models it has no
  // effect.
  ASSIGN_OR_RETURN(const bool finetuned, file.BoolOr(keys.Name("rope.scaling.finetuned"), true));
  if (keys.Has("rope.layers")) {
    ASSIGN_OR_RETURN(rotates, keys.BoolPerLayer("rope.layers", count + config->draft_layers));
  } else if (family.multipliers && !finetuned) {
    rotates.assign(count, false);
  } else if (family.rope_gap > 0) {
    for (int64_t i = 0; i < count; ++i) rotates[i] = (i + 1) % family.rope_gap != 0;
  }
  for (int64_t i = 0; i < count; ++i) {
    LayerConfig& layer = config->layers[i];
    layer.rope = layer.sliding_window > 0 ? windows : 0;
    if (!rotates[i] || !layer.has_attention()) layer.rope = kNoRope;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRopes(const ConfigSource& source, ModelConfig* config) {
  const auto [file, keys, family] = source;
  const int head_dim = config->attention_layer().head_dim;
  ASSIGN_OR_RETURN(const int64_t dims, keys.IntOr("rope.dimension_count", head_dim, 1, head_dim));
  if (dims % 2 != 0) {
    return keys.Invalid("rope.dimension_count", absl::StrCat(dims, ", expected an even number"));
  }
  ASSIGN_OR_RETURN(const double base, keys.FloatOr("rope.freq_base", 10000, 1));
  ASSIGN_OR_RETURN(Scaling scaling, ReadScaling(source, *config));
  RopeConfig rope = Unscaled(family.rope, dims, base);
  RETURN_IF_ERROR(ApplyScaling(source, base, &scaling, &rope));
  RETURN_IF_ERROR(ReadSections(source, &rope));
  for (LayerConfig& layer : config->layers) {
    if (scaling.attention != 1) {
      layer.attention_scale = static_cast<float>(layer.attention_scale * scaling.attention);
    }
  }
  NameDivisors(file, scaling, &rope);
  config->ropes.push_back(std::move(rope));
  ASSIGN_OR_RETURN(std::optional<RopeConfig> windows, ReadWindowRope(source, dims, base));
  const bool any_window =
      std::any_of(config->layers.begin(), config->layers.end(),
                  [](const LayerConfig& layer) { return layer.sliding_window > 0; });
  if (windows.has_value() && any_window) config->ropes.push_back(*std::move(windows));
  return AssignRopes(source, static_cast<int>(config->ropes.size()) - 1, config);
}

}  // namespace tidepool::engine

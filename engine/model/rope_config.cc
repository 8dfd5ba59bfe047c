// The part of ModelConfig::Parse about rotary positions.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/model/config_keys.h"

namespace tidepool::engine {
namespace {

// YaRN: dimensions that rotate slowly are interpolated by the factor, and fast ones stay unchanged.
// Between them is a ramp, from the dimension with beta_fast rotations in the original context to
// the one with beta_slow rotations.
absl::Status ApplyYarn(const Keys& keys, double base, double factor, ModelConfig* config) {
  RopeConfig& rope = config->rope;
  ASSIGN_OR_RETURN(const int64_t original, keys.IntOr("rope.scaling.original_context_length",
                                                      config->context_length, 1, kMaxContext));
  ASSIGN_OR_RETURN(const double fast, keys.FloatOr("rope.scaling.yarn_beta_fast", 32, 0));
  ASSIGN_OR_RETURN(const double slow, keys.FloatOr("rope.scaling.yarn_beta_slow", 1, 0));
  ASSIGN_OR_RETURN(const double extrapolation, keys.FloatOr("rope.scaling.yarn_ext_factor", 1, -2));
  ASSIGN_OR_RETURN(const double attention,
                   keys.FloatOr("rope.scaling.yarn_attn_factor", 1, 0, kMaxRopeScale));
  // Converters write -1 for the default.
  if (extrapolation != 1 && extrapolation != -1) {
    return keys.Unsupported("rope.scaling.yarn_ext_factor",
                            absl::StrCat(extrapolation, " is not supported, expected 1"));
  }
  const auto bound = [&](double turns) {
    return rope.dims * std::log(static_cast<double>(original) / (2 * M_PI * turns)) /
           (2 * std::log(base));
  };
  const double start = std::max(0.0, std::floor(bound(fast)));
  const double end = std::min(rope.dims - 1.0, std::ceil(bound(slow)));
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    const double ramp = (static_cast<double>(i) - start) / std::max(0.001, end - start);
    const double share = std::clamp(ramp, 0.0, 1.0);
    rope.inv_freq[i] *= share / factor + 1 - share;
  }
  const double magnitude = factor > 1 ? 1 + 0.1 * std::log(factor) : 1.0;
  rope.scale *= static_cast<float>(magnitude * attention);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRope(const Checkpoint& file, const Keys& keys, ModelConfig* config) {
  RopeConfig& rope = config->rope;
  ASSIGN_OR_RETURN(const int64_t dims,
                   keys.IntOr("rope.dimension_count", config->head_dim, 1, config->head_dim));
  if (dims % 2 != 0) {
    return keys.Invalid("rope.dimension_count", absl::StrCat(dims, ", expected an even number"));
  }
  ASSIGN_OR_RETURN(const double base, keys.FloatOr("rope.freq_base", 10000, 1));
  ASSIGN_OR_RETURN(const double attention,
                   keys.FloatOr("rope.scaling.attn_factor", 1, 0, kMaxRopeScale));
  rope.dims = static_cast<int>(dims);
  rope.scale = static_cast<float>(attention);
  rope.inv_freq.resize(dims / 2);
  for (int64_t i = 0; i < dims / 2; ++i) {
    rope.inv_freq[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
  }
  // A factor without a type means linear scaling; old files call it rope.scale_linear; 0 means
  // none.
  ASSIGN_OR_RETURN(const absl::string_view type,
                   file.StringOr(keys.Name("rope.scaling.type"), "linear"));
  const absl::string_view factor_key =
      keys.Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  ASSIGN_OR_RETURN(const double raw_factor, file.FloatOr(keys.Name(factor_key), 1));
  const double factor = raw_factor == 0 ? 1 : raw_factor;
  // A factor below 1 speeds up all pairs. The fastest has frequency 1.
  const double least = static_cast<double>(config->context_length) / kMaxRopeAngle;
  if (!std::isfinite(factor) || factor < least) {
    return keys.Invalid(factor_key,
                        absl::StrCat(raw_factor, ", expected a positive number (at least ", least,
                                     " for ", config->context_length, " positions)"));
  }
  if (type == "none") return absl::OkStatus();
  if (type == "linear") {
    for (double& frequency : rope.inv_freq) frequency /= factor;
    return absl::OkStatus();
  }
  if (type == "yarn") return ApplyYarn(keys, base, factor, config);
  return keys.Unsupported(
      "rope.scaling.type",
      absl::StrCat(Checkpoint::FormatValue(*file.Find(keys.Name("rope.scaling.type"))),
                   " is not supported, expected none, linear or yarn"));
}

}  // namespace tidepool::engine

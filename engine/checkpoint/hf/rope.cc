#include "engine/checkpoint/hf/rope.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr int64_t kMaxContext = 1 << 30;

// The rotary scaling of one model. `where` is the key in config.json that holds it.
struct Scaling {
  const JsonMembers& config;
  const JsonMembers& members;
  absl::string_view where;
  double theta = 0;
  std::string prefix;  // "llama.rope."

  absl::Status Unsupported(absl::string_view key, absl::string_view message) const {
    return members.Unsupported(absl::StrCat(where, ".", key), message);
  }
};

absl::StatusOr<double> Positive(const Scaling& scaling, absl::string_view key, double fallback) {
  ASSIGN_OR_RETURN(const double value, scaling.members.FloatOr(key, fallback));
  if (value > 0) return value;
  return scaling.members.Error(absl::StrCat(scaling.where, ".", key),
                               absl::StrCat(value, ", expected a number above 0"));
}

// Divides the frequencies of long wavelengths by the factor and keeps those of short wavelengths. A
// ramp connects the two.
absl::Status ApplyLlama3(const Scaling& scaling, HfModel* model) {
  ASSIGN_OR_RETURN(const double factor, Positive(scaling, "factor", 0));
  ASSIGN_OR_RETURN(const double low, Positive(scaling, "low_freq_factor", 0));
  ASSIGN_OR_RETURN(const double high, Positive(scaling, "high_freq_factor", 0));
  ASSIGN_OR_RETURN(const int64_t original,
                   scaling.members.Int("original_max_position_embeddings", 1, kMaxContext));
  if (high <= low) {
    return scaling.members.Error(absl::StrCat(scaling.where, ".high_freq_factor"),
                                 absl::StrCat(high, ", expected more than low_freq_factor ", low));
  }
  for (int64_t i = 0; i < model->head_dim / 2; ++i) {
    const double wave = 2 * M_PI *
                        std::pow(scaling.theta, 2.0 * static_cast<double>(i) /
                                                    static_cast<double>(model->head_dim));
    const auto length = static_cast<double>(original);
    double divisor = 1;
    if (wave > length / low) {
      divisor = factor;
    } else if (wave >= length / high) {
      const double share = (length / wave - low) / (high - low);
      divisor = 1 / ((1 - share) / factor + share);
    }
    model->rope_divisors.push_back(static_cast<float>(divisor));
  }
  return absl::OkStatus();
}

absl::Status ApplyYarn(const Scaling& scaling, GgufMetadata* metadata) {
  const JsonMembers& members = scaling.members;
  ASSIGN_OR_RETURN(const double factor, Positive(scaling, "factor", 0));
  ASSIGN_OR_RETURN(const double fast, Positive(scaling, "beta_fast", 32));
  ASSIGN_OR_RETURN(const double slow, Positive(scaling, "beta_slow", 1));
  const double magnitude = factor > 1 ? 1 + 0.1 * std::log(factor) : 1;
  ASSIGN_OR_RETURN(const double attention, Positive(scaling, "attention_factor", magnitude));
  ASSIGN_OR_RETURN(const bool truncate, members.BoolOr("truncate", true));
  if (!truncate) return scaling.Unsupported("truncate", "false is not supported, expected true");
  for (const absl::string_view key : {"mscale", "mscale_all_dim"}) {
    if (members.Has(key)) return scaling.Unsupported(key, "is not supported, expected no such key");
  }
  ASSIGN_OR_RETURN(const int64_t context,
                   scaling.config.Int("max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(const int64_t original,
                   members.IntOr("original_max_position_embeddings", context, 1, kMaxContext));
  const auto name = [&](absl::string_view suffix) {
    return absl::StrCat(scaling.prefix, "scaling.", suffix);
  };
  metadata->SetString(name("type"), "yarn");
  metadata->SetF32(name("factor"), static_cast<float>(factor));
  metadata->SetU32(name("original_context_length"), static_cast<uint32_t>(original));
  metadata->SetF32(name("yarn_beta_fast"), static_cast<float>(fast));
  metadata->SetF32(name("yarn_beta_slow"), static_cast<float>(slow));
  metadata->SetF32(name("yarn_attn_factor"), static_cast<float>(attention / magnitude));
  return absl::OkStatus();
}

absl::Status ApplyScaling(const Scaling& scaling, const std::string& type, HfModel* model,
                          GgufMetadata* metadata) {
  // Dynamic scaling has no effect within max_position_embeddings. Requests cannot exceed that
  // length.
  if (type == "default" || type == "dynamic") {
    if (type == "dynamic") RETURN_IF_ERROR(Positive(scaling, "factor", 1).status());
    return absl::OkStatus();
  }
  if (type == "linear") {
    ASSIGN_OR_RETURN(const double factor, Positive(scaling, "factor", 0));
    metadata->SetString(absl::StrCat(scaling.prefix, "scaling.type"), "linear");
    metadata->SetF32(absl::StrCat(scaling.prefix, "scaling.factor"), static_cast<float>(factor));
    return absl::OkStatus();
  }
  if (type == "llama3") return ApplyLlama3(scaling, model);
  if (type == "yarn") return ApplyYarn(scaling, metadata);
  return scaling.Unsupported("rope_type",
                             absl::StrCat(Shown(Json(type)),
                                          " is not supported, expected default, linear, dynamic, "
                                          "llama3 or yarn"));
}

}  // namespace

absl::Status ReadHfRope(const JsonMembers& config, HfModel* model, GgufMetadata* metadata) {
  ASSIGN_OR_RETURN(const double partial, config.FloatOr("partial_rotary_factor", 1));
  if (partial != 1) {
    return config.Unsupported("partial_rotary_factor",
                              absl::StrCat(partial, " is not supported, expected 1"));
  }
  const Json none = Json::object();
  const absl::string_view where =
      config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* found = config.Find(where);
  if (found != nullptr && !found->is_object()) {
    return config.Error(where, absl::StrCat(Shown(*found), ", expected an object"));
  }
  const std::string path(config.path());
  const JsonMembers members(path, found == nullptr ? none : *found);
  ASSIGN_OR_RETURN(const double outer_theta, config.FloatOr("rope_theta", 10000));
  ASSIGN_OR_RETURN(const double theta, members.FloatOr("rope_theta", outer_theta));
  if (!(theta > 1 && theta < 1e30)) {
    return config.Error("rope_theta", absl::StrCat(theta, ", expected a number above 1"));
  }
  ASSIGN_OR_RETURN(const std::string old_type, members.StringOr("type", "default"));
  ASSIGN_OR_RETURN(const std::string type, members.StringOr("rope_type", old_type));
  ASSIGN_OR_RETURN(const double inner_partial, members.FloatOr("partial_rotary_factor", 1));
  if (inner_partial != 1) {
    return config.Unsupported(absl::StrCat(where, ".partial_rotary_factor"),
                              absl::StrCat(inner_partial, " is not supported, expected 1"));
  }
  const std::string prefix = absl::StrCat(model->family->architecture, ".rope.");
  metadata->SetF32(absl::StrCat(prefix, "freq_base"), static_cast<float>(theta));
  metadata->SetU32(absl::StrCat(prefix, "dimension_count"), static_cast<uint32_t>(model->head_dim));
  const Scaling scaling = {config, members, where, theta, prefix};
  RETURN_IF_ERROR(ApplyScaling(scaling, type, model, metadata));
  // Transformers writes original_max_position_embeddings for every rope_type, but only some types
  // use it. Find marks a key as read.
  members.Find("original_max_position_embeddings");
  members.Find("finetuned");
  const std::string unread = members.FirstUnread({});
  if (unread.empty()) return absl::OkStatus();
  return scaling.Unsupported(
      unread, absl::StrCat(Shown((*found)[unread]), " is not understood with rope_type ", type,
                           "; remove the key if it changes nothing"));
}

}  // namespace tidepool::engine::hf

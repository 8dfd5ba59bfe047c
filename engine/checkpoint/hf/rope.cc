#include "engine/checkpoint/hf/rope.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/hf/config_parts.h"
#include "engine/checkpoint/yarn.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr absl::string_view kPartial = "partial_rotary_factor";
constexpr absl::string_view kOriginalContext = "original_max_position_embeddings";
// The names of the two sets of rotary settings in models with local_rope.
constexpr absl::string_view kFullAttention = "full_attention";
constexpr absl::string_view kSlidingAttention = "sliding_attention";

// The rotary scaling of one model. Errors of `members` name the key with its whole path.
struct Scaling {
  const JsonMembers& config;
  const JsonMembers& members;
  double theta = 0;
  int64_t dims = 0;    // number of rotated elements of each head
  std::string prefix;  // prefix of the metadata keys, such as "llama.rope."
  // True if layers with a window and other layers have separate settings.
  bool by_kind = false;
  bool null_factor = false;  // the settings have a factor, and it is null

  absl::Status Unsupported(absl::string_view key, absl::string_view message) const {
    return members.Unsupported(key, message);
  }
  absl::Status Error(absl::string_view key, absl::string_view message) const {
    return members.Error(key, message);
  }
};

absl::StatusOr<double> Positive(const Scaling& scaling, absl::string_view key, double fallback) {
  ASSIGN_OR_RETURN(const double value, scaling.members.FloatOr(key, fallback));
  if (value > 0) return value;
  if (!scaling.members.Has(key)) return scaling.Error(key, "missing, expected a number above 0");
  return scaling.Error(key, absl::StrCat(value, ", expected a number above 0"));
}

// Returns the context length before scaling. The key outside the settings has precedence.
absl::StatusOr<int64_t> OriginalContext(const Scaling& scaling) {
  ASSIGN_OR_RETURN(int64_t context, scaling.config.Int("max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(context, scaling.members.IntOr(kOriginalContext, context, 1, kMaxContext));
  if (scaling.by_kind) return context;
  return scaling.config.IntOr(kOriginalContext, context, 1, kMaxContext);
}

// Divides the frequencies of long wavelengths by the factor. Frequencies of short wavelengths do
// not change, and those in between change gradually.
absl::Status ApplyLlama3(const Scaling& scaling, HfModel* model) {
  ASSIGN_OR_RETURN(const double factor, Positive(scaling, "factor", 0));
  ASSIGN_OR_RETURN(const double low, Positive(scaling, "low_freq_factor", 0));
  ASSIGN_OR_RETURN(const double high, Positive(scaling, "high_freq_factor", 0));
  ASSIGN_OR_RETURN(const int64_t original, OriginalContext(scaling));
  if (high <= low) {
    return scaling.Error("high_freq_factor",
                         absl::StrCat(high, ", expected more than low_freq_factor ", low));
  }
  for (int64_t i = 0; i < scaling.dims / 2; ++i) {
    const double wave =
        2 * M_PI *
        std::pow(scaling.theta, 2.0 * static_cast<double>(i) / static_cast<double>(scaling.dims));
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

double YarnMagnitude(double factor, double mscale) {
  return factor > 1 ? 1 + 0.1 * mscale * std::log(factor) : 1;
}

// Sets YaRN's factor on cos and sin, which depends on mscale and mscale_all_dim. GGUF has one key
// for it with MLA, and another key without MLA.
absl::Status ApplyMagnitude(const Scaling& scaling, double factor, const HfModel& model,
                            GgufMetadata* metadata) {
  const JsonMembers& members = scaling.members;
  ASSIGN_OR_RETURN(const double mscale, members.FloatOr("mscale", 0));
  ASSIGN_OR_RETURN(const double all_dim, members.FloatOr("mscale_all_dim", 0));
  const double magnitude = YarnMagnitude(factor, 1);
  const double of_both = mscale != 0 && all_dim != 0
                             ? YarnMagnitude(factor, mscale) / YarnMagnitude(factor, all_dim)
                             : magnitude;
  ASSIGN_OR_RETURN(const double attention, Positive(scaling, "attention_factor", of_both));
  if (!model.parts.Has(Part::kMla)) {
    metadata->SetF32(absl::StrCat(scaling.prefix, "scaling.yarn_attn_factor"),
                     static_cast<float>(attention / magnitude));
    return absl::OkStatus();
  }
  // With MLA, transformers multiplies cos and sin by attention_factor. It also multiplies the
  // scores by the square of the magnitude that mscale_all_dim determines. llama.cpp has no key for
  // the factor on cos and sin.
  metadata->SetF32(absl::StrCat(scaling.prefix, "scaling.yarn_log_multiplier"),
                   static_cast<float>(0.1 * all_dim));
  if (attention != 1) {
    metadata->SetF32(absl::StrCat(scaling.prefix, "scaling.yarn_rotary_factor"),
                     static_cast<float>(attention));
  }
  return absl::OkStatus();
}

absl::Status ApplyYarn(const Scaling& scaling, const HfModel& model, GgufMetadata* metadata) {
  const JsonMembers& members = scaling.members;
  ASSIGN_OR_RETURN(const int64_t original, OriginalContext(scaling));
  ASSIGN_OR_RETURN(const int64_t context,
                   scaling.config.Int("max_position_embeddings", 1, kMaxContext));
  const double ratio = static_cast<double>(context) / static_cast<double>(original);
  ASSIGN_OR_RETURN(const double factor,
                   Positive(scaling, "factor", scaling.null_factor ? ratio : 0));
  ASSIGN_OR_RETURN(const double fast, Positive(scaling, "beta_fast", 32));
  ASSIGN_OR_RETURN(const double slow, Positive(scaling, "beta_slow", 1));
  ASSIGN_OR_RETURN(const bool truncate, members.BoolOr("truncate", true));
  // If the bound is negative, transformers interpolates no frequency, and llama.cpp interpolates
  // all of them.
  const YarnRotation rotation = {.base = scaling.theta,
                                 .dims = scaling.dims,
                                 .original_context = original,
                                 .truncate = truncate};
  if (rotation.UpperBound(slow) < 0) {
    return scaling.Unsupported(
        "beta_slow", absl::StrCat(slow, " is not supported with a context before scaling of ",
                                  original, ", expected at most ", original, " / (2 pi)"));
  }
  const auto name = [&](absl::string_view suffix) {
    return absl::StrCat(scaling.prefix, "scaling.", suffix);
  };
  metadata->SetString(name("type"), "yarn");
  metadata->SetF32(name("factor"), static_cast<float>(factor));
  metadata->SetU32(name("original_context_length"), static_cast<uint32_t>(original));
  metadata->SetF32(name("yarn_beta_fast"), static_cast<float>(fast));
  metadata->SetF32(name("yarn_beta_slow"), static_cast<float>(slow));
  RETURN_IF_ERROR(ApplyMagnitude(scaling, factor, model, metadata));
  // yarn_truncate is our own key. If it is missing, the family decides.
  const bool family_truncates = model.family->architecture != "gpt-oss";
  if (truncate != family_truncates) metadata->SetBool(name("yarn_truncate"), truncate);
  return absl::OkStatus();
}

absl::Status ReadFactors(const Scaling& scaling, absl::string_view key,
                         std::vector<float>* factors) {
  const Json* list = scaling.members.Find(key);
  const auto count = static_cast<size_t>(scaling.dims / 2);
  bool valid = list != nullptr && list->is_array() && list->size() == count;
  for (size_t i = 0; valid && i < count; ++i) {
    const Json& value = (*list)[i];
    valid = value.is_number() && value.get<double>() > 0 && value.get<double>() < 1e30;
    if (valid) factors->push_back(value.get<float>());
  }
  if (valid) return absl::OkStatus();
  return scaling.Error(key, absl::StrCat(list == nullptr ? "missing" : Shown(*list), ", expected ",
                                         count, " numbers above 0"));
}

absl::Status ApplyLongRope(const Scaling& scaling, HfModel* model, GgufMetadata* metadata) {
  RETURN_IF_ERROR(ReadFactors(scaling, "long_factor", &model->rope_long));
  RETURN_IF_ERROR(ReadFactors(scaling, "short_factor", &model->rope_short));
  ASSIGN_OR_RETURN(const int64_t original, OriginalContext(scaling));
  ASSIGN_OR_RETURN(const int64_t context,
                   scaling.config.Int("max_position_embeddings", 1, kMaxContext));
  const double ratio = static_cast<double>(context) / static_cast<double>(original);
  ASSIGN_OR_RETURN(const double factor, Positive(scaling, "factor", ratio));
  const double usual =
      factor > 1 && original > 1
          ? std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)))
          : 1;
  ASSIGN_OR_RETURN(const double attention, Positive(scaling, "attention_factor", usual));
  const auto name = [&](absl::string_view suffix) {
    return absl::StrCat(scaling.prefix, "scaling.", suffix);
  };
  // Do not write a scaling type or a factor. With a factor, llama.cpp would also divide the
  // positions by it.
  metadata->SetU32(name("original_context_length"), static_cast<uint32_t>(original));
  metadata->SetF32(name("attn_factor"), static_cast<float>(attention));
  return absl::OkStatus();
}

// Scales by increasing the base. The base does not depend on the length of the sequence.
absl::Status ApplyAlpha(Scaling* scaling, GgufMetadata* metadata) {
  ASSIGN_OR_RETURN(const double alpha, Positive(*scaling, "alpha", 1));
  const auto dims = static_cast<double>(scaling->dims);
  if (dims < 4) return scaling->Unsupported("alpha", "needs a head_dim of at least 4");
  // Published configurations have these keys together with alpha. The keys have no effect.
  for (const absl::string_view key :
       {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
    scaling->members.Find(key);
  }
  scaling->theta *= std::pow(alpha, dims / (dims - 2));
  metadata->SetF32(absl::StrCat(scaling->prefix, "freq_base"), static_cast<float>(scaling->theta));
  return absl::OkStatus();
}

absl::Status ApplyScaling(Scaling* scaling, const std::string& type, HfModel* model,
                          GgufMetadata* metadata) {
  if (type == "dynamic" && model->family->ntk_alpha && scaling->members.Has("alpha")) {
    return ApplyAlpha(scaling, metadata);
  }
  // Dynamic scaling has no effect on sequences within max_position_embeddings, and Tidepool does
  // not accept longer sequences.
  if (type == "default" || type == "dynamic") {
    if (type == "dynamic") RETURN_IF_ERROR(Positive(*scaling, "factor", 1).status());
    return absl::OkStatus();
  }
  if (type == "linear") {
    ASSIGN_OR_RETURN(const double factor, Positive(*scaling, "factor", 0));
    metadata->SetString(absl::StrCat(scaling->prefix, "scaling.type"), "linear");
    metadata->SetF32(absl::StrCat(scaling->prefix, "scaling.factor"), static_cast<float>(factor));
    return absl::OkStatus();
  }
  if (type == "llama3") return ApplyLlama3(*scaling, model);
  if (type == "yarn") return ApplyYarn(*scaling, *model, metadata);
  if (type == "longrope" || type == "su") return ApplyLongRope(*scaling, model, metadata);
  return scaling->Unsupported("rope_type",
                              absl::StrCat(Shown(Json(type)),
                                           " is not supported, expected default, linear, dynamic, "
                                           "llama3, yarn or longrope"));
}

// Reads the sections of MRoPE. GGUF has a fourth section. transformers always interleaves the
// sections.
absl::Status ReadSections(const Scaling& scaling, GgufMetadata* metadata) {
  constexpr absl::string_view kSections = "mrope_section";
  ASSIGN_OR_RETURN(const bool interleaved, scaling.members.BoolOr("mrope_interleaved", true));
  if (!interleaved) {
    return scaling.Unsupported("mrope_interleaved", "false is not supported, expected true");
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> sections, scaling.members.IntsOr(kSections));
  if (sections.empty()) return absl::OkStatus();
  int64_t pairs = 0;
  bool valid = sections.size() == 3;
  for (const int64_t section : sections) {
    valid = valid && section >= 0 && section <= scaling.dims / 2 - pairs;
    if (valid) pairs += section;
  }
  if (!valid) {
    return scaling.Error(kSections, absl::StrCat(Shown(*scaling.members.Find(kSections)),
                                                 ", expected three numbers of pairs, at most ",
                                                 scaling.dims / 2, " in all"));
  }
  sections.push_back(0);
  metadata->SetI32s(absl::StrCat(scaling.prefix, "dimension_sections"),
                    std::vector<int32_t>(sections.begin(), sections.end()));
  return absl::OkStatus();
}

absl::Status CheckRead(const Scaling& scaling, const std::string& type) {
  // transformers writes these keys for every rope_type, but only some types use them. Find marks a
  // key as read.
  scaling.members.Find(kOriginalContext);
  scaling.members.Find("finetuned");
  const std::string unread = scaling.members.FirstUnread({});
  if (unread.empty()) return absl::OkStatus();
  return scaling.Unsupported(unread, absl::StrCat(Shown(*scaling.members.Find(unread)),
                                                  " is not understood with rope_type ", type,
                                                  "; remove the key if it changes nothing"));
}

absl::StatusOr<double> Theta(const JsonMembers& config, const JsonMembers& members,
                             absl::string_view outer_key) {
  if (members.IsNull("rope_theta")) {
    return members.Error("rope_theta", "null, expected a number above 1");
  }
  ASSIGN_OR_RETURN(const double outer, config.FloatOr(outer_key, 10000));
  ASSIGN_OR_RETURN(const double theta, members.FloatOr("rope_theta", outer));
  if (theta > 1 && theta < 1e30) return theta;
  const absl::string_view wrong = ", expected a number above 1";
  if (members.Has("rope_theta")) return members.Error("rope_theta", absl::StrCat(theta, wrong));
  return config.Error(outer_key, absl::StrCat(theta, wrong));
}

// Returns the number of rotated elements of each head.
absl::StatusOr<int64_t> RotatedDims(const JsonMembers& config, const JsonMembers& members,
                                    const HfModel& model) {
  ASSIGN_OR_RETURN(const double outer, config.FloatOr(kPartial, 1));
  ASSIGN_OR_RETURN(const double partial, members.FloatOr(kPartial, outer));
  const JsonMembers& origin = members.Has(kPartial) ? members : config;
  if (partial != 1 && !model.family->partial_rotary) {
    return origin.Unsupported(kPartial, absl::StrCat(partial, " is not supported, expected 1"));
  }
  const auto dims = partial > 0 && partial <= 1
                        ? static_cast<int64_t>(static_cast<double>(model.head_dim) * partial)
                        : 0;
  if (dims > 0 && dims % 2 == 0) return dims;
  return origin.Error(kPartial, absl::StrCat(partial, ", expected a share of head_dim ",
                                             model.head_dim, " that is an even number"));
}

// Reads the rotary base of layers with a window. These layers have no scaling. `path` is that of
// the settings in config.json.
absl::Status ReadLocalRope(const JsonMembers& config, const Json& settings, absl::string_view path,
                           const std::string& prefix, GgufMetadata* metadata) {
  const JsonMembers members(config.path(), settings, path);
  ASSIGN_OR_RETURN(const double theta, Theta(config, members, "rope_local_base_freq"));
  metadata->SetF32(absl::StrCat(prefix, "freq_base_swa"), static_cast<float>(theta));
  ASSIGN_OR_RETURN(const std::string type, members.StringOr("rope_type", "default"));
  members.Find(kPartial);
  const Scaling scaling = {config, members, theta, 0, prefix};
  if (type == "default") return CheckRead(scaling, type);
  return scaling.Unsupported(
      "rope_type", absl::StrCat(Shown(Json(type)), " is not supported, expected default"));
}

// For a model with local_rope, checks settings that are not divided into two sets.
absl::Status CheckOneSet(const JsonMembers& config, absl::string_view where, const Json& settings) {
  if (where != "rope_scaling" && !settings.empty()) {
    return config.Unsupported(where, absl::StrCat(Shown(settings), " is not supported, expected ",
                                                  kFullAttention, " and ", kSlidingAttention));
  }
  // transformers does not read the older name of the key here.
  if (!settings.contains("type") || settings.contains("rope_type")) return absl::OkStatus();
  return config.Unsupported(
      absl::StrCat(where, ".type"),
      absl::StrCat(Shown(settings["type"]), " is not supported, expected the key rope_type"));
}

// Sets the keys that say which layers have RoPE.
absl::Status ReadRotatingLayers(const JsonMembers& config, const HfModel& model,
                                const std::string& prefix, GgufMetadata* metadata) {
  if (model.family->no_rope.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<bool> rotate, RotatingLayers(config, model));
  metadata->SetBools(absl::StrCat(prefix, "layers"), rotate);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<bool>> RotatingLayers(const JsonMembers& config, const HfModel& model) {
  const size_t layers = model.sparse.size();
  std::vector<bool> rotate(layers, true);
  if (model.family->no_rope.empty()) return rotate;
  ASSIGN_OR_RETURN(const int64_t interval,
                   config.IntOr("no_rope_layer_interval", 4, 1, kMaxLayers));
  ASSIGN_OR_RETURN(const std::vector<int64_t> listed, config.IntsOr(model.family->no_rope));
  for (size_t i = 0; i < layers; ++i) rotate[i] = (i + 1) % interval != 0;
  if (!listed.empty()) {
    if (listed.size() != layers) {
      return config.Error(model.family->no_rope, absl::StrCat(listed.size(), " values, expected ",
                                                              layers, ", one for each layer"));
    }
    for (size_t i = 0; i < layers; ++i) rotate[i] = listed[i] != 0;
  }
  return rotate;
}

absl::Status ReadHfRope(const JsonMembers& config, HfModel* model, GgufMetadata* metadata) {
  // An empty rope_scaling counts as missing.
  const Json* old = config.Find("rope_scaling");
  const bool use_old = old != nullptr && !old->empty();
  const absl::string_view where = use_old ? "rope_scaling" : "rope_parameters";
  model->rope_settings = where;
  config.Find("rope_parameters");
  Json settings = Json::object();
  if (const Json* found = config.Find(where); found != nullptr) {
    if (!found->is_object()) {
      return config.Error(where, absl::StrCat(Shown(*found), ", expected an object"));
    }
    settings = *found;
  }
  const std::string prefix = absl::StrCat(model->family->architecture, ".rope.");
  std::string path = absl::StrCat(config.prefix(), where, ".");
  const bool by_kind = settings.contains(kFullAttention) && settings[kFullAttention].is_object();
  if (model->family->local_rope) {
    Json local = Json::object();
    if (by_kind && settings.contains(kSlidingAttention) &&
        settings[kSlidingAttention].is_object()) {
      local = settings[kSlidingAttention];
    }
    RETURN_IF_ERROR(
        ReadLocalRope(config, local, absl::StrCat(path, kSlidingAttention, "."), prefix, metadata));
    if (!by_kind) {
      RETURN_IF_ERROR(CheckOneSet(config, where, settings));
    } else {
      absl::StrAppend(&path, kFullAttention, ".");
      // transformers reads this key next to the two sets, not inside of them.
      const Json outer = settings;
      settings = outer[kFullAttention];
      settings.erase("truncate");
      if (outer.contains("truncate")) settings["truncate"] = outer["truncate"];
    }
  }
  const JsonMembers members(config.path(), settings, path);
  ASSIGN_OR_RETURN(const double theta, Theta(config, members, "rope_theta"));
  ASSIGN_OR_RETURN(const std::string old_type, members.StringOr("type", "default"));
  ASSIGN_OR_RETURN(std::string type, members.StringOr("rope_type", old_type));
  // Qwen2-VL uses this name for the usual rotation with sections.
  if (type == "mrope" && model->family->architecture == "qwen2vl") type = "default";
  // Old files of Phi-3 use this name for longrope.
  if (type == "yarn" && model->family->model_type == "phi3") type = "longrope";
  ASSIGN_OR_RETURN(const int64_t dims, RotatedDims(config, members, *model));
  metadata->SetF32(absl::StrCat(prefix, "freq_base"), static_cast<float>(theta));
  metadata->SetU32(absl::StrCat(prefix, "dimension_count"), static_cast<uint32_t>(dims));
  Scaling scaling = {config, members, theta, dims, prefix};
  scaling.by_kind = model->family->local_rope && by_kind;
  scaling.null_factor = settings.contains("factor") && settings["factor"].is_null();
  RETURN_IF_ERROR(ApplyScaling(&scaling, type, model, metadata));
  config.Find(kOriginalContext);
  if (model->family->mrope) RETURN_IF_ERROR(ReadSections(scaling, metadata));
  RETURN_IF_ERROR(CheckRead(scaling, type));
  return ReadRotatingLayers(config, *model, prefix, metadata);
}

}  // namespace tidepool::engine::hf

// The part of ModelConfig::Parse that reads FFNs and experts.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/model/config_keys.h"

namespace tidepool::engine {
namespace {

using kernels::GateScore;

int64_t AllLayers(const ModelConfig& config) {
  return static_cast<int64_t>(config.layers.size()) + config.draft_layers;
}

absl::Status ReadDenseWidths(const Keys& keys, ModelConfig* config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                   keys.PerLayer("feed_forward_length", AllLayers(*config), 0, kMaxWidth));
  for (size_t i = 0; i < config->layers.size(); ++i) {
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

// Reads the width of the shared expert, which has its own key. If the key is missing, the width is
// the number of shared experts times expert_width. The first conversions of Qwen1.5-MoE and Hunyuan
// only have feed_forward_length.
absl::Status ReadSharedWidth(const ConfigSource& source, MoeConfig* moe) {
  constexpr absl::string_view kWidth = "expert_shared_feed_forward_length";
  const auto [file, keys, family] = source;
  ASSIGN_OR_RETURN(const int64_t count, keys.IntOr("expert_shared_count", 0, 0, kMaxExperts));
  ASSIGN_OR_RETURN(int64_t width, keys.IntOr(kWidth, count * moe->expert_width, 0, kMaxWidth));
  RETURN_IF_ERROR(keys.CheckRange(kWidth, width, 0, kMaxWidth));
  if (family.shared_expert == SharedExpert::kNever && width > 0) {
    return keys.Unsupported(kWidth, absl::StrCat(width,
                                                 " is not supported, expected no shared expert in "
                                                 "architecture ",
                                                 family.architecture));
  }
  if (family.shared_expert == SharedExpert::kGated && width == 0) {
    ASSIGN_OR_RETURN(width, keys.Int("feed_forward_length", 1, kMaxWidth));
  }
  moe->shared_width = static_cast<int>(width);
  moe->shared_gate = family.shared_expert == SharedExpert::kGated;
  return absl::OkStatus();
}

// Reads the widths of experts. The first conversions of Mixtral and Qwen1.5-MoE only have
// feed_forward_length. In Mixtral, this is the width of one expert. In Qwen, it is the width of the
// shared expert, which is equal to the width of all chosen experts together.
absl::Status ReadExpertWidths(const ConfigSource& source, MoeConfig* moe) {
  const auto [file, keys, family] = source;
  ASSIGN_OR_RETURN(int64_t width, keys.IntOr("expert_feed_forward_length", 0, 0, kMaxWidth));
  if (width == 0) {
    ASSIGN_OR_RETURN(width, keys.Int("feed_forward_length", 1, kMaxWidth));
    if (family.width_of_chosen) width /= moe->experts_used;
  }
  RETURN_IF_ERROR(keys.CheckRange("expert_feed_forward_length", width, 1, kMaxWidth));
  moe->expert_width = static_cast<int>(width);
  return ReadSharedWidth(source, moe);
}

absl::Status ReadGate(const ConfigSource& source, MoeConfig* moe) {
  const auto [file, keys, family] = source;
  ASSIGN_OR_RETURN(const int64_t function, keys.IntOr("expert_gating_func", 0, 0, 0x7fffffff));
  switch (function) {
    case 0:  // the file does not have the key
      moe->score = family.score;
      break;
    case 1:
      moe->score = GateScore::kSoftmax;
      break;
    case 2:
      moe->score = GateScore::kSigmoid;
      break;
    case 3:
      moe->score = GateScore::kSoftmaxOfChosen;
      break;
    default:
      return keys.Unsupported(
          "expert_gating_func",
          absl::StrCat(function,
                       " is not supported, expected 1 (softmax), 2 (sigmoid) or "
                       "3 (softmax of the chosen)"));
  }
  ASSIGN_OR_RETURN(moe->normalize_weights,
                   file.BoolOr(keys.Name("expert_weights_norm"), family.normalize_weights));
  moe->normalize_epsilon = family.normalize_epsilon;
  ASSIGN_OR_RETURN(moe->weights_scale, keys.ScaleOr("expert_weights_scale", 1));
  if (moe->weights_scale == 0) moe->weights_scale = 1;  // the file does not have the key
  return absl::OkStatus();
}

// Reads the groups of experts. 0 and 1 both mean that there are no groups.
absl::Status ReadGroups(const Keys& keys, MoeConfig* moe) {
  ASSIGN_OR_RETURN(const int64_t groups, keys.IntOr("expert_group_count", 0, 0, moe->experts));
  ASSIGN_OR_RETURN(const int64_t used,
                   keys.IntOr("expert_group_used_count", 0, 0, std::max<int64_t>(groups, 1)));
  if (groups <= 1) return absl::OkStatus();
  if (moe->experts % groups != 0) {
    return keys.Invalid("expert_group_count", absl::StrCat(groups, ", expected a divisor of the ",
                                                           moe->experts, " experts"));
  }
  moe->groups = static_cast<int>(groups);
  moe->groups_used = static_cast<int>(used == 0 ? groups : used);
  const int reachable = moe->experts / moe->groups * moe->groups_used;
  if (moe->experts_used > reachable) {
    return keys.Invalid("expert_used_count",
                        absl::StrCat(moe->experts_used, ", expected at most ", reachable,
                                     ", the experts of ", moe->groups_used, " groups"));
  }
  // DeepSeek V3 and later models have routers with a sigmoid, and score a group by the sum of its
  // two largest scores. Only DeepSeek V2 has groups and no sigmoid. It scores a group by its
  // largest score.
  moe->group_score = moe->score == GateScore::kSigmoid ? kernels::GroupScore::kSumOfTwo
                                                       : kernels::GroupScore::kMax;
  return absl::OkStatus();
}

absl::Status ReadExperts(const ConfigSource& source, ModelConfig* config) {
  const auto [file, keys, family] = source;
  ASSIGN_OR_RETURN(const int64_t experts, keys.IntOr("expert_count", 0, 0, kMaxExperts));
  if (experts == 0) {
    if (family.experts != ExpertUse::kAlways) return absl::OkStatus();
    return keys.Invalid("expert_count", absl::StrCat("none, expected 1 to ", kMaxExperts,
                                                     " in architecture ", family.architecture));
  }
  if (family.experts == ExpertUse::kNever) {
    return keys.Unsupported(
        "expert_count",
        absl::StrCat(experts, ", expected no experts in architecture ", family.architecture));
  }
  MoeConfig& moe = config->moe;
  ASSIGN_OR_RETURN(const int64_t used, keys.Int("expert_used_count", 1, experts));
  moe.experts = static_cast<int>(experts);
  moe.experts_used = static_cast<int>(used);
  RETURN_IF_ERROR(ReadGate(source, &moe));
  RETURN_IF_ERROR(ReadGroups(keys, &moe));
  RETURN_IF_ERROR(ReadExpertWidths(source, &moe));
  const auto count = static_cast<int64_t>(config->layers.size());
  ASSIGN_OR_RETURN(const int64_t dense, keys.IntOr("leading_dense_block_count", 0, 0, count));
  ASSIGN_OR_RETURN(const int64_t step, keys.IntOr("interleave_moe_layer_step", 1, 0, kMaxLayers));
  for (int64_t i = dense; i < count; ++i) {
    if (step <= 1 || (i + 1) % step == 0) config->layers[i].ffn = FfnKind::kMoe;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadFfns(const ConfigSource& source, ModelConfig* config) {
  RETURN_IF_ERROR(ReadExperts(source, config));
  const bool dense =
      std::any_of(config->layers.begin(), config->layers.end(),
                  [](const LayerConfig& layer) { return layer.ffn == FfnKind::kDense; });
  return dense ? ReadDenseWidths(source.keys, config) : absl::OkStatus();
}

}  // namespace tidepool::engine

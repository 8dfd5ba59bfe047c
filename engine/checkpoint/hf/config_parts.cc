#include "engine/checkpoint/hf/config_parts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/hf/rope.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

class ExpertReader {
 public:
  ExpertReader(const JsonMembers& config, HfModel* model, GgufMetadata* metadata)
      : config_(config), keys_(model->family->experts), model_(*model), metadata_(*metadata) {}

  absl::Status Read() {
    if (model_.family->block_width) return ReadBlockWidth();
    if (keys_.count.empty()) return Size("intermediate_size", "feed_forward_length");
    RETURN_IF_ERROR(ReadCounts());
    RETURN_IF_ERROR(ReadShared());
    RETURN_IF_ERROR(ReadWeighting());
    return ReadSparseLayers();
  }

 private:
  std::string Name(absl::string_view suffix) const {
    return absl::StrCat(model_.family->architecture, ".", suffix);
  }
  void SetU32(absl::string_view suffix, int64_t value) {
    metadata_.SetU32(Name(suffix), static_cast<uint32_t>(value));
  }
  absl::Status Size(absl::string_view key, absl::string_view suffix) {
    ASSIGN_OR_RETURN(const int64_t value, config_.Int(key, 1, kMaxWidth));
    SetU32(suffix, value);
    return absl::OkStatus();
  }

  // Reads an integer, or a list that has the same integer for each layer.
  absl::StatusOr<int64_t> Uniform(absl::string_view key, int64_t low, int64_t high) const {
    const Json* value = config_.Find(key);
    if (value == nullptr || !value->is_array()) return config_.Int(key, low, high);
    const size_t layers = model_.sparse.size();
    if (value->size() != layers) {
      return config_.Error(key, absl::StrCat("a list of ", value->size(),
                                             " values, expected one integer, or one for each of ",
                                             layers, " layers"));
    }
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, config_.IntsOr(key));
    const bool equal = std::all_of(values.begin(), values.end(), [&](int64_t one) {
      return one == values[0] && one >= low && one <= high;
    });
    if (equal) return values[0];
    return config_.Unsupported(key, absl::StrCat(Shown(*value),
                                                 " is not supported, expected one "
                                                 "integer of ",
                                                 low, " to ", high));
  }

  // Reads the width of LFM2's FFNs.
  absl::Status ReadBlockWidth() {
    const absl::string_view key =
        config_.Has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
    ASSIGN_OR_RETURN(int64_t width, config_.Int(key, 1, kMaxWidth));
    config_.Find("intermediate_size");
    ASSIGN_OR_RETURN(const bool adjust, config_.BoolOr("block_auto_adjust_ff_dim", true));
    constexpr absl::string_view kFactor = "block_ffn_dim_multiplier";
    constexpr double kMaxFactor = 64;
    ASSIGN_OR_RETURN(const double factor, config_.Float(kFactor));
    if (!(factor > 0 && factor <= kMaxFactor)) {
      return config_.Error(
          kFactor, absl::StrCat(factor, ", expected a number above 0 and at most ", kMaxFactor));
    }
    ASSIGN_OR_RETURN(const int64_t multiple, config_.Int("block_multiple_of", 1, kMaxWidth));
    if (adjust) {
      const auto scaled = static_cast<int64_t>(factor * static_cast<double>(2 * width / 3));
      width = (scaled + multiple - 1) / multiple * multiple;
    }
    if (width < 1 || width > kMaxWidth) {
      return config_.Error(
          key, absl::StrCat("makes FFNs of width ", width, ", expected 1 to ", kMaxWidth));
    }
    SetU32("feed_forward_length", width);
    return absl::OkStatus();
  }

  absl::Status ReadCounts() {
    const bool other =
        !keys_.other_count.empty() && !config_.Has(keys_.count) && config_.Has(keys_.other_count);
    ASSIGN_OR_RETURN(model_.experts.count,
                     config_.Int(other ? keys_.other_count : keys_.count, 1, kMaxExperts));
    SetU32("expert_count", model_.experts.count);
    ASSIGN_OR_RETURN(const int64_t used, Uniform(keys_.used, 1, model_.experts.count));
    SetU32("expert_used_count", used);
    ASSIGN_OR_RETURN(model_.experts.width, Uniform(keys_.width, 1, kMaxWidth));
    if (!keys_.own_width) SetU32("feed_forward_length", model_.experts.width);
    SetU32("expert_feed_forward_length", model_.experts.width);
    // Some models, such as Hunyuan, have a second key with the same meaning.
    constexpr absl::string_view kOtherWidth = "moe_intermediate_size";
    if (keys_.width == kOtherWidth || !config_.Has(kOtherWidth)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const int64_t other_width, Uniform(kOtherWidth, 1, kMaxWidth));
    if (other_width == model_.experts.width) return absl::OkStatus();
    return config_.Unsupported(
        kOtherWidth, absl::StrCat(other_width, " is not supported, expected ", model_.experts.width,
                                  ", ", keys_.width));
  }

  absl::Status ReadShared() {
    if (!keys_.shared_width.empty()) {
      const bool optional = keys_.shared_part == Part::kGraniteShared;
      ASSIGN_OR_RETURN(const int64_t width, optional
                                                ? config_.IntOr(keys_.shared_width, 0, 0, kMaxWidth)
                                                : config_.Int(keys_.shared_width, 1, kMaxWidth));
      SetShared(width);
    }
    if (keys_.shared_count.empty()) return absl::OkStatus();
    int64_t count = 0;
    if (config_.Has(keys_.shared_count)) {
      ASSIGN_OR_RETURN(count, Uniform(keys_.shared_count, 0, kMaxExperts));
    }
    SetU32("expert_shared_count", count);
    SetShared(count * model_.experts.width);
    return absl::OkStatus();
  }

  void SetShared(int64_t width) {
    if (width == 0) return;
    SetU32("expert_shared_feed_forward_length", width);
    model_.parts.Add(keys_.shared_part);
  }

  // Reads how experts are chosen and weighted.
  absl::Status ReadWeighting() {
    if (keys_.gating != 0) SetU32("expert_gating_func", keys_.gating);
    if (!keys_.normalize.empty()) {
      ASSIGN_OR_RETURN(const bool normalize, config_.BoolOr(keys_.normalize, false));
      metadata_.SetBool(Name("expert_weights_norm"), normalize);
    }
    if (!keys_.scale.empty() && config_.Has(keys_.scale)) {
      ASSIGN_OR_RETURN(const double scale, config_.Float(keys_.scale));
      if (!(scale > 0)) {
        return config_.Error(keys_.scale, absl::StrCat(scale, ", expected a number above 0"));
      }
      metadata_.SetF32(Name("expert_weights_scale"), static_cast<float>(scale));
    }
    return keys_.groups ? ReadGroups() : absl::OkStatus();
  }

  absl::Status ReadGroups() {
    ASSIGN_OR_RETURN(const int64_t groups, config_.IntOr("n_group", 1, 1, model_.experts.count));
    ASSIGN_OR_RETURN(const int64_t used, config_.IntOr("topk_group", groups, 1, groups));
    if (model_.experts.count % groups != 0) {
      return config_.Error("n_group", absl::StrCat(groups, ", expected a divisor of ",
                                                   model_.experts.count, " experts"));
    }
    // Only DeepSeek-V2 may have groups that its router does not use.
    const bool sigmoid = keys_.gating == 2;
    constexpr absl::string_view kMethod = "topk_method";
    ASSIGN_OR_RETURN(const std::string method,
                     config_.StringOr(kMethod, sigmoid ? "noaux_tc" : "greedy"));
    ASSIGN_OR_RETURN(const std::string score,
                     config_.StringOr("scoring_func", sigmoid ? "sigmoid" : "softmax"));
    if (score != (sigmoid ? "sigmoid" : "softmax")) {
      return config_.Unsupported("scoring_func",
                                 absl::StrCat(Shown(Json(score)), " is not supported, expected ",
                                              sigmoid ? "sigmoid" : "softmax"));
    }
    const bool limited = method == (sigmoid ? "noaux_tc" : "group_limited_greedy");
    if (!limited && (sigmoid || method != "greedy")) {
      return config_.Unsupported(
          kMethod, absl::StrCat(Shown(Json(method)), " is not supported, expected ",
                                sigmoid ? "noaux_tc" : "greedy or group_limited_greedy"));
    }
    if (limited && !sigmoid && !config_.Has("n_group")) {
      return config_.Error("n_group",
                           absl::StrCat("missing, expected it with ", kMethod, " ", method));
    }
    // The score of a group is the sum of the scores of its two best experts.
    if (sigmoid && model_.experts.count / groups < 2) {
      return config_.Error("n_group",
                           absl::StrCat(groups, ", expected at most ", model_.experts.count / 2,
                                        " groups, so that each has two experts"));
    }
    if (!limited || groups == 1) return absl::OkStatus();
    SetU32("expert_group_count", groups);
    SetU32("expert_group_used_count", used);
    return absl::OkStatus();
  }

  absl::Status BadLayers(absl::string_view key, absl::string_view expected) const {
    const Json* value = config_.Find(key);
    return config_.Unsupported(key, absl::StrCat(value == nullptr ? "the default" : Shown(*value),
                                                 " is not supported, expected ", expected));
  }

  absl::Status ReadSparseLayers() {
    const auto layers = static_cast<int64_t>(model_.sparse.size());
    int64_t first = 0;
    if (!keys_.first_sparse.empty()) {
      ASSIGN_OR_RETURN(first, config_.IntOr(keys_.first_sparse, 0, 0, kMaxLayers));
    }
    int64_t interval = 1;
    if (!keys_.interval.empty()) {
      ASSIGN_OR_RETURN(interval, config_.IntOr(keys_.interval, 1, 1, kMaxLayers));
      // llama.cpp requires this key for ERNIE.
      if (keys_.interval == "moe_layer_interval") SetU32("interleave_moe_layer_step", interval);
    }
    ASSIGN_OR_RETURN(const std::vector<int64_t> dense, config_.IntsOr("mlp_only_layers"));
    ASSIGN_OR_RETURN(const int64_t end, config_.IntOr("moe_layer_end_index", -1, -1, kMaxLayers));
    if (end != -1 && end < layers - 1) {
      return config_.Unsupported("moe_layer_end_index",
                                 absl::StrCat(end, " is not supported, expected ", layers - 1));
    }
    for (int64_t i = 0; i < layers; ++i) {
      const bool listed = std::find(dense.begin(), dense.end(), i) != dense.end();
      model_.sparse[i] = !listed && i >= first && (i + 1) % interval == 0;
    }
    const auto found = std::find(model_.sparse.begin(), model_.sparse.end(), true);
    if (found == model_.sparse.end()) {
      return BadLayers(first >= layers ? keys_.first_sparse
                       : interval > 1  ? keys_.interval
                                       : "mlp_only_layers",
                       "a layer with experts");
    }
    if (std::find(found, model_.sparse.end(), false) != model_.sparse.end()) {
      return BadLayers(interval > 1 ? keys_.interval : "mlp_only_layers",
                       "no layer without experts after one that has them");
    }
    const int64_t leading = found - model_.sparse.begin();
    if (leading > 0) SetU32("leading_dense_block_count", leading);
    // Sets the FFN width of the dense layers.
    if (!keys_.own_width || (leading == 0 && !config_.Has("intermediate_size"))) {
      return absl::OkStatus();
    }
    return Size("intermediate_size", "feed_forward_length");
  }

  const JsonMembers& config_;
  const ExpertKeys& keys_;
  HfModel& model_;
  GgufMetadata& metadata_;
};

// Returns for each layer whether it has a window, according to layer_types or to the rule of the
// family.
absl::StatusOr<std::vector<bool>> WindowLayers(const JsonMembers& config, const HfModel& model) {
  const size_t layers = model.sparse.size();
  const ConfigWindow rule = model.family->window;
  std::vector<bool> windows(layers,
                            rule == ConfigWindow::kAlways || rule == ConfigWindow::kSwitchedAll);
  ASSIGN_OR_RETURN(const int64_t period,
                   config.IntOr("sliding_window_pattern", 1, 1, kMaxLayers + 1));
  ASSIGN_OR_RETURN(const int64_t first, config.IntOr("max_window_layers", 28, 0, kMaxContext));
  ASSIGN_OR_RETURN(const std::vector<bool> rotate, RotatingLayers(config, model));
  for (size_t i = 0; i < layers; ++i) {
    const bool leading = static_cast<int64_t>(i) < first;
    if (rule == ConfigWindow::kPattern) windows[i] = (i + 1) % period != 0;
    if (rule == ConfigWindow::kSwitched) windows[i] = !leading;
    if (rule == ConfigWindow::kSwitchedEven) windows[i] = leading && i % 2 == 0;
    if (rule == ConfigWindow::kSwitchedNoRope) windows[i] = !rotate[i];
  }
  // ReadMixers reads the types of layers without attention.
  if (!model.family->recurrent.empty()) return windows;
  const Json* types = config.Find("layer_types");
  if (types == nullptr || rule == ConfigWindow::kSwitchedAll) return windows;
  const auto unsupported = [&] {
    return config.Unsupported("layer_types",
                              absl::StrCat(Shown(*types), " is not supported, expected ", layers,
                                           " times full_attention or sliding_attention"));
  };
  if (!types->is_array() || types->size() != layers) return unsupported();
  for (size_t i = 0; i < layers; ++i) {
    const Json& type = (*types)[i];
    if (type != "full_attention" && type != "sliding_attention") return unsupported();
    windows[i] = type == "sliding_attention";
  }
  return windows;
}

}  // namespace

absl::Status ReadExperts(const JsonMembers& config, HfModel* model, GgufMetadata* metadata) {
  return ExpertReader(config, model, metadata).Read();
}

absl::Status ReadWindow(const JsonMembers& config, const HfModel& model, GgufMetadata* metadata) {
  constexpr absl::string_view kSize = "sliding_window";
  ASSIGN_OR_RETURN(const int64_t size, config.IntOr(kSize, 0, 0, kMaxContext));
  ASSIGN_OR_RETURN(const bool used, config.BoolOr("use_sliding_window", false));
  ASSIGN_OR_RETURN(const std::vector<bool> windows, WindowLayers(config, model));
  const ConfigWindow rule = model.family->window;
  const bool always = rule == ConfigWindow::kAlways || rule == ConfigWindow::kPattern;
  const bool switched = rule != ConfigWindow::kNone && !always;
  if (size == 0 && config.Has(kSize) && (always || (switched && used))) {
    return config.Error(kSize, "0, expected an integer above 0, or null for no window");
  }
  if (rule == ConfigWindow::kNone && used) {
    return config.Unsupported("use_sliding_window", "true is not supported, expected false");
  }
  if (size == 0 || rule == ConfigWindow::kNone || (switched && !used)) {
    const Json* types = config.Find("layer_types");
    if (types != nullptr && std::find(windows.begin(), windows.end(), true) != windows.end()) {
      return config.Unsupported("layer_types",
                                absl::StrCat(Shown(*types),
                                             " is not supported without a sliding window, expected "
                                             "full_attention for every layer"));
    }
    return absl::OkStatus();
  }
  const auto name = [&](absl::string_view suffix) {
    return absl::StrCat(model.family->architecture, ".attention.", suffix);
  };
  const bool all = std::find(windows.begin(), windows.end(), false) == windows.end();
  metadata->SetU32(name("sliding_window"), static_cast<uint32_t>(size));
  // If this key is missing, every layer of a family with ConfigWindow::kAlways has the window.
  if (rule != ConfigWindow::kAlways || !all) {
    metadata->SetBools(name("sliding_window_pattern"), windows);
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine::hf

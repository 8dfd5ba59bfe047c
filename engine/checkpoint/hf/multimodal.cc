#include "engine/checkpoint/hf/multimodal.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {

namespace {

template <size_t kSize>
bool Contains(const absl::string_view (&list)[kSize], absl::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

}  // namespace

absl::StatusOr<TextConfig> FindTextConfig(const std::string& path, const Json& config) {
  constexpr absl::string_view kFlatTypes[] = {"qwen2_vl", "qwen2_5_vl"};
  constexpr char kTextConfig[] = "text_config";
  const JsonMembers outer(path, config);
  TextConfig text = {.config = config};
  if (const Json* inner = outer.Find(kTextConfig); inner != nullptr && inner->is_object()) {
    text = {.config = *inner, .prefix = absl::StrCat(kTextConfig, "."), .nested = true};
  }
  ASSIGN_OR_RETURN(text.model_type,
                   JsonMembers(path, text.config, text.prefix).String("model_type"));
  if (text.nested || !Contains(kFlatTypes, text.model_type)) return text;
  absl::StrAppend(&text.model_type, "_text");
  text.nested = true;
  for (const char* key : {"vision_config", "image_token_id", "video_token_id", "vision_token_id",
                          "vision_start_token_id", "vision_end_token_id"}) {
    text.config.erase(key);
  }
  return text;
}

absl::StatusOr<bool> MayBeTied(const JsonMembers& outer, const JsonMembers& text) {
  constexpr absl::string_view kDefaultTrue[] = {
      "deepseek_vl", "gemma3",      "got_ocr2", "granite4_vision", "granite_speech", "internvl",
      "janus",       "lighton_ocr", "mistral3", "ovis2",           "lfm2_vl"};
  // In models of these types, the key may also be in text_config.
  constexpr absl::string_view kInTextConfig[] = {"fast_vlm",      "llava",      "llava_onevision",
                                                 "perception_lm", "qwen2_5_vl", "qwen2_vl",
                                                 "qwen3_5",       "qwen3_5_moe"};
  ASSIGN_OR_RETURN(const std::string type, outer.StringOr("model_type", ""));
  if (Contains(kInTextConfig, type)) {
    ASSIGN_OR_RETURN(const bool tied, text.BoolOr(kTie, false));
    if (tied) return true;
  }
  return outer.BoolOr(kTie, Contains(kDefaultTrue, type));
}

absl::Status CheckMultimodal(const JsonMembers& outer, const JsonMembers& text) {
  ASSIGN_OR_RETURN(const std::string type, outer.String("model_type"));
  if (type == "paligemma") {
    return outer.Unsupported(
        "model_type",
        "\"paligemma\" is not supported, because the tokens of a prompt attend "
        "to later tokens");
  }
  const std::pair<absl::string_view, Json> neutral[] = {{"final_logit_softcapping", Json()},
                                                        {"logits_scaling", Json(1)}};
  for (const auto& [key, value] : neutral) {
    const Json* found = text.Find(key);
    if (found == nullptr || *found == value) continue;
    return text.Unsupported(
        key, absl::StrCat(Shown(*found), " is not supported in model_type ", Shown(Json(type)),
                          ", where transformers does not use it; expected ", Shown(value)));
  }
  return absl::OkStatus();
}

void WriteImageLayers(const Json& config, const HfFamily& family, GgufMetadata* metadata) {
  const auto vision = config.find("vision_config");
  if (vision == config.end() || !vision->is_object()) return;
  const auto layers = vision->find("deepstack_visual_indexes");
  if (layers == vision->end() || !layers->is_array()) return;
  metadata->SetU32(absl::StrCat(family.architecture, ".n_deepstack_layers"),
                   static_cast<uint32_t>(layers->size()));
}

}  // namespace tidepool::engine::hf

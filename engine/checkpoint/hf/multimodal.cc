#include "engine/checkpoint/hf/multimodal.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {

absl::StatusOr<bool> MayBeTied(const JsonMembers& outer, const JsonMembers& text) {
  ASSIGN_OR_RETURN(const bool outer_tied, outer.BoolOr(kTie, false));
  ASSIGN_OR_RETURN(const bool text_tied, text.BoolOr(kTie, false));
  return outer_tied || text_tied || (!outer.Has(kTie) && !text.Has(kTie));
}

absl::Status CheckLogits(const JsonMembers& outer, const JsonMembers& text) {
  ASSIGN_OR_RETURN(const std::string type, outer.StringOr("model_type", ""));
  if (type == "paligemma" || type == "granite4_vision") return absl::OkStatus();
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

}  // namespace tidepool::engine::hf

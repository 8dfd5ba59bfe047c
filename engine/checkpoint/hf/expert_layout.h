// Finds the layout of the experts' matrices in a checkpoint of Qwen3-VL-MoE.
//
// In published checkpoints and in transformers 4, the layout is [experts, inputs, outputs]. So
// gate_up_proj is [experts, hidden, 2 * width], and down_proj is [experts, width, hidden].
// transformers 5 saves the transposes, [experts, outputs, inputs], and reads both layouts. In both
// layouts, the gate has the first half of the outputs of gate_up_proj. Implementation detail of
// tensors.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_EXPERT_LAYOUT_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_EXPERT_LAYOUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/tensor_rules.h"
#include "engine/checkpoint/hf/tensors.h"

namespace tidepool::engine::hf {

// Returns the name of the layer's other tensor of experts: down_proj for gate_up_proj, and
// gate_up_proj for down_proj.
std::string OtherExpertTensor(absl::string_view name);

// For a rule with `either_layout`, returns which elements it takes from `source`. The shape of
// `source` determines the layout. `other` is the layer's other tensor of experts. Returns
// INVALID_ARGUMENT if the shape is that of neither layout. If the matrices are square, the shape
// fits both layouts. transformers 5 then assumes the layout that it saves, but other programs do
// not. So this function returns UNIMPLEMENTED, unless the shape of `other` shows that layout.
absl::StatusOr<Take> TakeInItsLayout(const HfModel& model, const TensorRule& rule,
                                     const TensorSource& source, const TensorSource& other);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_EXPERT_LAYOUT_H_

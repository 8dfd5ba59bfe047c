// The table of model families. It has the properties that follow from general.architecture, because
// files have no keys for them. All other properties follow from the keys and the tensors of the
// file. A family that is a new mix of known parts is one row in families.cc; CONTRIBUTING.md shows
// how to add one.
#ifndef TIDEPOOL_ENGINE_MODEL_FAMILIES_H_
#define TIDEPOOL_ENGINE_MODEL_FAMILIES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"

namespace tidepool::engine {

class Keys;

enum class ExpertUse : uint8_t { kNever, kMaybe, kAlways };
enum class SharedExpert : uint8_t {
  kNever,
  kPlain,
  kGated,  // with a gate: the output is multiplied by the sigmoid of a learned gate
};
enum class WindowRope : uint8_t {
  kShared,    // layers with a window rotate like others, unless the file has rope.freq_base_swa
  kUnscaled,  // layers with a window rotate without rope.scaling
};

// Large because it has a member for each difference between families.
struct Family {
  absl::string_view architecture;  // value of general.architecture
  absl::string_view models;        // names of the models, for people

  kernels::RopeStyle rope = kernels::RopeStyle::kHalves;
  int rope_gap = 0;  // layers gap - 1, 2 gap - 1, ... do not rotate; 0: all layers rotate
  QkNorm qk_norm = QkNorm::kNone;
  bool qk_norm_by_tensor = false;  // the norms exist only if the checkpoint has attn_q_norm
  NormPlacement norms = NormPlacement::kPre;
  // The name of the tensor that is the norm before the FFN.
  absl::string_view ffn_norm = "ffn_norm";

  // The name of the tensor that is the norm after the last layer.
  absl::string_view final_norm = "output_norm";

  bool mla = false;              // has multi-head latent attention
  bool gated_attention = false;  // LayerConfig::gated
  // The mixer of the layers without attention. kAttention: all layers have attention.
  Mixer recurrent = Mixer::kAttention;
  kernels::HeadOrder delta_order = kernels::HeadOrder::kGrouped;
  bool rope_sections = false;  // whether rope.dimension_sections is read

  // Whether attention.sliding_window applies if there is no attention.sliding_window_pattern.
  bool window = false;
  int64_t default_window = 0;  // the window if there is no attention.sliding_window
  // layers period - 1, 2 period - 1, ... have no window; 0: all layers have one
  int full_period = 0;
  WindowRope window_rope = WindowRope::kShared;
  // base of layers with a window if there is no rope.freq_base_swa; 0: rope.freq_base
  double window_rope_base = 0;

  ExpertUse experts = ExpertUse::kNever;
  SharedExpert shared_expert = SharedExpert::kNever;
  // Used if there is no expert_feed_forward_length. If true, feed_forward_length is the width of
  // all chosen experts together. If false, it is the width of one expert.
  bool width_of_chosen = false;
  // used if there is no expert_gating_func
  kernels::GateScore score = kernels::GateScore::kSoftmax;
  bool normalize_weights = false;  // used if there is no expert_weights_norm
  float normalize_epsilon = 0;     // MoeConfig::normalize_epsilon

  kernels::GluForm glu = kernels::GluForm::kSwiGlu;
  bool scaled_embedding = false;  // whether the embedding is multiplied by sqrt(hidden_size)
  bool yarn_truncate = true;      // whether YaRN's ramp begins and ends at whole dimensions

  bool draft_layers = false;  // whether nextn_predict_layers is read
  bool softcaps = false;      // whether attn_logit_softcapping and final_logit_softcapping are read
  // whether embedding_scale, residual_scale and logit_scale (a divisor) are read
  bool multipliers = false;
  // A function for what a row cannot express; null if not needed. It runs at the end of
  // ModelConfig::Parse.
  absl::Status (*adjust)(const Checkpoint& file, const Keys& keys, ModelConfig* config) = nullptr;
};

absl::Span<const Family> Families();

// Finds the family of a checkpoint. If the family is not supported, returns UNIMPLEMENTED with
// general.architecture (or with general.type if the checkpoint is not a model) and with the
// supported families.
absl::StatusOr<const Family*> FindFamily(const Checkpoint& file);

// Finds the family of a config that ModelConfig::Parse returned.
const Family& FamilyOf(const ModelConfig& config);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_FAMILIES_H_

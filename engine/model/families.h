// The table of model families: properties that follow from general.architecture because no key
// states them. Everything else comes from keys and from which tensors there are. A family that is a
// new mix of known parts is one row in families.cc; CONTRIBUTING.md shows how to add one.
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
  kGated,  // its output is multiplied by the sigmoid of a learned gate
};
enum class WindowRope : uint8_t {
  kShared,    // layers with a window rotate like the others, unless rope.freq_base_swa is there
  kUnscaled,  // without rope.scaling
};

// Large because it has a member for each difference between families.
struct Family {
  absl::string_view architecture;  // general.architecture
  absl::string_view models;        // for people

  kernels::RopeStyle rope = kernels::RopeStyle::kHalves;
  int rope_gap = 0;  // layers gap - 1, 2 gap - 1, ... do not rotate; 0: all layers rotate
  QkNorm qk_norm = QkNorm::kNone;
  bool qk_norm_by_tensor = false;  // only if the checkpoint has attn_q_norm
  NormPlacement norms = NormPlacement::kPre;
  // Name of the norm before the FFN.
  absl::string_view ffn_norm = "ffn_norm";

  bool mla = false;  // multi-head latent attention

  // Whether attention.sliding_window applies without attention.sliding_window_pattern.
  bool window = false;
  int64_t default_window = 0;  // without attention.sliding_window
  int full_period = 0;  // layers period - 1, 2 period - 1, ... have no window; 0: all have it
  WindowRope window_rope = WindowRope::kShared;
  double window_rope_base = 0;  // of window layers, without rope.freq_base_swa; 0: rope.freq_base

  ExpertUse experts = ExpertUse::kNever;
  SharedExpert shared_expert = SharedExpert::kNever;
  // Without expert_feed_forward_length, feed_forward_length is the width of all chosen experts
  // together, not of one.
  bool width_of_chosen = false;
  kernels::GateScore score = kernels::GateScore::kSoftmax;  // without expert_gating_func
  bool normalize_weights = false;                           // without expert_weights_norm

  kernels::GluForm glu = kernels::GluForm::kSwiGlu;
  bool scaled_embedding = false;  // the embedding is multiplied by sqrt(hidden_size)
  bool yarn_truncate = true;      // YaRN's ramp begins and ends at whole dimensions

  bool draft_layers = false;  // reads nextn_predict_layers
  bool softcaps = false;      // reads attn_logit_softcapping and final_logit_softcapping
  bool multipliers = false;   // reads embedding_scale, residual_scale and logit_scale (a divisor)
  // What no row expresses. Runs last.
  absl::Status (*adjust)(const Checkpoint& file, const Keys& keys, ModelConfig* config) = nullptr;
};

absl::Span<const Family> Families();

// Finds the family of a checkpoint. UNIMPLEMENTED names general.architecture, or general.type if
// the checkpoint is not a model, and what is supported.
absl::StatusOr<const Family*> FindFamily(const Checkpoint& file);

// Finds the family of a config that Parse made.
const Family& FamilyOf(const ModelConfig& config);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_FAMILIES_H_

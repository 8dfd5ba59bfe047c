// The weights of a decoder-only transformer, which are found in a checkpoint by GGUF's tensor
// names.
#ifndef TIDEPOOL_ENGINE_MODEL_TRANSFORMER_WEIGHTS_H_
#define TIDEPOOL_ENGINE_MODEL_TRANSFORMER_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/linear.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "moe/expert_record.h"

namespace tidepool::engine {

struct MoeWeights {
  Linear router;                             // [experts, hidden]
  std::vector<kernels::FfnWeights> experts;  // by id
  // If the layer has a shared expert: its FFN, and the gate [1, hidden] that scales it.
  kernels::FfnWeights shared;
  Linear shared_gate;
};

struct LayerWeights {
  absl::Span<const float> attention_norm;  // [hidden]
  Linear q;                                // [heads * head_dim, hidden]
  Linear k;                                // [kv_heads * head_dim, hidden]
  Linear v;
  absl::Span<const float> q_norm;  // [head_dim]; empty without qk_norm
  absl::Span<const float> k_norm;
  Linear attention_output;           // [hidden, heads * head_dim]
  absl::Span<const float> ffn_norm;  // [hidden]
  // Dense layers: gate and up [ffn_width, hidden], down [hidden, ffn_width].
  kernels::PackedMatrix ffn_gate;
  kernels::PackedMatrix ffn_up;
  Linear ffn_down;
  MoeWeights moe;  // MoE layers
};

struct TransformerWeights {
  kernels::PackedMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  absl::Span<const float> final_norm;  // [hidden]
  Linear head;  // [vocab, hidden]; equal to the embedding if the file has none
  // Divisors of the rotary frequencies [rope.dims / 2]; empty: none.
  absl::Span<const float> rope_divisors;
};

// How routed experts are loaded.
enum class ExpertLoading : uint8_t {
  kPacked,      // packed into memory, like everything else
  kShapesOnly,  // checked by name, shape and type; MoeWeights::experts have no data
};

// Called with the finished part of a load: from above 0 to 1.
using LoadProgress = std::function<void(double fraction)>;

// Packs every tensor that `config` requires, and experts as requested. Accepted spellings:
// attn_qkv.weight for q, k and v together; ffn_gate_up_exps.weight (gate rows first); one tensor
// per expert (ffn_gate.E.weight). INVALID_ARGUMENT names the tensor if it is missing, has the wrong
// shape or type, contains NaNs, or would be ignored.
absl::StatusOr<TransformerWeights> LoadTransformerWeights(const ModelConfig& config,
                                                          WeightStore* store,
                                                          const LoadProgress& progress,
                                                          ExpertLoading experts);

// Identifies a routed expert of a layer.
struct ExpertId {
  int layer = 0;
  int expert = 0;
};

// Returns its types and shapes, without data. Same errors as above.
absl::StatusOr<kernels::FfnWeights> ExpertShapes(const ModelConfig& config, ExpertId id,
                                                 WeightStore* store);
// DATA_LOSS names the file and the range if the disk cannot read it. Otherwise same errors as
// above.
absl::Status CheckExpertReadable(const ModelConfig& config, ExpertId id, WeightStore* store);
// Packs it into a record with the layout of its shapes. Same errors as above.
absl::Status PackExpert(const ModelConfig& config, ExpertId id, WeightStore* store,
                        const moe::ExpertLayout& layout, std::byte* record);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_TRANSFORMER_WEIGHTS_H_

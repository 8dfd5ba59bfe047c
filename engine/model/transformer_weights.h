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
  absl::Span<const float> selection_bias;    // [experts]; empty: none
  std::vector<kernels::FfnWeights> experts;  // by id
  // If the layer has a shared expert: its FFN, and the gate [1, hidden] that scales it. Without
  // MoeConfig::shared_gate, the gate is empty.
  kernels::FfnWeights shared;
  Linear shared_gate;
};

// Multi-head latent attention. LayerWeights::q multiplies the input, or the compressed query if
// there is q_a.
struct MlaWeights {
  Linear q_a;                              // [q_rank, hidden]; empty: the query is not compressed
  absl::Span<const float> q_a_norm;        // [q_rank]
  Linear kv_a;                             // [kv_rank + rope_dim, hidden]
  absl::Span<const float> kv_a_norm;       // [kv_rank]
  std::vector<kernels::PackedMatrix> k_b;  // by head: [kv_rank, nope_dim]
  std::vector<kernels::PackedMatrix> v_b;  // by head: [value_dim, kv_rank]
};

// Norms are empty if the layer has none at that place.
struct LayerWeights {
  absl::Span<const float> attention_norm;  // [hidden], of the attention's input
  Linear q;                                // [heads * head_dim, hidden]
  Linear k;                                // [kv_heads * head_dim, hidden]
  Linear v;
  MlaWeights mla;                  // in place of k and v
  absl::Span<const float> q_norm;  // [head_dim], or [heads * head_dim] with QkNorm::kRow
  absl::Span<const float> k_norm;
  absl::Span<const float> sinks;                // [heads]; empty: none
  Linear attention_output;                      // [hidden, heads * head_dim]
  absl::Span<const float> attention_post_norm;  // [hidden], of the attention's output
  absl::Span<const float> ffn_norm;             // [hidden], of the FFN's input
  absl::Span<const float> ffn_post_norm;        // [hidden], of the FFN's output
  kernels::FfnWeights ffn;                      // dense layers
  MoeWeights moe;                               // MoE layers
};

struct TransformerWeights {
  kernels::PackedMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  absl::Span<const float> final_norm;  // [hidden]
  Linear head;  // [vocab, hidden]; equal to the embedding if the file has none
  // By rope: divisors of its frequencies [dims / 2]; empty: none.
  std::vector<absl::Span<const float>> rope_divisors;
  std::vector<absl::Span<const float>> long_rope_divisors;  // of RopeConfig::long_divisors
};

// How routed experts are loaded.
enum class ExpertLoading : uint8_t {
  kPacked,      // packed into memory, like everything else
  kShapesOnly,  // checked by name, shape and type; MoeWeights::experts have no data
};

// Called with the finished part of a load: from above 0 to 1.
using LoadProgress = std::function<void(double fraction)>;

// Packs every tensor that `config` requires, and experts as requested. Accepted spellings:
// attn_qkv.weight for q, k and v together; ffn_up.weight without ffn_gate.weight, and
// ffn_gate_up_exps.weight, for gate and up together (gate rows first); one tensor per expert
// (ffn_gate.E.weight). INVALID_ARGUMENT names the tensor if it is missing, has the wrong
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

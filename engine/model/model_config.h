// ModelConfig: the architecture in a checkpoint's metadata, validated and immutable.
#ifndef TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_
#define TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/backend.h"

namespace tidepool::engine {

enum class FfnKind : uint8_t { kDense, kMoe };

struct LayerConfig {
  int heads = 0;
  int kv_heads = 0;
  FfnKind ffn = FfnKind::kDense;
  int ffn_width = 0;           // neurons of a dense layer's FFN
  int64_t sliding_window = 0;  // 0: full attention
};

struct MoeConfig {
  int experts = 0;
  int experts_used = 0;
  int expert_width = 0;            // neurons of one routed expert
  int shared_width = 0;            // neurons of the shared expert; 0: none
  bool normalize_weights = false;  // divide the chosen experts' weights by their sum
};

// Limit for rotary angles within the context, because the kernels' sin and cos accept no larger
// ones.
inline constexpr double kMaxRopeAngle = 0x1p30;

struct RopeConfig {
  kernels::RopeStyle style = kernels::RopeStyle::kInterleaved;
  int dims = 0;  // rotated elements of each head
  // [dims / 2] radians per position, with all scaling except that of rope_freqs.weight.
  std::vector<double> inv_freq;
  float scale = 1;  // factor on cos and sin (YaRN)
};

// Immutable and validated. For a file, only Parse creates it.
struct ModelConfig {
  // Supported values of general.architecture: llama (Llama, Mistral, Mixtral), qwen2, qwen2moe,
  // qwen3, qwen3moe. Errors name the key, its value and what is accepted: INVALID_ARGUMENT if the
  // file is wrong, UNIMPLEMENTED if it uses an unsupported feature.
  static absl::StatusOr<ModelConfig> Parse(const Checkpoint& file);

  std::string architecture;
  std::string name;    // general.name, or the file's name; one line of UTF-8
  int vocab_size = 0;  // rows of the embedding; the tokenizer may have fewer tokens
  int hidden_size = 0;
  int head_dim = 0;
  int64_t context_length = 0;  // number of positions in training
  float norm_eps = 0;
  bool qk_norm = false;  // RMS norm of each head's q and k before RoPE
  RopeConfig rope;
  MoeConfig moe;
  std::vector<LayerConfig> layers;

  // Number of layers with experts.
  int moe_layers() const;
};

// KV bytes per token in all layers, for keys and values of `dtype`.
int64_t KvBytesPerToken(const ModelConfig& config, kernels::DType dtype);

// The depth in tokens at which the attention of a row needs as many multiplications as its weights.
// 0 if all layers have windows.
int64_t AttentionDepth(const ModelConfig& config);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_

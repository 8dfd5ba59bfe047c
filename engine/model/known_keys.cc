// The part of ModelConfig::Parse that rejects keys of unsupported architectures.
#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "engine/model/config_keys.h"

namespace tidepool::engine {
namespace {

// Keys that do not change results, or that repeat what the tensors say.
constexpr absl::string_view kHarmless[] = {
    "attention.layer_norm_epsilon",
    "attention.sliding_window",
    "decoder_start_token_id",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "leading_dense_block_count",
    "n_deepstack_layers",  // of Qwen3-VL's images
    "pooling_type",
    "rope.scaling.finetuned",
    "tensor_data_layout",
    "vocab_size",
};

// A value other than 0 with which a key of another architecture has no effect. With 0, no key has
// an effect.
struct NeutralValue {
  absl::string_view suffix;
  double value = 0;
};
constexpr NeutralValue kNeutral[] = {
    {"attention.output_scale", 1},
    {"embedding_scale", 1},
    {"expert_gating_func", 1},
    {"expert_group_count", 1},
    {"expert_group_used_count", 1},
    {"expert_weights_scale", 1},
    {"full_attention_interval", 1},
    {"interleave_moe_layer_step", 1},
    {"logit_scale", 1},
    {"moe_every_n_layers", 1},
    {"residual_scale", 1},
};

double NeutralValueOf(absl::string_view suffix) {
  const auto* found = std::find_if(std::begin(kNeutral), std::end(kNeutral),
                                   [&](const NeutralValue& one) { return one.suffix == suffix; });
  return found == std::end(kNeutral) ? 0 : found->value;
}

// Returns whether the entry's value has no effect.
absl::StatusOr<bool> IsNeutral(const Checkpoint& file, const GgufEntry& entry, double neutral) {
  if (entry.is_array) return false;
  switch (entry.type) {
    case GgufValueType::kString:
      return false;
    case GgufValueType::kBool: {
      ASSIGN_OR_RETURN(const bool value, file.Bool(entry.key));
      return !value;
    }
    case GgufValueType::kFloat32:
    case GgufValueType::kFloat64: {
      ASSIGN_OR_RETURN(const double value, file.Float(entry.key));
      return value == 0 || value == neutral;
    }
    default: {
      ASSIGN_OR_RETURN(const int64_t value, file.Int(entry.key));
      return value == 0 || static_cast<double>(value) == neutral;
    }
  }
}

}  // namespace

absl::Status RejectUnknownKeys(const Checkpoint& file, const Keys& keys) {
  ASSIGN_OR_RETURN(const bool causal, file.BoolOr(keys.Name("attention.causal"), true));
  if (!causal) {
    return keys.Unsupported("attention.causal", "false is not supported, expected true");
  }
  for (const GgufEntry& entry : file.metadata()) {
    absl::string_view suffix = entry.key;
    if (!absl::ConsumePrefix(&suffix, keys.prefix()) || keys.WasAsked(suffix)) continue;
    if (std::find(std::begin(kHarmless), std::end(kHarmless), suffix) != std::end(kHarmless)) {
      continue;
    }
    const double neutral = NeutralValueOf(suffix);
    ASSIGN_OR_RETURN(const bool ignored, IsNeutral(file, entry, neutral));
    if (ignored) continue;
    return keys.Unsupported(
        suffix, absl::StrCat(Checkpoint::FormatValue(entry), " is not supported, expected ",
                             neutral, " or no such key"));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine

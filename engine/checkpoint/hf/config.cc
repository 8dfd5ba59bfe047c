#include "engine/checkpoint/hf/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/hf/rope.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

// These limits are far above real models. Each fits in an int, and the product of any two fits in
// 64 bits.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocabulary = 1 << 24;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxContext = 1 << 30;

// Keys that do not affect the logits at inference.
constexpr absl::string_view kHarmless[] = {
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cls_token_id",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "expert_dropout",
    "experts_implementation",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "max_window_layers",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torch_version",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "vocab_size",
};

class ConfigReader {
 public:
  ConfigReader(const JsonMembers& config, const HfFamily& family, GgufMetadata* metadata)
      : config_(config), family_(family), metadata_(metadata) {
    model_.family = &family;
  }

  absl::StatusOr<HfModel> Read() {
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(ReadHeads());
    RETURN_IF_ERROR(ReadFfn());
    RETURN_IF_ERROR(ReadWindow());
    RETURN_IF_ERROR(ReadBiases());
    RETURN_IF_ERROR(ReadHfRope(config_, &model_, metadata_));
    ASSIGN_OR_RETURN(model_.tied, config_.BoolOr("tie_word_embeddings", false));
    RETURN_IF_ERROR(CheckOthers());
    return std::move(model_);
  }

 private:
  void SetU32(absl::string_view suffix, int64_t value) {
    metadata_->SetU32(absl::StrCat(family_.architecture, ".", suffix),
                      static_cast<uint32_t>(value));
  }

  // Reads `key` from config.json and sets the metadata key that ends in `suffix`.
  absl::StatusOr<int64_t> Size(absl::string_view key, absl::string_view suffix, int64_t high) {
    ASSIGN_OR_RETURN(const int64_t value, config_.Int(key, 1, high));
    SetU32(suffix, value);
    return value;
  }

  absl::Status ReadSizes() {
    ASSIGN_OR_RETURN(hidden_, Size("hidden_size", "embedding_length", kMaxWidth));
    ASSIGN_OR_RETURN(layers_, Size("num_hidden_layers", "block_count", kMaxLayers));
    RETURN_IF_ERROR(Size("max_position_embeddings", "context_length", kMaxContext).status());
    RETURN_IF_ERROR(Size("vocab_size", "vocab_size", kMaxVocabulary).status());
    ASSIGN_OR_RETURN(const double eps, config_.Float("rms_norm_eps"));
    if (!(eps > 0 && eps < 1)) {
      return config_.Error("rms_norm_eps",
                           absl::StrCat(eps, ", expected a number above 0 and below 1"));
    }
    metadata_->SetF32(absl::StrCat(family_.architecture, ".attention.layer_norm_rms_epsilon"),
                      static_cast<float>(eps));
    return absl::OkStatus();
  }

  absl::Status ReadHeads() {
    ASSIGN_OR_RETURN(model_.heads, Size("num_attention_heads", "attention.head_count", kMaxHeads));
    ASSIGN_OR_RETURN(model_.kv_heads,
                     config_.IntOr("num_key_value_heads", model_.heads, 1, kMaxHeads));
    SetU32("attention.head_count_kv", model_.kv_heads);
    if (model_.heads % model_.kv_heads != 0) {
      return config_.Error("num_key_value_heads",
                           absl::StrCat(model_.kv_heads, ", expected a divisor of ", model_.heads,
                                        ", num_attention_heads"));
    }
    int64_t fallback = family_.default_head_dim;
    if (fallback == 0 && !config_.Has("head_dim")) {
      if (hidden_ % model_.heads != 0) {
        return config_.Error("head_dim",
                             absl::StrCat("missing, expected this key: hidden_size ", hidden_,
                                          " cannot be divided among ", model_.heads, " heads"));
      }
      fallback = hidden_ / model_.heads;
    }
    ASSIGN_OR_RETURN(model_.head_dim, config_.IntOr("head_dim", fallback, 1, kMaxHeadDim));
    if (model_.head_dim % 2 != 0) {
      return config_.Error("head_dim", absl::StrCat(model_.head_dim, ", expected an even number"));
    }
    SetU32("attention.key_length", model_.head_dim);
    SetU32("attention.value_length", model_.head_dim);
    return absl::OkStatus();
  }

  absl::Status ReadFfn() {
    ASSIGN_OR_RETURN(const std::string activation, config_.StringOr("hidden_act", "silu"));
    if (activation != "silu" && activation != "swish") {
      return config_.Unsupported(
          "hidden_act", absl::StrCat(Shown(Json(activation)), " is not supported, expected silu"));
    }
    model_.sparse.assign(layers_, false);
    switch (family_.experts) {
      case ConfigExperts::kNone:
        return Size("intermediate_size", "feed_forward_length", kMaxWidth).status();
      case ConfigExperts::kMixtral: {
        ASSIGN_OR_RETURN(const int64_t width,
                         Size("intermediate_size", "feed_forward_length", kMaxWidth));
        SetU32("expert_feed_forward_length", width);
        RETURN_IF_ERROR(ReadExpertCounts("num_local_experts"));
        model_.sparse.assign(layers_, true);
        return absl::OkStatus();
      }
      case ConfigExperts::kQwen:
        return ReadQwenExperts();
    }
    return absl::OkStatus();
  }

  absl::Status ReadExpertCounts(absl::string_view key) {
    ASSIGN_OR_RETURN(model_.experts, Size(key, "expert_count", kMaxExperts));
    return Size("num_experts_per_tok", "expert_used_count", model_.experts).status();
  }

  absl::Status ReadQwenExperts() {
    // Transformers 5 writes num_local_experts.
    RETURN_IF_ERROR(
        ReadExpertCounts(config_.Has("num_experts") ? "num_experts" : "num_local_experts"));
    RETURN_IF_ERROR(
        Size("moe_intermediate_size", "expert_feed_forward_length", kMaxWidth).status());
    if (family_.shared_expert) {
      RETURN_IF_ERROR(
          Size("shared_expert_intermediate_size", "expert_shared_feed_forward_length", kMaxWidth)
              .status());
    }
    ASSIGN_OR_RETURN(const bool normalize, config_.BoolOr("norm_topk_prob", false));
    metadata_->SetBool(absl::StrCat(family_.architecture, ".expert_weights_norm"), normalize);
    ASSIGN_OR_RETURN(const int64_t step, config_.IntOr("decoder_sparse_step", 1, 1, kMaxLayers));
    ASSIGN_OR_RETURN(const std::vector<int64_t> dense, config_.IntsOr("mlp_only_layers"));
    for (int64_t i = 0; i < layers_; ++i) {
      const bool listed = std::find(dense.begin(), dense.end(), i) != dense.end();
      model_.sparse[i] = !listed && (i + 1) % step == 0;
    }
    const auto first = std::find(model_.sparse.begin(), model_.sparse.end(), true);
    if (std::find(first, model_.sparse.end(), false) != model_.sparse.end() ||
        first == model_.sparse.end()) {
      return config_.Unsupported(
          config_.Has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step",
          "a layer without experts after one that has them is not supported");
    }
    const int64_t leading = first - model_.sparse.begin();
    if (leading > 0) SetU32("leading_dense_block_count", leading);
    // The FFN width of the dense layers.
    if (leading > 0 || config_.Has("intermediate_size")) {
      RETURN_IF_ERROR(Size("intermediate_size", "feed_forward_length", kMaxWidth).status());
    }
    return absl::OkStatus();
  }

  absl::Status ReadWindow() {
    RETURN_IF_ERROR(config_.IntOr("sliding_window", 0, 0, kMaxContext).status());
    ASSIGN_OR_RETURN(const bool used, config_.BoolOr("use_sliding_window", false));
    const Json* types = config_.Find("layer_types");
    const bool always = family_.window == ConfigWindow::kAlways && config_.Has("sliding_window");
    if (types != nullptr) {
      const Json expected = always ? "sliding_attention" : "full_attention";
      const bool uniform =
          types->is_array() && std::all_of(types->begin(), types->end(),
                                           [&](const Json& type) { return type == expected; });
      if (!uniform) {
        return config_.Unsupported("layer_types",
                                   absl::StrCat(Shown(*types), " is not supported, expected ",
                                                Shown(expected), " for every layer"));
      }
    }
    if (used) {
      return config_.Unsupported("use_sliding_window", "true is not supported, expected false");
    }
    if (!always) return absl::OkStatus();
    ASSIGN_OR_RETURN(const int64_t window, config_.IntOr("sliding_window", 0, 0, kMaxContext));
    SetU32("attention.sliding_window", window);
    return absl::OkStatus();
  }

  absl::Status ReadBiases() {
    switch (family_.bias) {
      case ConfigBias::kNone:
        break;
      case ConfigBias::kByKey: {
        ASSIGN_OR_RETURN(model_.qkv_bias, config_.BoolOr("attention_bias", false));
        model_.output_bias = model_.qkv_bias;
        break;
      }
      case ConfigBias::kQkv:
        model_.qkv_bias = true;
        break;
      case ConfigBias::kQkvUnless: {
        ASSIGN_OR_RETURN(model_.qkv_bias, config_.BoolOr("qkv_bias", true));
        break;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckOthers() const {
    const std::string key = config_.FirstUnread(kHarmless);
    if (key.empty()) return absl::OkStatus();
    return config_.Unsupported(
        key, absl::StrCat(Shown(*config_.Find(key)), " is not understood for model_type ",
                          family_.model_type,
                          "; if the key changes no results, remove it from the file"));
  }

  const JsonMembers& config_;
  const HfFamily& family_;
  GgufMetadata* const metadata_;
  HfModel model_;
  int64_t hidden_ = 0;
  int64_t layers_ = 0;
};

}  // namespace

absl::StatusOr<HfModel> ReadConfig(const std::string& path, const Json& config,
                                   GgufMetadata* metadata) {
  const JsonMembers members(path, config);
  ASSIGN_OR_RETURN(const std::string type, members.String("model_type"));
  const HfFamily* family = FindHfFamily(type);
  if (family == nullptr) {
    return members.Unsupported(
        "model_type",
        absl::StrCat(Shown(Json(type)), " is not supported, expected one of ", KnownHfFamilies()));
  }
  if (const Json* classes = members.Find("architectures"); classes != nullptr) {
    const Json& name = classes->is_array() && !classes->empty() ? (*classes)[0] : *classes;
    if (!name.is_string() || !absl::EndsWith(name.get<std::string>(), "ForCausalLM")) {
      return members.Unsupported(
          "architectures",
          absl::StrCat(Shown(*classes), " is not supported, expected a ...ForCausalLM"));
    }
  }
  if (members.Has("quantization_config")) {
    return members.Unsupported("quantization_config",
                               "quantised checkpoints are not supported; take the original in "
                               "F32, F16 or BF16");
  }
  metadata->SetString("general.architecture", family->architecture);
  return ConfigReader(members, *family, metadata).Read();
}

absl::Status ReadGenerationConfig(const std::string& path, const Json& config,
                                  GgufMetadata* metadata) {
  const JsonMembers members(path, config);
  const std::pair<absl::string_view, absl::string_view> numbers[] = {
      {"temperature", "temp"},
      {"top_p", "top_p"},
      {"min_p", "min_p"},
      {"repetition_penalty", "penalty_repeat"}};
  for (const auto& [key, name] : numbers) {
    if (!members.Has(key)) continue;
    ASSIGN_OR_RETURN(const double value, members.Float(key));
    metadata->SetF32(absl::StrCat("general.sampling.", name), static_cast<float>(value));
  }
  if (members.Has("top_k")) {
    ASSIGN_OR_RETURN(const int64_t top_k, members.Int("top_k", 0, kMaxVocabulary));
    metadata->SetU32("general.sampling.top_k", static_cast<uint32_t>(top_k));
  }
  // If do_sample is missing, the temperature stays unchanged. False requests greedy decoding.
  ASSIGN_OR_RETURN(const bool sample, members.BoolOr("do_sample", true));
  if (!sample) metadata->SetF32("general.sampling.temp", 0);
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const std::string& path, const Json& config, ConfigTokens* tokens) {
  const JsonMembers members(path, config);
  const std::pair<absl::string_view, std::vector<int64_t>*> keys[] = {
      {"bos_token_id", &tokens->bos},
      {"eos_token_id", &tokens->eos},
      {"pad_token_id", &tokens->padding}};
  for (const auto& [key, ids] : keys) {
    ASSIGN_OR_RETURN(std::vector<int64_t> found, members.IntsOr(key));
    if (!found.empty()) *ids = std::move(found);
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine::hf

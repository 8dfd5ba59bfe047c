#include "engine/checkpoint/hf/config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/hf/config_parts.h"
#include "engine/checkpoint/hf/multimodal.h"
#include "engine/checkpoint/hf/rope.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr absl::string_view kSoftcap = "softcapping";

// Keys that do not change the logits.
constexpr absl::string_view kHarmless[] = {
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "cls_token_id",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "embd_pdrop",
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
    "is_causal",
    "is_composition",
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
    "num_image_tokens",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "perceiver_config",
    "pixel_shuffle_factor",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "residual_dropout",
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
  // `more` are the parts that the model has in addition to those of the family.
  ConfigReader(const JsonMembers& config, const HfFamily& family, Parts more,
               GgufMetadata* metadata)
      : config_(config), family_(family), metadata_(metadata) {
    model_.family = &family;
    model_.parts = family.parts;
    model_.parts.Add(more);
  }

  absl::StatusOr<HfModel> Read() {
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(family_.parts.Has(Part::kMla) ? ReadMla() : ReadHeads());
    RETURN_IF_ERROR(ReadMixers(config_, &model_, metadata_));
    RETURN_IF_ERROR(ReadActivation());
    RETURN_IF_ERROR(ReadExperts(config_, &model_, metadata_));
    RETURN_IF_ERROR(ReadWindow(config_, model_, metadata_));
    RETURN_IF_ERROR(ReadBiases());
    RETURN_IF_ERROR(ReadHfRope(config_, &model_, metadata_));
    RETURN_IF_ERROR(ReadNumbers());
    ASSIGN_OR_RETURN(model_.tied, config_.BoolOr(kTie, false));
    if (!family_.tied.empty()) {
      ASSIGN_OR_RETURN(model_.tied, config_.BoolOr(family_.tied, model_.tied));
    }
    RETURN_IF_ERROR(CheckFixed());
    RETURN_IF_ERROR(CheckOthers());
    return std::move(model_);
  }

 private:
  std::string Name(absl::string_view suffix) const {
    return absl::StrCat(family_.architecture, ".", suffix);
  }
  void SetU32(absl::string_view suffix, int64_t value) {
    metadata_->SetU32(Name(suffix), static_cast<uint32_t>(value));
  }

  // Reads `key` from config.json and sets the metadata key that ends in `suffix`.
  absl::StatusOr<int64_t> Size(absl::string_view key, absl::string_view suffix, int64_t high) {
    ASSIGN_OR_RETURN(const int64_t value, config_.Int(key, 1, high));
    SetU32(suffix, value);
    return value;
  }

  absl::Status ReadSizes() {
    ASSIGN_OR_RETURN(hidden_, Size("hidden_size", "embedding_length", kMaxWidth));
    model_.experts.hidden = hidden_;
    ASSIGN_OR_RETURN(const int64_t layers, Size("num_hidden_layers", "block_count", kMaxLayers));
    model_.sparse.assign(layers, false);
    model_.recurrent.assign(layers, false);
    RETURN_IF_ERROR(Size("max_position_embeddings", "context_length", kMaxContext).status());
    ASSIGN_OR_RETURN(model_.vocab_size, Size("vocab_size", "vocab_size", kMaxVocabulary));
    ASSIGN_OR_RETURN(const double eps, config_.Float(family_.eps));
    if (!(eps > 0 && eps < 1)) {
      return config_.Error(family_.eps,
                           absl::StrCat(eps, ", expected a number above 0 and below 1"));
    }
    metadata_->SetF32(Name("attention.layer_norm_rms_epsilon"), static_cast<float>(eps));
    // transformers always uses 1e-6 in the norms of the compressed queries, keys and values. GGUF
    // has no key for this, because llama.cpp uses rms_norm_eps there, too.
    constexpr double kMlaEpsilon = 1e-6;
    if (family_.parts.Has(Part::kMla) && eps != kMlaEpsilon) {
      metadata_->SetF32(Name("attention.mla_norm_rms_epsilon"), static_cast<float>(kMlaEpsilon));
    }
    // This key has two names. transformers writes num_mtp_layers.
    const bool old_name = config_.Has("num_nextn_predict_layers");
    ASSIGN_OR_RETURN(
        model_.draft_layers,
        config_.IntOr(old_name ? "num_nextn_predict_layers" : "num_mtp_layers", 0, 0, kMaxLayers));
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
    if (!config_.Has("head_dim") && hidden_ % model_.heads != 0) {
      return config_.Error("head_dim",
                           absl::StrCat("missing, expected this key: hidden_size ", hidden_,
                                        " cannot be divided among ", model_.heads, " heads"));
    }
    ASSIGN_OR_RETURN(model_.head_dim,
                     config_.IntOr("head_dim", hidden_ / model_.heads, 1, kMaxHeadDim));
    if (model_.head_dim % 2 != 0) {
      return config_.Error("head_dim", absl::StrCat(model_.head_dim, ", expected an even number"));
    }
    SetU32("attention.key_length", model_.head_dim);
    SetU32("attention.value_length", model_.head_dim);
    return absl::OkStatus();
  }

  // Reads the settings of multi-head latent attention (MLA). In GGUF, MLA has one KV head, which
  // consists of the compressed keys and values and the rotated part of the keys.
  absl::Status ReadMla() {
    ASSIGN_OR_RETURN(model_.heads, Size("num_attention_heads", "attention.head_count", kMaxHeads));
    ASSIGN_OR_RETURN(const int64_t kv_heads,
                     config_.IntOr("num_key_value_heads", model_.heads, 1, kMaxHeads));
    if (kv_heads != model_.heads) {
      return config_.Unsupported("num_key_value_heads",
                                 absl::StrCat(kv_heads, " is not supported, expected ",
                                              model_.heads, ", num_attention_heads"));
    }
    model_.kv_heads = 1;
    SetU32("attention.head_count_kv", 1);
    if (config_.Has("q_lora_rank")) {
      RETURN_IF_ERROR(Size("q_lora_rank", "attention.q_lora_rank", kMaxWidth).status());
      model_.parts.Add(Part::kMlaLowRankQuery);
    } else {
      model_.parts.Add(Part::kMlaQuery);
    }
    ASSIGN_OR_RETURN(const int64_t rank,
                     Size("kv_lora_rank", "attention.kv_lora_rank", kMaxHeadDim));
    ASSIGN_OR_RETURN(model_.head_dim, config_.Int("qk_rope_head_dim", 1, kMaxHeadDim));
    ASSIGN_OR_RETURN(model_.key_dim, config_.Int("qk_nope_head_dim", 1, kMaxHeadDim));
    ASSIGN_OR_RETURN(model_.value_dim, config_.Int("v_head_dim", 1, kMaxHeadDim));
    if (model_.head_dim % 2 != 0) {
      return config_.Error("qk_rope_head_dim",
                           absl::StrCat(model_.head_dim, ", expected an even number"));
    }
    // transformers takes the number of rotated elements from this key.
    if (family_.rotary_head_dim && config_.Has("head_dim")) {
      ASSIGN_OR_RETURN(const int64_t dim, config_.Int("head_dim", 1, kMaxHeadDim));
      if (dim != model_.head_dim) {
        return config_.Error(
            "head_dim", absl::StrCat(dim, ", expected ", model_.head_dim, ", qk_rope_head_dim"));
      }
    }
    SetU32("attention.key_length", rank + model_.head_dim);
    SetU32("attention.value_length", rank);
    SetU32("attention.key_length_mla", model_.key_dim + model_.head_dim);
    SetU32("attention.value_length_mla", model_.value_dim);
    return absl::OkStatus();
  }

  absl::Status ReadActivation() {
    const absl::string_view expected = family_.gelu ? "gelu_pytorch_tanh" : "silu";
    for (const absl::string_view key : {"hidden_act", "hidden_activation"}) {
      ASSIGN_OR_RETURN(const std::string found, config_.StringOr(key, expected));
      if (found == expected || (expected == "silu" && found == "swish")) continue;
      if (family_.legacy_gelu && key == "hidden_act" && found == "gelu") continue;
      return config_.Unsupported(
          key, absl::StrCat(Shown(Json(found)), " is not supported, expected ", expected));
    }
    return absl::OkStatus();
  }

  absl::Status ReadBiases() {
    bool qkv = family_.bias == ConfigBias::kQkv;
    bool output = false;
    if (family_.bias == ConfigBias::kByKey || family_.bias == ConfigBias::kQkvByKey) {
      ASSIGN_OR_RETURN(qkv, config_.BoolOr("attention_bias", false));
      output = qkv && family_.bias == ConfigBias::kByKey;
    } else if (family_.bias == ConfigBias::kQkvUnless) {
      ASSIGN_OR_RETURN(qkv, config_.BoolOr("qkv_bias", true));
    }
    if (qkv) model_.parts.Add(Part::kQkvBias);
    if (output) model_.parts.Add(Part::kOutputBias);
    if (family_.mlp_bias) {
      ASSIGN_OR_RETURN(const bool mlp, config_.BoolOr("mlp_bias", false));
      if (mlp) model_.parts.Add(Part::kMlpBias);
    }
    if (!family_.qk_norm_key.empty()) {
      ASSIGN_OR_RETURN(const bool norm, config_.BoolOr(family_.qk_norm_key, false));
      if (norm) model_.parts.Add(Part::kQkNorm);
    }
    return absl::OkStatus();
  }

  absl::Status ReadNumbers() {
    for (const NumberKey& number : family_.numbers) {
      if (!config_.Has(number.key)) continue;
      ASSIGN_OR_RETURN(const double value, config_.Float(number.key));
      if (!(value > 0)) {
        return config_.Error(number.key, absl::StrCat(value, ", expected a number above 0"));
      }
      metadata_->SetF32(Name(number.gguf), static_cast<float>(value));
    }
    if (!config_.Has("query_pre_attn_scalar") || !family_.gelu) return absl::OkStatus();
    ASSIGN_OR_RETURN(const double scalar, config_.Float("query_pre_attn_scalar"));
    if (!(scalar > 0)) {
      return config_.Error("query_pre_attn_scalar",
                           absl::StrCat(scalar, ", expected a number above 0"));
    }
    metadata_->SetF32(Name("attention.scale"), static_cast<float>(1 / std::sqrt(scalar)));
    return absl::OkStatus();
  }

  absl::Status CheckFixed() const {
    for (const FixedKey& fixed : family_.fixed) {
      const Json* value = config_.Find(fixed.key);
      if (value == nullptr || fixed.value.empty()) continue;
      const Json expected = Json::parse(fixed.value);
      // In a list, each layer has its own value.
      const bool equal = value->is_array()
                             ? std::all_of(value->begin(), value->end(),
                                           [&](const Json& element) { return element == expected; })
                             : *value == expected;
      if (!equal) {
        return config_.Unsupported(
            fixed.key, absl::StrCat(Shown(*value), " is not supported, expected ", fixed.value));
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
};

// Checks the name of the model's class ("architectures"). In published multimodal models, it ends
// in ForConditionalGeneration.
absl::Status CheckClass(const JsonMembers& members, bool nested) {
  const Json* classes = members.Find("architectures");
  if (classes == nullptr) return absl::OkStatus();
  const Json& name = classes->is_array() && !classes->empty() ? (*classes)[0] : *classes;
  const absl::string_view ending = nested ? "ForConditionalGeneration" : "ForCausalLM";
  if (name.is_string() && absl::EndsWith(name.get<std::string>(), ending)) return absl::OkStatus();
  return members.Unsupported(
      "architectures", absl::StrCat(Shown(*classes), " is not supported, expected a ...", ending));
}

// Refuses null where it could be mistaken for a missing key or a harmless default, and every
// is_causal except true. transformers refuses null for all of these keys.
absl::Status CheckNulls(const JsonMembers& members, const HfFamily& family, const Json& config) {
  constexpr absl::string_view kCausal = "is_causal";
  if (const auto causal = config.find(kCausal); causal != config.end() && *causal != true) {
    return members.Unsupported(kCausal,
                               absl::StrCat(Shown(*causal), " is not supported, expected true"));
  }
  const bool bias = family.bias == ConfigBias::kByKey || family.bias == ConfigBias::kQkvByKey;
  const bool window = family.window != ConfigWindow::kNone &&
                      family.window != ConfigWindow::kAlways &&
                      family.window != ConfigWindow::kPattern;
  const bool sigmoid = family.experts.groups && family.experts.gating == 2;
  const bool group_limit = family.experts.groups && family.experts.gating == 1;
  const bool mla = family.parts.Has(Part::kMla);
  const absl::string_view keys[] = {family.eps,
                                    family.tied,
                                    "tie_word_embeddings",
                                    "hidden_act",
                                    family.block_width ? "block_ffn_dim_multiplier" : "",
                                    family.window == ConfigWindow::kPattern ? "sliding_window" : "",
                                    bias ? "attention_bias" : "",
                                    family.mlp_bias ? "mlp_bias" : "",
                                    family.bias == ConfigBias::kQkvUnless ? "qkv_bias" : "",
                                    window ? "use_sliding_window" : "",
                                    window ? "max_window_layers" : "",
                                    family.gelu ? "query_pre_attn_scalar" : "",
                                    family.no_rope.empty() ? "" : "no_rope_layer_interval",
                                    group_limit ? "topk_method" : "",
                                    sigmoid ? "n_group" : "",
                                    sigmoid ? "topk_group" : "",
                                    family.qk_norm_key,
                                    family.experts.scale,
                                    family.experts.interval,
                                    family.experts.groups ? family.experts.shared_count : "",
                                    mla ? "" : family.experts.normalize,
                                    family.experts.groups ? family.experts.first_sparse : ""};
  std::vector<absl::string_view> all(std::begin(keys), std::end(keys));
  for (const NumberKey& number : family.numbers) {
    if (!absl::EndsWith(number.key, kSoftcap)) all.push_back(number.key);
  }
  all.insert(all.end(), family.not_null.begin(), family.not_null.end());
  for (const absl::string_view key : all) {
    if (!members.IsNull(key)) continue;
    return members.Error(key, "null, expected a value; remove the key to take the default");
  }
  return absl::OkStatus();
}

// Checks the quantisation. Only gpt-oss is published with quantised experts that Tidepool can read.
absl::Status CheckQuantization(const JsonMembers& outer, const JsonMembers& text,
                               const std::string& type, Parts* parts) {
  constexpr absl::string_view kKey = "quantization_config";
  const JsonMembers& members = outer.Has(kKey) ? outer : text;
  const Json* quantization = members.Find(kKey);
  const bool gpt_oss = type == "gpt_oss";
  if (quantization == nullptr) {
    if (gpt_oss) parts->Add(Part::kGptOssExperts);
    return absl::OkStatus();
  }
  const bool mxfp4 = quantization->is_object() && quantization->contains("quant_method") &&
                     (*quantization)["quant_method"] == "mxfp4";
  if (!gpt_oss || !mxfp4) {
    return members.Unsupported(kKey,
                               "this quantised checkpoint is not supported; take the original in "
                               "F32, F16 or BF16");
  }
  parts->Add(Part::kGptOssMxfp4);
  return absl::OkStatus();
}

// Returns the configuration of the text model. Missing keys have the default values of the family.
Json WithDefaults(const HfFamily& family, const Json& config) {
  Json merged = Json::parse(family.defaults);
  for (const auto& [key, value] : config.items()) {
    // A key with null is treated as missing, except for a few keys. Their null means "off" and
    // overrides the default.
    const bool missing = value.is_null() && !absl::EndsWith(key, kSoftcap) &&
                         key != "sliding_window" && key != "norm_topk_prob";
    if (!missing || !merged.contains(key)) merged[key] = value;
  }
  return merged;
}

}  // namespace

absl::StatusOr<HfModel> ReadConfig(const std::string& path, const Json& config,
                                   GgufMetadata* metadata) {
  const JsonMembers outer(path, config);
  ASSIGN_OR_RETURN(const TextConfig text, FindTextConfig(path, config));
  const JsonMembers members(path, text.config, text.prefix);
  const HfFamily* family = FindHfFamily(text.model_type);
  if (family == nullptr) {
    return members.Unsupported(
        "model_type", absl::StrCat(Shown(Json(text.model_type)),
                                   " is not supported, expected one of ", KnownHfFamilies()));
  }
  RETURN_IF_ERROR(CheckClass(outer, text.nested));
  RETURN_IF_ERROR(CheckNulls(members, *family, text.config));
  Parts parts;
  RETURN_IF_ERROR(CheckQuantization(outer, members, text.model_type, &parts));
  Json merged = WithDefaults(*family, text.config);
  merged.erase("quantization_config");
  if (text.nested) {
    const JsonMembers text_members(path, merged, text.prefix);
    RETURN_IF_ERROR(CheckMultimodal(outer, text_members));
    ASSIGN_OR_RETURN(const bool tied, MayBeTied(outer, text_members));
    merged[kTie] = tied;
  }
  metadata->SetString("general.architecture", family->architecture);
  const JsonMembers whole(path, merged, text.prefix);
  ASSIGN_OR_RETURN(HfModel model, ConfigReader(whole, *family, parts, metadata).Read());
  if (absl::StartsWith(family->architecture, "qwen3vl")) {
    WriteImageLayers(config, *family, metadata);
  }
  if (text.nested) model.text_prefix = text.prefix;
  return model;
}

void WriteDraftLayers(const HfModel& model, int64_t draft_layers, GgufMetadata* metadata) {
  const auto set = [&](absl::string_view suffix, int64_t value) {
    metadata->SetU32(absl::StrCat(model.family->architecture, ".", suffix),
                     static_cast<uint32_t>(value));
  };
  set("block_count", model.layers() + draft_layers);
  set("nextn_predict_layers", draft_layers);
  WriteRecurrentLayers(model, draft_layers, metadata);
}

}  // namespace tidepool::engine::hf

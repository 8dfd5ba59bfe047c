#include "engine/checkpoint/hf/tensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/checkpoint/hf/expert_layout.h"
#include "engine/checkpoint/hf/json_file.h"
#include "engine/checkpoint/hf/origins.h"
#include "engine/checkpoint/hf/tensor_rules.h"
#include "engine/checkpoint/hf/tensor_takes.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

constexpr absl::string_view kLayerPrefix = "model.layers.";
// Old versions of transformers saved this buffer. It is ignored, because it can be computed from
// the configuration.
constexpr absl::string_view kOldBuffer = "self_attn.rotary_emb.inv_freq";
// Prefix of the layers that predict further tokens, in checkpoints that do not store them under
// kLayerPrefix.
constexpr absl::string_view kDraftPrefix = "model.mtp_";

// Prefixes of draft layers in families with HfFamily::mtp.
constexpr absl::string_view kMtpPrefixes[] = {"mtp.", "model.mtp."};
constexpr int64_t kMaxDraftLayers = 64;

// Prefixes that the tensors of the text model have in a multimodal checkpoint, instead of "model.".
constexpr absl::string_view kTextPrefixes[] = {"model.language_model.", "language_model.model.",
                                               "model.text_model."};
constexpr absl::string_view kTextHead = "language_model.lm_head.";
constexpr absl::string_view kOutput = "lm_head.weight";
// Prefixes of all other tensors in a multimodal checkpoint.
constexpr absl::string_view kOtherPrefixes[] = {"model.vision_tower.",
                                                "vision_tower.",
                                                "model.image_tower.",
                                                "image_tower.",
                                                "model.video_tower.",
                                                "video_tower.",
                                                "model.vision_model.",
                                                "vision_model.",
                                                "model.vision_encoder.",
                                                "model.vision_projection.",
                                                "model.visual.",
                                                "visual.",
                                                "model.audio_tower.",
                                                "audio_tower.",
                                                "model.multi_modal_projector.",
                                                "multi_modal_projector.",
                                                "model.image_newline",
                                                "image_newline",
                                                "model.embed_vision.",
                                                "model.connector."};

// Returns the name that the tensor has in a checkpoint of only the text model. Returns an empty
// name if the tensor is not part of the text model.
std::string TextName(absl::string_view name) {
  for (const absl::string_view prefix : kTextPrefixes) {
    if (absl::ConsumePrefix(&name, prefix)) return absl::StrCat("model.", name);
  }
  if (absl::ConsumePrefix(&name, kTextHead)) return absl::StrCat("lm_head.", name);
  for (const absl::string_view prefix : kOtherPrefixes) {
    if (absl::StartsWith(name, prefix)) return "";
  }
  return std::string(name);
}

// Removes the first of the prefixes that `name` has. Returns false if it has none.
bool ConsumeAny(absl::Span<const absl::string_view> prefixes, absl::string_view* name) {
  return std::any_of(prefixes.begin(), prefixes.end(), [name](absl::string_view prefix) {
    return absl::ConsumePrefix(name, prefix);
  });
}

// Removes "12." from the front of "12.rest" and returns 12.
std::optional<int64_t> ConsumeNumber(absl::string_view* text) {
  constexpr size_t kMaxDigits = 6;
  const size_t dot = text->find('.');
  int64_t number = 0;
  if (dot == absl::string_view::npos || dot > kMaxDigits ||
      !absl::SimpleAtoi(text->substr(0, dot), &number) || number < 0 ||
      absl::StrCat(number) != text->substr(0, dot)) {
    return std::nullopt;
  }
  text->remove_prefix(dot + 1);
  return number;
}

// Renames the tensors one by one. Then checks that no tensor is missing.
class Namer {
 public:
  Namer(const std::string& path, const HfModel& model, const std::vector<TensorSource>& sources)
      : path_(path), model_(model), taker_(model, &set_.owned) {
    bool has_output = false;
    for (const TensorSource& source : sources) {
      sources_.emplace(source.tensor->name, &source);
      has_output |= model.text_prefix.has_value() && TextName(source.tensor->name) == kOutput;
    }
    tied_ = model.tied && !has_output;
  }

  absl::Status Add(const TensorSource& source) {
    const std::string name =
        model_.text_prefix.has_value() ? TextName(source.tensor->name) : source.tensor->name;
    if (name.empty()) return absl::OkStatus();
    absl::string_view rest = name;
    if (model_.family->mtp && ConsumeAny(kMtpPrefixes, &rest)) return AddDraft(rest, source);
    if (!absl::ConsumePrefix(&rest, kLayerPrefix)) return AddOuter(name, source);
    const std::optional<int64_t> layer = ConsumeNumber(&rest);
    if (!layer.has_value() || *layer >= model_.layers() + model_.draft_layers) {
      return Unknown(source);
    }
    if (*layer >= model_.layers() || rest == kOldBuffer) return absl::OkStatus();
    return AddLayerTensor(*layer, rest, source);
  }

  absl::StatusOr<TensorSet> Finish() {
    RETURN_IF_ERROR(CheckAllThere());
    AddFloats("rope_freqs.weight", model_.rope_divisors);
    AddFloats("rope_factors_long.weight", model_.rope_long);
    AddFloats("rope_factors_short.weight", model_.rope_short);
    for (auto& [name, tensor] : tensors_) set_.tensors.push_back(std::move(tensor));
    return std::move(set_);
  }

 private:
  // Adds a tensor of a draft layer, "mtp.NAME".
  absl::Status AddDraft(absl::string_view name, const TensorSource& source) {
    for (const TensorRule& rule : DraftRules()) {
      if (rule.hf != name) continue;
      set_.draft_layers = std::max<int64_t>(set_.draft_layers, 1);
      return AddTensor(absl::StrCat("blk.", model_.layers(), ".", rule.gguf), rule, source);
    }
    const bool is_layer = absl::ConsumePrefix(&name, "layers.");
    const std::optional<int64_t> layer = ConsumeNumber(&name);
    if (!is_layer || !layer.has_value() || *layer >= kMaxDraftLayers) return Unknown(source);
    set_.draft_layers = std::max(set_.draft_layers, *layer + 1);
    return AddLayerTensor(model_.layers() + *layer, name, source);
  }

  // Adds the tensor "NAME" of a layer.
  absl::Status AddLayerTensor(int64_t layer, absl::string_view rest, const TensorSource& source) {
    // Changes "mlp.experts.12.up_proj.weight" to "mlp.experts.#.up_proj.weight".
    std::string pattern(rest);
    int64_t expert = -1;
    constexpr absl::string_view kExperts = "experts.";
    if (const size_t at = rest.find(kExperts); at != absl::string_view::npos) {
      absl::string_view tail = rest.substr(at + kExperts.size());
      if (const std::optional<int64_t> number = ConsumeNumber(&tail); number.has_value()) {
        expert = *number;
        pattern = absl::StrCat(rest.substr(0, at + kExperts.size()), "#.", tail);
      }
    }
    bool known = false;
    for (const TensorRule& rule : LayerRules()) {
      if (rule.hf != pattern || !Applies(rule, model_.parts, model_.KindOf(layer))) continue;
      known = true;
      const std::string gguf = absl::StrCat("blk.", layer, ".", rule.gguf);
      if (expert >= 0) {
        RETURN_IF_ERROR(AddExpert(gguf, source, expert));
        continue;
      }
      ASSIGN_OR_RETURN(const TensorRule resolved, InItsLayout(rule, source));
      RETURN_IF_ERROR(AddTensor(gguf, resolved, source));
    }
    return known ? absl::OkStatus() : Unknown(source);
  }

  // Returns the rule for the layout that the source has.
  absl::StatusOr<TensorRule> InItsLayout(TensorRule rule, const TensorSource& source) const {
    if (!rule.either_layout) return rule;
    const std::string other = OtherExpertTensor(source.tensor->name);
    const auto found = sources_.find(other);
    if (found == sources_.end()) return Missing(other);
    ASSIGN_OR_RETURN(rule.take, TakeInItsLayout(model_, rule, source, *found->second));
    return rule;
  }

  absl::Status Unknown(const TensorSource& source) const {
    return FileError(source.path, source.tensor->name,
                     absl::StrCat("a tensor that model_type ", model_.family->model_type,
                                  " with this config.json does not have"));
  }

  absl::Status AddOuter(const std::string& name, const TensorSource& source) {
    for (const TensorRule& rule : OuterRules()) {
      if (rule.hf != name || !Applies(rule, model_.parts, {})) continue;
      if (tied_ && rule.hf == kOutput) return CheckTied(source);
      return AddTensor(std::string(rule.gguf), rule, source);
    }
    if (model_.draft_layers > 0 && absl::StartsWith(name, kDraftPrefix)) return absl::OkStatus();
    return Unknown(source);
  }

  // Some files have an output weight although the model uses its embedding as the output weight.
  // Ignores the output weight if it is equal to the embedding. Otherwise returns UNIMPLEMENTED.
  absl::Status CheckTied(const TensorSource& output) const {
    constexpr absl::string_view kEmbedding = "model.embed_tokens.weight";
    for (const auto& [name, source] : sources_) {
      if (name != kEmbedding) continue;
      const StoredTensor& embedding = *source->tensor;
      if (embedding.type == output.tensor->type && embedding.shape == output.tensor->shape &&
          std::memcmp(source->data, output.data, embedding.bytes) == 0) {
        return absl::OkStatus();
      }
      return FileUnsupported(
          output.path, output.tensor->name,
          absl::StrCat("differs from ", name,
                       ", expected the same values with "
                       "tie_word_embeddings true; set it to false in config.json "
                       "to use both tensors"));
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const std::string& name, const TensorRule& rule,
                         const TensorSource& source) {
    if (rule.take == Take::kMxfp4Scales) return absl::OkStatus();
    const std::string& hf_name = source.tensor->name;
    const TensorSource* scales = nullptr;
    if (absl::EndsWith(hf_name, "_blocks")) {
      const auto found =
          sources_.find(absl::StrCat(absl::StripSuffix(hf_name, "_blocks"), "_scales"));
      if (found != sources_.end()) scales = found->second;
    }
    ASSIGN_OR_RETURN(GgufTensor tensor, taker_.Make(name, rule, source, scales));
    if (!tensors_.emplace(name, std::move(tensor)).second) {
      return FileError(source.path, hf_name,
                       "is there twice under different names, expected it once");
    }
    set_.origins.emplace(name, OriginOf(rule.take, source));
    return absl::OkStatus();
  }

  absl::Status AddExpert(const std::string& name, const TensorSource& source, int64_t expert) {
    if (expert >= model_.experts.count) return Unknown(source);
    const auto [found, is_new] = tensors_.try_emplace(name);
    GgufTensor& stack = found->second;
    const TensorRule as_stored = {.hf = "", .gguf = "", .take = Take::kAll};
    ASSIGN_OR_RETURN(const GgufTensor one,
                     taker_.Make(is_new ? name : "", as_stored, source, nullptr));
    if (one.dim_count != 2) {
      return FileError(source.path, source.tensor->name,
                       absl::StrCat("shape [", absl::StrJoin(source.tensor->shape, ", "),
                                    "], expected two sizes"));
    }
    if (is_new) {
      stack = one;
      stack.dim_count = 3;
      stack.dims[2] = model_.experts.count;
      stack.bytes = one.bytes * model_.experts.count;
      stack.slabs.resize(model_.experts.count);
      set_.origins.emplace(name, OriginOfExperts(source, expert));
    }
    const bool same = stack.slabs.size() == static_cast<size_t>(model_.experts.count) &&
                      one.type == stack.type && one.dims[0] == stack.dims[0] &&
                      one.dims[1] == stack.dims[1];
    if (!same) {
      return FileError(source.path, source.tensor->name,
                       absl::StrCat(GgmlTypeName(one.type), " of shape [",
                                    absl::StrJoin(source.tensor->shape, ", "),
                                    "], expected the type and shape of the layer's other experts"));
    }
    stack.slabs[expert] = one.data;
    if (expert == 0) stack.data = one.data;
    return absl::OkStatus();
  }

  void AddFloats(const std::string& name, const std::vector<float>& values) {
    if (!values.empty()) tensors_.emplace(name, taker_.Floats(name, values));
  }

  absl::Status Missing(absl::string_view hf_name) const {
    return FileError(path_, hf_name,
                     absl::StrCat("missing, expected this tensor of model_type ",
                                  model_.family->model_type, " with this config.json"));
  }

  absl::Status CheckAllThere() const {
    for (const TensorRule& rule : OuterRules()) {
      if (tied_ && rule.hf == kOutput) continue;
      if (!Applies(rule, model_.parts, {})) continue;
      if (!tensors_.contains(std::string(rule.gguf))) return Missing(rule.hf);
    }
    for (int64_t layer = 0; layer < model_.layers() + set_.draft_layers; ++layer) {
      for (const TensorRule& rule : LayerRules()) {
        if (rule.gguf.empty() || !Applies(rule, model_.parts, model_.KindOf(layer))) continue;
        RETURN_IF_ERROR(CheckThere(layer, rule));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckThere(int64_t layer, const TensorRule& rule) const {
    const auto found = tensors_.find(absl::StrCat("blk.", layer, ".", rule.gguf));
    const int64_t draft = layer - model_.layers();
    const std::string hf_name = draft < 0
                                    ? absl::StrCat(kLayerPrefix, layer, ".", rule.hf)
                                    : absl::StrCat(kMtpPrefixes[0], "layers.", draft, ".", rule.hf);
    if (found == tensors_.end()) return Missing(hf_name);
    const std::vector<const std::byte*>& slabs = found->second.slabs;
    const auto hole = std::find(slabs.begin(), slabs.end(), nullptr);
    if (hole == slabs.end()) return absl::OkStatus();
    const size_t at = hf_name.find('#');
    if (at == std::string::npos) return Missing(hf_name);
    return Missing(
        absl::StrCat(hf_name.substr(0, at), hole - slabs.begin(), hf_name.substr(at + 1)));
  }

  const std::string& path_;
  const HfModel& model_;
  bool tied_ = false;
  TensorSet set_;
  TensorTaker taker_;
  std::map<absl::string_view, const TensorSource*> sources_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace

absl::StatusOr<TensorSet> NameTensors(const std::string& path, const HfModel& model,
                                      const std::vector<TensorSource>& sources) {
  Namer namer(path, model, sources);
  for (const TensorSource& source : sources) RETURN_IF_ERROR(namer.Add(source));
  return namer.Finish();
}

}  // namespace tidepool::engine::hf

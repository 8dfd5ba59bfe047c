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
#include "engine/checkpoint/dequantize.h"
#include "engine/checkpoint/hf/json_file.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {
namespace {

// The layers that have a tensor.
enum class In : uint8_t { kAll, kDense, kSparse, kShared, kQkNorm, kQkvBias, kOutputBias };

enum class Rows : uint8_t { kAsStored, kRotary };

struct Rule {
  absl::string_view hf;    // "#" is the index of an expert
  absl::string_view gguf;  // the name without "blk.N."
  In in = In::kAll;
  Rows rows = Rows::kAsStored;
};

// Rules for the tensors of a layer, "model.layers.N.*". If two rules have the same GGUF name, the
// tensor has two names in Hugging Face checkpoints.
constexpr Rule kLayerRules[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight", In::kAll, Rows::kRotary},
    {"self_attn.k_proj.weight", "attn_k.weight", In::kAll, Rows::kRotary},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias", In::kQkvBias, Rows::kRotary},
    {"self_attn.k_proj.bias", "attn_k.bias", In::kQkvBias, Rows::kRotary},
    {"self_attn.v_proj.bias", "attn_v.bias", In::kQkvBias},
    {"self_attn.o_proj.bias", "attn_output.bias", In::kOutputBias},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", In::kQkNorm},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", In::kQkNorm},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight", In::kDense},
    {"mlp.up_proj.weight", "ffn_up.weight", In::kDense},
    {"mlp.down_proj.weight", "ffn_down.weight", In::kDense},
    {"mlp.gate.weight", "ffn_gate_inp.weight", In::kSparse},
    {"mlp.experts.#.gate_proj.weight", "ffn_gate_exps.weight", In::kSparse},
    {"mlp.experts.#.up_proj.weight", "ffn_up_exps.weight", In::kSparse},
    {"mlp.experts.#.down_proj.weight", "ffn_down_exps.weight", In::kSparse},
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight", In::kSparse},
    {"block_sparse_moe.experts.#.w1.weight", "ffn_gate_exps.weight", In::kSparse},
    {"block_sparse_moe.experts.#.w3.weight", "ffn_up_exps.weight", In::kSparse},
    {"block_sparse_moe.experts.#.w2.weight", "ffn_down_exps.weight", In::kSparse},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", In::kSparse},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", In::kSparse},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", In::kShared},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", In::kShared},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", In::kShared},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", In::kShared},
};

constexpr Rule kOuterRules[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

constexpr absl::string_view kLayerPrefix = "model.layers.";
// Old versions of transformers save this buffer. All versions compute it from the configuration, so
// it is ignored.
constexpr absl::string_view kOldBuffer = "self_attn.rotary_emb.inv_freq";

bool Applies(In in, const HfModel& model, bool sparse) {
  switch (in) {
    case In::kAll:
      return true;
    case In::kDense:
      return !sparse;
    case In::kSparse:
      return sparse;
    case In::kShared:
      return sparse && model.family->shared_expert;
    case In::kQkNorm:
      return model.family->qk_norm;
    case In::kQkvBias:
      return model.qkv_bias;
    case In::kOutputBias:
      return model.output_bias;
  }
  return false;
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

// Renames the tensors one by one, then checks that none is missing.
class Namer {
 public:
  Namer(const std::string& path, const HfModel& model) : path_(path), model_(model) {}

  absl::Status Add(const TensorSource& source) {
    absl::string_view rest = source.tensor->name;
    if (!absl::ConsumePrefix(&rest, kLayerPrefix)) return AddOuter(source);
    const std::optional<int64_t> layer = ConsumeNumber(&rest);
    if (!layer.has_value() || *layer >= static_cast<int64_t>(model_.sparse.size())) {
      return Unknown(source);
    }
    if (rest == kOldBuffer) return absl::OkStatus();
    // Turns "mlp.experts.12.up_proj.weight" into "mlp.experts.#.up_proj.weight".
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
    for (const Rule& rule : kLayerRules) {
      if (rule.hf != pattern) continue;
      if (!Applies(rule.in, model_, model_.sparse[*layer])) return Unknown(source);
      const std::string name = absl::StrCat("blk.", *layer, ".", rule.gguf);
      return expert < 0 ? AddTensor(name, source, rule.rows) : AddExpert(name, source, expert);
    }
    return Unknown(source);
  }

  absl::StatusOr<TensorSet> Finish() {
    RETURN_IF_ERROR(CheckAllThere());
    if (!model_.rope_divisors.empty()) AddDivisors();
    for (auto& [name, tensor] : tensors_) set_.tensors.push_back(std::move(tensor));
    return std::move(set_);
  }

 private:
  absl::Status Unknown(const TensorSource& source) const {
    return FileError(source.path, source.tensor->name,
                     absl::StrCat("a tensor that model_type ", model_.family->model_type,
                                  " with this config.json does not have"));
  }

  absl::Status AddOuter(const TensorSource& source) {
    for (const Rule& rule : kOuterRules) {
      if (rule.hf != source.tensor->name) continue;
      // Some files store the output weight although it is tied to the embedding. Ignore it.
      if (model_.tied && rule.gguf == "output.weight") return absl::OkStatus();
      return AddTensor(std::string(rule.gguf), source, rule.rows);
    }
    return Unknown(source);
  }

  std::byte* Own(size_t bytes) {
    set_.owned.push_back(std::make_unique<std::byte[]>(bytes));
    return set_.owned.back().get();
  }

  // Returns a copy of the name that lives as long as the set.
  absl::string_view OwnName(absl::string_view name) {
    std::byte* const bytes = Own(name.size());
    std::memcpy(bytes, name.data(), name.size());
    return {reinterpret_cast<const char*>(bytes), name.size()};
  }

  // Describes the tensor as stored: its shape, type and location.
  GgufTensor Describe(const std::string& name, const TensorSource& source) {
    const StoredTensor& stored = *source.tensor;
    GgufTensor tensor;
    tensor.name = OwnName(name);
    tensor.type = stored.type;
    tensor.dim_count = static_cast<int>(stored.shape.size());
    std::copy(stored.shape.rbegin(), stored.shape.rend(), tensor.dims.begin());
    tensor.part = source.part;
    tensor.file_offset = stored.file_offset;
    tensor.bytes = stored.bytes;
    tensor.data = source.data;
    return tensor;
  }

  absl::Status AddTensor(const std::string& name, const TensorSource& source, Rows rows) {
    GgufTensor tensor = Describe(name, source);
    if (rows == Rows::kRotary && model_.family->rotary_pairs) {
      const int64_t count = tensor.dims[tensor.dim_count - 1];
      if (tensor.dim_count > 2 || count % model_.head_dim != 0) {
        return FileError(
            source.path, source.tensor->name,
            absl::StrCat("shape [", absl::StrJoin(source.tensor->shape, ", "),
                         "], expected a multiple of head_dim ", model_.head_dim, " rows"));
      }
      tensor.head_rows = model_.head_dim;
    }
    if (tensor.dim_count == 1) MakeFloat(&tensor);
    if (!tensors_.emplace(name, std::move(tensor)).second) {
      return FileError(source.path, source.tensor->name,
                       "is there twice under different names, expected it once");
    }
    return absl::OkStatus();
  }

  // Converts a vector to float32 in owned memory and interleaves its rows if needed.
  void MakeFloat(GgufTensor* tensor) {
    const int64_t size = tensor->dims[0];
    std::byte* const bytes = Own(size * sizeof(float));
    std::vector<float> values(size);
    Dequantize(tensor->type, tensor->data, absl::MakeSpan(values));
    for (int64_t i = 0; i < size; ++i) {
      int64_t from = i;
      if (tensor->head_rows > 0) {
        const int64_t within = i % tensor->head_rows;
        from += within / 2 + within % 2 * (tensor->head_rows / 2) - within;
      }
      std::memcpy(bytes + i * sizeof(float), &values[from], sizeof(float));
    }
    tensor->head_rows = 0;
    tensor->type = GgmlType::kF32;
    tensor->bytes = size * sizeof(float);
    tensor->data = bytes;
  }

  absl::Status AddExpert(const std::string& name, const TensorSource& source, int64_t expert) {
    if (expert >= model_.experts) return Unknown(source);
    const auto [found, is_new] = tensors_.try_emplace(name);
    GgufTensor& stack = found->second;
    const GgufTensor one = Describe(is_new ? name : "", source);
    if (one.dim_count != 2) {
      return FileError(source.path, source.tensor->name,
                       absl::StrCat("shape [", absl::StrJoin(source.tensor->shape, ", "),
                                    "], expected two sizes"));
    }
    if (is_new) {
      stack = one;
      stack.dim_count = 3;
      stack.dims[2] = model_.experts;
      stack.bytes = one.bytes * model_.experts;
      stack.slabs.resize(model_.experts);
    }
    const bool same = stack.slabs.size() == model_.experts && one.type == stack.type &&
                      one.dims[0] == stack.dims[0] && one.dims[1] == stack.dims[1];
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

  void AddDivisors() {
    const size_t bytes = model_.rope_divisors.size() * sizeof(float);
    std::byte* const data = Own(bytes);
    std::memcpy(data, model_.rope_divisors.data(), bytes);
    GgufTensor tensor;
    tensor.name = OwnName("rope_freqs.weight");
    tensor.dim_count = 1;
    tensor.dims[0] = static_cast<int64_t>(model_.rope_divisors.size());
    tensor.bytes = bytes;
    tensor.data = data;
    tensors_.emplace("rope_freqs.weight", std::move(tensor));
  }

  absl::Status Missing(absl::string_view hf_name) const {
    return FileError(path_, hf_name,
                     absl::StrCat("missing, expected this tensor of model_type ",
                                  model_.family->model_type, " with this config.json"));
  }

  absl::Status CheckAllThere() const {
    for (const Rule& rule : kOuterRules) {
      if (model_.tied && rule.gguf == "output.weight") continue;
      if (!tensors_.contains(std::string(rule.gguf))) return Missing(rule.hf);
    }
    for (size_t layer = 0; layer < model_.sparse.size(); ++layer) {
      for (const Rule& rule : kLayerRules) {
        if (!Applies(rule.in, model_, model_.sparse[layer])) continue;
        RETURN_IF_ERROR(CheckThere(static_cast<int64_t>(layer), rule));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckThere(int64_t layer, const Rule& rule) const {
    const auto name = [&](absl::string_view suffix) {
      return absl::StrCat("blk.", layer, ".", suffix);
    };
    constexpr absl::string_view kFused = "ffn_gate_up_exps.weight";
    const bool is_fused = tensors_.contains(name(kFused));
    if (rule.gguf == kFused && !is_fused) return absl::OkStatus();
    const bool replaced =
        is_fused && (rule.gguf == "ffn_gate_exps.weight" || rule.gguf == "ffn_up_exps.weight");
    const auto found = tensors_.find(name(rule.gguf));
    const std::string hf_name = absl::StrCat(kLayerPrefix, layer, ".", rule.hf);
    if (found == tensors_.end()) {
      return replaced ? absl::OkStatus() : Missing(hf_name);
    }
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
  std::map<std::string, GgufTensor> tensors_;
  TensorSet set_;
};

}  // namespace

absl::StatusOr<TensorSet> NameTensors(const std::string& path, const HfModel& model,
                                      const std::vector<TensorSource>& sources) {
  Namer namer(path, model);
  for (const TensorSource& source : sources) RETURN_IF_ERROR(namer.Add(source));
  return namer.Finish();
}

}  // namespace tidepool::engine::hf

#include "engine/model/transformer_weights.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

using kernels::FfnWeights;
using kernels::PackedMatrix;

namespace {

// Handles one matrix of an expert and returns it as `part` of its FfnWeights.
using ExpertMatrix = absl::FunctionRef<absl::StatusOr<PackedMatrix>(
    const MatrixRef& ref, PackedMatrix FfnWeights::*part)>;

// Reads the tensors of one layer, "blk.N.*".
class LayerLoader {
 public:
  LayerLoader(const ModelConfig& config, int layer, WeightStore* store)
      : config_(config),
        layer_(config.layers[layer]),
        prefix_(absl::StrCat("blk.", layer, ".")),
        store_(store) {}

  absl::StatusOr<LayerWeights> Load(ExpertLoading experts) {
    LayerWeights weights;
    const int64_t hidden = config_.hidden_size;
    ASSIGN_OR_RETURN(weights.attention_norm, store_->Vector(Name("attn_norm.weight"), hidden));
    RETURN_IF_ERROR(LoadQkv(&weights));
    if (config_.qk_norm) {
      ASSIGN_OR_RETURN(weights.q_norm,
                       store_->Vector(Name("attn_q_norm.weight"), config_.head_dim));
      ASSIGN_OR_RETURN(weights.k_norm,
                       store_->Vector(Name("attn_k_norm.weight"), config_.head_dim));
    }
    ASSIGN_OR_RETURN(weights.attention_output,
                     LoadLinear("attn_output", hidden, int64_t{layer_.heads} * config_.head_dim));
    ASSIGN_OR_RETURN(weights.ffn_norm, store_->Vector(Name("ffn_norm.weight"), hidden));
    RETURN_IF_ERROR(layer_.ffn == FfnKind::kMoe ? LoadMoe(experts, &weights.moe)
                                                : LoadDense(&weights));
    return weights;
  }

  absl::StatusOr<FfnWeights> LoadExpert(int expert, ExpertMatrix matrix) {
    const int64_t width = config_.moe.expert_width;
    const int64_t hidden = config_.hidden_size;
    FfnWeights weights;
    if (Has("ffn_gate_up_exps.weight")) {
      const std::string name = Name("ffn_gate_up_exps.weight");
      MatrixRef ref = {.name = name,
                       .rows = width,
                       .cols = hidden,
                       .tensor_rows = 2 * width,
                       .slab = expert,
                       .slabs = config_.moe.experts};
      ASSIGN_OR_RETURN(weights.gate, matrix(ref, &FfnWeights::gate));
      ref.first_row = width;
      ASSIGN_OR_RETURN(weights.up, matrix(ref, &FfnWeights::up));
    } else {
      for (const auto& [part, name] :
           {std::pair(&FfnWeights::gate, "ffn_gate"), std::pair(&FfnWeights::up, "ffn_up")}) {
        ASSIGN_OR_RETURN(weights.*part,
                         LoadExpertMatrix({name, expert, width, hidden}, part, matrix));
      }
    }
    ASSIGN_OR_RETURN(weights.down, LoadExpertMatrix({"ffn_down", expert, hidden, width},
                                                    &FfnWeights::down, matrix));
    return weights;
  }

 private:
  struct ExpertPart {
    absl::string_view name;
    int expert;
    int64_t rows;
    int64_t cols;
  };

  std::string Name(absl::string_view suffix) const { return absl::StrCat(prefix_, suffix); }
  bool Has(absl::string_view suffix) const { return store_->Has(Name(suffix)); }

  absl::StatusOr<PackedMatrix> LoadMatrix(absl::string_view suffix, int64_t rows, int64_t cols) {
    return store_->Matrix({.name = Name(suffix), .rows = rows, .cols = cols});
  }

  // Loads "PART.weight", and "PART.bias" if there is one.
  absl::StatusOr<Linear> LoadLinear(absl::string_view part, int64_t rows, int64_t cols) {
    Linear linear;
    ASSIGN_OR_RETURN(linear.weight, LoadMatrix(absl::StrCat(part, ".weight"), rows, cols));
    const std::string bias = absl::StrCat(part, ".bias");
    if (Has(bias)) {
      ASSIGN_OR_RETURN(linear.bias, store_->Vector(Name(bias), rows));
    }
    return linear;
  }

  absl::Status LoadQkv(LayerWeights* weights) {
    const int64_t q_rows = int64_t{layer_.heads} * config_.head_dim;
    const int64_t kv_rows = int64_t{layer_.kv_heads} * config_.head_dim;
    const int64_t hidden = config_.hidden_size;
    if (Has("attn_qkv.weight")) return LoadFusedQkv(q_rows, kv_rows, weights);
    ASSIGN_OR_RETURN(weights->q, LoadLinear("attn_q", q_rows, hidden));
    ASSIGN_OR_RETURN(weights->k, LoadLinear("attn_k", kv_rows, hidden));
    ASSIGN_OR_RETURN(weights->v, LoadLinear("attn_v", kv_rows, hidden));
    return absl::OkStatus();
  }

  // Loads one tensor with the rows of q, then k, then v.
  absl::Status LoadFusedQkv(int64_t q_rows, int64_t kv_rows, LayerWeights* weights) {
    const int64_t all_rows = q_rows + 2 * kv_rows;
    absl::Span<const float> bias;
    if (Has("attn_qkv.bias")) {
      ASSIGN_OR_RETURN(bias, store_->Vector(Name("attn_qkv.bias"), all_rows));
    }
    const std::string name = Name("attn_qkv.weight");
    int64_t first_row = 0;
    for (Linear* part : {&weights->q, &weights->k, &weights->v}) {
      const int64_t rows = part == &weights->q ? q_rows : kv_rows;
      ASSIGN_OR_RETURN(part->weight, store_->Matrix({.name = name,
                                                     .rows = rows,
                                                     .cols = config_.hidden_size,
                                                     .first_row = first_row,
                                                     .tensor_rows = all_rows}));
      if (!bias.empty()) part->bias = bias.subspan(first_row, rows);
      first_row += rows;
    }
    return absl::OkStatus();
  }

  absl::Status LoadDense(LayerWeights* weights) {
    const int64_t width = layer_.ffn_width;
    const int64_t hidden = config_.hidden_size;
    ASSIGN_OR_RETURN(weights->ffn_gate, LoadMatrix("ffn_gate.weight", width, hidden));
    ASSIGN_OR_RETURN(weights->ffn_up, LoadMatrix("ffn_up.weight", width, hidden));
    ASSIGN_OR_RETURN(weights->ffn_down, LoadLinear("ffn_down", hidden, width));
    return absl::OkStatus();
  }

  absl::Status LoadMoe(ExpertLoading experts, MoeWeights* weights) {
    const MoeConfig& moe = config_.moe;
    const int64_t hidden = config_.hidden_size;
    ASSIGN_OR_RETURN(weights->router, LoadLinear("ffn_gate_inp", moe.experts, hidden));
    weights->experts.resize(moe.experts);
    for (int e = 0; e < moe.experts; ++e) {
      ASSIGN_OR_RETURN(
          weights->experts[e], LoadExpert(e, [&](const MatrixRef& ref, PackedMatrix FfnWeights::*) {
            return experts == ExpertLoading::kPacked ? store_->Matrix(ref) : store_->Shape(ref);
          }));
    }
    if (moe.shared_width == 0) return absl::OkStatus();
    FfnWeights& shared = weights->shared;
    ASSIGN_OR_RETURN(shared.gate, LoadMatrix("ffn_gate_shexp.weight", moe.shared_width, hidden));
    ASSIGN_OR_RETURN(shared.up, LoadMatrix("ffn_up_shexp.weight", moe.shared_width, hidden));
    ASSIGN_OR_RETURN(shared.down, LoadMatrix("ffn_down_shexp.weight", hidden, moe.shared_width));
    ASSIGN_OR_RETURN(weights->shared_gate, LoadLinear("ffn_gate_inp_shexp", 1, hidden));
    return absl::OkStatus();
  }

  // Loads a slab of "PART_exps.weight", or "PART.E.weight" in the first MoE files.
  absl::StatusOr<PackedMatrix> LoadExpertMatrix(const ExpertPart& of,
                                                PackedMatrix FfnWeights::*part,
                                                ExpertMatrix matrix) {
    const std::string single = Name(absl::StrCat(of.name, ".", of.expert, ".weight"));
    if (store_->Has(single)) {
      return matrix({.name = single, .rows = of.rows, .cols = of.cols}, part);
    }
    const std::string stacked = Name(absl::StrCat(of.name, "_exps.weight"));
    return matrix({.name = stacked,
                   .rows = of.rows,
                   .cols = of.cols,
                   .slab = of.expert,
                   .slabs = config_.moe.experts},
                  part);
  }

  const ModelConfig& config_;
  const LayerConfig& layer_;
  const std::string prefix_;
  WeightStore* const store_;
};

absl::Status RejectUnused(const ModelConfig& config, const WeightStore& store) {
  std::vector<absl::string_view> unused = store.Unused();
  if (unused.empty()) return absl::OkStatus();
  const size_t count = unused.size();
  constexpr size_t kNamed = 4;
  const absl::string_view first = unused[0];
  unused.resize(std::min(count, kNamed));
  return store.file().Error(
      first,
      absl::StrCat("architecture ", config.architecture,
                   " with this metadata does not use this tensor, expected no unused tensors (",
                   count, ": ", absl::StrJoin(unused, ", "), count > kNamed ? ", ..." : "", ")"));
}

}  // namespace

absl::StatusOr<TransformerWeights> LoadTransformerWeights(const ModelConfig& config,
                                                          WeightStore* store,
                                                          const LoadProgress& progress,
                                                          ExpertLoading experts) {
  const double parts = static_cast<double>(config.layers.size()) + 1;
  TransformerWeights weights;
  const int64_t hidden = config.hidden_size;
  ASSIGN_OR_RETURN(
      weights.embedding,
      store->Matrix({.name = "token_embd.weight", .rows = config.vocab_size, .cols = hidden}));
  ASSIGN_OR_RETURN(weights.final_norm, store->Vector("output_norm.weight", hidden));
  weights.head.weight = weights.embedding;
  if (store->Has("output.weight")) {
    ASSIGN_OR_RETURN(
        weights.head.weight,
        store->Matrix({.name = "output.weight", .rows = config.vocab_size, .cols = hidden}));
  }
  if (store->Has("rope_freqs.weight")) {
    ASSIGN_OR_RETURN(weights.rope_divisors,
                     store->Vector("rope_freqs.weight", config.rope.dims / 2));
    for (size_t i = 0; i < weights.rope_divisors.size(); ++i) {
      const double least =
          config.rope.inv_freq[i] * static_cast<double>(config.context_length) / kMaxRopeAngle;
      const float divisor = weights.rope_divisors[i];
      if (divisor > 0 && divisor >= least) continue;
      return store->file().Error("rope_freqs.weight",
                                 absl::StrCat("holds ", divisor, ", expected at least ", least));
    }
  }
  if (progress) progress(1 / parts);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    ASSIGN_OR_RETURN(LayerWeights layer,
                     LayerLoader(config, static_cast<int>(i), store).Load(experts));
    weights.layers.push_back(std::move(layer));
    if (progress) progress((static_cast<double>(i) + 2) / parts);
  }
  RETURN_IF_ERROR(RejectUnused(config, *store));
  return weights;
}

absl::StatusOr<FfnWeights> ExpertShapes(const ModelConfig& config, ExpertId id,
                                        WeightStore* store) {
  return LayerLoader(config, id.layer, store)
      .LoadExpert(id.expert, [&](const MatrixRef& ref, PackedMatrix FfnWeights::*) {
        return store->Shape(ref);
      });
}

absl::Status CheckExpertReadable(const ModelConfig& config, ExpertId id, WeightStore* store) {
  return LayerLoader(config, id.layer, store)
      .LoadExpert(
          id.expert,
          [&](const MatrixRef& ref, PackedMatrix FfnWeights::*) -> absl::StatusOr<PackedMatrix> {
            RETURN_IF_ERROR(store->CheckReadable(ref));
            return store->Shape(ref);
          })
      .status();
}

absl::Status PackExpert(const ModelConfig& config, ExpertId id, WeightStore* store,
                        const moe::ExpertLayout& layout, std::byte* record) {
  const FfnWeights places = layout.At(record);
  const auto pack = [&](const MatrixRef& ref,
                        PackedMatrix FfnWeights::*part) -> absl::StatusOr<PackedMatrix> {
    const PackedMatrix& place = places.*part;
    RETURN_IF_ERROR(store->PackInto(ref, record + (place.data - record)));
    return place;
  };
  return LayerLoader(config, id.layer, store).LoadExpert(id.expert, pack).status();
}

}  // namespace tidepool::engine

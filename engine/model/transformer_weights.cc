#include "engine/model/transformer_weights.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/model/families.h"
#include "engine/model/mixer_weights.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

using kernels::FfnWeights;
using kernels::PackedMatrix;

namespace {

using BiasSpan = absl::Span<const float>;

// What to do with the matrices and the biases of an expert. Each function handles one tensor, and
// returns what becomes the member `part` of FfnWeights.
struct ExpertParts {
  absl::FunctionRef<absl::StatusOr<PackedMatrix>(const MatrixRef& ref,
                                                 PackedMatrix FfnWeights::*part)>
      matrix;
  absl::FunctionRef<absl::StatusOr<BiasSpan>(const WeightStore::RowsRef& ref,
                                             BiasSpan FfnWeights::*part)>
      bias;
};

// Checks a bias, and returns its shape without data.
absl::StatusOr<BiasSpan> BiasShape(WeightStore* store, const WeightStore::RowsRef& ref) {
  RETURN_IF_ERROR(store->CheckRows(ref));
  return absl::MakeConstSpan(static_cast<const float*>(nullptr), ref.size);
}

// Loads the tensors of one layer, "blk.N.*".
class LayerLoader {
 public:
  LayerLoader(const ModelConfig& config, int layer, WeightStore* store)
      : config_(config),
        layer_(config.layers[layer]),
        family_(FamilyOf(config)),
        prefix_(absl::StrCat("blk.", layer, ".")),
        store_(store) {}

  absl::StatusOr<LayerWeights> Load(ExpertLoading experts) {
    LayerWeights weights;
    RETURN_IF_ERROR(LoadNorms(&weights));
    RETURN_IF_ERROR(LoadMixer(&weights));
    RETURN_IF_ERROR(layer_.ffn == FfnKind::kMoe ? LoadMoe(experts, &weights.moe)
                                                : LoadDense(&weights.ffn));
    return weights;
  }

  absl::StatusOr<FfnWeights> LoadExpert(int expert, const ExpertParts& parts) {
    const int64_t width = config_.moe.expert_width;
    const int64_t hidden = config_.hidden_size;
    FfnWeights weights = {.glu = {.form = layer_.glu}};
    if (Has("ffn_gate_up_exps.weight")) {
      const std::string name = Name("ffn_gate_up_exps.weight");
      MatrixRef ref = {.name = name,
                       .rows = width,
                       .cols = hidden,
                       .tensor_rows = 2 * width,
                       .slab = expert,
                       .slabs = config_.moe.experts};
      ASSIGN_OR_RETURN(weights.gate, parts.matrix(ref, &FfnWeights::gate));
      ref.first_row = width;
      ASSIGN_OR_RETURN(weights.up, parts.matrix(ref, &FfnWeights::up));
    } else {
      for (const auto& [part, name] :
           {std::pair(&FfnWeights::gate, "ffn_gate"), std::pair(&FfnWeights::up, "ffn_up")}) {
        ASSIGN_OR_RETURN(weights.*part,
                         LoadExpertMatrix({name, expert, width, hidden}, part, parts));
      }
    }
    ASSIGN_OR_RETURN(weights.down, LoadExpertMatrix({"ffn_down", expert, hidden, width},
                                                    &FfnWeights::down, parts));
    RETURN_IF_ERROR(LoadExpertBiases(parts, &weights));
    return weights;
  }

  absl::StatusOr<FfnWeights> LoadExpertShape(int expert) {
    const auto matrix = [this](const MatrixRef& ref, PackedMatrix FfnWeights::*) {
      return store_->Shape(ref);
    };
    const auto bias = [this](const WeightStore::RowsRef& ref, BiasSpan FfnWeights::*) {
      return BiasShape(store_, ref);
    };
    return LoadExpert(expert, {matrix, bias});
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

  // Loads "PART.weight", and also "PART.bias" if that exists.
  absl::StatusOr<Linear> LoadLinear(absl::string_view part, int64_t rows, int64_t cols) {
    Linear linear;
    ASSIGN_OR_RETURN(linear.weight, LoadMatrix(absl::StrCat(part, ".weight"), rows, cols));
    const std::string bias = absl::StrCat(part, ".bias");
    if (Has(bias)) {
      ASSIGN_OR_RETURN(linear.bias, store_->Vector(Name(bias), rows));
    }
    return linear;
  }

  int64_t QRows() const { return int64_t{layer_.heads} * layer_.head_dim; }
  int64_t OutputColumns() const {
    return int64_t{layer_.heads} * (layer_.has_mla() ? layer_.mla.value_dim : layer_.head_dim);
  }
  int64_t KvRows() const { return int64_t{layer_.kv_heads} * layer_.head_dim; }

  absl::StatusOr<absl::Span<const float>> OptionalVector(absl::string_view suffix, int64_t size) {
    if (!Has(suffix)) return absl::Span<const float>();
    return store_->Vector(Name(suffix), size);
  }

  absl::Status LoadNorms(LayerWeights* weights) {
    const auto load = [this](absl::string_view part, int64_t size, absl::Span<const float>* norm) {
      ASSIGN_OR_RETURN(*norm, store_->Vector(Name(absl::StrCat(part, ".weight")), size));
      return absl::OkStatus();
    };
    const int64_t hidden = config_.hidden_size;
    if (layer_.norms != NormPlacement::kPost) {
      RETURN_IF_ERROR(load("attn_norm", hidden, &weights->attention_norm));
      RETURN_IF_ERROR(load(family_.ffn_norm, hidden, &weights->ffn_norm));
    }
    if (layer_.norms != NormPlacement::kPre) {
      RETURN_IF_ERROR(load("post_attention_norm", hidden, &weights->attention_post_norm));
      RETURN_IF_ERROR(load("post_ffw_norm", hidden, &weights->ffn_post_norm));
    }
    if (layer_.qk_norm == QkNorm::kNone) return absl::OkStatus();
    const bool row = layer_.qk_norm == QkNorm::kRow;
    RETURN_IF_ERROR(load("attn_q_norm", row ? QRows() : layer_.head_dim, &weights->q_norm));
    return load("attn_k_norm", row ? KvRows() : layer_.head_dim, &weights->k_norm);
  }

  absl::Status LoadMixer(LayerWeights* weights) {
    if (layer_.mixer == Mixer::kDeltaNet) {
      ASSIGN_OR_RETURN(weights->delta, LoadDeltaNet(config_, layer_, prefix_, store_));
      return absl::OkStatus();
    }
    if (layer_.mixer == Mixer::kShortConv) {
      ASSIGN_OR_RETURN(weights->short_conv, LoadShortConv(config_, layer_, prefix_, store_));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(layer_.has_mla() ? LoadMla(weights) : LoadQkv(weights));
    ASSIGN_OR_RETURN(weights->sinks, OptionalVector("attn_sinks.weight", layer_.heads));
    ASSIGN_OR_RETURN(weights->attention_output,
                     LoadLinear("attn_output", config_.hidden_size, OutputColumns()));
    return absl::OkStatus();
  }

  absl::Status LoadMla(LayerWeights* weights) {
    const MlaConfig& config = layer_.mla;
    const int64_t hidden = config_.hidden_size;
    const int64_t q_rows = int64_t{layer_.heads} * (config.nope_dim + config.rope_dim);
    MlaWeights& mla = weights->mla;
    if (config.q_rank > 0) {
      ASSIGN_OR_RETURN(mla.q_a, LoadLinear("attn_q_a", config.q_rank, hidden));
      ASSIGN_OR_RETURN(mla.q_a_norm, store_->Vector(Name("attn_q_a_norm.weight"), config.q_rank));
      ASSIGN_OR_RETURN(weights->q, LoadLinear("attn_q_b", q_rows, config.q_rank));
    } else {
      ASSIGN_OR_RETURN(weights->q, LoadLinear("attn_q", q_rows, hidden));
    }
    ASSIGN_OR_RETURN(mla.kv_a, LoadLinear("attn_kv_a_mqa", layer_.head_dim, hidden));
    ASSIGN_OR_RETURN(mla.kv_a_norm, store_->Vector(Name("attn_kv_a_norm.weight"), config.kv_rank));
    const std::string k_b = Name("attn_k_b.weight");
    const std::string v_b = Name("attn_v_b.weight");
    for (int head = 0; head < layer_.heads; ++head) {
      ASSIGN_OR_RETURN(mla.k_b.emplace_back(), store_->Matrix({.name = k_b,
                                                               .rows = config.kv_rank,
                                                               .cols = config.nope_dim,
                                                               .slab = head,
                                                               .slabs = layer_.heads}));
      ASSIGN_OR_RETURN(mla.v_b.emplace_back(), store_->Matrix({.name = v_b,
                                                               .rows = config.value_dim,
                                                               .cols = config.kv_rank,
                                                               .slab = head,
                                                               .slabs = layer_.heads}));
    }
    return absl::OkStatus();
  }

  absl::Status LoadQkv(LayerWeights* weights) {
    const int64_t q_rows = QRows();
    const int64_t kv_rows = KvRows();
    const int64_t hidden = config_.hidden_size;
    if (Has("attn_qkv.weight") && !layer_.gated) return LoadFusedQkv(q_rows, kv_rows, weights);
    if (layer_.gated) {
      RETURN_IF_ERROR(LoadGatedQ(weights));
    } else {
      ASSIGN_OR_RETURN(weights->q, LoadLinear("attn_q", q_rows, hidden));
    }
    ASSIGN_OR_RETURN(weights->k, LoadLinear("attn_k", kv_rows, hidden));
    ASSIGN_OR_RETURN(weights->v, LoadLinear("attn_v", kv_rows, hidden));
    return absl::OkStatus();
  }

  // Loads a tensor in which the rows of q of each head are followed by the rows of its gate.
  absl::Status LoadGatedQ(LayerWeights* weights) {
    const std::string name = Name("attn_q.weight");
    MatrixRef ref = {.name = name,
                     .rows = QRows(),
                     .cols = config_.hidden_size,
                     .tensor_rows = 2 * QRows(),
                     .piece_rows = layer_.head_dim,
                     .piece_stride = int64_t{2} * layer_.head_dim};
    ASSIGN_OR_RETURN(weights->q.weight, store_->Matrix(ref));
    ref.first_row = layer_.head_dim;
    ASSIGN_OR_RETURN(weights->gate.weight, store_->Matrix(ref));
    return absl::OkStatus();
  }

  // Loads a tensor that has the rows of q, then those of k, then those of v.
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

  absl::Status LoadDense(FfnWeights* ffn) {
    const int64_t width = layer_.ffn_width;
    const int64_t hidden = config_.hidden_size;
    ffn->glu.form = layer_.glu;
    ASSIGN_OR_RETURN(const Linear down, LoadLinear("ffn_down", hidden, width));
    ffn->down = down.weight;
    ffn->down_bias = down.bias;
    if (HasFusedGateUp()) return LoadFusedGateUp(width, ffn);
    ASSIGN_OR_RETURN(const Linear gate, LoadLinear("ffn_gate", width, hidden));
    ASSIGN_OR_RETURN(const Linear up, LoadLinear("ffn_up", width, hidden));
    ffn->gate = gate.weight;
    ffn->gate_bias = gate.bias;
    ffn->up = up.weight;
    ffn->up_bias = up.bias;
    return absl::OkStatus();
  }

  bool HasFusedGateUp() const {
    const GgufTensor* up = store_->file().FindTensor(Name("ffn_up.weight"));
    return !Has("ffn_gate.weight") && up != nullptr && up->dims[1] == int64_t{2} * layer_.ffn_width;
  }

  // Loads a tensor that has the rows of gate, then those of up.
  absl::Status LoadFusedGateUp(int64_t width, FfnWeights* ffn) {
    const std::string name = Name("ffn_up.weight");
    MatrixRef ref = {
        .name = name, .rows = width, .cols = config_.hidden_size, .tensor_rows = 2 * width};
    ASSIGN_OR_RETURN(ffn->gate, store_->Matrix(ref));
    ref.first_row = width;
    ASSIGN_OR_RETURN(ffn->up, store_->Matrix(ref));
    ASSIGN_OR_RETURN(const absl::Span<const float> bias, OptionalVector("ffn_up.bias", 2 * width));
    if (bias.empty()) return absl::OkStatus();
    ffn->gate_bias = bias.subspan(0, width);
    ffn->up_bias = bias.subspan(width, width);
    return absl::OkStatus();
  }

  absl::Status LoadMoe(ExpertLoading experts, MoeWeights* weights) {
    const MoeConfig& moe = config_.moe;
    const int64_t hidden = config_.hidden_size;
    ASSIGN_OR_RETURN(weights->router, LoadLinear("ffn_gate_inp", moe.experts, hidden));
    ASSIGN_OR_RETURN(weights->selection_bias, OptionalVector("exp_probs_b.bias", moe.experts));
    weights->experts.resize(moe.experts);
    for (int e = 0; e < moe.experts; ++e) {
      ASSIGN_OR_RETURN(weights->experts[e], experts == ExpertLoading::kPacked
                                                ? LoadResidentExpert(e)
                                                : LoadExpertShape(e));
    }
    if (moe.shared_width == 0) return absl::OkStatus();
    FfnWeights& shared = weights->shared;
    shared.glu.form = layer_.glu;
    ASSIGN_OR_RETURN(shared.gate, LoadMatrix("ffn_gate_shexp.weight", moe.shared_width, hidden));
    ASSIGN_OR_RETURN(shared.up, LoadMatrix("ffn_up_shexp.weight", moe.shared_width, hidden));
    ASSIGN_OR_RETURN(shared.down, LoadMatrix("ffn_down_shexp.weight", hidden, moe.shared_width));
    if (!moe.shared_gate) return absl::OkStatus();
    ASSIGN_OR_RETURN(weights->shared_gate, LoadLinear("ffn_gate_inp_shexp", 1, hidden));
    return absl::OkStatus();
  }

  absl::StatusOr<FfnWeights> LoadResidentExpert(int expert) {
    const auto matrix = [this](const MatrixRef& ref, PackedMatrix FfnWeights::*) {
      return store_->Matrix(ref);
    };
    const auto bias = [&](const WeightStore::RowsRef& ref,
                          BiasSpan FfnWeights::*) -> absl::StatusOr<BiasSpan> {
      ASSIGN_OR_RETURN(const BiasSpan all, store_->Rows(ref));
      return all.subspan(expert * ref.size, ref.size);
    };
    return LoadExpert(expert, {matrix, bias});
  }

  // Loads a slab of "PART_exps.weight". In the first MoE files, this is "PART.E.weight".
  absl::StatusOr<PackedMatrix> LoadExpertMatrix(const ExpertPart& of,
                                                PackedMatrix FfnWeights::*part,
                                                const ExpertParts& parts) {
    const std::string single = Name(absl::StrCat(of.name, ".", of.expert, ".weight"));
    if (store_->Has(single)) {
      return parts.matrix({.name = single, .rows = of.rows, .cols = of.cols}, part);
    }
    const std::string stacked = Name(absl::StrCat(of.name, "_exps.weight"));
    return parts.matrix({.name = stacked,
                         .rows = of.rows,
                         .cols = of.cols,
                         .slab = of.expert,
                         .slabs = config_.moe.experts},
                        part);
  }

  // For each part that has biases, loads a row of "PART_exps.bias".
  absl::Status LoadExpertBiases(const ExpertParts& parts, FfnWeights* weights) {
    struct Bias {
      absl::string_view suffix;
      int64_t size;
      BiasSpan FfnWeights::*part;
    };
    for (const Bias& bias :
         {Bias{"ffn_gate_exps.bias", config_.moe.expert_width, &FfnWeights::gate_bias},
          Bias{"ffn_up_exps.bias", config_.moe.expert_width, &FfnWeights::up_bias},
          Bias{"ffn_down_exps.bias", config_.hidden_size, &FfnWeights::down_bias}}) {
      if (!Has(bias.suffix)) continue;
      const std::string name = Name(bias.suffix);
      ASSIGN_OR_RETURN(
          weights->*bias.part,
          parts.bias({.name = name, .size = bias.size, .count = config_.moe.experts}, bias.part));
    }
    return absl::OkStatus();
  }

  const ModelConfig& config_;
  const LayerConfig& layer_;
  const Family& family_;
  const std::string prefix_;
  WeightStore* const store_;
};

// Returns whether the tensor belongs to a layer that predicts further tokens.
bool IsOfDraftLayer(const ModelConfig& config, absl::string_view name) {
  for (int i = 0; i < config.draft_layers; ++i) {
    const size_t layer = config.layers.size() + i;
    if (absl::StartsWith(name, absl::StrCat("blk.", layer, "."))) return true;
  }
  return false;
}

absl::Status RejectUnused(const ModelConfig& config, const WeightStore& store) {
  std::vector<absl::string_view> unused = store.Unused();
  std::erase_if(unused, [&](absl::string_view name) { return IsOfDraftLayer(config, name); });
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

absl::StatusOr<absl::Span<const float>> LoadDivisors(const ModelConfig& config,
                                                     const RopeConfig& rope,
                                                     const std::string& name, WeightStore* store) {
  if (name.empty()) return absl::Span<const float>();
  ASSIGN_OR_RETURN(const absl::Span<const float> divisors, store->HostVector(name, rope.dims / 2));
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double least =
        rope.inv_freq[i] * static_cast<double>(config.context_length) / kMaxRopeAngle;
    if (divisors[i] > 0 && divisors[i] >= least) continue;
    return store->file().Error(name,
                               absl::StrCat("holds ", divisors[i], ", expected at least ", least));
  }
  return divisors;
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
  ASSIGN_OR_RETURN(weights.final_norm,
                   store->Vector(absl::StrCat(FamilyOf(config).final_norm, ".weight"), hidden));
  weights.head.weight = weights.embedding;
  if (store->Has("output.weight")) {
    ASSIGN_OR_RETURN(
        weights.head.weight,
        store->Matrix({.name = "output.weight", .rows = config.vocab_size, .cols = hidden}));
  }
  if (store->Has("output.bias")) {
    ASSIGN_OR_RETURN(weights.head.bias, store->Vector("output.bias", config.vocab_size));
  }
  for (const RopeConfig& rope : config.ropes) {
    ASSIGN_OR_RETURN(weights.rope_divisors.emplace_back(),
                     LoadDivisors(config, rope, rope.divisors, store));
    ASSIGN_OR_RETURN(weights.long_rope_divisors.emplace_back(),
                     LoadDivisors(config, rope, rope.long_divisors, store));
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
  return LayerLoader(config, id.layer, store).LoadExpertShape(id.expert);
}

absl::Status CheckExpertReadable(const ModelConfig& config, ExpertId id, WeightStore* store) {
  const auto matrix = [&](const MatrixRef& ref,
                          PackedMatrix FfnWeights::*) -> absl::StatusOr<PackedMatrix> {
    RETURN_IF_ERROR(store->CheckReadable(ref));
    return store->Shape(ref);
  };
  const auto bias = [&](const WeightStore::RowsRef& ref,
                        BiasSpan FfnWeights::*) -> absl::StatusOr<BiasSpan> {
    RETURN_IF_ERROR(store->CheckRowReadable(ref, id.expert));
    return BiasShape(store, ref);
  };
  return LayerLoader(config, id.layer, store).LoadExpert(id.expert, {matrix, bias}).status();
}

absl::Status PackExpert(const ModelConfig& config, ExpertId id, WeightStore* store,
                        const moe::ExpertLayout& layout, std::byte* record) {
  const FfnWeights places = layout.At(record);
  const moe::ExpertBiases biases = layout.BiasesAt(record);
  const auto matrix = [&](const MatrixRef& ref,
                          PackedMatrix FfnWeights::*part) -> absl::StatusOr<PackedMatrix> {
    const PackedMatrix& place = places.*part;
    RETURN_IF_ERROR(store->PackInto(ref, record + (place.data - record)));
    return place;
  };
  const auto bias = [&](const WeightStore::RowsRef& ref,
                        BiasSpan FfnWeights::*part) -> absl::StatusOr<BiasSpan> {
    const absl::Span<float> place = part == &FfnWeights::gate_bias ? biases.gate
                                    : part == &FfnWeights::up_bias ? biases.up
                                                                   : biases.down;
    RETURN_IF_ERROR(store->ReadRow(ref, id.expert, place));
    return places.*part;
  };
  return LayerLoader(config, id.layer, store).LoadExpert(id.expert, {matrix, bias}).status();
}

}  // namespace tidepool::engine

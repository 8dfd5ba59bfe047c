// Rules that say which GGUF tensors are made from which tensors of a Hugging Face checkpoint.
// Implementation detail of tensors.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/checkpoint/hf/families.h"

namespace tidepool::engine::hf {

// Which elements a GGUF tensor takes from its source tensor.
enum class Take : uint8_t {
  kAll,
  kRotary,          // all rows; in families with rotary_pairs, they are interleaved
  kFirstRows,       // the first half of the rows of each matrix
  kSecondRows,      // the second half of the rows of each matrix
  kVector,          // all elements as one vector
  kEvenOfRows,      // the elements 0, 2, 4, ... of each row
  kOddOfRows,       // the elements 1, 3, 5, ... of each row
  kTransposed,      // the transpose of each matrix
  kTransposedEven,  // the rows 0, 2, 4, ... of the transpose of each matrix
  kTransposedOdd,
  kTransposedFirst,   // the first half of the rows of the transpose of each matrix
  kTransposedSecond,  // the second half
  kMxfp4,             // all rows of "NAME_blocks", with the scales in "NAME_scales"
  kMxfp4Even,         // the rows 0, 2, 4, ... of "NAME_blocks"
  kMxfp4Odd,
  kMxfp4Scales,  // nothing, because the rule for "NAME_blocks" reads the scales
  kMlaKeys,      // for each head, the transpose of its first key_dim rows
  kMlaValues,    // for each head, the value_dim rows that follow its keys
  // These takes have the V heads of a delta net in the order of GGUF (HfModel::ValueHeads).
  kDeltaQkv,      // rows of q and k, then the rows of each V head
  kDeltaRows,     // the same number of rows, or of elements of a vector, for each V head
  kDeltaColumns,  // the same number of columns for each V head
  kDeltaConv,     // channels of q and k, then those of each V head: [channels, 1, width]
  kDeltaDecay,    // for each V head: -exp(x)
  // Rows of a tensor that has, for each K head, the rows of q, of k, of its V heads and of their
  // gates.
  kFusedDeltaQkv,   // all q, then all k, then all v
  kFusedDeltaGate,  // all gates
  kConv,            // [channels, 1, width] as [channels, width]
};

struct TensorRule {
  absl::string_view hf;        // "#" represents the index of an expert
  absl::string_view gguf;      // the name without "blk.N."
  Parts in = {Part::kAlways};  // a model with any of these parts has the tensor
  Take take = Take::kAll;
  Parts unless = {};  // a model with any of these parts does not have the tensor
  // Whether the file may have the transposes of the matrices. expert_layout.h finds the layout.
  bool either_layout = false;
};

// Rules for the tensors of a layer, "model.layers.N.*". Several rules may have the same source. If
// two rules of one part have the same GGUF name, they name two possible sources.
absl::Span<const TensorRule> LayerRules();

// Rules for all other tensors.
absl::Span<const TensorRule> OuterRules();

// Rules for the tensors "mtp.*" of draft layers that do not belong to a single layer. In GGUF they
// belong to the first draft layer.
absl::Span<const TensorRule> DraftRules();

// For a rule of LayerRules, returns whether a layer of this kind has the tensor. For any other
// rule, returns whether the model has the tensor.
bool Applies(const TensorRule& rule, Parts model_parts, LayerKind kind);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TENSOR_RULES_H_

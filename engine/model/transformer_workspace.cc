// TransformerModel::WorkspaceBytes: counts the arena bytes of a Forward by a dry run of the forward
// pass.
#include <algorithm>
#include <numeric>

#include "engine/model/transformer.h"
#include "kernels/base/check.h"
#include "kernels/counting_backend.h"

namespace tidepool::engine {

size_t TransformerModel::WorkspaceBytes(const BatchLimits& limits) const {
  // Only passes of at most kMaxHintRows rows predict experts. Such a pass may need more memory than
  // a pass with a few more rows, which makes no predictions.
  const int64_t few = std::min(limits.rows, kMaxHintRows);
  return std::max(DryRunBytes(limits), DryRunBytes({.rows = few, .logit_rows = limits.logit_rows}));
}

// Returns the arena bytes of a pass over limits.rows rows. They do not depend on how the rows are
// divided into spans. Fewer rows do not need more bytes, except for predictions of experts.
size_t TransformerModel::DryRunBytes(const BatchLimits& limits) const {
  Batch batch;
  RowSpan& span = batch.spans.emplace_back();
  span.token_ids.resize(limits.rows);
  span.logit_rows.resize(std::min(limits.rows, limits.logit_rows));
  std::iota(span.logit_rows.begin(), span.logit_rows.end(), 0);
  span.blocks.resize(1);
  KvView kv;
  for (const KvSpec& spec : kv_specs_) {
    std::vector<kernels::StateArray>& states = kv.states.emplace_back();
    for (const StateSpec& state : spec.state) {
      kernels::StateArray& array = states.emplace_back();
      array.unit_bytes = state.unit_bytes;
      array.units.resize(state.units);
    }
    kv.layers.push_back({.dtype = spec.dtype,
                         .kv_heads = spec.kv_heads,
                         .k_dim = spec.k_dim,
                         .v_dim = spec.v_dim,
                         .values_in_keys = spec.values_in_keys});
  }
  kv.group_of_layer.resize(kv_specs_.size());
  const auto backend = kernels::MakeCountingBackend(backend_->precision(), backend_->threads());
  kernels::Arena arena = kernels::Arena::Counting();
  PassRows rows;
  const auto output = Walk({.batch = batch,
                            .kv = kv,
                            .backend = backend.get(),
                            .arena = &arena,
                            .rows = &rows,
                            .live = nullptr});
  CHECK(output.ok()) << output.status();
  return arena.high_water();
}

}  // namespace tidepool::engine

#include "engine/evaluation/logits.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/model/batch.h"
#include "engine/model/contiguous_kv.h"
#include "engine/model/workspace.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kLogitBytes = 64 << 20;

absl::Status Validate(const TransformerModel& model, absl::Span<const int32_t> tokens,
                      const LogitsOptions& options) {
  if (options.chunk_rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of ", options.chunk_rows, " rows, expected at least 1"));
  }
  if (tokens.empty()) {
    return absl::InvalidArgumentError("no tokens, expected at least one token id");
  }
  const int64_t context = model.config().context_length;
  if (static_cast<int64_t>(tokens.size()) > context) {
    return absl::InvalidArgumentError(absl::StrCat(tokens.size(), " tokens, expected at most ",
                                                   context, ", the model's context"));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < model.vocab_size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("token id ", tokens[i], " at position ", i,
                                                   ", expected 0 to ", model.vocab_size() - 1));
  }
  return absl::OkStatus();
}

// Returns the rows whose logits are requested, in the chunk [first, first + rows) of `total` rows.
std::vector<int32_t> WantedRows(const LogitsOptions& options, int64_t first, int64_t rows,
                                int64_t total) {
  if (options.rows == LogitRows::kLast) {
    const bool is_last = first + rows == total;
    return is_last ? std::vector<int32_t>{static_cast<int32_t>(rows - 1)} : std::vector<int32_t>();
  }
  const int64_t skipped = std::clamp<int64_t>(options.first_position - first, 0, rows);
  std::vector<int32_t> wanted(rows - skipped);
  std::iota(wanted.begin(), wanted.end(), static_cast<int32_t>(skipped));
  return wanted;
}

int64_t ChunkRows(const TransformerModel& model, int64_t tokens, const LogitsOptions& options) {
  int64_t rows = std::min(options.chunk_rows, tokens);
  if (options.rows == LogitRows::kAll) {
    const int64_t row_bytes = int64_t{model.vocab_size()} * sizeof(float);
    rows = std::min(rows, std::max<int64_t>(1, kLogitBytes / row_bytes));
  }
  return rows;
}

}  // namespace

absl::Status ComputeLogits(TransformerModel* model, absl::Span<const int32_t> tokens,
                           const LogitsOptions& options, LogitsSink sink) {
  RETURN_IF_ERROR(Validate(*model, tokens, options));
  const int64_t total = static_cast<int64_t>(tokens.size());
  const int64_t chunk = ChunkRows(*model, total, options);
  const int64_t max_logits = options.rows == LogitRows::kAll ? chunk : 1;
  ASSIGN_OR_RETURN(kernels::Arena workspace,
                   MakeWorkspace(*model, {.rows = chunk, .logit_rows = max_logits}));
  ASSIGN_OR_RETURN(ContiguousKv kv, ContiguousKv::Create(*model, 1, total));

  int64_t first = 0;
  absl::Status observed;
  if (options.parts) {
    model->set_observer([&](absl::string_view name, kernels::ConstMatrixView rows) {
      const bool is_norm_of_last = name == "norm" && options.rows == LogitRows::kLast;
      if (!observed.ok() || rows.rows == 0) return;
      observed = options.parts(name, is_norm_of_last ? total - 1 : first, rows);
    });
  }
  const absl::Cleanup clear = [&] {
    if (options.parts) model->set_observer(nullptr);
  };

  while (first < total) {
    const int64_t rows = std::min(chunk, total - first);
    Batch batch;
    batch.spans.resize(1);
    RowSpan& span = batch.spans[0];
    span.first_slot = first;
    span.slot_limit = total;
    span.phase = moe::Phase::kPrefill;
    span.token_ids.assign(tokens.begin() + first, tokens.begin() + first + rows);
    span.logit_rows = WantedRows(options, first, rows, total);
    kv.SetBlocks(0, &span);
    ASSIGN_OR_RETURN(const StepOutput step, model->Forward(batch, kv.view(), &workspace));
    RETURN_IF_ERROR(observed);
    kv.Commit(0);
    for (int64_t i = 0; i < step.logits.rows; ++i) {
      RETURN_IF_ERROR(sink(first + span.logit_rows[i],
                           absl::MakeConstSpan(step.logits.Row(i), step.logits.cols)));
    }
    first += rows;
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(int64_t position, absl::Span<const float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) continue;
    return absl::InternalError(absl::StrCat("the logit of token ", id, " at position ", position,
                                            " is ", logits[id],
                                            ": the model's weights or arithmetic are broken"));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine

#include "engine/engine_options.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

absl::Status CheckAtLeast(absl::string_view field, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; it must be at least ", least));
}

}  // namespace

absl::Status EngineOptions::Validate() const {
  RETURN_IF_ERROR(CheckAtLeast("context_length", context_length, 2));
  RETURN_IF_ERROR(CheckAtLeast("max_sequences", max_sequences, 1));
  RETURN_IF_ERROR(CheckAtLeast("max_queued", max_queued, 0));
  RETURN_IF_ERROR(CheckAtLeast("prefill_chunk", prefill_chunk, 1));
  RETURN_IF_ERROR(CheckAtLeast("attention_depth", attention_depth, 0));
  RETURN_IF_ERROR(CheckAtLeast("max_concurrent_prefills", max_concurrent_prefills, 1));
  RETURN_IF_ERROR(CheckAtLeast("offload_prefill_chunk", offload_prefill_chunk, 0));
  if (!kv_disk_path.empty()) RETURN_IF_ERROR(CheckAtLeast("kv_disk_bytes", kv_disk_bytes, 1));
  // In each step, every running sequence needs at least one row, and the logits of that row.
  RETURN_IF_ERROR(CheckAtLeast("limits.rows", limits.rows, max_sequences));
  return CheckAtLeast("limits.logit_rows", limits.logit_rows, max_sequences);
}

}  // namespace tidepool::engine

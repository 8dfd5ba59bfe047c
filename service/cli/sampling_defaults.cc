#include "service/cli/sampling_defaults.h"

#include <limits>

#include "kernels/base/status_macros.h"

namespace tidepool::service {

absl::StatusOr<engine::SamplingParams> ReadDefaultSampling(const engine::Checkpoint& file,
                                                           int vocab_size) {
  engine::SamplingParams params;
  const auto read = [&](absl::string_view key, float* value) {
    const absl::StatusOr<double> number = file.FloatOr(key, *value);
    if (number.ok()) *value = static_cast<float>(*number);
    return number.status();
  };
  RETURN_IF_ERROR(read("general.sampling.temp", &params.temperature));
  RETURN_IF_ERROR(read("general.sampling.top_p", &params.top_p));
  RETURN_IF_ERROR(read("general.sampling.min_p", &params.min_p));
  RETURN_IF_ERROR(read("general.sampling.penalty_repeat", &params.repetition_penalty));
  RETURN_IF_ERROR(read("general.sampling.typical_p", &params.typical_p));
  RETURN_IF_ERROR(read("general.sampling.xtc_probability", &params.xtc_probability));
  RETURN_IF_ERROR(read("general.sampling.xtc_threshold", &params.xtc_threshold));
  constexpr absl::string_view kTopK = "general.sampling.top_k";
  ASSIGN_OR_RETURN(const int64_t top_k, file.IntOr(kTopK, params.top_k));
  if (top_k > std::numeric_limits<int32_t>::max() || top_k < std::numeric_limits<int32_t>::min()) {
    return file.Error(kTopK, "a number of tokens was expected");
  }
  // Some files use a negative number for "all", which is 0 here.
  params.top_k = static_cast<int32_t>(top_k < 0 ? 0 : top_k);
  if (const absl::Status status = params.Validate(vocab_size); !status.ok()) {
    return file.Error("general.sampling", status.message());
  }
  return params;
}

}  // namespace tidepool::service

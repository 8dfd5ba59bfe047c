#include "service/cli/traffic_plan.h"

#include <cmath>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::service {

TrafficPlan::TrafficPlan(TrafficShape shape) : shape_(std::move(shape)), random_(shape_.seed) {
  CHECK(!shape_.prompt_tokens.empty() && !shape_.output_tokens.empty() && shape_.vocab_size > 0);
  AppendTokens(shape_.shared_prompt_tokens, &shared_prompt_);
}

TrafficRequest TrafficPlan::Next() {
  TrafficRequest request;
  if (shape_.rate > 0) {
    // 53 random bits in (0, 1]. It excludes 0, whose logarithm is infinite.
    const double share = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;
    now_ += absl::Seconds(-std::log(share) / shape_.rate);
  }
  request.arrival = now_;
  const int64_t length = shape_.prompt_tokens[Draw(shape_.prompt_tokens.size())];
  request.prompt.reserve(length);
  request.prompt = shared_prompt_;
  AppendTokens(length - shape_.shared_prompt_tokens, &request.prompt);
  request.output_tokens = shape_.output_tokens[Draw(shape_.output_tokens.size())];
  if (!shape_.priorities.empty()) {
    request.priority = shape_.priorities[Draw(shape_.priorities.size())];
  }
  return request;
}

// The bias of the modulo is below 2^-32 for the counts used here.
uint64_t TrafficPlan::Draw(uint64_t below) { return random_() % below; }

void TrafficPlan::AppendTokens(int64_t count, std::vector<int32_t>* tokens) {
  for (int64_t i = 0; i < count; ++i) {
    tokens->push_back(static_cast<int32_t>(Draw(static_cast<uint64_t>(shape_.vocab_size))));
  }
}

}  // namespace tidepool::service

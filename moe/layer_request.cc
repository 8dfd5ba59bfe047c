#include "moe/layer_request.h"

#include <algorithm>
#include <functional>

#include "kernels/base/check.h"

namespace tidepool::moe {

void LayerRequest::Begin(int layer) {
  CHECK(done()) << "layer " << layer << " was requested before the last one was drained";
  layer_ = layer;
  first_ = layer * static_cast<int64_t>(entries_.size());
  experts_.clear();
}

void LayerRequest::Add(int64_t expert, Start start) {
  CHECK(experts_.empty() || experts_.back() < expert) << "experts do not ascend";
  experts_.push_back(expert);
  ++left_;
  if (start == Start::kReady) ready_.push_back(expert);
  if (start == Start::kWaiting) waiting_.insert(waiting_.begin(), expert);
}

int64_t LayerRequest::TakeWaiting() {
  const int64_t expert = waiting_.back();
  waiting_.pop_back();
  return expert;
}

std::vector<int64_t> LayerRequest::TakeReady() {
  for (const int64_t expert : ready_) At(expert).given_out = true;
  left_ -= static_cast<int64_t>(ready_.size());
  given_out_ += static_cast<int64_t>(ready_.size());
  return std::exchange(ready_, {});
}

void LayerRequest::Release(int64_t expert) {
  CHECK(std::exchange(At(expert).given_out, false)) << "expert " << expert << " is not in use";
  --given_out_;
}

void LayerRequest::Postpone(int64_t expert) {
  Release(expert);
  ++left_;
  waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), expert, std::greater<>()),
                  expert);
}

absl::Status LayerRequest::Abandon() {
  for (const int64_t expert : experts_) At(expert).given_out = false;
  waiting_.clear();
  ready_.clear();
  left_ = 0;
  given_out_ = 0;
  return std::exchange(error_, absl::OkStatus());
}

}  // namespace tidepool::moe

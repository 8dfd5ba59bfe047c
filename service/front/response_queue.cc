#include "service/front/response_queue.h"

#include <algorithm>
#include <utility>

#include "service/front/output_events.h"

namespace tidepool::service {
namespace {

// Appends `next` to a message that does not have a finish_reason yet.
void Merge(v1::GenerateResponse&& next, v1::GenerateResponse* into) {
  into->mutable_text()->append(next.text());
  into->mutable_token_ids()->MergeFrom(next.token_ids());
  into->mutable_logprobs()->MergeFrom(next.logprobs());
  into->mutable_prompt_logprobs()->MergeFrom(next.prompt_logprobs());
  for (v1::OutputEvent& event : *next.mutable_events()) {
    AppendEvent(std::move(event), into->mutable_events());
  }
  if (next.has_progress()) *into->mutable_progress() = next.progress();
  into->set_finish_reason(next.finish_reason());
  if (next.has_usage()) *into->mutable_usage() = std::move(*next.mutable_usage());
}

}  // namespace

void ResponseQueue::Push(v1::GenerateResponse response, bool logged) {
  waiting_.push_back({.response = std::move(response), .logged = logged});
}

void ResponseQueue::MarkLogged() {
  const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                  [](const Message& message) { return !message.logged; });
  if (first != waiting_.end()) first->logged = true;
}

std::optional<v1::GenerateResponse> ResponseQueue::Take() {
  if (in_flight_ || waiting_.empty() || !waiting_.front().logged) return std::nullopt;
  v1::GenerateResponse response = std::move(waiting_.front().response);
  waiting_.pop_front();
  while (!waiting_.empty() && waiting_.front().logged &&
         waiting_.front().response.position() != resume_after_) {
    Merge(std::move(waiting_.front().response), &response);
    waiting_.pop_front();
  }
  in_flight_ = true;
  tokens_ = response.token_ids_size() + response.prompt_logprobs_size();
  last_ = response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  return response;
}

int64_t ResponseQueue::OnTaken() {
  in_flight_ = false;
  return tokens_;
}

}  // namespace tidepool::service

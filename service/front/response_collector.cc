#include "service/front/response_collector.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

// Estimates how much memory this message adds to a response.
int64_t KeptBytes(const v1::GenerateResponse& response) {
  size_t bytes = response.text().size() + response.token_ids_size() * sizeof(int32_t);
  for (const v1::TokenLogprob& logprob : response.logprobs()) bytes += logprob.SpaceUsedLong();
  for (const v1::OutputEvent& event : response.events()) bytes += event.ByteSizeLong();
  bytes += response.prompt_text().size() + response.prompt_token_ids_size() * sizeof(int32_t);
  for (const v1::TokenLogprob& logprob : response.prompt_logprobs()) {
    bytes += logprob.SpaceUsedLong();
  }
  return static_cast<int64_t>(bytes);
}

// Adds an output event to the completion.
void TakeEvent(v1::OutputEvent* event, v1::Completion* completion) {
  if (event->has_reasoning()) {
    completion->mutable_reasoning()->append(event->reasoning());
  } else if (event->has_content()) {
    completion->mutable_content()->append(event->content());
  } else if (!event->tool_call().id().empty() || completion->tool_calls().empty()) {
    completion->add_tool_calls()->Swap(event->mutable_tool_call());
  } else {
    completion->mutable_tool_calls()->rbegin()->mutable_arguments()->append(
        event->tool_call().arguments());
  }
}

}  // namespace

ResponseCollector::ResponseCollector(Executor* loop, WholeResponse* whole, Done done)
    : loop_(loop), whole_(whole), done_(std::move(done)) {
  response_.add_completions();
}

void ResponseCollector::SetCompletions(int32_t count) {
  for (int32_t i = 1; i < count; ++i) response_.add_completions()->set_index(i);
}

void ResponseCollector::Write(v1::GenerateResponse response) {
  if (absl::Status room = Grow(KeptBytes(response)); !room.ok()) return Stop(std::move(room));
  v1::Completion* completion = response_.mutable_completions(response.index());
  response_.set_request_id(response.request_id());
  completion->mutable_text()->append(response.text());
  completion->mutable_token_ids()->MergeFrom(response.token_ids());
  completion->mutable_logprobs()->MergeFrom(response.logprobs());
  completion->set_finish_reason(response.finish_reason());
  for (v1::OutputEvent& event : *response.mutable_events()) TakeEvent(&event, completion);
  if (response.has_usage()) *response_.mutable_usage() = response.usage();
  TakePrompt(&response);
  loop_->Post([weak = stream_] {
    if (const auto stream = weak.lock()) stream->OnWritten();
  });
}

void ResponseCollector::Finish(absl::Status status) {
  if (status.ok()) {
    done_(std::move(response_));
  } else {
    done_(std::move(status));
  }
  delete this;
}

void ResponseCollector::TakePrompt(v1::GenerateResponse* response) {
  if (response->prompt_token_ids_size() > 0) {
    response_.mutable_prompt_token_ids()->Swap(response->mutable_prompt_token_ids());
    response_.set_prompt_text(response->prompt_text());
  }
  response_.mutable_prompt_logprobs()->MergeFrom(response->prompt_logprobs());
}

absl::Status ResponseCollector::Grow(int64_t bytes) {
  absl::Status room = whole_->Grow(bytes);
  if (!whole_->IsTooLong()) return room;
  return absl::InvalidArgumentError(
      absl::StrCat("the response exceeds ", WholeResponse::kMaxBytes >> 20,
                   " MiB, the limit for one message; use Generate, which streams, or request fewer "
                   "tokens or logprobs"));
}

void ResponseCollector::Stop(absl::Status status) {
  v1::CompleteResponse().Swap(&response_);
  whole_->Clear();
  // Post the task, because the stream may be in the middle of a call to this object.
  loop_->Post([weak = stream_, status = std::move(status)] {
    if (const auto stream = weak.lock()) stream->Cancel(status);
  });
}

}  // namespace tidepool::service

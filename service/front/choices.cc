#include "service/front/choices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/random_hex.h"

namespace tidepool::service {
namespace {

// Returns the request for choice number `index` alone.
GenerationInput InputOf(const GenerationInput& input, const std::string& name, int32_t index) {
  GenerationInput one = input;
  v1::GenerateRequest& request = one.request;
  request.clear_n();
  if (index == 0) {
    if (request.request_id().empty()) one.own_id = name;
    return one;
  }
  const std::string own = absl::StrCat(name, "#", index);
  request.request_id().empty() ? one.own_id = own : *request.mutable_request_id() = own;
  if (request.sampling().has_seed()) {
    request.mutable_sampling()->set_seed(request.sampling().seed() + index);
  }
  // Only the first choice reports the prompt. So the other choices have no prompt report. Without a
  // prompt report, max_tokens must not be 0.
  request.clear_prompt_logprobs();
  request.clear_return_progress();
  if (request.stopping().has_max_tokens() && request.stopping().max_tokens() == 0) {
    request.set_echo(true);
  }
  one.span = BeginSpan(input.span.context);
  return one;
}

// Adds the usage of one choice. The prompt is counted only once. The times are those of the first
// choice.
void AddUsage(const v1::Usage& usage, int32_t index, v1::Usage* all) {
  if (index == 0) {
    all->set_prompt_tokens(usage.prompt_tokens());
    all->set_cached_tokens(usage.cached_tokens());
    all->set_queue_seconds(usage.queue_seconds());
    all->set_prefill_seconds(usage.prefill_seconds());
  }
  all->set_completion_tokens(all->completion_tokens() + usage.completion_tokens());
  all->set_reasoning_tokens(all->reasoning_tokens() + usage.reasoning_tokens());
  all->set_decode_seconds(std::max(all->decode_seconds(), usage.decode_seconds()));
  all->set_expert_hits(all->expert_hits() + usage.expert_hits());
  all->set_expert_misses(all->expert_misses() + usage.expert_misses());
  all->set_expert_demand_bytes(all->expert_demand_bytes() + usage.expert_demand_bytes());
  all->set_expert_stall_seconds(all->expert_stall_seconds() + usage.expert_stall_seconds());
  all->set_numerics_changed(all->numerics_changed() || usage.numerics_changed());
}

}  // namespace

Choices::Choices(Executor* loop, std::string name, int32_t count, GenerationSink* sink)
    : loop_(loop),
      name_(std::move(name)),
      sink_(sink),
      choices_(count),
      unfinished_(count),
      open_(count) {}

std::shared_ptr<ResponseStream> Choices::Start(Executor* loop, GenerationInput input,
                                               GenerationSink* sink, Begin begin) {
  std::string name = input.request.request_id();
  if (name.empty()) name = input.own_id;
  if (name.empty()) name = absl::StrCat("gen-", base::RandomHex());
  const std::shared_ptr<Choices> all(new Choices(loop, std::move(name), input.request.n(), sink));
  loop->Post([all, input = std::move(input), begin = std::move(begin)] {
    if (all->sink_ != nullptr) all->BeginAll(input, begin);
  });
  return all;
}

void Choices::BeginAll(const GenerationInput& input, const Begin& begin) {
  self_ = shared_from_this();
  const auto keep = self_;  // a choice that is refused ends during this loop
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.all = this;
    choice.index = static_cast<int32_t>(i);
    if (sink_ == nullptr) {  // a choice before this one was refused
      choice.ended = true;
      if (--open_ == 0) self_.reset();
      continue;
    }
    choice.stream = begin(InputOf(input, name_, choice.index), &choice);
  }
}

void Choices::OnMessage(int32_t index, v1::GenerateResponse response) {
  if (sink_ == nullptr) return Acknowledge(index);
  response.set_request_id(name_);
  response.set_index(index);
  if (index > 0) {
    const bool only_prompt = response.prompt_token_ids_size() > 0 && response.token_ids().empty() &&
                             response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED;
    if (only_prompt) return Acknowledge(index);
    response.clear_prompt_text();
    response.clear_prompt_token_ids();
  }
  if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    AddUsage(response.usage(), index, &usage_);
    response.clear_usage();
    if (--unfinished_ == 0) *response.mutable_usage() = usage_;
  }
  queue_.push_back(std::move(response));
  SendNext();
}

void Choices::SendNext() {
  if (sink_ == nullptr || writing_ >= 0 || queue_.empty()) return;
  v1::GenerateResponse response = std::move(queue_.front());
  queue_.pop_front();
  writing_ = response.index();
  sink_->Write(std::move(response));
}

void Choices::OnWritten() {
  if (writing_ < 0) return;
  Acknowledge(std::exchange(writing_, -1));
  SendNext();
}

void Choices::Acknowledge(int32_t index) {
  // Post the task, because the choice may be in the middle of a call to this object.
  loop_->Post([weak = weak_from_this(), index] {
    const auto self = weak.lock();
    if (self == nullptr || self->choices_[index].ended) return;
    const auto stream = self->choices_[index].stream;
    if (stream != nullptr) stream->OnWritten();
  });
}

void Choices::OnEnd(int32_t index, absl::Status status) {
  const auto keep = shared_from_this();
  choices_[index].ended = true;
  const bool last = --open_ == 0;
  if (!status.ok() || last) End(std::move(status));
  if (last) self_.reset();
}

void Choices::Cancel(absl::Status why) { End(std::move(why)); }

void Choices::End(absl::Status status) {
  if (sink_ == nullptr) return;
  const auto keep = shared_from_this();
  GenerationSink* const sink = std::exchange(sink_, nullptr);
  queue_.clear();
  for (Choice& choice : choices_) {
    const auto stream = choice.stream;
    if (stream != nullptr && !choice.ended) {
      stream->Cancel(status.ok() ? absl::CancelledError("the request has ended") : status);
    }
  }
  sink->Finish(std::move(status));
}

}  // namespace tidepool::service

#include "service/front/poisoned_prompts.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "service/front/message_bytes.h"
#include "xxhash.h"

namespace tidepool::service {

PromptId PromptIdOf(absl::string_view principal, absl::string_view model_digest,
                    const v1::GenerateRequest& request,
                    absl::Span<const int32_t> session_token_ids) {
  v1::GenerateRequest input;
  if (request.has_text()) input.set_text(request.text());
  if (request.has_token_ids()) *input.mutable_token_ids() = request.token_ids();
  if (request.has_chat()) *input.mutable_chat() = request.chat();
  const std::string bytes =
      absl::StrCat(model_digest.size(), ":", model_digest, MessageBytes(input));
  // Each hash is the seed of the next one. So the result changes if a byte moves from one part to
  // another.
  const uint64_t seed = XXH3_64bits(session_token_ids.data(),
                                    session_token_ids.size() * sizeof(session_token_ids[0]));
  const uint64_t content = XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
  return {.content = content,
          .sent = XXH3_64bits_withSeed(principal.data(), principal.size(), content)};
}

void PoisonedPrompts::DropExpired() {
  const absl::Duration now = clock_->Monotonic();
  while (!order_.empty() && (until_[order_.front()] <= now || order_.size() > kMax)) {
    until_.erase(order_.front());
    order_.pop_front();
  }
}

void PoisonedPrompts::Refuse(uint64_t digest) {
  // If the prompt is already refused, its expiry time does not change.
  const bool added = until_.emplace(digest, clock_->Monotonic() + kRefusedFor).second;
  if (added) order_.push_back(digest);
  DropExpired();
}

bool PoisonedPrompts::Refuses(uint64_t digest) {
  DropExpired();
  return until_.contains(digest);
}

absl::Status PoisonedPrompts::Check(uint64_t digest) {
  DropExpired();
  const auto found = until_.find(digest);
  if (found == until_.end()) return absl::OkStatus();
  ++refused_total_;
  const absl::Duration left = absl::Ceil(found->second - clock_->Monotonic(), absl::Seconds(1));
  return absl::InternalError(absl::StrCat(
      "workers crashed while they computed this prompt; it is refused to its sender for another ",
      absl::FormatDuration(left),
      ": change the prompt, or report it to the operator of the workers"));
}

}  // namespace tidepool::service

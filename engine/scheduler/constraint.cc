#include "engine/scheduler/constraint.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/background_thread.h"
#include "kernels/base/check.h"

namespace tidepool::engine {

SequenceConstraint::SequenceConstraint(const GenerationRequest& request)
    : trie_(request.token_trie), mask_(request.token_trie->vocab_size()) {
  if (request.grammar != nullptr) matcher_.emplace(request.grammar, trie_);
  if (request.reasoning_limit.has_value()) reasoning_.emplace(*request.reasoning_limit, trie_);
}

absl::StatusOr<std::shared_ptr<SequenceConstraint>> SequenceConstraint::Create(
    const GenerationRequest& request) {
  if (request.grammar == nullptr && !request.reasoning_limit.has_value()) {
    return std::shared_ptr<SequenceConstraint>();
  }
  CHECK(request.token_trie != nullptr);
  if (request.grammar != nullptr && request.stopping.ignore_eos) {
    return absl::InvalidArgumentError(
        "ignore_eos does not work with constrained output; remove one of them");
  }
  if (request.grammar != nullptr && request.token_trie->stop_ids().empty()) {
    return absl::InvalidArgumentError(
        "the model has no end token, so constrained output could not end");
  }
  std::shared_ptr<SequenceConstraint> constraint(new SequenceConstraint(request));
  for (size_t i = request.prompt_length; i < request.token_ids.size(); ++i) {
    if (constraint->Add(request.token_ids[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("the constraint does not allow output token ",
                                                   i - request.prompt_length,
                                                   " of an earlier attempt"));
  }
  return constraint;
}

void SequenceConstraint::ComputeMask(absl::Span<const int32_t> forbidden) {
  CHECK(TryComputeMask(forbidden, [] { return false; }));
}

bool SequenceConstraint::TryComputeMask(absl::Span<const int32_t> forbidden,
                                        absl::FunctionRef<bool()> give_up) {
  if (allows_all()) return true;
  const absl::Duration begin = base::ThreadCpuTime();
  if (matcher_.has_value() && !matcher_->TryFillMask(&mask_, give_up)) return false;
  mask_time_ = base::ThreadCpuTime() - begin;
  Restrict(forbidden);
  mask_state_ = MaskState::kReady;
  return true;
}

// Applies the other limits on the next token: the limit on reasoning, and `forbidden`.
void SequenceConstraint::Restrict(absl::Span<const int32_t> forbidden) {
  if (const std::optional<int32_t> token = forced(); token.has_value()) {
    // If the grammar does not allow the marker here, the grammar has precedence.
    if (!matcher_.has_value() || mask_.Test(*token)) {
      mask_.Clear();
      mask_.Set(*token);
    }
    return;
  }
  if (forbidden.empty()) return;
  grammar::TokenMask rest = mask_;
  for (const int32_t id : forbidden) rest.Reset(id);
  if (!rest.IsEmpty()) mask_ = rest;
}

bool SequenceConstraint::Add(int32_t token) {
  if (matcher_.has_value() && !matcher_->AcceptToken(token)) return false;
  if (reasoning_.has_value()) reasoning_->Add(token);
  return true;
}

void SequenceConstraint::Accept(int32_t token) {
  CHECK(Add(token)) << token;
  mask_state_ = MaskState::kMissing;
  ended_ = matcher_.has_value() && trie_->IsStop(token);
}

}  // namespace tidepool::engine

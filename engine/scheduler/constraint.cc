#include "engine/scheduler/constraint.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::engine {

SequenceConstraint::SequenceConstraint(const GenerationRequest& request)
    : matcher_(request.grammar, request.token_trie),
      mask_(request.token_trie->vocab_size()),
      trie_(request.token_trie) {}

absl::StatusOr<std::unique_ptr<SequenceConstraint>> SequenceConstraint::Create(
    const GenerationRequest& request) {
  if (request.grammar == nullptr) return std::unique_ptr<SequenceConstraint>();
  CHECK(request.token_trie != nullptr);
  if (request.stopping.ignore_eos) {
    return absl::InvalidArgumentError(
        "ignore_eos does not work with constrained output; remove one of them");
  }
  if (request.token_trie->stop_ids().empty()) {
    return absl::InvalidArgumentError(
        "the model has no end token, so constrained output could not end");
  }
  std::unique_ptr<SequenceConstraint> constraint(new SequenceConstraint(request));
  for (size_t i = request.prompt_length; i < request.token_ids.size(); ++i) {
    if (constraint->matcher_.AcceptToken(request.token_ids[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("the constraint does not allow output token ",
                                                   i - request.prompt_length,
                                                   " of an earlier attempt"));
  }
  return constraint;
}

void SequenceConstraint::ComputeMask(absl::Span<const int32_t> forbidden) {
  matcher_.FillMask(&mask_);
  if (forbidden.empty()) return;
  grammar::TokenMask rest = mask_;
  for (const int32_t id : forbidden) rest.Reset(id);
  if (!rest.IsEmpty()) mask_ = rest;
}

void SequenceConstraint::Accept(int32_t token) {
  CHECK(matcher_.AcceptToken(token)) << token;
  ended_ = trie_->IsStop(token);
}

}  // namespace tidepool::engine

#include "service/front/text_calls.h"

#include <utility>

#include "kernels/base/retry_after.h"
#include "service/front/served_models.h"

namespace tidepool::service {
namespace {

// Maximum number of Tokenize and Detokenize calls, running and waiting. These calls need their own
// limit: each can be as long as the largest message, and a principal's limits do not count them.
constexpr int64_t kMaxTexts = 64;

}  // namespace

TextCalls::TextCalls(const WorkerSet* workers)
    : workers_(workers), places_("the front's queue of Tokenize and Detokenize calls", kMaxTexts) {}

template <typename Request, typename Response>
void TextCalls::Ask(Request request, const Caller& caller, Done<Response> done,
                    Call<Request, Response> call) {
  const absl::StatusOr<PickedWorker> worker = PickAnyWorker(*workers_, request.model());
  if (!worker.ok()) return done(worker.status());
  absl::StatusOr<engine::AdmissionSlots::Place> place = places_.Take(caller.principal);
  if (!place.ok()) return done(base::WithRetryAfter(place.status(), base::kUsualRetryAfter));
  (worker->link->*call)(std::move(request), caller.deadline,
                        [place = *std::move(place), done = std::move(done)](
                            absl::StatusOr<Response> response) { done(std::move(response)); });
}

void TextCalls::Tokenize(v1::TokenizeRequest request, const Caller& caller,
                         Done<v1::TokenizeResponse> done) {
  if (request.has_chat() || request.add_special() || request.return_tokens() ||
      request.describe()) {
    done = [done = std::move(done)](absl::StatusOr<v1::TokenizeResponse> response) {
      // Workers of older releases do not report the length of their context.
      if (response.ok() && response->context_length() == 0) {
        response = absl::UnimplementedError(
            "chat, add_special, return_tokens and describe are not supported by this model's "
            "worker, which has an older release; upgrade it");
      }
      done(std::move(response));
    };
  }
  Ask<v1::TokenizeRequest, v1::TokenizeResponse>(std::move(request), caller, std::move(done),
                                                 &WorkerLink::Tokenize);
}

void TextCalls::Detokenize(v1::DetokenizeRequest request, const Caller& caller,
                           Done<v1::DetokenizeResponse> done) {
  Ask<v1::DetokenizeRequest, v1::DetokenizeResponse>(std::move(request), caller, std::move(done),
                                                     &WorkerLink::Detokenize);
}

}  // namespace tidepool::service

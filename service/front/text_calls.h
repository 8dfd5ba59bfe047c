// TextCalls: handles Tokenize and Detokenize. A worker does the work.
#ifndef TIDEPOOL_SERVICE_FRONT_TEXT_CALLS_H_
#define TIDEPOOL_SERVICE_FRONT_TEXT_CALLS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/scheduler/admission_slots.h"
#include "service/front/worker_link.h"
#include "service/front/worker_set.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Use it on the loop only. Callbacks also run there.
class TextCalls {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  struct Caller {
    std::string principal;
    absl::Duration deadline = absl::InfiniteDuration();  // on the monotonic clock
  };

  // `workers` must outlive this object.
  explicit TextCalls(const WorkerSet* workers);

  // RESOURCE_EXHAUSTED, with a retry hint, if too many of these calls are running, in total or for
  // this principal.
  void Tokenize(v1::TokenizeRequest request, const Caller& caller, Done<v1::TokenizeResponse> done);
  void Detokenize(v1::DetokenizeRequest request, const Caller& caller,
                  Done<v1::DetokenizeResponse> done);

 private:
  template <typename Request, typename Response>
  using Call = void (WorkerLink::*)(Request, absl::Duration, Done<Response>);
  // Calls any worker of the model, as soon as a slot is free.
  template <typename Request, typename Response>
  void Ask(Request request, const Caller& caller, Done<Response> done,
           Call<Request, Response> call);

  const WorkerSet* const workers_;
  engine::AdmissionSlots places_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_TEXT_CALLS_H_

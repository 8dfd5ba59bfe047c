// Digests that tell whether two requests of one name ask for the same.
#ifndef TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_
#define TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_

#include <string>

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct RequestDigests {
  // Of all that makes the answer. Of requests with a request_id.
  std::string body;
  // Of all in a session's turn that its answer follows from, for its log: what a client may change
  // when it comes back is left out (logprobs, which the log does not keep), and so is the session,
  // for a fork has its turns too. Of requests with a session.
  std::string turn;
};

// Takes as long as the request is long.
RequestDigests DigestsOf(const v1::GenerateRequest& request);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_

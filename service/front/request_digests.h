// Digests that show whether two requests with the same name are equal.
#ifndef TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_
#define TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_

#include <string>

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct RequestDigests {
  // For requests with a request_id: digest of everything that determines the response.
  std::string body;
  // For turns of a session: digest of everything that determines the response, stored in the log.
  // It excludes fields that a client may change when it repeats the request (logprobs, which the
  // log does not keep). It also excludes the session, because a fork contains the same turns.
  std::string turn;
};

// Takes time proportional to the request's length.
RequestDigests DigestsOf(const v1::GenerateRequest& request);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_

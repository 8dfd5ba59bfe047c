// Digests of requests. They show whether two requests with the same name are equal.
#ifndef TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_
#define TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_

#include <string>

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

struct RequestDigests {
  // Only for a request with a request_id: the digest of everything that determines the response.
  std::string body;
  // Only for a turn of a session: the digest of everything that determines the response. The log
  // stores it. Fields that a client may change when it repeats the request are left out: these are
  // the logprobs, which the log does not keep. The session is also left out, because a fork of the
  // session contains the same turns.
  std::string turn;
};

// Takes time in proportion to the request's length.
RequestDigests DigestsOf(const v1::GenerateRequest& request);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_DIGESTS_H_

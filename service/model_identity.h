// ModelIdentity: the name of a model's weights, as workers, sessions and fronts compare it.
//
// A worker of an earlier release knows only the digest of samples of its checkpoint, one of this
// release also that of every byte. Both stand in the identity: "DIGEST" or "DIGEST:CONTENT-DIGEST".
#ifndef TIDEPOOL_SERVICE_MODEL_IDENTITY_H_
#define TIDEPOOL_SERVICE_MODEL_IDENTITY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// `content_digest` empty: not known.
std::string ModelIdentity(absl::string_view digest, absl::string_view content_digest);
std::string ModelIdentity(const v1::Model& model);

// Whether two identities name the same weights. If only one of them has a content digest, the
// digests decide.
bool SameModel(absl::string_view a, absl::string_view b);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_MODEL_IDENTITY_H_

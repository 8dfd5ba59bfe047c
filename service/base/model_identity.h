// ModelIdentity: identifies a model's weights, for comparisons by workers, sessions and fronts.
//
// A worker of an older release has only the digest of samples of its checkpoint. A worker of this
// release also has the digest of every byte. So it is "DIGEST" or "DIGEST:CONTENT-DIGEST".
#ifndef TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_
#define TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_

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

#endif  // TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_

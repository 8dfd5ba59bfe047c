// ModelIdentity: a text that identifies a model's weights, so that workers, sessions and fronts can
// compare their models.
//
// The text is "DIGEST" or "DIGEST:CONTENT-DIGEST". DIGEST is computed from samples of the
// checkpoint, and CONTENT-DIGEST from every byte. Workers of older releases only report DIGEST.
#ifndef TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_
#define TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// `content_digest` is empty if it is unknown.
std::string ModelIdentity(absl::string_view digest, absl::string_view content_digest);
std::string ModelIdentity(const v1::Model& model);

// Returns whether two identities name the same weights. If only one of them has a content digest,
// the digests of samples are compared.
bool SameModel(absl::string_view a, absl::string_view b);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_

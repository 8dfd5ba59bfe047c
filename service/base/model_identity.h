// ModelIdentity: identifies a model's weights, so that workers, sessions and fronts can compare
// them.
//
// Its form is "DIGEST" or "DIGEST:CONTENT-DIGEST". DIGEST covers samples of the checkpoint,
// CONTENT-DIGEST every byte. Workers of older releases have only the first.
#ifndef TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_
#define TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// `content_digest` is empty if unknown.
std::string ModelIdentity(absl::string_view digest, absl::string_view content_digest);
std::string ModelIdentity(const v1::Model& model);

// Returns true if two identities name the same weights. If only one has a content digest, the
// digests of samples decide.
bool SameModel(absl::string_view a, absl::string_view b);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_MODEL_IDENTITY_H_

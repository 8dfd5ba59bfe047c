#include "service/base/model_identity.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidepool::service {
namespace {

// Splits an identity into the digest and the content digest. The content digest may be empty.
std::pair<absl::string_view, absl::string_view> Parts(absl::string_view identity) {
  return absl::StrSplit(identity, absl::MaxSplits(':', 1));
}

}  // namespace

std::string ModelIdentity(absl::string_view digest, absl::string_view content_digest) {
  if (content_digest.empty()) return std::string(digest);
  return absl::StrCat(digest, ":", content_digest);
}

std::string ModelIdentity(const v1::Model& model) {
  return ModelIdentity(model.digest(), model.content_digest());
}

bool SameModel(absl::string_view a, absl::string_view b) {
  const auto [digest_a, content_a] = Parts(a);
  const auto [digest_b, content_b] = Parts(b);
  return digest_a == digest_b && (content_a.empty() || content_b.empty() || content_a == content_b);
}

}  // namespace tidepool::service

#include "service/front/request_digests.h"

#include "absl/strings/str_cat.h"
#include "service/front/message_bytes.h"
#include "xxhash.h"

namespace tidepool::service {
namespace {

std::string Digest(const v1::GenerateRequest& request) {
  const std::string bytes = MessageBytes(request);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

}  // namespace

RequestDigests DigestsOf(const v1::GenerateRequest& request) {
  RequestDigests digests;
  const bool named = !request.request_id().empty();
  if (!named && !request.has_session_id()) return digests;
  v1::GenerateRequest part = request;
  part.clear_request_id();
  part.clear_resume_after();
  if (named) digests.body = Digest(part);
  if (!request.has_session_id()) return digests;
  part.clear_session_id();
  part.clear_logprobs();
  part.clear_top_logprobs();
  part.clear_processed_logprobs();
  part.clear_return_progress();
  part.clear_parse_output();
  digests.turn = Digest(part);
  return digests;
}

}  // namespace tidepool::service

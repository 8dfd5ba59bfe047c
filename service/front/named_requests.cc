#include "service/front/named_requests.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/front/message_bytes.h"
#include "service/store/store_errors.h"
#include "xxhash.h"

namespace tidepool::service {
namespace {

std::string Digest(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

// Of all that makes the answer.
std::string BodyDigest(v1::GenerateRequest request) {
  request.clear_request_id();
  request.clear_resume_after();
  return Digest(MessageBytes(request));
}

absl::Status TooManyReaders(const std::string& request_id) {
  return base::WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("request_id '", request_id, "' is read by ",
                                                NamedRequests::kMostReaders,
                                                " calls already; end one, or wait until one ends")),
      base::kUsualRetryAfter);
}

}  // namespace

NamedRequests::NamedRequests(Executor* loop, absl::Duration ttl, absl::Duration orphan_ttl)
    : loop_(loop), ttl_(ttl), orphan_ttl_(orphan_ttl) {}

void NamedRequests::SetTtls(absl::Duration ttl, absl::Duration orphan_ttl) {
  ttl_ = ttl;
  orphan_ttl_ = orphan_ttl;
}

absl::StatusOr<std::shared_ptr<NamedRequest>> NamedRequests::Find(
    const Name& name, const v1::GenerateRequest& request) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return nullptr;
  if (found->second.body != BodyDigest(request)) return AnotherRequest(name.second);
  const std::shared_ptr<NamedRequest> named = found->second.request;
  if (named->readers() >= kMostReaders) return TooManyReaders(name.second);
  if (named->Holds(static_cast<int64_t>(request.resume_after()))) return named;
  // Its messages were cut elsewhere, for a client that another front served meanwhile.
  const int64_t number = found->second.number;
  named->Cancel(absl::AbortedError("the client resumed the request elsewhere"));
  Forget(name, number);
  return nullptr;
}

std::shared_ptr<NamedRequest> NamedRequests::Add(const Name& name,
                                                 const v1::GenerateRequest& request) {
  Entry& entry = entries_[name];
  entry = {.body = BodyDigest(request),
           .request = std::make_shared<NamedRequest>(loop_, orphan_ttl_,
                                                     static_cast<int64_t>(request.resume_after())),
           .number = next_number_++,
           .logged = request.has_session_id()};
  return entry.request;
}

std::shared_ptr<NamedRequest> NamedRequests::OnEnd(const Name& name, const absl::Status& end) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  const std::shared_ptr<NamedRequest> request = entry.request;
  const int64_t number = entry.number;
  if (!end.ok() || entry.logged || ttl_ <= absl::ZeroDuration()) {
    Forget(name, number);
    return request;
  }
  entry.kept_bytes = request->bytes();
  kept_bytes_ += entry.kept_bytes;
  kept_.emplace_back(name, number);
  while (kept_.size() > kMostKept || kept_bytes_ > kMostKeptBytes) {
    const auto [oldest, its_number] = kept_.front();
    Forget(oldest, its_number);
  }
  loop_->PostAfter(ttl_, [this, name, number, weak = std::weak_ptr<int>(alive_)] {
    if (!weak.expired()) Forget(name, number);
  });
  return request;
}

void NamedRequests::Forget(const Name& name, int64_t number) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.number != number) return;
  kept_bytes_ -= found->second.kept_bytes;
  entries_.erase(found);
  const auto place = std::find(kept_.begin(), kept_.end(), std::make_pair(name, number));
  if (place != kept_.end()) kept_.erase(place);
}

std::string TurnDigest(v1::GenerateRequest request) {
  request.clear_session_id();
  request.clear_logprobs();
  request.clear_top_logprobs();
  return BodyDigest(std::move(request));
}

uint64_t SeedOf(const NamedRequests::Name& name) {
  const std::string bytes = absl::StrCat(name.first.size(), ":", name.first, name.second);
  // As seeds are given on the command line: positive.
  return XXH3_64bits(bytes.data(), bytes.size()) >> 1;
}

}  // namespace tidepool::service

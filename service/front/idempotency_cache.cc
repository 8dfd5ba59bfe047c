#include "service/front/idempotency_cache.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/store/store_errors.h"
#include "xxhash.h"

namespace tidepool::service {
namespace {

absl::Status TooManyReaders(const std::string& request_id) {
  return base::WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("request_id '", request_id, "' is read by ",
                                                IdempotencyCache::kMaxReaders,
                                                " calls already; end one, or wait until one ends")),
      base::kUsualRetryAfter);
}

// The error for a position that is no longer kept. Running the request again would not help: it
// would end the stream of the reader that is further ahead. Then that client would run the request
// again, too, and end this client's stream.
absl::Status KeptNoMore(const std::string& request_id, const NamedRequest& request) {
  return absl::FailedPreconditionError(absl::StrCat(
      "another call reads the response of request_id '", request_id, "', and its first ",
      request.kept_from(),
      " tokens are no longer kept; set resume_after to at least this number, or retry when the "
      "other call has ended"));
}

}  // namespace

IdempotencyCache::IdempotencyCache(Executor* loop, absl::Duration ttl, absl::Duration orphan_ttl)
    : loop_(loop), ttl_(ttl), orphan_ttl_(orphan_ttl) {}

void IdempotencyCache::SetTtls(absl::Duration ttl, absl::Duration orphan_ttl) {
  ttl_ = ttl;
  orphan_ttl_ = orphan_ttl;
}

absl::StatusOr<std::shared_ptr<NamedRequest>> IdempotencyCache::Find(
    const Name& name, std::initializer_list<int64_t> positions, const std::string& digest) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return nullptr;
  if (found->second.body != digest) return AnotherRequest(name.second);
  const std::shared_ptr<NamedRequest> named = found->second.request;
  if (named->readers() >= kMaxReaders) return TooManyReaders(name.second);
  if (std::all_of(positions.begin(), positions.end(),
                  [&](int64_t position) { return named->Holds(position); })) {
    return named;
  }
  if (named->readers() > 0 && std::min(positions) < named->kept_from()) {
    return KeptNoMore(name.second, *named);
  }
  // The messages of this response end at other positions, because another front has served the
  // client in the meantime.
  const int64_t number = found->second.number;
  named->Cancel(absl::AbortedError("the client has resumed this request with another call"));
  Forget(name, number);
  return nullptr;
}

std::shared_ptr<NamedRequest> IdempotencyCache::Add(const Name& name,
                                                    const v1::GenerateRequest& request,
                                                    const std::string& digest) {
  Entry& entry = entries_[name];
  entry = {.body = digest,
           .request = std::make_shared<NamedRequest>(loop_, orphan_ttl_,
                                                     static_cast<int64_t>(request.resume_after())),
           .number = next_number_++,
           .logged = request.has_session_id()};
  return entry.request;
}

std::shared_ptr<NamedRequest> IdempotencyCache::OnEnd(const Name& name, const absl::Status& end) {
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
  while (kept_.size() > kMaxKept || kept_bytes_ > kMaxKeptBytes) {
    const auto [oldest, its_number] = kept_.front();
    Forget(oldest, its_number);
  }
  loop_->PostAfter(ttl_, [this, name, number, weak = std::weak_ptr<int>(alive_)] {
    if (!weak.expired()) Forget(name, number);
  });
  return request;
}

void IdempotencyCache::EndReaders(const absl::Status& status) {
  // Copy the list first, because entries may be erased when a reader ends.
  std::vector<std::shared_ptr<NamedRequest>> all;
  for (const auto& [name, entry] : entries_) all.push_back(entry.request);
  for (const auto& request : all) request->EndReaders(status);
}

void IdempotencyCache::Forget(const Name& name, int64_t number) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.number != number) return;
  kept_bytes_ -= found->second.kept_bytes;
  entries_.erase(found);
  const auto place = std::find(kept_.begin(), kept_.end(), std::make_pair(name, number));
  if (place != kept_.end()) kept_.erase(place);
}

uint64_t SeedOf(const IdempotencyCache::Name& name) {
  const std::string bytes = absl::StrCat(name.first.size(), ":", name.first, name.second);
  // Seeds are not negative, as on the command line.
  return XXH3_64bits(bytes.data(), bytes.size()) >> 1;
}

}  // namespace tidepool::service

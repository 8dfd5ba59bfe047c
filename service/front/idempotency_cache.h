// IdempotencyCache: the requests of a front for which clients have set a request_id. They are kept
// while they run and for a TTL after that.
#ifndef TIDEPOOL_SERVICE_FRONT_IDEMPOTENCY_CACHE_H_
#define TIDEPOOL_SERVICE_FRONT_IDEMPOTENCY_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/base/event_loop.h"
#include "service/front/named_request.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Use it on the loop only. Finished requests are kept for the TTL, within two limits: kMaxKept
// requests, and kMaxKeptBytes of responses. If a limit is exceeded, the oldest are removed first.
// Turns of sessions are not kept after their end, because the session's log contains them.
class IdempotencyCache {
 public:
  static constexpr size_t kMaxKept = 4096;
  static constexpr size_t kMaxKeptBytes = size_t{64} << 20;
  // Maximum number of readers of one response. More than one reader is needed: if a client
  // reconnects, its first connection may still look alive for a while. Readers are not generations,
  // so they do not count in a principal's limits.
  static constexpr size_t kMaxReaders = 16;
  using Name = std::pair<std::string, std::string>;  // principal, request_id

  // The loop must outlive this object.
  IdempotencyCache(Executor* loop, absl::Duration ttl, absl::Duration orphan_ttl);

  // The TTLs apply to requests that begin and to responses that end after this call.
  void SetTtls(absl::Duration ttl, absl::Duration orphan_ttl);

  // Returns the request with this name, or null if there is none. `positions` are counted in output
  // tokens. At each of them, a message of the response must begin. If there is a position at which
  // no message begins, returns null, cancels the request if it runs, and forgets it.
  //
  // Errors: ALREADY_EXISTS if the request has another body. RESOURCE_EXHAUSTED if the response
  // already has the maximum number of readers. FAILED_PRECONDITION if messages after one of the
  // positions are no longer in memory, and another client reads the response. `digest` is
  // RequestDigests::body.
  absl::StatusOr<std::shared_ptr<NamedRequest>> Find(const Name& name,
                                                     std::initializer_list<int64_t> positions,
                                                     const std::string& digest);
  // Adds a request. Requires: Find has returned null for this name.
  std::shared_ptr<NamedRequest> Add(const Name& name, const v1::GenerateRequest& request,
                                    const std::string& digest);
  // The generation of this request has ended, and its sink is notified next. The caller must keep
  // the result until then. If the request has failed, it is forgotten, because a retry may succeed.
  std::shared_ptr<NamedRequest> OnEnd(const Name& name, const absl::Status& end);
  // Ends all readers. The responses stay in the cache.
  void EndReaders(const absl::Status& status);

 private:
  struct Entry {
    std::string body;  // the digest of the request's body
    std::shared_ptr<NamedRequest> request;
    int64_t number = 0;   // distinguishes this entry from a later entry with the same name
    bool logged = false;  // the request is a turn of a session, so the log keeps its response
    size_t kept_bytes = 0;
  };

  void Forget(const Name& name, int64_t number);

  Executor* loop_;
  absl::Duration ttl_;
  absl::Duration orphan_ttl_;
  std::map<Name, Entry> entries_;
  // The finished requests, in the order in which they ended.
  std::deque<std::pair<Name, int64_t>> kept_;
  size_t kept_bytes_ = 0;
  int64_t next_number_ = 1;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

// Returns the seed for a request that sets none. It depends only on the name, so that every front
// gives the same response to the same request.
uint64_t SeedOf(const IdempotencyCache::Name& name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_IDEMPOTENCY_CACHE_H_

// IdempotencyCache: a front's requests with a client-set request_id, by principal, while they run
// and for a TTL after.
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

// Loop only. Finished requests are kept for the TTL. Newer ones may replace them earlier: the
// limits are kMaxKept requests and kMaxKeptBytes of responses. Turns of sessions are not kept here,
// because the session's log has them.
class IdempotencyCache {
 public:
  static constexpr size_t kMaxKept = 4096;
  static constexpr size_t kMaxKeptBytes = size_t{64} << 20;
  // Maximum number of readers of one response. A client that reconnects needs a second reader until
  // the first connection is found to be dead. Readers are not generations, so a principal's limits
  // do not count them.
  static constexpr size_t kMaxReaders = 16;
  using Name = std::pair<std::string, std::string>;  // principal, request_id

  // The loop outlives this object.
  IdempotencyCache(Executor* loop, absl::Duration ttl, absl::Duration orphan_ttl);

  // Applies to requests that begin and responses that end from now on.
  void SetTtls(absl::Duration ttl, absl::Duration orphan_ttl);

  // Returns the request of this name if messages of its response begin at each of `positions`,
  // counted in output tokens. Otherwise the request is forgotten, and cancelled if it runs. Returns
  // null if there is none. ALREADY_EXISTS if its body differs. RESOURCE_EXHAUSTED if it has the
  // maximum number of readers. FAILED_PRECONDITION if a position is no longer kept and another
  // reader is further ahead. `digest` is RequestDigests::body.
  absl::StatusOr<std::shared_ptr<NamedRequest>> Find(const Name& name,
                                                     std::initializer_list<int64_t> positions,
                                                     const std::string& digest);
  // Requires: Find returned null.
  std::shared_ptr<NamedRequest> Add(const Name& name, const v1::GenerateRequest& request,
                                    const std::string& digest);
  // Its generation has ended and is informed next. A failed request is forgotten: a retry may
  // succeed. The caller must keep the result until the generation knows.
  std::shared_ptr<NamedRequest> OnEnd(const Name& name, const absl::Status& end);
  // Ends all readers. The responses are kept.
  void EndReaders(const absl::Status& status);

 private:
  struct Entry {
    std::string body;  // digest
    std::shared_ptr<NamedRequest> request;
    int64_t number = 0;   // distinguishes it from a later entry of the same name
    bool logged = false;  // a turn of a session, which the log keeps
    size_t kept_bytes = 0;
  };

  void Forget(const Name& name, int64_t number);

  Executor* loop_;
  absl::Duration ttl_;
  absl::Duration orphan_ttl_;
  std::map<Name, Entry> entries_;
  // Finished requests, in the order in which they ended.
  std::deque<std::pair<Name, int64_t>> kept_;
  size_t kept_bytes_ = 0;
  int64_t next_number_ = 1;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

// The seed for a request that sets none. It is derived from the name, so that every front gives the
// same response to the same request.
uint64_t SeedOf(const IdempotencyCache::Name& name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_IDEMPOTENCY_CACHE_H_

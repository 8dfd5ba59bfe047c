// IdempotencyCache: a front's requests that have a request_id of their client's, while they run and
// for a while after, by principal.
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

// Loop only. What has ended is kept for the TTL, and no longer than until newer ones need its
// place: kMaxKept requests, kMaxKeptBytes of answers. A session's turn is not kept here: its log
// is the truth about it.
class IdempotencyCache {
 public:
  static constexpr size_t kMaxKept = 4096;
  static constexpr size_t kMaxKeptBytes = size_t{64} << 20;
  // Of one answer at a time. A client that was cut off needs a second one until its first is
  // missed; readers are no generations, which is all that a principal's limits count.
  static constexpr size_t kMaxReaders = 16;
  using Name = std::pair<std::string, std::string>;  // principal, request_id

  // The loop outlives this.
  IdempotencyCache(Executor* loop, absl::Duration ttl, absl::Duration orphan_ttl);

  // For requests that begin, and answers that end, from now on.
  void SetTtls(absl::Duration ttl, absl::Duration orphan_ttl);

  // The one of this name, if a message of its answer begins at each of `positions`, counted in
  // output tokens; one where none does is forgotten, and cancelled if it runs. Null: there is none.
  // ALREADY_EXISTS: it has another body. RESOURCE_EXHAUSTED: as many read it as may.
  // FAILED_PRECONDITION: a position is kept no more, and another one reads it further on. `digest`:
  // RequestDigests::body.
  absl::StatusOr<std::shared_ptr<NamedRequest>> Find(const Name& name,
                                                     std::initializer_list<int64_t> positions,
                                                     const std::string& digest);
  // Requires: Find gave null.
  std::shared_ptr<NamedRequest> Add(const Name& name, const v1::GenerateRequest& request,
                                    const std::string& digest);
  // Its generation has ended, which it is told next. A failed one is forgotten: the same request
  // may do better. Gives what must live until then.
  std::shared_ptr<NamedRequest> OnEnd(const Name& name, const absl::Status& end);
  // Of all that there are; their answers stay.
  void EndReaders(const absl::Status& status);

 private:
  struct Entry {
    std::string body;  // digest
    std::shared_ptr<NamedRequest> request;
    int64_t number = 0;   // tells it from one of the same name
    bool logged = false;  // a session's turn, which its log keeps
    size_t kept_bytes = 0;
  };

  void Forget(const Name& name, int64_t number);

  Executor* loop_;
  absl::Duration ttl_;
  absl::Duration orphan_ttl_;
  std::map<Name, Entry> entries_;
  // Of those that have ended, in that order.
  std::deque<std::pair<Name, int64_t>> kept_;
  size_t kept_bytes_ = 0;
  int64_t next_number_ = 1;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

// A seed for a request that gives none: it follows from the name, so that any front gives the same
// answer to the same request.
uint64_t SeedOf(const IdempotencyCache::Name& name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_IDEMPOTENCY_CACHE_H_

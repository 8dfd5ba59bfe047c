// RedisSessionStore: stores sessions on a Redis server, for any number of fronts. The scripts of
// redis_scripts.h do the work.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<SessionStore> store,
//                    RedisSessionStore::Open({.address = address}));
//
// Each call is one Lua script (redis_scripts.h), so it is atomic. If the server is unavailable,
// calls wait for a limited time, and then end with UNAVAILABLE. The appends of a running turn wait
// longest. If the connection breaks, the calls that were pending are sent again. Scripts detect
// repeated calls, so nothing is written twice. A write is acknowledged only after it was made.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_SESSION_STORE_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_SESSION_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "service/store/redis_call_queue.h"
#include "service/store/redis_link.h"
#include "service/store/redis_witness.h"
#include "service/store/session_store.h"
#include "service/store/store_health.h"

namespace tidepool::service {

// Thread-safe.
class RedisSessionStore : public SessionStore {
 public:
  // UNAVAILABLE if the server cannot be reached. FAILED_PRECONDITION if the server refuses the
  // login, is a replica, or has sessions with a newer schema. Also FAILED_PRECONDITION if it has
  // settings with which it could lose acknowledged writes. The message names the setting.
  static absl::StatusOr<std::unique_ptr<SessionStore>> Open(RedisSessionStoreOptions options);
  ~RedisSessionStore() override;

  void OnHealth(StoreHealth::Listener listener) override { health_.Listen(std::move(listener)); }
  void Create(NewSession session, Done<SessionInfo> done) override;
  void Get(std::optional<std::string> principal, std::string session_id,
           Done<SessionLogData> done) override;
  void List(std::optional<std::string> principal, int page_size, std::string page_token,
            Done<SessionPage> done) override;
  void Delete(std::string principal, std::string shown_id, DoneStatus done) override;
  void Count(Done<int64_t> done) override;
  void Expire(absl::Duration age, int64_t most, Done<int64_t> done) override;
  void Verify(Done<std::vector<std::string>> done) override;
  void Insert(SessionLogData session, Done<SessionInfo> done) override;
  void Replace(SessionLogData session, Done<SessionInfo> done) override;
  void BeginTurn(TurnRequest turn, Done<OpenTurn> done) override;
  void RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                  DoneStatus done) override;
  void ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) override;
  void Append(AppendRequest append, DoneStatus done) override;

 private:
  // The time of the server's clock and of the local monotonic clock at the same moment.
  struct ServerTime {
    absl::Duration monotonic;
    int64_t unix_us = 0;
  };

  RedisSessionStore(const RedisSessionStoreOptions& options, std::unique_ptr<RedisWitness> witness,
                    RedisConnection connection, const ServerTime& opened);
  static absl::StatusOr<ServerTime> AskTime(const RedisSessionStoreOptions& options,
                                            RedisLink* link);
  // Logs that a damaged session has expired and was not deleted. Each session is logged once.
  void LogKeptByExpiry(absl::string_view session_id);
  void VerifyFrom(int64_t first, std::vector<std::string> faults,
                  Done<std::vector<std::string>> done);

  const RedisSessionStoreOptions options_;
  const ServerTime opened_;
  StoreHealth health_;
  const std::unique_ptr<RedisWitness> witness_;  // used on the thread of the queue only
  // ids of damaged sessions; used on the thread of the queue only
  absl::flat_hash_set<std::string> kept_by_expiry_;
  RedisCallQueue queue_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_SESSION_STORE_H_

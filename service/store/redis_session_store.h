// RedisSessionStore: sessions on a Redis server, for any number of fronts.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<SessionStore> store,
//                    RedisSessionStore::Open({.address = address}));
//
// Each call is one Lua script (redis_scripts.h), so it is atomic. While the server is unavailable,
// calls wait for it (appends of a running turn longest) and then end with UNAVAILABLE. Calls that
// were pending when the connection broke are sent again. Scripts detect repeated calls, so nothing
// is written twice, and every acknowledged write was made.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_SESSION_STORE_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_SESSION_STORE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "service/store/redis_address.h"
#include "service/store/redis_check.h"
#include "service/store/redis_link.h"
#include "service/store/redis_scripts.h"
#include "service/store/session_store.h"

namespace tidepool::service {

struct RedisSessionStoreOptions {
  RedisAddress address;
  RedisSafety safety = RedisSafety::kProcess;
  int64_t max_sessions = 0;  // of one principal; 0: no limit
  // How long calls wait for an unavailable server.
  absl::Duration patience = absl::Seconds(3);
  absl::Duration turn_patience = absl::Seconds(10);  // those of a turn that holds its lease
  absl::Duration answer_timeout = absl::Seconds(3);
  const base::Clock* clock = &base::Clock::Real();
  // Lines for the operator: the server lost, or back; what is wrong with its indexes at the start.
  // The store's thread; may be empty.
  std::function<void(absl::string_view)> log;
};

// A server that nobody calls is asked every second whether it is there.
//
// Thread-safe. Calls that came while the server answered others are sent together.
class RedisSessionStore : public SessionStore {
 public:
  // UNAVAILABLE: the server cannot be reached. FAILED_PRECONDITION: it refuses the login, is a
  // replica, holds sessions of a newer layout, or could lose what it acknowledged; the message
  // names the setting.
  static absl::StatusOr<std::unique_ptr<SessionStore>> Open(RedisSessionStoreOptions options);
  ~RedisSessionStore() override;

  void OnHealth(StoreHealth::Listener listener) override { health_.Listen(std::move(listener)); }
  void Create(NewSession session, Done<SessionInfo> done) override;
  void Get(std::optional<std::string> principal, std::string session_id,
           Done<SessionLogData> done) override;
  void List(std::optional<std::string> principal, int page_size, std::string page_token,
            Done<SessionPage> done) override;
  void Delete(std::string principal, std::string session_id, DoneStatus done) override;
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
  // Takes a script's answer, which is an array with a word in front, or an error.
  using Deliver = std::function<void(absl::StatusOr<RedisValue>)>;
  struct Call {
    RedisScript script;
    std::vector<std::string> keys;
    std::vector<std::string> arguments;
    Deliver deliver;
    absl::Duration give_up = absl::ZeroDuration();  // when the server must have answered
  };
  using Scripts = std::array<std::string, kRedisScripts>;  // their SHA1s
  // The server's clock at one moment of ours.
  struct ServerTime {
    absl::Duration monotonic;
    int64_t unix_us = 0;
  };

  RedisSessionStore(RedisSessionStoreOptions options, std::unique_ptr<RedisLink> link,
                    Scripts scripts, const ServerTime& opened);
  static absl::StatusOr<ServerTime> AskTime(const RedisSessionStoreOptions& options,
                                            RedisLink* link);
  static absl::StatusOr<std::unique_ptr<RedisLink>> Connect(const RedisSessionStoreOptions& options,
                                                            Scripts* scripts);

  void Enqueue(RedisScript script, std::vector<std::string> keys,
               std::vector<std::string> arguments, Deliver deliver);
  void VerifyFrom(int64_t first, std::vector<std::string> faults,
                  Done<std::vector<std::string>> done);
  void Run();
  // Waits for calls, or for the next retry if the server is unavailable. False: the store is
  // closing.
  bool TakeCalls();
  bool Idle();  // no call has come since TakeCalls
  // Nobody calls: asks the server whether it is there.
  void Probe();
  void LoseLink(const absl::Status& reason);
  void Reconnect();
  void SendPending();
  void FailExpired();
  absl::Status Away() const;

  const RedisSessionStoreOptions options_;
  const std::string name_;  // of the server, for messages
  const ServerTime opened_;
  StoreHealth health_;

  // The store's thread only.
  std::unique_ptr<RedisLink> link_;
  Scripts scripts_;
  std::deque<Call> pending_;
  absl::Status reason_;  // why the server is unavailable
  absl::Duration next_try_ = absl::ZeroDuration();
  int failed_tries_ = 0;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<Call> queue_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  uint64_t next_number_ TIDEPOOL_GUARDED_BY(mutex_) = 1;  // of appends
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_SESSION_STORE_H_

// RedisCallQueue: sends the calls of a RedisSessionStore to its server, and waits for a server that
// is unavailable.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_CALL_QUEUE_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_CALL_QUEUE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
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
#include "service/store/redis_witness.h"
#include "service/store/store_health.h"

namespace tidepool::service {

struct RedisSessionStoreOptions {
  RedisAddress address;
  RedisSafety safety = RedisSafety::kProcess;
  int64_t max_sessions = 0;  // of one principal; 0: no limit
  // How long calls wait for an unavailable server.
  absl::Duration patience = absl::Seconds(3);
  absl::Duration turn_patience = absl::Seconds(10);  // calls of a turn that holds its lease
  absl::Duration answer_timeout = absl::Seconds(3);
  const base::Clock* clock = &base::Clock::Real();
  // Lines for the operator, on the store's thread. Both may be empty.
  std::function<void(absl::string_view)> log;         // the server is unavailable, or is back
  std::function<void(absl::string_view)> log_damage;  // sessions are damaged or lost
  // Begins the path of the file in which RedisWitness remembers the store. Empty: no file.
  std::string witness_path;
};

// A connection to a server that passed the checks and has loaded the scripts.
struct RedisConnection {
  std::unique_ptr<RedisLink> link;
  std::array<std::string, kRedisScripts> scripts;  // their SHA1s
};
absl::StatusOr<RedisConnection> ConnectToRedis(const RedisSessionStoreOptions& options);

// Thread-safe. One thread sends the calls. Calls that arrive while it waits for responses are sent
// together. If there are no calls, it checks once a second that the server is available.
class RedisCallQueue {
 public:
  // Takes a script's response, an array whose first element is a word, or an error. Runs on the
  // queue's thread.
  using Deliver = std::function<void(absl::StatusOr<RedisValue>)>;

  // Both outlive the queue, which uses them on its thread.
  struct Observers {
    StoreHealth* health;    // learns whether the server is available
    RedisWitness* witness;  // compares the store at each new connection, and remembers it
  };
  RedisCallQueue(const RedisSessionStoreOptions& options, RedisConnection connection,
                 const Observers& observers);
  // Delivers all calls first.
  ~RedisCallQueue();

  // For kAppend, sets the fourth argument to the number of the append.
  void Enqueue(RedisScript script, std::vector<std::string> keys,
               std::vector<std::string> arguments, Deliver deliver);

 private:
  struct Call {
    RedisScript script;
    std::vector<std::string> keys;
    std::vector<std::string> arguments;
    Deliver deliver;
    absl::Duration give_up = absl::ZeroDuration();  // deadline for the server's response
  };

  void Run();
  // Waits for calls, or for the next retry if the server is unavailable. False: the store is
  // closing.
  bool TakeCalls();
  bool Idle();  // no call has arrived since TakeCalls
  // Checks that the server is available.
  void Probe();
  void LoseLink(const absl::Status& reason);
  void Reconnect();
  // Connects, and logs what the store has lost.
  absl::StatusOr<RedisConnection> Connect();
  // Lets the witness remember the store, at most once a second.
  void Remember();
  void LogFaults(const std::vector<std::string>& faults) const;
  void SendPending();
  void FailExpired();
  absl::Status Away() const;

  const RedisSessionStoreOptions options_;
  const std::string name_;  // of the server, for messages
  const Observers observers_;

  // The queue's thread only.
  RedisConnection connection_;  // without a link, the server is unavailable
  std::deque<Call> pending_;
  absl::Status reason_;  // why the server is unavailable
  absl::Duration next_try_ = absl::ZeroDuration();
  absl::Duration next_remember_ = absl::ZeroDuration();
  int failed_tries_ = 0;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<Call> queue_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  uint64_t next_number_ TIDEPOOL_GUARDED_BY(mutex_) = 1;  // of appends
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CALL_QUEUE_H_

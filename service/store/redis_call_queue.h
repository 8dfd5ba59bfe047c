// RedisCallQueue: sends the calls of a RedisSessionStore to its server. If the server is
// unavailable, the calls wait.
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
  int64_t max_sessions = 0;  // maximum for each principal; 0: no limit
  // How long calls wait for a server that is unavailable.
  absl::Duration patience = absl::Seconds(3);
  // the same for calls of a turn that holds its lease
  absl::Duration turn_patience = absl::Seconds(10);
  absl::Duration answer_timeout = absl::Seconds(3);
  const base::Clock* clock = &base::Clock::Real();
  // These functions get lines for the operator. They are called on the thread of the store, and may
  // be empty.
  std::function<void(absl::string_view)> log;  // the server is unavailable, or is available again
  std::function<void(absl::string_view)> log_damage;  // sessions are damaged or lost
  // Path prefix of the file in which RedisWitness remembers the store: the file is PATH-commits.
  // Empty: no file.
  std::string witness_path;
};

// A connection to a server that has passed CheckRedisServer and has loaded the scripts.
struct RedisConnection {
  std::unique_ptr<RedisLink> link;
  std::array<std::string, kRedisScripts> scripts;  // the SHA1 of each script
};
absl::StatusOr<RedisConnection> ConnectToRedis(const RedisSessionStoreOptions& options);

// Thread-safe. One thread sends the calls. Calls that arrive while it waits for responses are sent
// together. If there are no calls, this thread checks once per second that the server is available.
class RedisCallQueue {
 public:
  // Gets the response of a script, or an error. The response is an array whose first element is a
  // word. Called on the thread of the queue.
  using Deliver = std::function<void(absl::StatusOr<RedisValue>)>;

  // Both objects must outlive the queue, which uses them on its thread.
  struct Observers {
    StoreHealth* health;    // learns whether the server is available
    RedisWitness* witness;  // checks the store at each new connection, and remembers it
  };
  RedisCallQueue(const RedisSessionStoreOptions& options, RedisConnection connection,
                 const Observers& observers);
  // Waits until the results of all calls were delivered.
  ~RedisCallQueue();

  // Adds a call. If `script` is kAppend, sets the fourth argument to the number of the append.
  void Enqueue(RedisScript script, std::vector<std::string> keys,
               std::vector<std::string> arguments, Deliver deliver);

 private:
  struct Call {
    RedisScript script;
    std::vector<std::string> keys;
    std::vector<std::string> arguments;
    Deliver deliver;
    // the call fails if the server has not responded by this time
    absl::Duration give_up = absl::ZeroDuration();
  };

  void Run();
  // Waits for calls. If the server is unavailable, waits for the next attempt to connect. Returns
  // false if the store is closing.
  bool TakeCalls();
  bool Idle();  // returns whether no call has arrived since TakeCalls
  // Checks that the server is available.
  void Probe();
  void LoseLink(const absl::Status& reason);
  void Reconnect();
  // Connects to the server, and logs what the store has lost.
  absl::StatusOr<RedisConnection> Connect();
  // Makes the witness remember the state of the store, at most once per second.
  void Remember();
  void LogFaults(const std::vector<std::string>& faults) const;
  void SendPending();
  void FailExpired();
  absl::Status Away() const;

  const RedisSessionStoreOptions options_;
  const std::string name_;  // name of the server, for messages
  const Observers observers_;

  // The members below are used on the thread of the queue only.
  RedisConnection connection_;  // without a link if the server is unavailable
  std::deque<Call> pending_;
  absl::Status reason_;  // why the server is unavailable
  absl::Duration next_try_ = absl::ZeroDuration();
  absl::Duration next_remember_ = absl::ZeroDuration();
  int failed_tries_ = 0;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<Call> queue_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stopping_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  uint64_t next_number_ TIDEPOOL_GUARDED_BY(mutex_) = 1;  // the number of the next append
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_CALL_QUEUE_H_

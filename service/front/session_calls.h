// SessionCalls: the calls of the service Sessions, and the deletion of sessions that expire.
#ifndef TIDEPOOL_SERVICE_FRONT_SESSION_CALLS_H_
#define TIDEPOOL_SERVICE_FRONT_SESSION_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/front/worker_set.h"
#include "service/store/session_store.h"
#include "tidepool/v1/sessions.pb.h"

namespace tidepool::service {

// Loop only. Answers come from any thread.
class SessionCalls {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // All pointers outlive this object. A session that was not used for `ttl` is deleted.
  SessionCalls(Executor* loop, const base::Clock* clock, SessionStore* store,
               const WorkerSet* workers, absl::Duration ttl);

  void SetTtl(absl::Duration ttl);

  void Create(const v1::CreateSessionRequest& request, const std::string& principal,
              Done<v1::Session> done);
  void Get(const v1::GetSessionRequest& request, const std::string& principal,
           Done<v1::Session> done);
  void List(const v1::ListSessionsRequest& request, const std::string& principal,
            Done<v1::ListSessionsResponse> done);
  void Delete(const v1::DeleteSessionRequest& request, const std::string& principal,
              Done<v1::DeleteSessionResponse> done);
  // These two read the log, plan the cut, ask a worker for the text of a response that is cut, and
  // write the log.
  void Fork(const v1::ForkSessionRequest& request, const std::string& principal,
            Done<v1::Session> done);
  void Truncate(const v1::TruncateSessionRequest& request, const std::string& principal,
                Done<v1::Session> done);

 private:
  // Deletes expired sessions, and repeats while there is a TTL.
  void Expire();
  // Answers on the loop; UNAVAILABLE if this object was destroyed meanwhile.
  void ReadLog(const std::string& session_id, const std::string& principal,
               Done<SessionLogData> done);
  // INVALID_ARGUMENT: the log cannot be cut at this position; see PlanCut. The answer may come from
  // a worker, after this object was destroyed.
  void CutLog(SessionLogData log, int64_t position, Done<SessionLogData> done);

  Executor* const loop_;
  const base::Clock* const clock_;
  SessionStore* const store_;
  const WorkerSet* const workers_;
  absl::Duration ttl_;
  bool expiring_ = false;  // Expire will run again
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_SESSION_CALLS_H_

// SessionCalls: handles the calls of the service Sessions, and deletes sessions that have expired.
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

// Use it on the loop only. `done` may be called on any thread.
class SessionCalls {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // All pointers must outlive this object. A session is deleted if it was not used for `ttl`.
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
  // Fork and Truncate read the log and find where to cut it. If they cut a response, they ask a
  // worker for the text of the remaining part. Then they write the log.
  void Fork(const v1::ForkSessionRequest& request, const std::string& principal,
            Done<v1::Session> done);
  void Truncate(const v1::TruncateSessionRequest& request, const std::string& principal,
                Done<v1::Session> done);

 private:
  // Deletes expired sessions. If there is a TTL, runs again later.
  void Expire();
  // Calls `done` on the loop. UNAVAILABLE if this object was destroyed in the meantime.
  void ReadLog(const std::string& session_id, const std::string& principal,
               Done<SessionLogData> done);
  // Cuts the log. INVALID_ARGUMENT if the log cannot be cut at this position (see PlanCut). `done`
  // may be called after this object was destroyed, because a worker may have to respond first.
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

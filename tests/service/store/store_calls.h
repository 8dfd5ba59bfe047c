// Calls of a SessionStore that wait for the result.
#ifndef TIDEPOOL_TESTS_SERVICE_STORE_STORE_CALLS_H_
#define TIDEPOOL_TESTS_SERVICE_STORE_STORE_CALLS_H_

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/mutex.h"
#include "service/store/session_store.h"

namespace tidepool::service {

template <typename T>
class Answer {
 public:
  SessionStore::Done<T> Taker() {
    return [this](absl::StatusOr<T> value) { promise_.set_value(std::move(value)); };
  }
  absl::StatusOr<T> Get() { return promise_.get_future().get(); }

 private:
  std::promise<absl::StatusOr<T>> promise_;
};

class StatusAnswer {
 public:
  SessionStore::DoneStatus Taker() {
    return [this](absl::Status status) { promise_.set_value(std::move(status)); };
  }
  absl::Status Get() { return promise_.get_future().get(); }

 private:
  std::promise<absl::Status> promise_;
};

inline absl::StatusOr<SessionInfo> Create(SessionStore& store, const std::string& id,
                                          const std::string& principal = "ann") {
  Answer<SessionInfo> answer;
  store.Create({.session_id = id, .principal = principal, .model = "m", .model_digest = "d"},
               answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<SessionLogData> Get(SessionStore& store, const std::string& id,
                                          std::optional<std::string> principal = "ann") {
  Answer<SessionLogData> answer;
  store.Get(std::move(principal), id, answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<SessionPage> List(SessionStore& store, int size, const std::string& token,
                                        std::optional<std::string> principal = "ann") {
  Answer<SessionPage> answer;
  store.List(std::move(principal), size, token, answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<int64_t> Expire(SessionStore& store, absl::Duration age, int64_t most) {
  Answer<int64_t> answer;
  store.Expire(age, most, answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<std::vector<std::string>> Verify(SessionStore& store) {
  Answer<std::vector<std::string>> answer;
  store.Verify(answer.Taker());
  return answer.Get();
}

inline absl::Status Delete(SessionStore& store, const std::string& id,
                           const std::string& principal = "ann") {
  StatusAnswer answer;
  store.Delete(principal, id, answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<int64_t> Count(SessionStore& store) {
  Answer<int64_t> answer;
  store.Count(answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<SessionInfo> Insert(SessionStore& store, SessionLogData log) {
  Answer<SessionInfo> answer;
  store.Insert(std::move(log), answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<SessionInfo> Replace(SessionStore& store, SessionLogData log) {
  Answer<SessionInfo> answer;
  store.Replace(std::move(log), answer.Taker());
  return answer.Get();
}

inline absl::StatusOr<OpenTurn> Begin(SessionStore& store, const std::string& id,
                                      const std::string& request, const std::string& body = "") {
  Answer<OpenTurn> answer;
  store.BeginTurn(
      {.session_id = id, .principal = "ann", .request_id = request, .body_digest = body},
      answer.Taker());
  return answer.Get();
}

inline absl::Status Renew(SessionStore& store, const std::string& id, int64_t epoch,
                          absl::Duration lease) {
  StatusAnswer answer;
  store.RenewLease(id, epoch, lease, answer.Taker());
  return answer.Get();
}

inline absl::Status Release(SessionStore& store, const std::string& id, int64_t epoch) {
  StatusAnswer answer;
  store.ReleaseLease(id, epoch, answer.Taker());
  return answer.Get();
}

inline absl::Status Append(SessionStore& store, AppendRequest append) {
  StatusAnswer answer;
  store.Append(std::move(append), answer.Taker());
  return answer.Get();
}

// Waits for a change of a store's health.
class HealthWatch {
 public:
  explicit HealthWatch(SessionStore* store) : store_(store) {
    store->OnHealth([this](const absl::Status& status) {
      base::MutexLock lock(&mutex_);
      status_ = status;
      changed_.NotifyAll();
    });
  }
  ~HealthWatch() { store_->OnHealth(nullptr); }

  absl::Status Await(absl::StatusCode code) {
    base::MutexLock lock(&mutex_);
    while (status_.code() != code) changed_.Wait(&mutex_);
    return status_;
  }

 private:
  SessionStore* const store_;
  base::Mutex mutex_;
  base::CondVar changed_;
  absl::Status status_ TIDEPOOL_GUARDED_BY(mutex_);
};

// Returns an append for session "s" with three tokens of input and one of output.
inline AppendRequest FirstAppend(int64_t epoch) {
  return {.session_id = "s",
          .epoch = epoch,
          .expected_length = 0,
          .begin = TurnStart{.request_id = "r1",
                             .kind = SessionKind::kChat,
                             .kept = 0,
                             .input_ids = {1, 2, 3},
                             .messages = {{.role = "user", .content = "hi"}}},
          .output_ids = {10},
          .output_text = "a"};
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_STORE_STORE_CALLS_H_

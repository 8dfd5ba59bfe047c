#include "service/front/session_calls.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/status_macros.h"
#include "service/base/model_identity.h"
#include "service/front/convert_sessions.h"
#include "service/front/served_models.h"
#include "service/grpc/check_request.h"
#include "service/store/session_cut.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kLargestPage = 1000;
// The shortest and the longest time between two searches for expired sessions, and how many
// sessions one search may delete.
constexpr absl::Duration kShortestSweep = absl::Milliseconds(100);
constexpr absl::Duration kLongestSweep = absl::Minutes(1);
constexpr int64_t kExpiredAtOnce = 1000;
constexpr absl::Duration kTextTimeout = absl::Seconds(10);

absl::Status ShuttingDown() {
  return absl::UnavailableError("the server is shutting down; retry at another server");
}

void AnswerWith(const SessionCalls::Done<v1::Session>& done, absl::StatusOr<SessionInfo> info) {
  if (!info.ok()) return done(info.status());
  v1::Session session;
  ToProto(*info, &session);
  done(std::move(session));
}

}  // namespace

SessionCalls::SessionCalls(Executor* loop, const base::Clock* clock, SessionStore* store,
                           const WorkerSet* workers, absl::Duration ttl)
    : loop_(loop), clock_(clock), store_(store), workers_(workers), ttl_(ttl) {
  Expire();
}

void SessionCalls::SetTtl(absl::Duration ttl) {
  ttl_ = ttl;
  if (!expiring_) Expire();
}

void SessionCalls::Expire() {
  expiring_ = ttl_ < absl::InfiniteDuration();
  if (!expiring_) return;
  // If more than kExpiredAtOnce sessions have expired, the next search deletes the rest.
  store_->Expire(ttl_, kExpiredAtOnce, [](const absl::StatusOr<int64_t>&) {});
  const absl::Duration wait = std::clamp(ttl_ / 2, kShortestSweep, kLongestSweep);
  loop_->PostAfter(wait, [this, weak = std::weak_ptr<int>(alive_)] {
    if (!weak.expired()) Expire();
  });
}

void SessionCalls::Create(const v1::CreateSessionRequest& request, const std::string& principal,
                          Done<v1::Session> done) {
  if (request.has_session_id()) {
    if (absl::Status status = CheckSessionId(request.session_id()); !status.ok()) {
      return done(std::move(status));
    }
  }
  const absl::StatusOr<v1::Model> model = FindModel(*workers_, request.model());
  if (!model.ok()) return done(model.status());
  store_->Create({.session_id = request.has_session_id() ? request.session_id()
                                                         : absl::StrCat("s-", base::RandomHex()),
                  .principal = principal,
                  .model = model->name(),
                  .model_digest = ModelIdentity(*model)},
                 [done = std::move(done)](absl::StatusOr<SessionInfo> info) {
                   if (!info.ok()) return done(info.status());
                   v1::Session session;
                   ToProto(*info, &session);
                   done(std::move(session));
                 });
}

void SessionCalls::Get(const v1::GetSessionRequest& request, const std::string& principal,
                       Done<v1::Session> done) {
  store_->Get(principal, request.session_id(),
              [done = std::move(done)](absl::StatusOr<SessionLogData> log) {
                if (!log.ok()) return done(log.status());
                v1::Session session;
                ToProto(*log, &session);
                done(std::move(session));
              });
}

void SessionCalls::List(const v1::ListSessionsRequest& request, const std::string& principal,
                        Done<v1::ListSessionsResponse> done) {
  const int size = request.page_size() == 0 ? kDefaultPage : request.page_size();
  if (size < 0 || size > kLargestPage) {
    return done(absl::InvalidArgumentError(absl::StrCat(
        "page_size is ", size, "; accepted: 1 to ", kLargestPage, ", or 0 for ", kDefaultPage)));
  }
  store_->List(principal, size, request.page_token(),
               [done = std::move(done)](absl::StatusOr<SessionPage> page) {
                 if (!page.ok()) return done(page.status());
                 v1::ListSessionsResponse response;
                 for (const SessionInfo& info : page->sessions) {
                   ToProto(info, response.add_sessions());
                 }
                 response.set_next_page_token(page->next_page_token);
                 done(std::move(response));
               });
}

void SessionCalls::Delete(const v1::DeleteSessionRequest& request, const std::string& principal,
                          Done<v1::DeleteSessionResponse> done) {
  store_->Delete(principal, request.session_id(), [done = std::move(done)](absl::Status status) {
    if (!status.ok()) return done(std::move(status));
    done(v1::DeleteSessionResponse());
  });
}

void SessionCalls::CutLog(SessionLogData log, int64_t position, Done<SessionLogData> done) {
  const absl::StatusOr<SessionCut> cut = PlanCut(log, position);
  if (!cut.ok()) return done(cut.status());
  const std::string response = cut->last_cut ? log.turns[cut->turns - 1].response : "";
  const bool whole = position == log.info.token_count;
  if (!cut->last_cut || whole || log.info.kind != SessionKind::kChat) {
    CutSession(*cut, whole ? response : "", &log);
    return done(std::move(log));
  }
  const absl::StatusOr<PickedWorker> worker = PickAnyWorker(*workers_, log.info.model);
  if (!worker.ok()) return done(worker.status());
  v1::DetokenizeRequest request;
  request.set_model(log.info.model);
  request.set_keep_spaces(true);
  request.mutable_token_ids()->Assign(log.token_ids.begin() + cut->text_begin,
                                      log.token_ids.begin() + position);
  const std::string principal = log.info.principal;
  worker->link->TextOf(std::move(request), principal, clock_->Monotonic() + kTextTimeout,
                       [log = std::move(log), cut = *cut, response, done = std::move(done)](
                           absl::StatusOr<v1::DetokenizeResponse> text) mutable {
                         if (!text.ok()) return done(text.status());
                         CutSession(cut, CutResponse(response, text->text()), &log);
                         done(std::move(log));
                       });
}

void SessionCalls::ReadLog(const std::string& session_id, const std::string& principal,
                           Done<SessionLogData> done) {
  store_->Get(principal, session_id,
              [loop = loop_, weak = std::weak_ptr<int>(alive_),
               done = std::move(done)](absl::StatusOr<SessionLogData> log) {
                loop->Post([weak, done, log = std::move(log)]() mutable {
                  weak.expired() ? done(ShuttingDown()) : done(std::move(log));
                });
              });
}

void SessionCalls::Fork(const v1::ForkSessionRequest& request, const std::string& principal,
                        Done<v1::Session> done) {
  if (request.has_new_session_id()) {
    if (absl::Status status = CheckSessionId(request.new_session_id()); !status.ok()) {
      return done(std::move(status));
    }
  }
  const auto insert = [this, done, weak = std::weak_ptr<int>(alive_),
                       id = request.has_new_session_id() ? request.new_session_id()
                                                         : absl::StrCat("s-", base::RandomHex())](
                          absl::StatusOr<SessionLogData> log) {
    if (!log.ok()) return done(log.status());
    if (weak.expired()) return done(ShuttingDown());
    log->info.session_id = id;
    // A fork keeps the create_time of its source, because the chat template gets this time
    // (TellTime). The old prompts were rendered with this time, and new prompts will be rendered
    // with the same time. This time may be in the future if the clock of the front that created the
    // source was fast.
    log->info.update_time = std::max(clock_->Now(), log->info.create_time);
    if (log->turns.empty()) log->info.create_time = log->info.update_time;
    store_->Insert(*std::move(log),
                   [done](absl::StatusOr<SessionInfo> info) { AnswerWith(done, std::move(info)); });
  };
  ReadLog(request.session_id(), principal,
          [this, request, insert, done](absl::StatusOr<SessionLogData> log) {
            if (!log.ok()) return done(log.status());
            const int64_t position =
                request.has_position() ? request.position() : log->info.token_count;
            CutLog(*std::move(log), position, insert);
          });
}

void SessionCalls::Truncate(const v1::TruncateSessionRequest& request, const std::string& principal,
                            Done<v1::Session> done) {
  if (!request.has_position()) {
    return done(absl::InvalidArgumentError(
        "position is unset; accepted: 0 to the session's token_count, 0 empties the session"));
  }
  const auto replace = [this, done,
                        weak = std::weak_ptr<int>(alive_)](absl::StatusOr<SessionLogData> log) {
    if (!log.ok()) return done(log.status());
    if (weak.expired()) return done(ShuttingDown());
    log->info.update_time = clock_->Now();
    store_->Replace(*std::move(log), [done](absl::StatusOr<SessionInfo> info) {
      AnswerWith(done, std::move(info));
    });
  };
  ReadLog(request.session_id(), principal,
          [this, request, replace, done](absl::StatusOr<SessionLogData> log) {
            if (!log.ok()) return done(log.status());
            if (log->info.busy) {
              return done(SessionBusy(request.session_id(), /*request_id=*/""));
            }
            CutLog(*std::move(log), request.position(), replace);
          });
}

}  // namespace tidepool::service

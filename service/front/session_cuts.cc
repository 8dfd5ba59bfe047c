// ForkSession and TruncateSession of FrontCore: they read the log, plan the cut, ask a worker for
// the text of a response that is cut, and write.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/status_macros.h"
#include "service/front/convert_sessions.h"
#include "service/front/front_core.h"
#include "service/grpc/check_request.h"
#include "service/store/session_cut.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kTextTimeout = absl::Seconds(10);

absl::Status ShuttingDown() {
  return absl::UnavailableError("the server is shutting down; retry at another");
}

void AnswerWith(const FrontCore::Done<v1::Session>& done, absl::StatusOr<SessionInfo> info) {
  if (!info.ok()) return done(info.status());
  v1::Session session;
  ToProto(*info, &session);
  done(std::move(session));
}

}  // namespace

void FrontCore::CutLog(SessionLogData log, int64_t position, Done<SessionLogData> done) {
  const absl::StatusOr<SessionCut> cut = PlanCut(log, position);
  if (!cut.ok()) return done(cut.status());
  const std::string answer = cut->last_cut ? log.turns[cut->turns - 1].answer : "";
  const bool whole = position == log.info.token_count;
  if (!cut->last_cut || whole || log.info.kind != SessionKind::kChat) {
    CutSession(*cut, whole ? answer : "", &log);
    return done(std::move(log));
  }
  const absl::StatusOr<PickedWorker> worker = AnyWorker(log.info.model);
  if (!worker.ok()) return done(worker.status());
  v1::DetokenizeRequest request;
  request.set_model(log.info.model);
  request.set_keep_spaces(true);
  request.mutable_token_ids()->Assign(log.token_ids.begin() + cut->text_begin,
                                      log.token_ids.begin() + position);
  const std::string principal = log.info.principal;
  worker->link->TextOf(std::move(request), principal, clock_->Monotonic() + kTextTimeout,
                       [log = std::move(log), cut = *cut, answer, done = std::move(done)](
                           absl::StatusOr<v1::DetokenizeResponse> text) mutable {
                         if (!text.ok()) return done(text.status());
                         CutSession(cut, CutAnswer(answer, text->text()), &log);
                         done(std::move(log));
                       });
}

void FrontCore::ReadLog(const std::string& session_id, const std::string& principal,
                        Done<SessionLogData> done) {
  store_->Get(principal, session_id,
              [loop = loop_, weak = std::weak_ptr<int>(alive_),
               done = std::move(done)](absl::StatusOr<SessionLogData> log) {
                loop->Post([weak, done, log = std::move(log)]() mutable {
                  weak.expired() ? done(ShuttingDown()) : done(std::move(log));
                });
              });
}

void FrontCore::ForkSession(const v1::ForkSessionRequest& request, const std::string& principal,
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
    // A fork keeps the create_time of its source, because its prompts were rendered with that time
    // and future ones will be (TellTime). It may be in the future if the front that created the
    // source had a fast clock.
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

void FrontCore::TruncateSession(const v1::TruncateSessionRequest& request,
                                const std::string& principal, Done<v1::Session> done) {
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

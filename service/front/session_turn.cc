#include "service/front/session_turn.h"

#include <utility>

#include "service/store/lease.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);
static_assert(kLease <= kMaxLease);
constexpr absl::Duration kLeaseRenewal = absl::Seconds(3);

}  // namespace

void SessionTurn::Begin(TurnRequest request) {
  request.lease = kLease;
  const std::string request_id = request.request_id;
  store_->BeginTurn(std::move(request),
                    [self = shared_from_this(), request_id](absl::StatusOr<OpenTurn> turn) {
                      self->loop_->Post([self, request_id, turn = std::move(turn)]() mutable {
                        self->OnBegun(request_id, std::move(turn));
                      });
                    });
}

void SessionTurn::OnBegun(const std::string& request_id, absl::StatusOr<OpenTurn> turn) {
  if (!turn.ok()) {
    if (listener_ != nullptr) listener_->OnTurn(turn.status());
    return;
  }
  turn_ = *std::move(turn);
  lease_held_ = true;
  sent_length_ = logged_length_ = turn_.log.info.token_count;
  if (listener_ == nullptr) return GiveBack();
  auto logged = TakeLoggedTurn(request_id, &turn_.log);
  if (!logged.ok()) return listener_->OnTurn(logged.status());
  logged_ = *std::move(logged);
  begun_ = logged_.has_value() && logged_->running;
  KeepLease();
  listener_->OnTurn(absl::OkStatus());
}

void SessionTurn::KeepLease() {
  loop_->PostAfter(kLeaseRenewal, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->listener_ == nullptr || self->finished_) return;
    const auto on_renewed = [weak, loop = self->loop_](absl::Status status) {
      if (status.ok()) return;
      loop->Post([weak, status] {
        const auto live = weak.lock();
        if (live == nullptr || live->listener_ == nullptr || live->finished_) return;
        live->listener_->OnTurnLost(status);
      });
    };
    self->store_->RenewLease(self->turn_.log.info.session_id, self->turn_.epoch, kLease,
                             on_renewed);
    self->KeepLease();
  });
}

void SessionTurn::Append(AppendRequest append) {
  append.session_id = turn_.log.info.session_id;
  append.epoch = turn_.epoch;
  append.expected_length = sent_length_;
  if (append.begin.has_value()) {
    begun_ = true;
    sent_length_ = append.begin->kept + static_cast<int64_t>(append.begin->input_ids.size());
  }
  sent_length_ += static_cast<int64_t>(append.output_ids.size());
  finished_ = append.finish != TurnFinish::kRunning;
  store_->Append(std::move(append),
                 [self = shared_from_this(), length = sent_length_](absl::Status status) {
                   self->loop_->Post([self, status = std::move(status), length]() mutable {
                     self->OnAppended(std::move(status), length);
                   });
                 });
}

void SessionTurn::OnAppended(absl::Status status, int64_t length) {
  if (failed_) return;
  if (status.ok()) {
    logged_length_ = length;
    if (listener_ != nullptr) listener_->OnLogged();
    return;
  }
  failed_ = true;
  listener_ != nullptr ? listener_->OnTurnLost(std::move(status)) : GiveBack();
}

void SessionTurn::Close() {
  const bool open = std::exchange(listener_, nullptr) != nullptr;
  if (open && lease_held_) GiveBack();
}

void SessionTurn::GiveBack() {
  const auto ignore = [](absl::Status) {};  // if the release fails, the lease still expires
  const std::string& session_id = turn_.log.info.session_id;
  // True if the turn does not have to be ended in the log: the log contains nothing of it, or the
  // whole turn.
  const bool nothing_logged = !begun_ || (failed_ && logged_length_ == turn_.log.info.token_count);
  if (nothing_logged) return store_->ReleaseLease(session_id, turn_.epoch, ignore);
  if (finished_ && !failed_) return;
  finished_ = true;
  store_->Append({.session_id = session_id,
                  .epoch = turn_.epoch,
                  .expected_length = failed_ ? logged_length_ : sent_length_,
                  .finish = TurnFinish::kCancelled},
                 ignore);
}

}  // namespace tidepool::service

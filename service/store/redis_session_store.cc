#include "service/store/redis_session_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/status_macros.h"
#include "service/store/message_json.h"
#include "service/store/redis_codec.h"
#include "service/store/store_errors.h"
#include "service/store/token_bytes.h"

namespace tidepool::service {
namespace {

constexpr int64_t kVerifiedAtOnce = 1000;
constexpr size_t kMaxNamedFaults = 20;

std::string Micros(absl::Duration duration) {
  return absl::StrCat(absl::ToInt64Microseconds(duration));
}

std::string Number(int64_t number) { return absl::StrCat(number); }

std::string Owner(absl::string_view principal) { return absl::StrCat("=", principal); }

// Converts the word at the beginning of a script's response to a status.
absl::Status ToStatus(const absl::StatusOr<RedisValue>& answer, absl::string_view session_id,
                      absl::string_view request_id = "") {
  if (!answer.ok()) return answer.status();
  const absl::string_view word = (*answer)[0].text();
  if (word == "OK") return absl::OkStatus();
  if (word == "NONE") return NoSuchSession(session_id);
  if (word == "EXISTS") return SessionIdTaken(session_id);
  if (word == "BUSY") return SessionBusy(session_id, (*answer)[1].text());
  if (word == "CHANGED") return SessionChanged(session_id);
  if (word == "ANOTHER") return AnotherRequest(request_id);
  if (word == "LOST") return LeaseLost(session_id);
  if (word == "GONE") return SessionGone(session_id);
  if (word == "DAMAGED") return FieldsDamaged(session_id);
  if (word == "MISSING") return SessionMissing(session_id);
  if (word == "QUOTA") return TooManySessions((*answer)[1].integer());
  return absl::InternalError("session store: unexpected reply from a Redis script");
}

absl::StatusOr<SessionInfo> ToInfo(const absl::StatusOr<RedisValue>& answer,
                                   absl::string_view session_id) {
  RETURN_IF_ERROR(ToStatus(answer, session_id));
  return DecodeInfo((*answer)[2], (*answer)[1].integer());
}

using Deliver = RedisCallQueue::Deliver;

Deliver InfoTo(std::string session_id, SessionStore::Done<SessionInfo> done) {
  return [id = std::move(session_id), done = std::move(done)](
             const absl::StatusOr<RedisValue>& answer) { done(ToInfo(answer, id)); };
}

Deliver StatusTo(std::string session_id, SessionStore::DoneStatus done) {
  return [id = std::move(session_id), done = std::move(done)](
             const absl::StatusOr<RedisValue>& answer) { done(ToStatus(answer, id)); };
}

Deliver NumberTo(SessionStore::Done<int64_t> done) {
  return [done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    if (!answer.ok()) return done(answer.status());
    done((*answer)[1].integer());
  };
}

std::vector<std::string> LogKeys(const std::string& session_id) {
  return {RedisSessionKey(session_id), RedisLogKey(session_id), RedisTextKey(session_id)};
}

std::vector<std::string> CreateKeys(const std::string& session_id, const std::string& principal) {
  std::vector<std::string> keys = LogKeys(session_id);
  keys.insert(keys.end(),
              {RedisAllKey(), RedisPrincipalKey(principal), RedisUpdatedKey(), RedisSequenceKey()});
  return keys;
}

// Logs the sessions that are missing from an index. They must be searched for at the start, because
// later calls do not find them.
SessionStore::Done<std::vector<std::string>> LogFaults(const RedisSessionStoreOptions& options) {
  return [log = options.log_damage,
          name = options.address.Name()](const absl::StatusOr<std::vector<std::string>>& faults) {
    if (!faults.ok()) return;
    const size_t named = std::min(faults->size(), kMaxNamedFaults);
    for (size_t i = 0; i < named; ++i) {
      log(absl::StrCat("session store ", name, ": ", (*faults)[i]));
    }
    if (named < faults->size()) {
      log(absl::StrCat("session store ", name, ": ", faults->size() - named, " more faults; see ",
                       "`tidepool sessions verify`"));
    }
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionStore>> RedisSessionStore::Open(
    RedisSessionStoreOptions options) {
  const auto open = [&options]() -> absl::StatusOr<std::unique_ptr<SessionStore>> {
    ASSIGN_OR_RETURN(RedisConnection connection, ConnectToRedis(options));
    auto witness = std::make_unique<RedisWitness>(options.witness_path, options.address.database);
    RETURN_IF_ERROR(witness->Check(connection.link.get(), options.clock->Now()).status());
    ASSIGN_OR_RETURN(const ServerTime opened, AskTime(options, connection.link.get()));
    auto store = std::unique_ptr<SessionStore>(
        new RedisSessionStore(options, std::move(witness), std::move(connection), opened));
    if (options.log_damage) store->Verify(LogFaults(options));
    return store;
  };
  absl::StatusOr<std::unique_ptr<SessionStore>> store = open();
  if (store.ok()) return store;
  return absl::Status(store.status().code(), absl::StrCat("session store ", options.address.Name(),
                                                          ": ", store.status().message()));
}

absl::StatusOr<RedisSessionStore::ServerTime> RedisSessionStore::AskTime(
    const RedisSessionStoreOptions& options, RedisLink* link) {
  // Read the local clock before the call. Then a server time that is later computed from both
  // clocks is never too early.
  ServerTime time = {.monotonic = options.clock->Monotonic()};
  ASSIGN_OR_RETURN(const RedisReply reply, link->Call({"TIME"}));
  if (reply.value().size() != 2) return absl::InternalError("the server does not report its TIME");
  time.unix_us = reply.value()[0].integer() * 1'000'000 + reply.value()[1].integer();
  return time;
}

RedisSessionStore::RedisSessionStore(const RedisSessionStoreOptions& options,
                                     std::unique_ptr<RedisWitness> witness,
                                     RedisConnection connection, const ServerTime& opened)
    : options_(options),
      opened_(opened),
      witness_(std::move(witness)),
      queue_(options_, std::move(connection), {.health = &health_, .witness = witness_.get()}) {}

RedisSessionStore::~RedisSessionStore() = default;

void RedisSessionStore::Create(NewSession session, Done<SessionInfo> done) {
  std::string id = session.session_id;
  queue_.Enqueue(RedisScript::kCreate, CreateKeys(id, session.principal),
                 {id, session.principal, base::RandomHex(), Number(options_.max_sessions), "",
                  "model", session.model, "digest", session.model_digest},
                 InfoTo(id, std::move(done)));
}

void RedisSessionStore::Insert(SessionLogData session, Done<SessionInfo> done) {
  const std::string& id = session.info.session_id;
  std::vector<std::string> arguments = {id, session.info.principal, base::RandomHex(),
                                        Number(options_.max_sessions),
                                        PackTokens(session.token_ids)};
  EncodeSession(session, &arguments);
  queue_.Enqueue(RedisScript::kCreate, CreateKeys(id, session.info.principal), std::move(arguments),
                 InfoTo(id, std::move(done)));
}

void RedisSessionStore::Replace(SessionLogData session, Done<SessionInfo> done) {
  const std::string& id = session.info.session_id;
  std::vector<std::string> keys = LogKeys(id);
  keys.push_back(RedisUpdatedKey());
  std::vector<std::string> arguments = {id, Owner(session.info.principal), base::RandomHex(),
                                        Number(session.info.epoch), PackTokens(session.token_ids)};
  EncodeSession(session, &arguments);
  queue_.Enqueue(RedisScript::kWrite, std::move(keys), std::move(arguments),
                 InfoTo(id, std::move(done)));
}

void RedisSessionStore::Get(std::optional<std::string> principal, std::string session_id,
                            Done<SessionLogData> done) {
  auto deliver = [session_id, done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    if (absl::Status status = ToStatus(answer, session_id); !status.ok()) {
      return done(std::move(status));
    }
    done(DecodeLog(session_id, *answer));
  };
  std::vector<std::string> keys = LogKeys(session_id);
  keys.push_back(RedisAllKey());
  queue_.Enqueue(RedisScript::kGet, std::move(keys),
                 {principal.has_value() ? Owner(*principal) : "*", session_id}, std::move(deliver));
}

void RedisSessionStore::List(std::optional<std::string> principal, int page_size,
                             std::string page_token, Done<SessionPage> done) {
  int64_t before = 0;
  if (!page_token.empty() && (!absl::SimpleAtoi(page_token, &before) || before < 1)) {
    // Call `done` on the store's thread, like for every result.
    return Count([done = std::move(done)](const absl::StatusOr<int64_t>&) {
      done(absl::InvalidArgumentError("page_token did not come from ListSessions"));
    });
  }
  auto deliver = [page_size, done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    if (!answer.ok()) return done(answer.status());
    SessionPage page;
    int64_t last = 0;
    for (size_t i = 2; i < answer->size(); ++i) {
      const RedisValue info = (*answer)[i];
      if (static_cast<int>(page.sessions.size()) == page_size) {
        if (last < 1) {
          return done(absl::DataLossError("session store: an index of the sessions is damaged"));
        }
        page.next_page_token = absl::StrCat(last);
        break;
      }
      last = info[14].integer();
      page.sessions.push_back(DecodeListed(info, (*answer)[1].integer()));
    }
    done(std::move(page));
  };
  queue_.Enqueue(RedisScript::kList,
                 {principal.has_value() ? RedisPrincipalKey(*principal) : RedisAllKey()},
                 {page_token.empty() ? "+inf" : Number(before), Number(page_size + 1),
                  RedisSessionKey(""), RedisLogKey(""), RedisTextKey("")},
                 std::move(deliver));
}

void RedisSessionStore::Delete(std::string principal, std::string shown_id, DoneStatus done) {
  const std::string session_id = BytesOfText(shown_id);
  std::vector<std::string> keys = LogKeys(session_id);
  keys.insert(keys.end(), {RedisAllKey(), RedisPrincipalKey(principal), RedisUpdatedKey(),
                           RedisDeletedKey(base::RandomHex()), RedisGoneKey(session_id)});
  queue_.Enqueue(RedisScript::kDelete, std::move(keys), {session_id, Owner(principal)},
                 StatusTo(std::move(shown_id), std::move(done)));
}

void RedisSessionStore::Count(Done<int64_t> done) {
  queue_.Enqueue(RedisScript::kCount, {RedisAllKey()}, {}, NumberTo(std::move(done)));
}

void RedisSessionStore::Expire(absl::Duration age, int64_t most, Done<int64_t> done) {
  const int64_t latest_us =
      opened_.unix_us + absl::ToInt64Microseconds(options_.clock->Monotonic() - opened_.monotonic);
  auto deliver = [this, done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    if (!answer.ok()) return done(answer.status());
    for (size_t i = 2; i < answer->size(); ++i) LogKeptByExpiry((*answer)[i].text());
    done((*answer)[1].integer());
  };
  queue_.Enqueue(RedisScript::kExpire, {RedisUpdatedKey(), RedisAllKey()},
                 {Micros(age), Number(most), RedisSessionKey(""), RedisLogKey(""), RedisTextKey(""),
                  RedisPrincipalKey(""), Number(latest_us), RedisGoneKey("")},
                 std::move(deliver));
}

void RedisSessionStore::LogKeptByExpiry(absl::string_view session_id) {
  if (!kept_by_expiry_.emplace(session_id).second || !options_.log_damage) return;
  options_.log_damage(absl::StrCat("session store ", options_.address.Name(), ": ",
                                   FieldsDamaged(session_id).message(), ". ", kNotExpired));
}

void RedisSessionStore::Verify(Done<std::vector<std::string>> done) {
  VerifyFrom(0, {}, std::move(done));
}

// Checks a part of the sessions, and then calls itself for the next part. A single script for all
// sessions would block the server too long.
void RedisSessionStore::VerifyFrom(int64_t first, std::vector<std::string> faults,
                                   Done<std::vector<std::string>> done) {
  auto deliver = [this, first, faults = std::move(faults),
                  done = std::move(done)](absl::StatusOr<RedisValue> answer) mutable {
    if (!answer.ok()) return done(answer.status());
    for (size_t i = 2; i < answer->size(); ++i) {
      faults.push_back(Utf8Text((*answer)[i].text()));
    }
    if ((*answer)[1].integer() < kVerifiedAtOnce) {
      const std::vector<std::string> losses = witness_->Faults();
      faults.insert(faults.end(), losses.begin(), losses.end());
      return done(std::move(faults));
    }
    VerifyFrom(first + kVerifiedAtOnce, std::move(faults), std::move(done));
  };
  queue_.Enqueue(
      RedisScript::kVerify, {RedisAllKey(), RedisUpdatedKey()},
      {RedisSessionKey(""), RedisPrincipalKey(""), Number(first), Number(kVerifiedAtOnce)},
      std::move(deliver));
}

void RedisSessionStore::BeginTurn(TurnRequest turn, Done<OpenTurn> done) {
  auto deliver = [this, id = turn.session_id, request_id = turn.request_id,
                  done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    if (absl::Status status = ToStatus(answer, id, request_id); !status.ok()) {
      return done(std::move(status));
    }
    absl::StatusOr<SessionLogData> log = DecodeLog(id, *answer);
    if (!log.ok()) {
      // The script has granted the lease, because it does not check the whole log. Release the
      // lease. Otherwise the next caller would get ABORTED, as if a turn were running, and not
      // DATA_LOSS.
      const int64_t epoch = DecodeInfo((*answer)[2], 0).epoch;
      ReleaseLease(id, epoch, [](const absl::Status&) {});
      return done(log.status());
    }
    const int64_t epoch = log->info.epoch;
    done(OpenTurn{.epoch = epoch, .log = *std::move(log)});
  };
  std::vector<std::string> keys = LogKeys(turn.session_id);
  keys.push_back(RedisAllKey());
  queue_.Enqueue(RedisScript::kBegin, std::move(keys),
                 {Owner(turn.principal), turn.request_id, Micros(turn.lease), turn.body_digest,
                  turn.session_id},
                 std::move(deliver));
}

void RedisSessionStore::RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                                   DoneStatus done) {
  queue_.Enqueue(RedisScript::kRenew, {RedisSessionKey(session_id)}, {Number(epoch), Micros(lease)},
                 StatusTo(session_id, std::move(done)));
}

void RedisSessionStore::ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) {
  queue_.Enqueue(RedisScript::kRelease, {RedisSessionKey(session_id)}, {Number(epoch)},
                 StatusTo(session_id, std::move(done)));
}

void RedisSessionStore::Append(AppendRequest append, DoneStatus done) {
  const std::string& id = append.session_id;
  std::vector<std::string> keys = LogKeys(id);
  keys.insert(keys.end(), {RedisUpdatedKey(), RedisGoneKey(id)});
  // Enqueue sets the fourth argument, which is the number of the append.
  std::vector<std::string> arguments = {id,
                                        Number(append.epoch),
                                        Number(append.expected_length),
                                        "",
                                        PackTokens(append.output_ids),
                                        append.output_text,
                                        Number(static_cast<int>(append.finish)),
                                        append.numerics_id};
  if (append.begin.has_value()) {
    const TurnStart& begin = *append.begin;
    arguments.insert(arguments.end(), {begin.request_id, Number(static_cast<int>(begin.kind)),
                                       Number(begin.kept), PackTokens(begin.input_ids),
                                       MessagesToJson(begin.messages), begin.body_digest});
  }
  auto deliver = [id, expected = append.expected_length,
                  done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    if (answer.ok() && (*answer)[0].text() == "LENGTH") {
      return done(LengthDiffers(id, (*answer)[1].integer(), expected));
    }
    done(ToStatus(answer, id));
  };
  queue_.Enqueue(RedisScript::kAppend, std::move(keys), std::move(arguments), std::move(deliver));
}

}  // namespace tidepool::service

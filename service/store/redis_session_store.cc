#include "service/store/redis_session_store.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <random>
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

// Of calls that are sent before the first answer is read.
constexpr size_t kPipeline = 256;
constexpr int64_t kVerifiedAtOnce = 1000;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
constexpr absl::Duration kLongestBackoff = absl::Seconds(2);
constexpr size_t kMaxNamedFaults = 20;
constexpr absl::Duration kProbeEvery = absl::Seconds(1);

std::string Micros(absl::Duration duration) {
  return absl::StrCat(absl::ToInt64Microseconds(duration));
}

std::string Number(int64_t number) { return absl::StrCat(number); }

std::string Owner(absl::string_view principal) { return absl::StrCat("=", principal); }

// What a script's word means for session `session_id`, and a turn of `request_id`; OK when it says
// so.
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

using Deliver = std::function<void(absl::StatusOr<RedisValue>)>;

Deliver InfoTo(std::string session_id, SessionStore::Done<SessionInfo> done) {
  return [id = std::move(session_id), done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    done(ToInfo(answer, id));
  };
}

Deliver StatusTo(std::string session_id, SessionStore::DoneStatus done) {
  return [id = std::move(session_id), done = std::move(done)](absl::StatusOr<RedisValue> answer) {
    done(ToStatus(answer, id));
  };
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

// Sessions that no index leads to are missed at the start, not by whoever looks for them.
SessionStore::Done<std::vector<std::string>> LogFaults(const RedisSessionStoreOptions& options) {
  return [log = options.log,
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

absl::StatusOr<std::unique_ptr<RedisLink>> RedisSessionStore::Connect(
    const RedisSessionStoreOptions& options, Scripts* scripts) {
  ASSIGN_OR_RETURN(std::unique_ptr<RedisLink> link,
                   RedisLink::Connect({.address = options.address,
                                       .connect_timeout = options.answer_timeout,
                                       .answer_timeout = options.answer_timeout}));
  RETURN_IF_ERROR(CheckRedisServer(link.get(), options.safety));
  for (int i = 0; i < kRedisScripts; ++i) {
    ASSIGN_OR_RETURN(const RedisReply sha,
                     link->Call({"SCRIPT", "LOAD", RedisScriptText(static_cast<RedisScript>(i))}));
    (*scripts)[i] = std::string(sha.value().text());
  }
  return link;
}

absl::StatusOr<std::unique_ptr<SessionStore>> RedisSessionStore::Open(
    RedisSessionStoreOptions options) {
  const auto open = [&options]() -> absl::StatusOr<std::unique_ptr<SessionStore>> {
    Scripts scripts;
    ASSIGN_OR_RETURN(std::unique_ptr<RedisLink> link, Connect(options, &scripts));
    ASSIGN_OR_RETURN(const ServerTime opened, AskTime(options, link.get()));
    auto store = std::unique_ptr<SessionStore>(
        new RedisSessionStore(options, std::move(link), std::move(scripts), opened));
    if (options.log) store->Verify(LogFaults(options));
    return store;
  };
  absl::StatusOr<std::unique_ptr<SessionStore>> store = open();
  if (store.ok()) return store;
  return absl::Status(store.status().code(), absl::StrCat("session store ", options.address.Name(),
                                                          ": ", store.status().message()));
}

absl::StatusOr<RedisSessionStore::ServerTime> RedisSessionStore::AskTime(
    const RedisSessionStoreOptions& options, RedisLink* link) {
  // Read before the question: what follows from it is rather later than the server's time.
  ServerTime time = {.monotonic = options.clock->Monotonic()};
  ASSIGN_OR_RETURN(const RedisReply reply, link->Call({"TIME"}));
  if (reply.value().size() != 2) return absl::InternalError("the server does not report its TIME");
  time.unix_us = reply.value()[0].integer() * 1'000'000 + reply.value()[1].integer();
  return time;
}

RedisSessionStore::RedisSessionStore(RedisSessionStoreOptions options,
                                     std::unique_ptr<RedisLink> link, Scripts scripts,
                                     const ServerTime& opened)
    : options_(std::move(options)),
      name_(options_.address.Name()),
      opened_(opened),
      link_(std::move(link)),
      scripts_(std::move(scripts)),
      thread_([this] { Run(); }) {}

RedisSessionStore::~RedisSessionStore() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
}

void RedisSessionStore::Enqueue(RedisScript script, std::vector<std::string> keys,
                                std::vector<std::string> arguments, Deliver deliver) {
  const bool of_turn = script == RedisScript::kAppend || script == RedisScript::kRenew ||
                       script == RedisScript::kRelease;
  const absl::Duration patience = of_turn ? options_.turn_patience : options_.patience;
  Call call = {.script = script,
               .keys = std::move(keys),
               .arguments = std::move(arguments),
               .deliver = std::move(deliver),
               .give_up = options_.clock->Monotonic() + patience};
  base::MutexLock lock(&mutex_);
  if (script == RedisScript::kAppend) call.arguments[3] = absl::StrCat(next_number_++);
  queue_.push_back(std::move(call));
  changed_.NotifyOne();
}

void RedisSessionStore::Run() {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  while (true) {
    const bool more = TakeCalls();
    if (more && pending_.empty()) Probe();
    const bool now = !more || options_.clock->Monotonic() >= next_try_;
    if (link_ == nullptr && !pending_.empty() && now) Reconnect();
    if (link_ != nullptr) SendPending();
    if (!more && link_ == nullptr) {
      // The store is closing, and the server is unavailable.
      for (Call& call : pending_) call.deliver(Away());
      pending_.clear();
    }
    FailExpired();
    if (!more && pending_.empty() && Idle()) return;
  }
}

bool RedisSessionStore::TakeCalls() {
  base::MutexLock lock(&mutex_);
  if (pending_.empty()) {
    if (queue_.empty() && !stopping_) changed_.WaitFor(&mutex_, kProbeEvery);
  } else {
    absl::Duration until = next_try_;
    for (const Call& call : pending_) until = std::min(until, call.give_up);
    const absl::Duration wait = until - options_.clock->Monotonic();
    if (wait > absl::ZeroDuration() && !stopping_) changed_.WaitFor(&mutex_, wait);
  }
  for (Call& call : queue_) pending_.push_back(std::move(call));
  queue_.clear();
  return !stopping_;
}

bool RedisSessionStore::Idle() {
  base::MutexLock lock(&mutex_);
  return queue_.empty();
}

void RedisSessionStore::Probe() {
  if (link_ != nullptr) {
    const absl::Status there = link_->Call({"PING"}).status();
    if (!absl::IsUnavailable(there)) return;
    LoseLink(there);
  }
  if (options_.clock->Monotonic() >= next_try_) Reconnect();
}

void RedisSessionStore::LoseLink(const absl::Status& reason) {
  reason_ = reason;
  link_ = nullptr;
  next_try_ = options_.clock->Monotonic();
  if (options_.log) {
    options_.log(absl::StrCat("session store ", name_, " is unavailable: ", reason_.message()));
  }
}

void RedisSessionStore::Reconnect() {
  absl::StatusOr<std::unique_ptr<RedisLink>> link = Connect(options_, &scripts_);
  if (link.ok()) {
    link_ = *std::move(link);
    if (options_.log) options_.log(absl::StrCat("session store ", name_, " is available again"));
    failed_tries_ = 0;
    health_.Set(absl::OkStatus());
    return;
  }
  reason_ = link.status();
  health_.Set(Away());
  // Two to the tries, and up to half of it more, so that fronts do not come back all at once.
  const absl::Duration backoff =
      std::min(kFirstBackoff * (1 << std::min(failed_tries_++, 6)), kLongestBackoff);
  std::random_device device;
  next_try_ = options_.clock->Monotonic() + backoff + backoff * ((device() % 512) / 1024.0);
}

void RedisSessionStore::SendPending() {
  while (!pending_.empty()) {
    const size_t count = std::min(kPipeline, pending_.size());
    for (size_t i = 0; i < count; ++i) {
      const Call& call = pending_[i];
      std::vector<std::string> command = {"EVALSHA", scripts_[static_cast<size_t>(call.script)],
                                          absl::StrCat(call.keys.size())};
      command.insert(command.end(), call.keys.begin(), call.keys.end());
      command.insert(command.end(), call.arguments.begin(), call.arguments.end());
      link_->Send(command);
    }
    for (size_t i = 0; i < count; ++i) {
      absl::StatusOr<RedisReply> reply = link_->Receive();
      if (absl::IsUnavailable(reply.status())) {
        // Whether those that are left ran is not known: they stay, to be sent again.
        return LoseLink(reply.status());
      }
      const Call call = std::move(pending_.front());
      pending_.pop_front();
      if (reply.ok()) {
        call.deliver(reply->value());
      } else {
        call.deliver(absl::Status(reply.status().code(), absl::StrCat("session store ", name_, ": ",
                                                                      reply.status().message())));
      }
    }
  }
}

void RedisSessionStore::FailExpired() {
  const absl::Duration now = options_.clock->Monotonic();
  std::deque<Call> waiting;
  for (Call& call : pending_) {
    if (call.give_up > now) {
      waiting.push_back(std::move(call));
    } else {
      call.deliver(Away());
    }
  }
  pending_ = std::move(waiting);
}

absl::Status RedisSessionStore::Away() const {
  return absl::UnavailableError(absl::StrCat(
      "session store ", name_, " is unavailable: ", reason_.message(), "; retry with back-off"));
}

void RedisSessionStore::Create(NewSession session, Done<SessionInfo> done) {
  std::string id = session.session_id;
  Enqueue(RedisScript::kCreate, CreateKeys(id, session.principal),
          {id, session.principal, base::RandomHex(), Number(options_.max_sessions), "", "model",
           session.model, "digest", session.model_digest},
          InfoTo(id, std::move(done)));
}

void RedisSessionStore::Insert(SessionLogData session, Done<SessionInfo> done) {
  const std::string& id = session.info.session_id;
  std::vector<std::string> arguments = {id, session.info.principal, base::RandomHex(),
                                        Number(options_.max_sessions),
                                        PackTokens(session.token_ids)};
  EncodeSession(session, &arguments);
  Enqueue(RedisScript::kCreate, CreateKeys(id, session.info.principal), std::move(arguments),
          InfoTo(id, std::move(done)));
}

void RedisSessionStore::Replace(SessionLogData session, Done<SessionInfo> done) {
  const std::string& id = session.info.session_id;
  std::vector<std::string> keys = LogKeys(id);
  keys.push_back(RedisUpdatedKey());
  std::vector<std::string> arguments = {id, Owner(session.info.principal), base::RandomHex(),
                                        Number(session.info.epoch), PackTokens(session.token_ids)};
  EncodeSession(session, &arguments);
  Enqueue(RedisScript::kWrite, std::move(keys), std::move(arguments), InfoTo(id, std::move(done)));
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
  Enqueue(RedisScript::kGet, std::move(keys),
          {principal.has_value() ? Owner(*principal) : "*", session_id}, std::move(deliver));
}

void RedisSessionStore::List(std::optional<std::string> principal, int page_size,
                             std::string page_token, Done<SessionPage> done) {
  int64_t before = 0;
  if (!page_token.empty() && (!absl::SimpleAtoi(page_token, &before) || before < 1)) {
    // Told on the store's thread, like every end.
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
  Enqueue(RedisScript::kList,
          {principal.has_value() ? RedisPrincipalKey(*principal) : RedisAllKey()},
          {page_token.empty() ? "+inf" : Number(before), Number(page_size + 1), RedisSessionKey(""),
           RedisLogKey(""), RedisTextKey("")},
          std::move(deliver));
}

void RedisSessionStore::Delete(std::string principal, std::string session_id, DoneStatus done) {
  std::vector<std::string> keys = LogKeys(session_id);
  keys.insert(keys.end(), {RedisAllKey(), RedisPrincipalKey(principal), RedisUpdatedKey(),
                           RedisDeletedKey(base::RandomHex()), RedisGoneKey(session_id)});
  Enqueue(RedisScript::kDelete, std::move(keys), {session_id, Owner(principal)},
          StatusTo(session_id, std::move(done)));
}

void RedisSessionStore::Count(Done<int64_t> done) {
  Enqueue(RedisScript::kCount, {RedisAllKey()}, {}, NumberTo(std::move(done)));
}

void RedisSessionStore::Expire(absl::Duration age, int64_t most, Done<int64_t> done) {
  const int64_t latest_us =
      opened_.unix_us + absl::ToInt64Microseconds(options_.clock->Monotonic() - opened_.monotonic);
  Enqueue(RedisScript::kExpire, {RedisUpdatedKey(), RedisAllKey()},
          {Micros(age), Number(most), RedisSessionKey(""), RedisLogKey(""), RedisTextKey(""),
           RedisPrincipalKey(""), Number(latest_us), RedisGoneKey("")},
          NumberTo(std::move(done)));
}

void RedisSessionStore::Verify(Done<std::vector<std::string>> done) {
  VerifyFrom(0, {}, std::move(done));
}

// The server does nothing else while a script runs: none looks at more than a part.
void RedisSessionStore::VerifyFrom(int64_t first, std::vector<std::string> faults,
                                   Done<std::vector<std::string>> done) {
  auto deliver = [this, first, faults = std::move(faults),
                  done = std::move(done)](absl::StatusOr<RedisValue> answer) mutable {
    if (!answer.ok()) return done(answer.status());
    for (size_t i = 2; i < answer->size(); ++i) {
      faults.push_back(Utf8Text((*answer)[i].text()));
    }
    if ((*answer)[1].integer() < kVerifiedAtOnce) return done(std::move(faults));
    VerifyFrom(first + kVerifiedAtOnce, std::move(faults), std::move(done));
  };
  Enqueue(RedisScript::kVerify, {RedisAllKey(), RedisUpdatedKey()},
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
      // The script does not check the whole log and has granted the lease. Without this release the
      // next caller would get ABORTED, as if a turn were running, instead of DATA_LOSS.
      const int64_t epoch = DecodeInfo((*answer)[2], 0).epoch;
      ReleaseLease(id, epoch, [](const absl::Status&) {});
      return done(log.status());
    }
    const int64_t epoch = log->info.epoch;
    done(OpenTurn{.epoch = epoch, .log = *std::move(log)});
  };
  std::vector<std::string> keys = LogKeys(turn.session_id);
  keys.push_back(RedisAllKey());
  Enqueue(RedisScript::kBegin, std::move(keys),
          {Owner(turn.principal), turn.request_id, Micros(turn.lease), turn.body_digest,
           turn.session_id},
          std::move(deliver));
}

void RedisSessionStore::RenewLease(std::string session_id, int64_t epoch, absl::Duration lease,
                                   DoneStatus done) {
  Enqueue(RedisScript::kRenew, {RedisSessionKey(session_id)}, {Number(epoch), Micros(lease)},
          StatusTo(session_id, std::move(done)));
}

void RedisSessionStore::ReleaseLease(std::string session_id, int64_t epoch, DoneStatus done) {
  Enqueue(RedisScript::kRelease, {RedisSessionKey(session_id)}, {Number(epoch)},
          StatusTo(session_id, std::move(done)));
}

void RedisSessionStore::Append(AppendRequest append, DoneStatus done) {
  const std::string& id = append.session_id;
  std::vector<std::string> keys = LogKeys(id);
  keys.insert(keys.end(), {RedisUpdatedKey(), RedisGoneKey(id)});
  // The fourth is the append's number, which Enqueue gives.
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
  Enqueue(RedisScript::kAppend, std::move(keys), std::move(arguments), std::move(deliver));
}

}  // namespace tidepool::service

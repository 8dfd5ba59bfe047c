#include "service/store/redis_call_queue.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

// Maximum number of calls that are sent before their first response is read.
constexpr size_t kPipeline = 256;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
// Short, because running turns wait for the next attempt.
constexpr absl::Duration kLongestBackoff = absl::Milliseconds(400);
constexpr absl::Duration kProbeEvery = absl::Seconds(1);
constexpr absl::Duration kRememberEvery = absl::Seconds(1);

}  // namespace

absl::StatusOr<RedisConnection> ConnectToRedis(const RedisSessionStoreOptions& options) {
  RedisConnection connection;
  ASSIGN_OR_RETURN(connection.link, RedisLink::Connect({.address = options.address,
                                                        .connect_timeout = options.answer_timeout,
                                                        .answer_timeout = options.answer_timeout}));
  RETURN_IF_ERROR(CheckRedisServer(connection.link.get(), options.safety));
  for (int i = 0; i < kRedisScripts; ++i) {
    ASSIGN_OR_RETURN(
        const RedisReply sha,
        connection.link->Call({"SCRIPT", "LOAD", RedisScriptText(static_cast<RedisScript>(i))}));
    connection.scripts[i] = std::string(sha.value().text());
  }
  return connection;
}

RedisCallQueue::RedisCallQueue(const RedisSessionStoreOptions& options, RedisConnection connection,
                               const Observers& observers)
    : options_(options),
      name_(options_.address.Name()),
      observers_(observers),
      connection_(std::move(connection)),
      thread_([this] { Run(); }) {}

RedisCallQueue::~RedisCallQueue() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  thread_.join();
}

void RedisCallQueue::Enqueue(RedisScript script, std::vector<std::string> keys,
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

void RedisCallQueue::Run() {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  while (true) {
    const bool more = TakeCalls();
    if (more && pending_.empty()) Probe();
    const bool now = !more || options_.clock->Monotonic() >= next_try_;
    if (connection_.link == nullptr && !pending_.empty() && now) Reconnect();
    if (connection_.link != nullptr) SendPending();
    if (!more) next_remember_ = absl::ZeroDuration();
    Remember();
    if (!more && connection_.link == nullptr) {
      // The store is closing, and the server is unavailable. So the calls fail.
      for (Call& call : pending_) call.deliver(Away());
      pending_.clear();
    }
    FailExpired();
    if (!more && pending_.empty() && Idle()) return;
  }
}

bool RedisCallQueue::TakeCalls() {
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

bool RedisCallQueue::Idle() {
  base::MutexLock lock(&mutex_);
  return queue_.empty();
}

void RedisCallQueue::Probe() {
  if (connection_.link != nullptr) {
    const absl::Status there = connection_.link->Call({"PING"}).status();
    if (!absl::IsUnavailable(there)) return;
    LoseLink(there);
  }
  if (options_.clock->Monotonic() >= next_try_) Reconnect();
}

void RedisCallQueue::LoseLink(const absl::Status& reason) {
  reason_ = reason;
  connection_.link = nullptr;
  next_try_ = options_.clock->Monotonic();
  if (options_.log) {
    options_.log(absl::StrCat("session store ", name_, " is unavailable: ", reason_.message()));
  }
}

void RedisCallQueue::LogFaults(const std::vector<std::string>& faults) const {
  if (!options_.log_damage) return;
  for (const std::string& fault : faults) {
    options_.log_damage(absl::StrCat("session store ", name_, ": ", fault));
  }
}

void RedisCallQueue::Remember() {
  const absl::Duration now = options_.clock->Monotonic();
  if (connection_.link == nullptr || now < next_remember_) return;
  next_remember_ = now + kRememberEvery;
  const absl::StatusOr<std::vector<std::string>> faults =
      observers_.witness->Remember(connection_.link.get(), options_.clock->Now());
  if (absl::IsUnavailable(faults.status())) return LoseLink(faults.status());
  if (faults.ok()) LogFaults(*faults);
}

absl::StatusOr<RedisConnection> RedisCallQueue::Connect() {
  ASSIGN_OR_RETURN(RedisConnection connection, ConnectToRedis(options_));
  ASSIGN_OR_RETURN(const std::vector<std::string> faults,
                   observers_.witness->Check(connection.link.get(), options_.clock->Now()));
  LogFaults(faults);
  return connection;
}

void RedisCallQueue::Reconnect() {
  absl::StatusOr<RedisConnection> connection = Connect();
  if (connection.ok()) {
    connection_ = *std::move(connection);
    if (options_.log) options_.log(absl::StrCat("session store ", name_, " is available again"));
    failed_tries_ = 0;
    observers_.health->Set(absl::OkStatus());
    return;
  }
  reason_ = connection.status();
  observers_.health->Set(Away());
  // Exponential back-off. Up to half of the time is added at random, so that not all fronts connect
  // at the same moment.
  const absl::Duration backoff =
      std::min(kFirstBackoff * (1 << std::min(failed_tries_++, 3)), kLongestBackoff);
  std::random_device device;
  next_try_ = options_.clock->Monotonic() + backoff + backoff * ((device() % 512) / 1024.0);
}

void RedisCallQueue::SendPending() {
  while (!pending_.empty()) {
    const size_t count = std::min(kPipeline, pending_.size());
    for (size_t i = 0; i < count; ++i) {
      const Call& call = pending_[i];
      std::vector<std::string> command = {"EVALSHA",
                                          connection_.scripts[static_cast<size_t>(call.script)],
                                          absl::StrCat(call.keys.size())};
      command.insert(command.end(), call.keys.begin(), call.keys.end());
      command.insert(command.end(), call.arguments.begin(), call.arguments.end());
      connection_.link->Send(command);
    }
    for (size_t i = 0; i < count; ++i) {
      absl::StatusOr<RedisReply> reply = connection_.link->Receive();
      if (absl::IsUnavailable(reply.status())) {
        // It is not known whether the remaining calls have run, so they are sent again.
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

void RedisCallQueue::FailExpired() {
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

absl::Status RedisCallQueue::Away() const {
  return absl::UnavailableError(absl::StrCat(
      "session store ", name_, " is unavailable: ", reason_.message(), "; retry with back-off"));
}

}  // namespace tidepool::service

#include "service/store/redis_link.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

// Returns the status code for an error reply, which begins with a word
// (https://redis.io/docs/latest/develop/reference/protocol-spec, "Simple errors"). These words are
// listed in Redis' src/server.c, createSharedObjects.
absl::StatusCode CodeOf(absl::string_view error) {
  // Before Redis 7, the error of a script is inside another error, after "-".
  const auto says = [error](absl::string_view word) {
    return error == word || absl::StartsWith(error, absl::StrCat(word, " ")) ||
           absl::StrContains(error, absl::StrCat("-", word, " "));
  };
  if (says("OOM") || says("MISCONF")) return absl::StatusCode::kResourceExhausted;
  // READONLY: the server has become a replica. The next connection may reach the new master.
  if (says("LOADING") || says("BUSY") || says("MASTERDOWN") || says("NOSCRIPT") ||
      says("TRYAGAIN") || says("READONLY")) {
    return absl::StatusCode::kUnavailable;
  }
  if (says("NOAUTH") || says("WRONGPASS") || says("NOPERM") ||
      absl::StrContains(error, "invalid password") || absl::StrContains(error, "AUTH") ||
      absl::StrContains(error, "DB index")) {
    return absl::StatusCode::kFailedPrecondition;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

bool RedisValue::is_array() const { return reply_ != nullptr && reply_->type == REDIS_REPLY_ARRAY; }

size_t RedisValue::size() const { return is_array() ? reply_->elements : 0; }

RedisValue RedisValue::operator[](size_t i) const {
  return RedisValue(i < size() ? reply_->element[i] : nullptr);
}

absl::string_view RedisValue::text() const {
  if (reply_ == nullptr ||
      (reply_->type != REDIS_REPLY_STRING && reply_->type != REDIS_REPLY_STATUS)) {
    return {};
  }
  return absl::string_view(reply_->str, reply_->len);
}

int64_t RedisValue::integer() const {
  if (reply_ != nullptr && reply_->type == REDIS_REPLY_INTEGER) return reply_->integer;
  int64_t value = 0;
  return absl::SimpleAtoi(text(), &value) ? value : 0;
}

void RedisReply::Free::operator()(redisReply* reply) const { freeReplyObject(reply); }

void RedisLink::Free::operator()(redisContext* context) const { redisFree(context); }

RedisLink::~RedisLink() = default;

absl::StatusOr<std::unique_ptr<RedisLink>> RedisLink::Connect(const Options& options) {
  const RedisAddress& address = options.address;
  auto link = std::unique_ptr<RedisLink>(new RedisLink(redisConnectWithTimeout(
      address.host.c_str(), address.port, absl::ToTimeval(options.connect_timeout))));
  if (link->context_ == nullptr) return absl::InternalError("out of memory for a Redis connection");
  if (link->context_->err != 0) {
    return absl::UnavailableError(absl::StrCat("cannot connect: ", link->context_->errstr));
  }
  redisSetTimeout(link->context_.get(), absl::ToTimeval(options.answer_timeout));
  redisEnableKeepAlive(link->context_.get());
  if (!address.password.empty()) {
    std::vector<std::string> login = {"AUTH"};
    if (!address.user.empty()) login.push_back(address.user);
    login.push_back(address.password);
    RETURN_IF_ERROR(link->Call(login).status());
  }
  if (address.database != 0) {
    RETURN_IF_ERROR(link->Call({"SELECT", absl::StrCat(address.database)}).status());
  }
  return link;
}

void RedisLink::Send(absl::Span<const std::string> command) {
  std::vector<const char*> parts;
  std::vector<size_t> sizes;
  for (const std::string& part : command) {
    parts.push_back(part.data());
    sizes.push_back(part.size());
  }
  if (redisAppendCommandArgv(context_.get(), static_cast<int>(parts.size()), parts.data(),
                             sizes.data()) != REDIS_OK) {
    broken_ = true;
  }
}

absl::StatusOr<RedisReply> RedisLink::Receive() {
  void* raw = nullptr;
  if (broken_ || redisGetReply(context_.get(), &raw) != REDIS_OK) {
    broken_ = true;
    const char* reason = context_->err == 0 ? "it is closed" : context_->errstr;
    return absl::UnavailableError(absl::StrCat("connection lost: ", reason));
  }
  RedisReply reply(static_cast<redisReply*>(raw));
  const redisReply& answer = *static_cast<redisReply*>(raw);
  if (answer.type != REDIS_REPLY_ERROR) return reply;
  const absl::string_view error(answer.str, answer.len);
  return absl::Status(CodeOf(error), error);
}

absl::StatusOr<RedisReply> RedisLink::Call(const std::vector<std::string>& command) {
  Send(command);
  return Receive();
}

}  // namespace tidepool::service

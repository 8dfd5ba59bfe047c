// RedisLink: one connection to a Redis server, over hiredis, with replies and statuses of ours.
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_LINK_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_LINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "service/store/redis_address.h"

struct redisContext;
struct redisReply;

namespace tidepool::service {

// A view of a reply, or of a part of one; the RedisReply that it is of outlives it. What is not
// there, or of another kind, reads as empty or 0. Thread-compatible.
class RedisValue {
 public:
  explicit RedisValue(const redisReply* reply) : reply_(reply) {}

  bool is_array() const;
  size_t size() const;  // of an array
  RedisValue operator[](size_t i) const;
  absl::string_view text() const;
  // An integer reply, or a text that is one.
  int64_t integer() const;

 private:
  const redisReply* reply_;  // null: nothing
};

// Owns a reply. Never an error: those are statuses.
class RedisReply {
 public:
  explicit RedisReply(redisReply* reply) : reply_(reply) {}
  RedisValue value() const { return RedisValue(reply_.get()); }

 private:
  struct Free {
    void operator()(redisReply* reply) const;
  };
  std::unique_ptr<redisReply, Free> reply_;
};

// Thread-compatible. A write to a connection that the server closed raises SIGPIPE: the process
// ignores it, or the thread blocks it. After an error of the connection (`broken`) no call succeeds
// any more.
class RedisLink {
 public:
  struct Options {
    RedisAddress address;
    absl::Duration connect_timeout = absl::Seconds(2);
    // Of one answer; a server that is silent for longer counts as lost.
    absl::Duration answer_timeout = absl::Seconds(3);
  };

  // Connects, logs in, selects the database. UNAVAILABLE: the server cannot be reached, or is still
  // loading; FAILED_PRECONDITION: it refuses the login or the database.
  static absl::StatusOr<std::unique_ptr<RedisLink>> Connect(const Options& options);
  ~RedisLink();

  // Commands are collected until the first Receive, which sends them; answers come in their order.
  void Send(absl::Span<const std::string> command);
  // UNAVAILABLE: the connection broke, and whether the command ran is not known, or the server
  // cannot serve yet or became a replica; RESOURCE_EXHAUSTED: its memory or disk is full;
  // FAILED_PRECONDITION: a permission is missing; INTERNAL: another error that the server told.
  absl::StatusOr<RedisReply> Receive();
  absl::StatusOr<RedisReply> Call(const std::vector<std::string>& command);

  bool broken() const { return broken_; }

 private:
  struct Free {
    void operator()(redisContext* context) const;
  };
  explicit RedisLink(redisContext* context) : context_(context) {}

  std::unique_ptr<redisContext, Free> context_;
  bool broken_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_LINK_H_

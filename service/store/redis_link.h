// RedisLink: one connection to a Redis server. It wraps hiredis with RAII and absl::Status.
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

// A view of a RedisReply or of a part of it. The reply must outlive the view. If a part is missing
// or has another type, its value is empty or 0. Thread-compatible.
class RedisValue {
 public:
  explicit RedisValue(const redisReply* reply) : reply_(reply) {}

  bool is_array() const;
  size_t size() const;  // number of elements, if this is an array
  RedisValue operator[](size_t i) const;
  absl::string_view text() const;
  // Returns the value of an integer reply, or of a text that contains an integer.
  int64_t integer() const;

 private:
  const redisReply* reply_;  // null: this part of the reply is missing
};

// Owns a reply that is not an error.
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

// Thread-compatible. If the server has closed the connection, a write to it raises SIGPIPE. So the
// process must ignore this signal, or the thread must block it. After an error of the connection,
// broken() is true, and every call fails.
class RedisLink {
 public:
  struct Options {
    RedisAddress address;
    absl::Duration connect_timeout = absl::Seconds(2);
    // If a response takes longer than this, the connection counts as broken.
    absl::Duration answer_timeout = absl::Seconds(3);
  };

  // Connects, logs in and selects the database. UNAVAILABLE if the server cannot be reached or is
  // still loading its data. FAILED_PRECONDITION if it refuses the login or the database.
  static absl::StatusOr<std::unique_ptr<RedisLink>> Connect(const Options& options);
  ~RedisLink();

  // Queues a command. The first Receive sends all queued commands. Responses arrive in the same
  // order.
  void Send(absl::Span<const std::string> command);
  // Returns the next response. UNAVAILABLE if the server is not ready or has become a replica, or
  // if the connection broke. After a broken connection, it is not known whether the command has
  // run. RESOURCE_EXHAUSTED if the server's memory or disk is full. FAILED_PRECONDITION if a
  // permission is missing. INTERNAL for any other error of the server.
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

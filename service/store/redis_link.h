// RedisLink: one connection to a Redis server. Wraps hiredis with RAII and absl::Status.
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

// A view of a RedisReply, or of a part of it. The reply outlives the view. A missing part, or one
// of another type, reads as empty or 0. Thread-compatible.
class RedisValue {
 public:
  explicit RedisValue(const redisReply* reply) : reply_(reply) {}

  bool is_array() const;
  size_t size() const;  // of an array
  RedisValue operator[](size_t i) const;
  absl::string_view text() const;
  // The value of an integer reply, or of a text that is an integer.
  int64_t integer() const;

 private:
  const redisReply* reply_;  // null: nothing
};

// Owns a reply, which is not an error.
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

// Thread-compatible. A write to a connection that the server closed raises SIGPIPE, so the process
// must ignore it or the thread must block it. After an error of the connection (`broken`) every
// call fails.
class RedisLink {
 public:
  struct Options {
    RedisAddress address;
    absl::Duration connect_timeout = absl::Seconds(2);
    // If a response takes longer, the connection counts as broken.
    absl::Duration answer_timeout = absl::Seconds(3);
  };

  // Connects, logs in, selects the database. UNAVAILABLE: the server cannot be reached, or is still
  // loading; FAILED_PRECONDITION: it refuses the login or the database.
  static absl::StatusOr<std::unique_ptr<RedisLink>> Connect(const Options& options);
  ~RedisLink();

  // Collects commands. The first Receive sends them. Responses arrive in the same order.
  void Send(absl::Span<const std::string> command);
  // UNAVAILABLE: the connection broke and it is unknown whether the command ran, the server is not
  // ready, or it became a replica; RESOURCE_EXHAUSTED: its memory or disk is full;
  // FAILED_PRECONDITION: a permission is missing; INTERNAL: any other error of the server.
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

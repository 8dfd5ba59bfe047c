// Macros that return the error of an absl::Status to the caller.
#ifndef TIDEPOOL_KERNELS_BASE_STATUS_MACROS_H_
#define TIDEPOOL_KERNELS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TIDEPOOL_CONCAT_INNER_(a, b) a##b
#define TIDEPOOL_CONCAT_(a, b) TIDEPOOL_CONCAT_INNER_(a, b)

// If `expr` is an error, returns it from the enclosing function.
#define RETURN_IF_ERROR(expr)                                           \
  do {                                                                  \
    if (::absl::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()) declares or assigns x from a StatusOr. If that is an error, returns
// the error from the enclosing function.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL_(TIDEPOOL_CONCAT_(status_or_, __LINE__), lhs, expr)

// `lhs` may be a declaration and `result` is a name, so neither can be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ASSIGN_OR_RETURN_IMPL_(result, lhs, expr)      \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)

#endif  // TIDEPOOL_KERNELS_BASE_STATUS_MACROS_H_

// Macros that pass an absl::Status up the stack.
#ifndef TIDEPOOL_KERNELS_BASE_STATUS_MACROS_H_
#define TIDEPOOL_KERNELS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TIDEPOOL_CONCAT_INNER_(a, b) a##b
#define TIDEPOOL_CONCAT_(a, b) TIDEPOOL_CONCAT_INNER_(a, b)

// Returns from the enclosing function if `expr` is an error.
#define RETURN_IF_ERROR(expr)                                           \
  do {                                                                  \
    if (::absl::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): declares or assigns x from a StatusOr, or returns its error.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL_(TIDEPOOL_CONCAT_(status_or_, __LINE__), lhs, expr)

// `lhs` may declare a variable, and `result` names one: neither can be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ASSIGN_OR_RETURN_IMPL_(result, lhs, expr)      \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)

#endif  // TIDEPOOL_KERNELS_BASE_STATUS_MACROS_H_

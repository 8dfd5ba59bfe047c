// CHECK: ends the process if an invariant of our own code is broken. It prints the source line and
// the reason. Never use it for external input: return an absl::Status instead.
//
//   CHECK(slot < slots) << "slot " << slot << " of " << slots;
#ifndef TIDEPOOL_KERNELS_BASE_CHECK_H_
#define TIDEPOOL_KERNELS_BASE_CHECK_H_

#include <memory>
#include <sstream>

namespace tidepool::base {

// Collects the message of a failed CHECK, and ends the process when it is destroyed. Only the
// macros use it.
class CheckFailure {
 public:
  // Not inlined, so that a CHECK costs only the evaluation of its condition and a branch.
  CheckFailure(const char* file, int line, const char* condition);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();
  std::ostream& stream();

 private:
  const std::unique_ptr<std::ostringstream> message_;
};

// Gives both branches of CHECK's conditional operator the type void.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace tidepool::base

// The caller appends a message with <<, so the replacement text cannot be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define CHECK(condition)                      \
  (condition) ? (void)0                       \
              : ::tidepool::base::Voidify() & \
                    ::tidepool::base::CheckFailure(__FILE__, __LINE__, #condition).stream()
// NOLINTEND(bugprone-macro-parentheses)
// DCHECK is CHECK in debug builds, which include those of the sanitizers. Other builds do not
// evaluate the condition.
#ifdef NDEBUG
#define DCHECK(condition) CHECK(true || (condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif
#define CHECK_OP_(a, op, b) CHECK((a)op(b)) << (a) << " vs " << (b) << " "
#define CHECK_EQ(a, b) CHECK_OP_(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP_(a, !=, b)
#define CHECK_LT(a, b) CHECK_OP_(a, <, b)
#define CHECK_LE(a, b) CHECK_OP_(a, <=, b)
#define CHECK_GT(a, b) CHECK_OP_(a, >, b)
#define CHECK_GE(a, b) CHECK_OP_(a, >=, b)
#define CHECK_OK(expr)                                           \
  do {                                                           \
    const auto& check_ok_status_ = (expr);                       \
    CHECK(check_ok_status_.ok()) << check_ok_status_.ToString(); \
  } while (false)

#endif  // TIDEPOOL_KERNELS_BASE_CHECK_H_

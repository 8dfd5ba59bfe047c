// libFuzzer target: any bytes as a token file. A valid file keeps its principals when it is
// written again; an error is one line.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:token_table_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/auth/token_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tidepool::service::TokenTable;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<TokenTable> table = TokenTable::Parse(text);
  if (!table.ok()) {
    CHECK(absl::IsInvalidArgument(table.status()));
    CHECK(!absl::StrContains(table.status().message(), "\n"));
    return 0;
  }
  CHECK_GT(table->size(), 0u);
  // SHA-256 of "abc", which the corpus holds.
  const absl::StatusOr<tidepool::service::Caller> caller = table->Find("abc", absl::UnixEpoch());
  if (!caller.ok()) {
    CHECK(absl::IsUnauthenticated(caller.status()));
    return 0;
  }
  CHECK(tidepool::service::CheckPrincipal(caller->principal).ok());
  CHECK(caller->role.has_value());
  const std::string line = tidepool::service::TokenLine(
      *caller, tidepool::service::HashToken("abc"), absl::InfiniteFuture());
  const absl::StatusOr<TokenTable> again = TokenTable::Parse(line);
  CHECK(again.ok()) << line;
  CHECK(again->Find("abc", absl::UnixEpoch())->limits == caller->limits);
  return 0;
}

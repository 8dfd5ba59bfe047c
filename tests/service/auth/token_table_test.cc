#include "service/auth/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);  // 2027-01-15

std::string HashOf(absl::string_view token) { return HashText(HashToken(token)); }

std::string Complaint(absl::string_view text) {
  const absl::StatusOr<TokenTable> table = TokenTable::Parse(text);
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(table.status().message());
}

TEST(TokenTableTest, HashIsSha256InHex) {
  // FIPS 180-4's example, as `printf abc | sha256sum` prints it.
  EXPECT_EQ(HashOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(TokenTableTest, FindsWhoseTokenItIs) {
  const auto table = TokenTable::Parse(
      absl::StrCat("# people\n\nalice\tuser ", HashOf("a1"), " rate=60 concurrency=4 # laptop\r\n",
                   "alice user ", HashOf("a2"), " concurrency=4 rate=60\n", "  ops admin ",
                   HashOf("o"), " max_priority=-7\nfront front ", HashOf("f")));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size(), 4);
  for (const char* token : {"a1", "a2"}) {
    const auto alice = table->Find(token, kNow);
    ASSERT_TRUE(alice.ok()) << alice.status();
    EXPECT_EQ(alice->principal, "alice");
    EXPECT_EQ(alice->role, Role::kUser);
    EXPECT_EQ(alice->limits.per_minute, 60);
    EXPECT_EQ(alice->limits.at_once, 4);
    EXPECT_EQ(alice->limits.max_priority, 0);
  }
  EXPECT_EQ(table->Find("o", kNow)->role, Role::kAdmin);
  EXPECT_EQ(table->Find("o", kNow)->limits.max_priority, -7);
  EXPECT_EQ(table->Find("f", kNow)->role, Role::kFront);
}

TEST(TokenTableTest, UnknownTokensAreUnauthenticatedAndNotRepeated) {
  const auto table = TokenTable::Parse(absl::StrCat("a user ", HashOf("right")));
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE(absl::IsUnauthenticated(table->Find("", kNow).status()));
  for (const std::string& token : {std::string("wrong-secret"), HashOf("right")}) {
    const absl::Status status = table->Find(token, kNow).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << token;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(token)));
  }
}

TEST(TokenTableTest, TokensExpire) {
  const auto table =
      TokenTable::Parse(absl::StrCat("a user ", HashOf("day"), " expires=2027-01-15\na user ",
                                     HashOf("time"), " expires=2027-01-15T08:00:01Z"));
  ASSERT_TRUE(table.ok()) << table.status();
  const absl::Status expired = table->Find("day", kNow).status();
  EXPECT_EQ(expired.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(expired.message()), HasSubstr("2027-01-15 00:00 UTC"));
  EXPECT_TRUE(table->Find("time", kNow).ok());
  EXPECT_FALSE(table->Find("time", kNow + absl::Seconds(1)).ok());
}

TEST(TokenTableTest, FaultsNameTheLine) {
  const std::string hash = HashOf("x");
  EXPECT_THAT(Complaint(""), HasSubstr("no token"));
  EXPECT_THAT(Complaint("# nothing\n\n"), HasSubstr("no token"));
  EXPECT_THAT(Complaint("\na user"), AllOf(HasSubstr("line 2"), HasSubstr("principal role")));
  EXPECT_THAT(Complaint(absl::StrCat("a root ", hash)), HasSubstr("user, admin or front"));
  EXPECT_THAT(Complaint(absl::StrCat("a/b user ", hash)), HasSubstr("a principal must be"));
  EXPECT_THAT(Complaint(absl::StrCat(std::string(65, 'a'), " user ", hash)), HasSubstr("1 to 64"));
  EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, " rate=0")), HasSubstr("rate= must be"));
  EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, " concurrency=many")),
              HasSubstr("concurrency= must be"));
  for (const char* wrong : {"101", "-101", "high", ""}) {
    EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, " max_priority=", wrong)),
                HasSubstr("max_priority= must be a number from -100 to 100"));
  }
  EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, " expires=soon")), HasSubstr("expiry"));
  EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, " burst=3")), HasSubstr("rate="));
  EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, "\nb user ", hash)),
              AllOf(HasSubstr("line 2"), HasSubstr("line 1")));
  EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, "\na admin ", HashOf("y"))),
              AllOf(HasSubstr("line 2"), HasSubstr("line 1")));
  for (const char* limit : {"rate=1", "max_priority=1"}) {
    EXPECT_THAT(Complaint(absl::StrCat("a user ", hash, " ", limit, "\na user ", HashOf("y"))),
                HasSubstr("agree"));
  }
}

TEST(TokenTableTest, FaultsNeverRepeatASecret) {
  EXPECT_THAT(Complaint("alice user tp-the-token-itself"),
              AllOf(HasSubstr("SHA-256"), Not(HasSubstr("itself"))));
  EXPECT_THAT(Complaint("tp-the-token-itself/ user"), Not(HasSubstr("itself")));
}

TEST(TokenTableTest, HoldsAsManyTokensAsItSays) {
  std::string text;
  for (size_t i = 0; i < TokenTable::kMaxTokens; ++i) {
    absl::StrAppend(&text, "p", i, " user ", HashOf(absl::StrCat(i)), "\n");
  }
  ASSERT_TRUE(TokenTable::Parse(text).ok());
  EXPECT_THAT(Complaint(absl::StrCat(text, "one-more user ", HashOf("more"))),
              HasSubstr("more than 8192"));
}

TEST(TokenTableTest, DrawnTokensAndTheirLinesFit) {
  std::set<std::string> drawn;
  for (int i = 0; i < 100; ++i) drawn.insert(*DrawToken());
  EXPECT_EQ(drawn.size(), 100);
  const std::string token = *drawn.begin();
  EXPECT_EQ(token.size(), 46);
  const Caller caller = {.principal = "bob@example.org",
                         .role = Role::kAdmin,
                         .limits = {.per_minute = 5, .at_once = 2, .max_priority = 9}};
  const auto expires = ParseExpiry("2027-02-01T10:00:00Z");
  ASSERT_TRUE(expires.ok());
  const std::string line = TokenLine(caller, HashToken(token), *expires);
  EXPECT_THAT(line, Not(HasSubstr(token)));
  const auto table = TokenTable::Parse(line);
  ASSERT_TRUE(table.ok()) << table.status();
  const auto found = table->Find(token, *expires - absl::Seconds(1));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->principal, caller.principal);
  EXPECT_EQ(found->limits, caller.limits);
  EXPECT_FALSE(table->Find(token, *expires).ok());
}

TEST(CheckAccessTest, EachRoleMayCallItsMethods) {
  const auto may = [](Role role, Access access) {
    const absl::Status status = CheckAccess({.principal = "p", .role = role}, access);
    EXPECT_TRUE(status.ok() || absl::IsPermissionDenied(status));
    return status.ok();
  };
  const std::pair<Access, std::set<Role>> table[] = {
      {Access::kClients, {Role::kUser, Role::kAdmin}},
      {Access::kOperators, {Role::kAdmin}},
      {Access::kFronts, {Role::kFront}},
      {Access::kOperatorsOrFronts, {Role::kAdmin, Role::kFront}}};
  for (const auto& [access, roles] : table) {
    for (const Role role : {Role::kUser, Role::kAdmin, Role::kFront}) {
      EXPECT_EQ(may(role, access), roles.count(role) > 0)
          << RoleName(role) << " " << static_cast<int>(access);
    }
    EXPECT_TRUE(CheckAccess(Caller(), access).ok());  // without authentication
  }
}

}  // namespace
}  // namespace tidepool::service

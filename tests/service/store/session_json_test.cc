#include "service/store/session_json.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "service/store/session_check.h"

namespace tidepool::service {
namespace {

SessionLogData Chat() {
  SessionLogData log;
  log.info = {.session_id = "s",
              .principal = "ann",
              .model = "m",
              .model_digest = "d",
              .kind = SessionKind::kChat,
              .create_time = absl::FromUnixMicros(1'700'000'000'000'001),
              .update_time = absl::FromUnixMicros(1'700'000'100'000'000),
              .token_count = 7,
              .turn_count = 2};
  log.token_ids = {1, 2, 3, 4, 9, 8, 2'147'483'647};
  log.turns = {{.request_id = "r1",
                .start = 0,
                .output_start = 4,
                .end = 6,
                .messages = {{.role = "user", .content = "\xC3\xA4\n\"", .name = "ann"}},
                .response = "yes",
                .finish = TurnFinish::kStop,
                .body_digest = "0a",
                .numerics_id = "avx2"},
               {.request_id = "r2",
                .start = 4,
                .output_start = 5,
                .end = 7,
                .messages = {{.role = "tool", .content = "", .tool_calls_json = "[]"}},
                .finish = TurnFinish::kCancelled}};
  return log;
}

absl::StatusOr<std::vector<std::string>> Import(const std::string& text,
                                                std::vector<SessionLogData>* sessions) {
  std::istringstream in(text);
  return ReadExport(in, [sessions](SessionLogData session) {
    sessions->push_back(std::move(session));
    return absl::OkStatus();
  });
}

TEST(SessionJsonTest, ASessionComesBackAsItWas) {
  const SessionLogData log = Chat();
  const std::string line = SessionToJson(log);
  EXPECT_FALSE(absl::StrContains(line, "\n"));
  const auto read = SessionFromJson(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->token_ids, log.token_ids);
  EXPECT_EQ(read->turns, log.turns);
  EXPECT_EQ(read->info.create_time, log.info.create_time);
  EXPECT_EQ(read->info.update_time, log.info.update_time);
  EXPECT_EQ(read->info.principal, "ann");
  EXPECT_EQ(read->info.kind, SessionKind::kChat);
  EXPECT_EQ(SessionToJson(*read), line);
  // The second turn has the fields that an older program wrote.
  EXPECT_EQ(read->turns[1].body_digest, "");
  EXPECT_EQ(line.find("body_digest"), line.rfind("body_digest"));
}

// Returns the line as an older program would have written it, or a person who has changed it.
std::string WithoutHash(const std::string& line) {
  return absl::StrCat(line.substr(0, line.rfind(",\"hash\":")), "}");
}

TEST(SessionJsonTest, ReadsAnExportLineByLine) {
  const std::string line = SessionToJson(Chat());
  std::vector<SessionLogData> sessions;
  const std::string whole = absl::StrCat(ExportHead(), "\n", line, "\n", line, "\n", ExportEnd(2));
  EXPECT_EQ(*Import(whole, &sessions), std::vector<std::string>());
  EXPECT_EQ(*Import(absl::StrCat(whole, "\n"), &sessions), std::vector<std::string>());
  EXPECT_EQ(sessions.size(), 4);
}

TEST(SessionJsonTest, ADamagedLineDoesNotKeepOthersFromBeingRead) {
  const std::string line = SessionToJson(Chat());
  const std::string bad = absl::StrReplaceAll(WithoutHash(line), {{"\"start\":4", "\"start\":7"}});
  // If a line break is missing, two sessions are in one line.
  const std::string joined =
      absl::StrCat(line, "*", absl::StrReplaceAll(line, {{"\"s\"", "\"z\""}}));
  std::vector<SessionLogData> sessions;
  const auto faults = Import(absl::StrCat(ExportHead(), "\n", bad, "\n", line, "\n", joined, "\n",
                                          line, "\n", ExportEnd(5)),
                             &sessions);
  ASSERT_TRUE(faults.ok()) << faults.status();
  EXPECT_EQ(sessions.size(), 2);
  ASSERT_EQ(faults->size(), 3);
  EXPECT_TRUE(absl::StartsWith((*faults)[0], "line 2, session 's': turn 1 begins at 7"))
      << (*faults)[0];
  EXPECT_TRUE(
      absl::StartsWith((*faults)[1], "line 4, session 's' and session 'z': it is not a JSON"))
      << (*faults)[1];
  EXPECT_EQ((*faults)[2], "line 6: it states 5 sessions, but 4 precede it");
}

TEST(SessionJsonTest, AHashDetectsAChange) {
  const std::string line = SessionToJson(Chat());
  EXPECT_TRUE(SessionFromJson(WithoutHash(line)).ok());
  const std::string changed =
      absl::StrReplaceAll(line, {{"\"principal\":\"ann\"", "\"principal\":\"bnn\""}});
  ASSERT_NE(changed, line);
  EXPECT_TRUE(SessionFromJson(WithoutHash(changed)).ok());
  std::vector<SessionLogData> sessions;
  const auto faults =
      Import(absl::StrCat(ExportHead(), "\n", changed, "\n", ExportEnd(1)), &sessions);
  ASSERT_TRUE(faults.ok()) << faults.status();
  ASSERT_EQ(faults->size(), 1);
  EXPECT_TRUE(absl::StartsWith((*faults)[0], "line 2, session 's': it does not match its hash"))
      << (*faults)[0];
  EXPECT_TRUE(sessions.empty());
  // A hash that is not at the end of its line cannot be compared.
  const std::string moved = absl::StrCat("{\"hash\":\"x\",", WithoutHash(line).substr(1));
  EXPECT_EQ(SessionFromJson(moved).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SessionJsonTest, ADamagedLineIsNamedAsUtf8) {
  const std::string line = SessionToJson(Chat());
  const std::string nameless = absl::StrReplaceAll(line, {{"\"session_id\"", "\"session\xe9id\""}});
  const std::string renamed = absl::StrReplaceAll(line, {{"id\":\"s\"", "id\":\"\xf3\""}});
  std::vector<SessionLogData> sessions;
  const auto faults = Import(
      absl::StrCat(ExportHead(), "\n", nameless, "\n", renamed, "\n", ExportEnd(2)), &sessions);
  ASSERT_TRUE(faults.ok()) << faults.status();
  ASSERT_EQ(faults->size(), 2);
  EXPECT_TRUE(
      absl::StartsWith((*faults)[0], "line 2, which begins with '{\"session\\xe9id\":\"s\""))
      << (*faults)[0];
  EXPECT_TRUE(absl::StartsWith((*faults)[1], "line 3, session '\\xf3': it is not a JSON"))
      << (*faults)[1];
}

TEST(SessionJsonTest, RefusesInvalidSessions) {
  const std::string line = WithoutHash(SessionToJson(Chat()));
  const std::pair<const char*, const char*> changes[] = {
      {"\"start\":0", "\"start\":-1"},
      {"\"start\":0", "\"start\":1.5"},
      {"\"start\":0", "\"start\":18446744073709551615"},
      {"\"end\":7", "\"end\":6"},
      {"\"output_start\":4", "\"output_start\":9"},
      {"\"kind\":\"CHAT\"", "\"kind\":\"TOKENS\""},
      {"\"kind\":\"CHAT\"", "\"kind\":\"NEW\""},
      {"\"kind\":\"CHAT\"", "\"kind\":3"},
      {"\"finish\":\"STOP\"", "\"finish\":\"RUNNING\""},
      {"\"finish\":\"STOP\"", "\"finish\":\"stop\""},
      {"2147483647", "2147483648"},
      {"[1,2,", "[-1,2,"},
      {"[1,2,", "[1,2,3,"},
      {"[1,2,", "[\"1\",2,"},
      {"\"session_id\":\"s\"", "\"session_id\":\"a b\""},
      {"\"session_id\":\"s\"", "\"session\":\"s\""},
      {"\"model\":\"m\"", "\"model\":\"\""},
      {"\"create_time\":\"2023", "\"create_time\":\"2024"},
      {"\"create_time\":\"2023", "\"create_time\":\"infinite-"},
      {"\"role\":\"user\"", "\"rule\":\"user\""},
      {"\"body_digest\":\"0a\"", "\"body_digest\":10"},
      {"\"numerics_id\":\"avx2\"", "\"numerics_id\":null"},
      {"\"messages\":[{\"content\":\"\"", "\"messages\":[[[[[[]]]]]],\"x\":[{\"content\":\"\""},
  };
  for (const auto& [from, to] : changes) {
    const std::string changed = absl::StrReplaceAll(line, {{from, to}});
    ASSERT_NE(changed, line) << from;
    EXPECT_EQ(SessionFromJson(changed).status().code(), absl::StatusCode::kInvalidArgument) << to;
  }
  EXPECT_FALSE(SessionFromJson("").ok());
  EXPECT_FALSE(SessionFromJson(std::string(100'000, '[')).ok());
}

TEST(SessionCheckTest, CountsThatDifferFromTheLogAreRefused) {
  EXPECT_TRUE(CheckSession(Chat()).ok());
  SessionLogData log = Chat();
  log.info.token_count = 8;
  EXPECT_FALSE(CheckSession(log).ok());
  log = Chat();
  log.info.turn_count = 1;
  EXPECT_FALSE(CheckSession(log).ok());
  // This session was truncated to before a turn that had truncated the turn before it.
  log = Chat();
  log.turns.resize(1);
  log.token_ids.resize(4);
  log.info.token_count = 4;
  log.info.turn_count = 1;
  EXPECT_TRUE(CheckSession(log).ok());
}

}  // namespace
}  // namespace tidepool::service

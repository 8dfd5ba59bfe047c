#include "service/auth/server_security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "service/auth/token_table.h"

namespace tidepool::service {
namespace {

using testing::HasSubstr;

class ServerSecurityTest : public testing::Test {
 protected:
  // Replaces the file in one step, as an operator should.
  void Write(const std::string& text) {
    const std::string part = path_ + ".part";
    std::ofstream(part) << text;
    ASSERT_EQ(std::rename(part.c_str(), path_.c_str()), 0);
  }
  static std::string Line(const std::string& token) {
    return absl::StrCat("alice user ", HashText(HashToken(token)), "\n");
  }

  ServerSecurityOptions Options() {
    return {.token_file = path_, .log = [this](LogLevel, absl::string_view line) {
              base::MutexLock lock(&mutex_);
              lines_.emplace_back(line);
              logged_.NotifyAll();
            }};
  }
  // Waits for the next line of the log and returns it.
  std::string NextLine() {
    base::MutexLock lock(&mutex_);
    while (lines_.empty()) {
      if (!logged_.WaitFor(&mutex_, absl::Seconds(30))) return "no log line";
    }
    std::string line = lines_.front();
    lines_.pop_front();
    return line;
  }

  static absl::StatusOr<Caller> Show(const Authenticator& authenticator,
                                     const std::string& authorization) {
    return authenticator.Identify({.authorization = authorization}, absl::Now());
  }

  const std::string path_ = testing::TempDir() + "/tokens";
  base::Mutex mutex_;
  base::CondVar logged_;
  std::deque<std::string> lines_ TIDEPOOL_GUARDED_BY(mutex_);
};

TEST_F(ServerSecurityTest, WithoutTokensCallersAreNotAuthenticated) {
  const auto security = ServerSecurity::Open({});
  ASSERT_TRUE(security.ok());
  EXPECT_EQ((*security)->authenticator(), nullptr);
}

// A thread is only needed if there are files that can change.
TEST_F(ServerSecurityTest, WithoutFilesNothingIsWatched) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  std::thread([] {}).join();  // a sanitizer starts its own thread after the first one
  const auto before = threads();
  const auto open = ServerSecurity::Open({.front_names = {"front"}, .log = Options().log});
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(threads(), before);

  Write(Line("t1"));
  const auto watching = ServerSecurity::Open(Options());
  ASSERT_TRUE(watching.ok()) << watching.status();
  EXPECT_EQ(threads(), before + 1);
}

TEST_F(ServerSecurityTest, ReadsBearerTokens) {
  Write(Line("t1"));
  const auto security = ServerSecurity::Open(Options());
  ASSERT_TRUE(security.ok()) << security.status();
  const Authenticator& authenticator = *(*security)->authenticator();
  EXPECT_EQ(Show(authenticator, "Bearer t1")->principal, "alice");
  EXPECT_EQ(Show(authenticator, "bearer  t1 ")->principal, "alice");
  for (const char* wrong :
       {"", "t1", "Basic t1", "Bearer", "Bearer ", "Bearer t2", "Bearer t1 t1"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(Show(authenticator, wrong).status())) << wrong;
  }
}

TEST_F(ServerSecurityTest, ReadsApiKeysLikeBearerTokens) {
  Write(Line("t1"));
  const auto security = ServerSecurity::Open(Options());
  ASSERT_TRUE(security.ok()) << security.status();
  const auto show = [&](absl::string_view authorization, absl::string_view key) {
    return (*security)->authenticator()->Identify({.authorization = authorization, .api_key = key},
                                                  absl::Now());
  };
  EXPECT_EQ(show("", "t1")->principal, "alice");
  EXPECT_EQ(show("", " t1 ")->principal, "alice");
  EXPECT_EQ(show("Bearer t1", "t1")->principal, "alice");
  EXPECT_EQ(show("Bearer t1", "")->principal, "alice");
  EXPECT_TRUE(absl::IsUnauthenticated(show("", "t2").status()));
  EXPECT_THAT(std::string(show("Bearer t1", "t2").status().message()), HasSubstr("send one"));
  EXPECT_EQ(show("Basic a-proxys-own", "t1")->principal, "alice");
}

TEST_F(ServerSecurityTest, LogsRefusedCallersAtMostOnceASecond) {
  Write(Line("t1"));
  const auto security = ServerSecurity::Open(Options());
  ASSERT_TRUE(security.ok()) << security.status();
  const Authenticator* authenticator = (*security)->authenticator();
  const auto lines = [&] {
    base::MutexLock lock(&mutex_);
    return lines_.size();
  };
  EXPECT_TRUE(Admit(authenticator, {.authorization = "Bearer t1"}, Access::kClients).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(
      Admit(authenticator, {.authorization = "Bearer t1"}, Access::kOperators).status()));
  EXPECT_EQ(lines(), 1);
  int refused = 1;
  while (lines() == 1) {
    EXPECT_TRUE(absl::IsUnauthenticated(
        Admit(authenticator, {.authorization = "Bearer t2"}, Access::kClients).status()));
    ++refused;
    std::this_thread::yield();
  }
  EXPECT_EQ(NextLine(),
            "a caller was refused: 'alice' has the role user; this call needs the role admin");
  const std::string last = NextLine();
  EXPECT_THAT(last, HasSubstr("a caller was refused: "));
  if (refused > 2) {
    EXPECT_THAT(last, HasSubstr(absl::StrCat(refused - 2, " more since the last such line")));
  }
}

TEST_F(ServerSecurityTest, AFileThatCannotBeReadIsAnErrorWithItsName) {
  std::remove(path_.c_str());
  EXPECT_THAT(std::string(ServerSecurity::Open(Options()).status().message()), HasSubstr(path_));
  Write("alice user tp-secret\n");
  const absl::Status damaged = ServerSecurity::Open(Options()).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(absl::StrCat(path_, ": line 1")));
}

TEST_F(ServerSecurityTest, ANewVersionComesIntoForceAndADamagedOneDoesNot) {
  Write(Line("old"));
  const auto security = ServerSecurity::Open(Options());
  ASSERT_TRUE(security.ok()) << security.status();
  const Authenticator& authenticator = *(*security)->authenticator();

  Write(Line("new"));
  EXPECT_THAT(NextLine(), HasSubstr("is in use"));
  EXPECT_TRUE(Show(authenticator, "Bearer new").ok());
  EXPECT_FALSE(Show(authenticator, "Bearer old").ok());

  Write("alice user\n");
  EXPECT_THAT(NextLine(), HasSubstr("the previous version stays in use"));
  EXPECT_TRUE(Show(authenticator, "Bearer new").ok());

  std::remove(path_.c_str());
  EXPECT_THAT(NextLine(), HasSubstr("cannot read"));
  EXPECT_TRUE(Show(authenticator, "Bearer new").ok());

  Write(Line("third"));
  EXPECT_THAT(NextLine(), HasSubstr("is in use"));
  EXPECT_TRUE(Show(authenticator, "Bearer third").ok());
}

}  // namespace
}  // namespace tidepool::service

#include "service/cli/reload.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/cli/flags.h"

namespace tidepool::service {
namespace {

class ReloadTest : public testing::Test {
 protected:
  // Returns the configuration with `text` as its file.
  ParsedConfig Read(absl::string_view text, std::vector<std::string> more = {}) {
    const std::string path = testing::TempDir() + "/reload.toml";
    std::ofstream(path) << text;
    std::vector<std::string> args = {"front", "--config", path};
    args.insert(args.end(), more.begin(), more.end());
    return ParseConfig(args, {.home = "/home/u"}).value();
  }
  using Strings = std::vector<std::string>;
};

TEST_F(ReloadTest, AppliesReloadableKeysAndNamesTheOthers) {
  ParsedConfig running = Read("worker = ['a:1']\nlisten = '127.0.0.1:1'\nlog-level = 'warn'\n");
  const ParsedConfig read =
      Read("worker = ['a:1', 'b:2']\nlisten = '127.0.0.1:2'\nrequest-ttl = '5s'\n");
  const ConfigChanges changes = TakeChanges(read, &running);
  EXPECT_EQ(changes.taken, Strings({"log-level", "request-ttl", "worker"}));
  EXPECT_EQ(changes.left, Strings({"listen"}));
  EXPECT_EQ(running.config.front.workers, Strings({"a:1", "b:2"}));
  EXPECT_EQ(running.config.log.level, LogLevel::kInfo) << "the default, where the file is silent";
  EXPECT_EQ(running.config.front.request_ttl, absl::Seconds(5));
  EXPECT_EQ(running.config.listen.grpc, "127.0.0.1:1");

  // The second time, the changes that were applied are not reported again. The others are.
  const ConfigChanges again = TakeChanges(read, &running);
  EXPECT_EQ(again.taken, Strings());
  EXPECT_EQ(again.left, Strings({"listen"}));
}

TEST_F(ReloadTest, TheCommandLineWinsAsAtTheStart) {
  ParsedConfig running = Read("worker = ['a:1']\n", {"--log-level", "warn"});
  const ConfigChanges changes = TakeChanges(
      Read("worker = ['a:1']\nlog-level = 'debug'\n", {"--log-level", "warn"}), &running);
  EXPECT_EQ(changes.taken, Strings());
  EXPECT_EQ(running.config.log.level, LogLevel::kWarn);
}

TEST_F(ReloadTest, FlagsThatMayChangeAreFlags) {
  Strings taken;
  for (const FlagSpec& flag : Flags()) {
    ParsedConfig running = Read("worker = ['a:1']\n");
    ParsedConfig read = running;
    read.values[std::string(flag.name)] = {"another value"};
    const ConfigChanges changes = TakeChanges(read, &running);
    taken.insert(taken.end(), changes.taken.begin(), changes.taken.end());
  }
  EXPECT_THAT(taken, testing::UnorderedElementsAre(
                         "drain-grace", "drain-timeout", "log-level", "log-prompts", "max-queued",
                         "max-session-tokens", "orphan-ttl", "request-ttl", "session-ttl", "worker",
                         "workers"));
}

}  // namespace
}  // namespace tidepool::service

// The flags for the memory of experts.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/cli/config.h"
#include "service/cli/flags.h"

namespace tidepool::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<ParsedConfig> Parse(const std::vector<std::string>& args) {
  return ParseConfig(args, {.home = "/home/u", .xdg_state_home = ""});
}

TEST(ExpertFlagsTest, ExpertsHaveAMemoryOnTheDeviceAndOneBelowIt) {
  using engine::ExpertMemoryKind;
  const auto parsed = Parse({"serve", "--model=m", "--device", "cuda", "--expert-memory", "8GiB",
                             "--host-expert-memory", "50%"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const engine::ExpertOptions& experts = parsed->config.model.experts;
  EXPECT_EQ(experts.memory.kind, ExpertMemoryKind::kBytes);
  EXPECT_EQ(experts.memory.bytes, int64_t{8} << 30);
  EXPECT_EQ(experts.host_memory.kind, ExpertMemoryKind::kShare);
  EXPECT_EQ(experts.host_memory.share, 0.5);
}

// inspect plans the memory that the flags ask for.
TEST(ExpertFlagsTest, InspectTakesThemToo) {
  const auto parsed =
      Parse({"inspect", "--model=m", "--device=cuda", "--kv-memory=1GiB", "--expert-memory=50%",
             "--host-expert-memory=auto", "--reserve-memory=1GiB"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.model.experts.host_memory.kind, engine::ExpertMemoryKind::kAuto);
  EXPECT_EQ(parsed->config.model.experts.limits.reserve_bytes, int64_t{1} << 30);
}

TEST(ExpertFlagsTest, OtherValuesAreNamed) {
  const absl::Status status =
      Parse({"serve", "--model=m", "--host-expert-memory", "half"}).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--host-expert-memory"),
                    HasSubstr("; the flag also accepts auto, or a percentage")));
}

}  // namespace
}  // namespace tidepool::service

#include "service/worker/run_log_line.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {
namespace {

class RunLogLineTest : public testing::Test {
 protected:
  RunLogLineTest() { model_.name = "model"; }

  void Start() {
    worker::v1::Start start;
    start.set_request_id("request");
    start.set_attempt(2);
    start.mutable_caller()->set_principal("alice");
    start.mutable_caller()->set_traceparent(
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    line_.OnStart(start);
  }

  WorkerModel model_;
  std::vector<std::map<std::string, std::string>> lines_;
  LogSink log_ = [this](LogLevel level, absl::string_view line, LogFields fields) {
    EXPECT_EQ(level, LogLevel::kInfo);
    EXPECT_EQ(line, "run ended");
    std::map<std::string, std::string>& texts = lines_.emplace_back();
    for (const LogField& field : fields) {
      texts[std::string(field.name)] =
          std::visit([](const auto& value) { return absl::StrCat(value); }, field.value);
    }
  };
  RunLogLine line_{&model_};
};

TEST_F(RunLogLineTest, HasTheRunAndItsUsage) {
  line_.LogTo(&log_);
  Start();
  line_.OnUsage({.prompt_tokens = 3, .completion_tokens = 1});
  line_.OnUsage({.prompt_tokens = 3, .completion_tokens = 7, .decode_time = absl::Seconds(2)});
  line_.OnEnd(absl::UnavailableError("the worker is shutting down"));
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_EQ(lines_[0]["request_id"], "request");
  EXPECT_EQ(lines_[0]["principal"], "alice");
  EXPECT_EQ(lines_[0]["attempt"], "2");
  EXPECT_EQ(lines_[0]["model"], "model");
  EXPECT_EQ(lines_[0]["prompt_tokens"], "3");
  EXPECT_EQ(lines_[0]["output_tokens"], "7");
  EXPECT_EQ(lines_[0]["decode_seconds"], "2");
  EXPECT_EQ(lines_[0]["code"], "UNAVAILABLE");
  EXPECT_EQ(lines_[0]["error"], "the worker is shutting down");
  EXPECT_EQ(lines_[0]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(lines_[0]["parent_span_id"], "b7ad6b7169203331");
}

TEST_F(RunLogLineTest, OmitsMessagesThatMayQuoteTheRequest) {
  line_.LogTo(&log_);
  Start();
  line_.OnEnd(absl::InvalidArgumentError("stop is 'secret'"));
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_EQ(lines_[0]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(lines_[0].count("error"), 0U);
}

TEST_F(RunLogLineTest, IsNotWrittenForARunWithoutAStart) {
  line_.LogTo(&log_);
  line_.OnEnd(absl::InvalidArgumentError("the first message of Run must have start"));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(RunLogLineTest, IsNotWrittenWithoutALog) {
  Start();
  line_.OnEnd(absl::OkStatus());
  EXPECT_TRUE(lines_.empty());
}

}  // namespace
}  // namespace tidepool::service

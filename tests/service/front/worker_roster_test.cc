// A front's list of workers. The test sets the addresses of DNS names.
#include "service/front/worker_roster.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class PuppetLookup final : public NameLookup {
 public:
  void Lookup(const std::string& host, Done done) override {
    asked.emplace_back(host, std::move(done));
  }
  // Responds to the oldest lookup.
  void Answer(absl::StatusOr<std::vector<std::string>> addresses) {
    const Done done = asked.front().second;
    asked.erase(asked.begin());
    done(std::move(addresses));
  }

  std::vector<std::pair<std::string, Done>> asked;
};

class WorkerRosterTest : public FrontTest {
 protected:
  WorkerRosterTest() {
    roster_ = std::make_unique<WorkerRoster>(
        WorkerRoster::Surroundings{.loop = &loop_,
                                   .clock = &clock_,
                                   .workers = core_->workers(),
                                   .lookup = &lookup_,
                                   .make_link =
                                       [this](const std::string& address, const std::string& name) {
                                         auto link = std::make_shared<PuppetLink>(address);
                                         links_[address] = link.get();
                                         names_[address] = name;
                                         return link;
                                       },
                                   .log =
                                       [this](LogLevel level, absl::string_view line) {
                                         if (level == LogLevel::kWarn) warnings_.emplace_back(line);
                                       }});
  }

  std::vector<std::string> Addresses() const {
    std::vector<std::string> addresses;
    for (const auto& member : core_->workers()->members()) {
      addresses.push_back(member->link->address());
    }
    return addresses;
  }
  std::vector<std::string> Served() const {
    std::vector<std::string> names;
    for (const auto& member : core_->workers()->members()) {
      if (core_->workers()->Health(*member) == WorkerHealth::kServing) {
        names.push_back(member->link->address());
      }
    }
    return names;
  }

  using Strings = std::vector<std::string>;
  PuppetLookup lookup_;
  std::map<std::string, PuppetLink*> links_;
  std::map<std::string, std::string> names_;
  Strings warnings_;
  std::unique_ptr<WorkerRoster> roster_;
};

TEST_F(WorkerRosterTest, EachAddressOfANameIsAWorker) {
  roster_->Set({.addresses = {"h:1"}, .names = {{"pool", 50061}}});
  EXPECT_EQ(Addresses(), Strings({"h:1"}));
  ASSERT_EQ(lookup_.asked.size(), 1);
  EXPECT_EQ(lookup_.asked[0].first, "pool");
  lookup_.Answer(Strings({"10.0.0.2", "fd00::1"}));
  EXPECT_EQ(Addresses(), Strings({"h:1", "10.0.0.2:50061", "[fd00::1]:50061"}));
  // A certificate must be valid for the DNS name. If the user gave an address, it must be valid for
  // the address.
  EXPECT_EQ(names_["[fd00::1]:50061"], "pool:50061");
  EXPECT_EQ(names_["h:1"], "");
}

TEST_F(WorkerRosterTest, ANameIsLookedUpAgainAndAgain) {
  roster_->Set({.names = {{"pool", 1}}});
  lookup_.Answer(Strings({"a"}));
  loop_.Advance(absl::Seconds(4));
  EXPECT_TRUE(lookup_.asked.empty());
  loop_.Advance(absl::Seconds(1));
  ASSERT_EQ(lookup_.asked.size(), 1);
  // Only one lookup runs at a time, even if it takes long.
  loop_.Advance(absl::Seconds(20));
  ASSERT_EQ(lookup_.asked.size(), 1);
  lookup_.Answer(Strings({"a", "b"}));
  EXPECT_EQ(Addresses(), Strings({"a:1", "b:1"}));
  loop_.Advance(absl::Seconds(5));
  EXPECT_EQ(lookup_.asked.size(), 1);
}

TEST_F(WorkerRosterTest, AWorkerThatIsLostBringsTheLookupForward) {
  roster_->Set({.names = {{"pool", 1}}});
  lookup_.Answer(Strings({"a"}));
  links_["a:1"]->SayState();
  links_["a:1"]->lose(absl::UnavailableError("gone"));
  EXPECT_TRUE(lookup_.asked.empty()) << "it was looked up this very second";
  links_["a:1"]->SayState();
  loop_.Advance(absl::Seconds(2));
  EXPECT_TRUE(lookup_.asked.empty());
  links_["a:1"]->lose(absl::UnavailableError("gone"));
  EXPECT_EQ(lookup_.asked.size(), 1);
}

TEST_F(WorkerRosterTest, ARemovedWorkerGetsNoNewWorkAndEndsItsStreams) {
  roster_->Set({.names = {{"pool", 1}}});
  lookup_.Answer(Strings({"a"}));
  PuppetLink* a = links_["a:1"];
  a->SayState();
  Client client;
  Begin(&client, Text());
  a->AnswerPrepare({1, 2});
  ASSERT_EQ(a->runs.size(), 1);

  loop_.Advance(WorkerRoster::kPeriod);
  lookup_.Answer(Strings({"b"}));
  PuppetLink* b = links_["b:1"];
  a->SayState();
  b->SayState();
  EXPECT_EQ(Served(), Strings({"b:1"}));
  Client other;
  Begin(&other, Text());
  EXPECT_EQ(b->prepares.size(), 1);
  other.generation->Cancel(absl::CancelledError("end of the test"));

  a->runs[0]->Say({10});
  client.Take();
  a->runs[0]->Say({11}, v1::LENGTH);
  client.Take();
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11}));
  EXPECT_EQ(Addresses(), Strings({"a:1", "b:1"}));
  client.generation.reset();
  loop_.RunAll();
  loop_.Advance(WorkerRoster::kPeriod);
  EXPECT_EQ(Addresses(), Strings({"b:1"}));
}

TEST_F(WorkerRosterTest, ARemovedWorkerThatIsAddedAgainServesAgain) {
  roster_->Set({.addresses = {"a:1", "b:1"}});
  links_["a:1"]->SayState();
  links_["b:1"]->SayState();
  const absl::StatusOr<PickedWorker> held = core_->workers()->Pick({.model_digest = "d"}, "");
  ASSERT_TRUE(held.ok());
  roster_->Set({});
  EXPECT_TRUE(Served().empty());
  EXPECT_EQ(Addresses(), Strings({held->link->address()}));
  roster_->Set({.addresses = {held->link->address()}});
  EXPECT_EQ(Served(), Strings({held->link->address()}));
  EXPECT_EQ(core_->workers()->members()[0]->link.get(), held->link);
}

TEST_F(WorkerRosterTest, ANameThatCannotBeLookedUpKeepsItsAddresses) {
  roster_->Set({.names = {{"pool", 1}}});
  lookup_.Answer(Strings({"a"}));
  for (int i = 0; i < 3; ++i) {
    loop_.Advance(WorkerRoster::kPeriod);
    lookup_.Answer(absl::UnavailableError("cannot look up pool: no answer"));
  }
  EXPECT_EQ(Addresses(), Strings({"a:1"}));
  ASSERT_EQ(warnings_.size(), 1) << "once, not every five seconds";
  EXPECT_TRUE(absl::StrContains(warnings_[0], "cannot look up pool: no answer"));
  loop_.Advance(WorkerRoster::kPeriod);
  lookup_.Answer(Strings({"a"}));
  loop_.Advance(WorkerRoster::kPeriod);
  lookup_.Answer(absl::UnavailableError("cannot look up pool: no answer"));
  EXPECT_EQ(warnings_.size(), 2);
}

TEST_F(WorkerRosterTest, ALookupOfARemovedNameIsIgnored) {
  roster_->Set({.names = {{"pool", 1}}});
  roster_->Set({});
  lookup_.Answer(Strings({"a"}));
  EXPECT_TRUE(Addresses().empty());
  roster_->Set({.names = {{"pool", 1}}});
  const NameLookup::Done late = lookup_.asked[0].second;
  roster_.reset();
  late(Strings({"a"}));
  EXPECT_TRUE(Addresses().empty());
}

TEST(SystemLookupTest, FindsThisMachineAndNamesUnknownHosts) {
  EventLoop loop;
  std::unique_ptr<NameLookup> lookup = MakeSystemLookup(&loop);
  const auto ask = [&](const std::string& host) {
    std::promise<absl::StatusOr<std::vector<std::string>>> answer;
    lookup->Lookup(host, [&](auto addresses) { answer.set_value(std::move(addresses)); });
    return answer.get_future().get();
  };
  EXPECT_EQ(*ask("127.0.0.1"), std::vector<std::string>({"127.0.0.1"}));
  const auto local = ask("localhost");
  ASSERT_TRUE(local.ok()) << local.status();
  for (const std::string& address : *local) EXPECT_TRUE(address == "127.0.0.1" || address == "::1");
  const auto unknown = ask("no-such-name.invalid");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(unknown.status().message(), "no-such-name.invalid"));
}

}  // namespace
}  // namespace tidepool::service

// Flips bits and zeroes pages in the files of a store, depending on a seed, and checks the effect
// of each. A client must never get wrong data without an error or a line in the log.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/store/session_json.h"
#include "service/store/sqlite_db.h"
#include "service/store/sqlite_session_store.h"
#include "tests/service/store/sample_sessions.h"
#include "tests/service/store/store_calls.h"

#ifndef TIDEPOOL_FLIPS
#define TIDEPOOL_FLIPS 150
#endif

namespace tidepool::service {
namespace {

constexpr size_t kPage = 4096;
constexpr const char* kFiles[] = {"", "-wal", "-commits"};

// The files of one store. The keys are their suffixes.
using Files = std::map<std::string, std::string>;

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class StoreDamageTest : public testing::Test {
 protected:
  StoreDamageTest() {
    std::string folder = absl::StrCat(testing::TempDir(), "/damage_XXXXXX");
    folder_ = mkdtemp(folder.data());
    path_ = (folder_ / "sessions.db").string();
  }
  ~StoreDamageTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionStore> Open() {
    log_.clear();
    auto store = SqliteSessionStore::Open(
        {.path = path_, .log = [this](absl::string_view line) { log_.emplace_back(line); }});
    open_status_ = store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  Files Load() const {
    Files files;
    for (const char* suffix : kFiles) {
      if (std::filesystem::exists(path_ + suffix)) files[suffix] = ReadBytes(path_ + suffix);
    }
    return files;
  }

  void Put(const Files& files) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::filesystem::remove(entry.path());
    }
    for (const auto& [suffix, bytes] : files) {
      std::ofstream(path_ + suffix, std::ios::binary) << bytes;
    }
  }

  // Returns the contents of each session in an undamaged store.
  std::map<std::string, std::string> Expect(const Files& files) {
    Put(files);
    const auto store = Open();
    EXPECT_TRUE(log_.empty()) << log_.front();
    EXPECT_TRUE(Verify(*store)->empty()) << Verify(*store)->front();
    std::map<std::string, std::string> told;
    for (int i = 0; i < kSamples; ++i) {
      const auto log = Get(*store, SampleId(i), SampleOwner(i));
      EXPECT_TRUE(log.ok()) << log.status();
      told[SampleId(i)] = Told(*log);
    }
    return told;
  }

  // Reads one session and returns the outcome: the same contents, an error, or something else.
  Outcome Look(SessionStore* store, int i, const std::string& expected) {
    const auto log = Get(*store, SampleId(i), SampleOwner(i));
    if (!log.ok()) {
      // NOT_FOUND does not report damage. A line in the log at the start does.
      const bool told = !absl::IsNotFound(log.status()) || !log_.empty();
      EXPECT_FALSE(absl::IsInvalidArgument(log.status())) << log.status();
      return told ? Outcome::kNoticed : Outcome::kSilent;
    }
    if (Told(*log) != expected) return Outcome::kSilent;
    Answer<OpenTurn> begun;
    store->BeginTurn({.session_id = SampleId(i), .principal = SampleOwner(i), .request_id = "new"},
                     begun.Taker());
    const auto open = begun.Get();
    if (!open.ok()) return Outcome::kNoticed;
    SessionLogData opened = open->log;
    EndAbandonedTurn(&opened);
    return Told(opened) == expected ? Outcome::kNoEffect : Outcome::kSilent;
  }

  Outcome LookAtLists(SessionStore* store) {
    Outcome outcome = Outcome::kNoEffect;
    for (const char* owner : {"ann", "ben"}) {
      int64_t expected = 0;
      for (int i = 0; i < kSamples; ++i) expected += SampleOwner(i) == owner ? 1 : 0;
      const auto page = List(*store, 100, "", owner);
      if (!page.ok()) {
        outcome = Outcome::kNoticed;
        continue;
      }
      for (const SessionInfo& info : page->sessions) {
        if (!info.damage.empty()) outcome = Outcome::kNoticed;
      }
      if (static_cast<int64_t>(page->sessions.size()) == expected) continue;
      if (log_.empty()) return Outcome::kSilent;
      outcome = Outcome::kNoticed;
    }
    return outcome;
  }

  // Checks a damaged store. If `lost` is true, an older state is accepted, but only if the log
  // reports it.
  Outcome Judge(const Files& files, const std::map<std::string, std::string>& expected, bool lost) {
    Put(files);
    const auto store = Open();
    if (store == nullptr) return Outcome::kNoticed;
    Outcome worst = log_.empty() ? Outcome::kNoEffect : Outcome::kNoticed;
    const auto add = [&](Outcome outcome) {
      if (outcome == Outcome::kSilent && lost && !log_.empty()) outcome = Outcome::kNoticed;
      worst = std::max(worst, outcome);
    };
    add(LookAtLists(store.get()));
    for (int i = 0; i < kSamples; ++i) add(Look(store.get(), i, expected.at(SampleId(i))));
    // Verify must also find what was found at the start.
    if (!log_.empty()) {
      const auto faults = Verify(*store);
      EXPECT_TRUE(!faults.ok() || !faults->empty() || HasDamage(*store)) << log_.front();
    }
    return worst;
  }

  static bool HasDamage(SessionStore& store) {
    const auto page = List(store, 100, "", std::nullopt);
    if (!page.ok()) return true;
    for (const SessionInfo& info : page->sessions) {
      if (!info.damage.empty() || !Get(store, info.session_id, std::nullopt).ok()) return true;
    }
    return false;
  }

  // Returns the files of a store that was closed. Everything is in the database file.
  Files Checkpointed() {
    auto store = Open();
    FillStore(store.get(), 3);
    store.reset();
    return Load();
  }

  // Returns the files that a killed process leaves. Everything is only in the write-ahead log.
  Files Killed() {
    auto store = Open();
    FillStore(store.get(), 1);
    return Load();
  }

  void FlipBits(const Files& whole, const std::string& suffix, bool lost) {
    const auto expected = Expect(whole);
    std::map<Outcome, int> outcomes;
    std::mt19937_64 random(20260101);
    for (int flip = 0; flip < TIDEPOOL_FLIPS; ++flip) {
      Files files = whole;
      std::string& bytes = files[suffix];
      const size_t bit = random() % (bytes.size() * 8);
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      const Outcome outcome = Judge(files, expected, lost);
      ++outcomes[outcome];
      EXPECT_NE(outcome, Outcome::kSilent) << "flip " << flip << ": bit " << bit;
    }
    Report(suffix.empty() ? "file" : suffix.c_str(), outcomes);
  }

  std::filesystem::path folder_;
  std::string path_;
  std::vector<std::string> log_;  // lines since the last call of Open
  absl::Status open_status_;
};

TEST_F(StoreDamageTest, NoFlippedBitOfTheFileIsSilent) {
  FlipBits(Checkpointed(), "", /*lost=*/false);
}

TEST_F(StoreDamageTest, NoFlippedBitOfTheLogIsSilent) { FlipBits(Killed(), "-wal", /*lost=*/true); }

TEST_F(StoreDamageTest, NoZeroedPageIsSilent) {
  const Files whole = Checkpointed();
  const auto expected = Expect(whole);
  std::map<Outcome, int> outcomes;
  for (size_t at = 0; at + kPage <= whole.at("").size(); at += kPage) {
    Files files = whole;
    files[""].replace(at, kPage, kPage, '\0');
    const Outcome outcome = Judge(files, expected, /*lost=*/false);
    ++outcomes[outcome];
    EXPECT_NE(outcome, Outcome::kSilent) << "page " << at / kPage + 1;
  }
  Report("zeroed pages", outcomes);
}

TEST_F(StoreDamageTest, DamageNamesTheSessionAndLeavesTheOthers) {
  Files files = Checkpointed();
  // This is the first copy of the third session's messages.
  const size_t at = files[""].find("digest-1");
  ASSERT_NE(at, std::string::npos);
  files[""][at] = 'D';
  Put(files);
  const auto store = Open();
  ASSERT_NE(store, nullptr) << open_status_;
  int damaged = 0;
  for (int i = 0; i < kSamples; ++i) {
    const auto log = Get(*store, SampleId(i), SampleOwner(i));
    if (log.ok()) continue;
    ++damaged;
    EXPECT_EQ(log.status().code(), absl::StatusCode::kDataLoss) << log.status();
    EXPECT_TRUE(absl::StrContains(log.status().message(), SampleId(i))) << log.status();
    EXPECT_TRUE(Delete(*store, SampleId(i), SampleOwner(i)).ok());
  }
  EXPECT_EQ(damaged, 1);
  EXPECT_TRUE(Verify(*store)->empty()) << Verify(*store)->front();
}

// If SQLite cannot read a page, its own message does not name a session.
TEST_F(StoreDamageTest, DamageOfAnyPageNamesTheSessionWhichCanBeDeleted) {
  const Files whole = Checkpointed();
  int damaged = 0;
  int deleted = 0;
  for (size_t at = kPage; at + kPage <= whole.at("").size(); at += kPage) {
    Files files = whole;
    files[""].replace(at, kPage, kPage, '\0');
    Put(files);
    const auto store = Open();
    if (store == nullptr) continue;
    for (int i = 0; i < kSamples; ++i) {
      const absl::Status got = Get(*store, SampleId(i), SampleOwner(i)).status();
      if (!absl::IsDataLoss(got)) continue;
      ++damaged;
      EXPECT_TRUE(absl::StrContains(got.message(), SampleId(i))) << got;
      EXPECT_TRUE(absl::StrContains(got.message(), "restore a backup")) << got;
      const absl::Status gone = Delete(*store, SampleId(i), SampleOwner(i));
      deleted += gone.ok();
      EXPECT_TRUE(gone.ok() || absl::StrContains(gone.message(), SampleId(i))) << gone;
    }
  }
  EXPECT_GT(damaged, 0);
  EXPECT_GT(deleted, damaged / 2);
}

TEST_F(StoreDamageTest, ADamagedCounterOfKeysIsRebuilt) {
  const Files whole = Checkpointed();
  const auto expected = Expect(whole);
  for (const char* damage :
       {"UPDATE sqlite_sequence SET seq = 9223372036854775807",
        "UPDATE sqlite_sequence SET seq = 'x'", "UPDATE sqlite_sequence SET name = 'sessionz'",
        "UPDATE sqlite_sequence SET seq = 2"}) {
    Put(whole);
    ASSERT_TRUE(SqliteDb::Open(path_)->Execute(damage).ok()) << damage;
    auto store = Open();
    ASSERT_NE(store, nullptr) << open_status_;
    ASSERT_EQ(log_.size(), 1) << damage;
    EXPECT_TRUE(absl::StrContains(log_[0], "counter for keys of new sessions is damaged"))
        << log_[0];
    EXPECT_TRUE(absl::StrContains(log_[0], "rebuilt")) << log_[0];
    EXPECT_TRUE(Create(*store, "one-more").ok()) << damage;
    store.reset();
    Expect(Load());
  }
}

// One bit of the row's header changes. The bytes of the id stay the same, but a query by text does
// not find it any more.
TEST_F(StoreDamageTest, AnIdThatIsNotTextIsReportedAtEveryStart) {
  Files files = Checkpointed();
  const int sample = 3;
  const std::string id = SampleId(sample);
  std::string& bytes = files[""];
  const size_t row = bytes.find(id + SampleOwner(sample));
  ASSERT_NE(row, std::string::npos);
  const std::string header = {'\0', static_cast<char>(13 + 2 * id.size()), 13 + 2 * 3};
  const size_t at = bytes.rfind(header, row);
  ASSERT_LT(row - at, 40U);
  bytes[at + 1] ^= 1;
  Put(files);
  for (int start = 0; start < 2; ++start) {
    const auto store = Open();
    ASSERT_NE(store, nullptr) << open_status_;
    ASSERT_EQ(log_.size(), 2) << start;
    EXPECT_TRUE(absl::StrContains(log_[0], absl::StrCat("'", id, "' is damaged"))) << log_[0];
    EXPECT_TRUE(absl::StrContains(log_[1], "the index of its sessions is damaged")) << log_[1];
    EXPECT_FALSE(absl::StrContains(log_[1], "rebuilt")) << log_[1];
    const absl::Status status = Get(*store, id, SampleOwner(sample)).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), id)) << status;
    EXPECT_TRUE(absl::IsAlreadyExists(Create(*store, id).status()));
    EXPECT_TRUE(HasDamage(*store));
    EXPECT_FALSE(Verify(*store)->empty());
  }
}

// An index that was built from the damaged row contains such a value.
TEST_F(StoreDamageTest, NoColumnOfAnotherTypeIsSilent) {
  const Files whole = Checkpointed();
  const auto expected = Expect(whole);
  const std::map<std::string, std::vector<std::string>> columns = {
      {"sessions",
       {"session_id", "principal", "model", "model_digest", "kind", "create_us", "update_us",
        "token_count", "turn_count", "epoch", "lease_request", "lease_until_us", "lease_body",
        "log_hash", "turns_hash", "seal"}},
      {"turns",
       {"session", "turn", "request_id", "start", "output_start", "end", "messages", "answer",
        "finish", "body", "numerics_id", "hash"}},
      {"chunks", {"session", "start", "tokens", "text", "hash"}},
      {"store", {"store_id", "commits", "sessions", "sum", "schema", "losses", "seal"}},
  };
  for (const auto& [table, names] : columns) {
    for (const std::string& name : names) {
      Put(whole);
      const auto db = SqliteDb::Open(path_);
      ASSERT_TRUE(db.ok()) << db.status();
      const std::string one = table == "sessions" ? "key = 4"
                              : table == "store"  ? "1"
                                                  : "session = 4";
      const absl::Status changed =
          db->Execute(absl::StrCat("UPDATE ", table, " SET ", name, " = iif(typeof(", name,
                                   ") = 'blob', CAST(", name, " AS TEXT), CAST(", name,
                                   " AS BLOB)) WHERE ", one, "; PRAGMA wal_checkpoint(TRUNCATE)")
                          .c_str());
      ASSERT_TRUE(changed.ok()) << changed;
      EXPECT_EQ(Judge(Load(), expected, /*lost=*/false), Outcome::kNoticed) << table << "." << name;
    }
  }
}

TEST_F(StoreDamageTest, LostTransactionsAreReportedAtEveryStart) {
  Files files = Killed();
  // Damages the middle of the log. Everything after it is lost.
  std::string& log = files["-wal"];
  for (size_t i = 0; i < 40; ++i) log[log.size() / 2 + i] ^= 0x55;
  Put(files);
  for (int start = 0; start < 2; ++start) {
    const auto store = Open();
    ASSERT_NE(store, nullptr) << open_status_;
    ASSERT_EQ(log_.size(), 1);
    EXPECT_TRUE(absl::StrContains(log_[0], "transactions are lost (it had 12 sessions then)"))
        << log_[0];
    EXPECT_EQ(*Verify(*store), std::vector<std::string>{log_[0].substr(log_[0].find("': ") + 3)});
  }
}

TEST_F(StoreDamageTest, AStoreThatLostEverythingSaysSo) {
  Files files = Killed();
  files["-wal"].replace(0, 40, 40, '\x33');
  files[""].clear();
  Put(files);
  const auto store = Open();
  ASSERT_NE(store, nullptr) << open_status_;
  ASSERT_EQ(log_.size(), 1);
  EXPECT_TRUE(absl::StrContains(log_[0], "all of its 12 sessions are lost")) << log_[0];
  EXPECT_FALSE(Verify(*store)->empty());
}

TEST_F(StoreDamageTest, AStoreThatIsGoneIsMissed) {
  Files files = Checkpointed();
  files.erase("");
  Put(files);
  // Nothing is written to the store, so each start reports the loss.
  for (int start = 0; start < 2; ++start) {
    const auto store = Open();
    ASSERT_EQ(log_.size(), 1) << start;
    EXPECT_TRUE(absl::StrContains(log_[0], "12 sessions, is missing")) << log_[0];
  }
  ASSERT_TRUE(Create(*Open(), "s").ok());
  Open();
  EXPECT_TRUE(log_.empty()) << log_[0];
}

// A process is killed between two commits, or between a commit and the write of the witness.
TEST_F(StoreDamageTest, NoKillRaisesAFalseAlarm) {
  auto store = Open();
  FillStore(store.get(), 1);
  const Files before = Load();
  ASSERT_TRUE(Create(*store, "one-more").ok());
  Files after = Load();
  store.reset();
  Put(after);
  Open();
  EXPECT_TRUE(log_.empty()) << log_[0];
  after["-commits"] = before.at("-commits");
  Put(after);
  Open();
  EXPECT_TRUE(log_.empty()) << log_[0];
  // The process was killed while it created the store, before it wrote a witness.
  Put({});
  store = Open();
  Files made = Load();
  store.reset();
  made.erase("-commits");
  Put(made);
  EXPECT_NE(Open(), nullptr);
  EXPECT_TRUE(log_.empty()) << log_[0];
}

TEST_F(StoreDamageTest, AMissingOrDamagedNoteOfCommitsIsNoticedAndWrittenAgain) {
  const Files whole = Checkpointed();
  for (const std::string& note :
       {std::string(), std::string("no such line"), whole.at("-commits").substr(1)}) {
    Files files = whole;
    files["-commits"] = note;
    if (note.empty()) files.erase("-commits");
    Put(files);
    auto store = Open();
    ASSERT_EQ(log_.size(), 1) << note;
    EXPECT_TRUE(absl::StrContains(log_[0], "-commits is missing or damaged")) << log_[0];
    const std::vector<std::string> faults = *Verify(*store);
    ASSERT_EQ(faults.size(), 1);
    EXPECT_TRUE(absl::StrContains(faults[0], "-commits is missing or damaged")) << faults[0];
    store.reset();
    store = Open();
    EXPECT_TRUE(log_.empty()) << log_[0];
    // The damaged part is repaired.
    Files old = Load();
    ASSERT_TRUE(Create(*store, "one-more").ok());
    store.reset();
    old["-commits"] = Load().at("-commits");
    Put(old);
    Open();
    ASSERT_FALSE(log_.empty());
    EXPECT_TRUE(absl::StrContains(log_[0], "transactions are lost")) << log_[0];
  }
}

TEST_F(StoreDamageTest, NoFlippedBitOfAnExportIsSilent) {
  auto store = Open();
  FillStore(store.get(), 2);
  std::map<std::string, std::string> expected;
  std::string text = ExportHead() + "\n";
  for (int i = 0; i < kSamples; ++i) {
    const SessionLogData log = *Get(*store, SampleId(i), SampleOwner(i));
    expected[SampleId(i)] = Told(log);
    text += Told(log) + "\n";
  }
  text += ExportEnd(kSamples) + "\n";
  std::map<Outcome, int> outcomes;
  std::mt19937_64 random(20260102);
  for (int flip = 0; flip < TIDEPOOL_FLIPS; ++flip) {
    std::string damaged = text;
    const size_t bit = random() % (damaged.size() * 8);
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    std::istringstream in(damaged);
    std::map<std::string, std::string> read;
    const auto faults = ReadExport(in, [&](SessionLogData log) {
      read[log.info.session_id] = Told(log);
      return absl::OkStatus();
    });
    const bool whole = faults.ok() && faults->empty();
    Outcome outcome = whole ? Outcome::kNoEffect : Outcome::kNoticed;
    if (whole && read != expected) outcome = Outcome::kSilent;
    for (const auto& [id, told] : read) {
      if (!expected.contains(id) || expected[id] != told) outcome = Outcome::kSilent;
    }
    ++outcomes[outcome];
    EXPECT_NE(outcome, Outcome::kSilent) << "flip " << flip << ": bit " << bit;
  }
  Report("export", outcomes);
}

}  // namespace
}  // namespace tidepool::service

#include "moe/record_reader.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/base/mutex.h"
#include "moe/expert_record.h"
#include "moe/mapped_memory.h"

namespace tidepool::moe {
namespace {

constexpr int64_t kRecord = 5 * kRecordAlignment;
constexpr int64_t kBig = int64_t{9} << 20;  // more than a reader asks for at once

// Thread-safe. Collects the results of reads.
class Results {
 public:
  explicit Results(int64_t count) : status_(count) {}

  void Put(const RecordRead& read, const absl::Status& status) {
    base::MutexLock lock(&mutex_);
    status_[read.ticket] = status;
    ++done_;
    changed_.NotifyAll();
  }
  const std::vector<absl::Status>& Await() {
    base::MutexLock lock(&mutex_);
    while (done_ < static_cast<int64_t>(status_.size())) changed_.Wait(&mutex_);
    return status_;
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  int64_t done_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::Status> status_;
};

class RecordReaderTest : public testing::TestWithParam<ReaderKind> {
 protected:
  RecordReaderTest() {
    std::mt19937 random(1);
    bytes_.resize(40 * kRecord + kBig + kRecordAlignment / 2);
    for (char& byte : bytes_) byte = static_cast<char>(random());
    std::ofstream(path_, std::ios::binary).write(bytes_.data(), bytes_.size());
  }
  ~RecordReaderTest() override { std::remove(path_.c_str()); }

  // Returns null if the machine does not support this reader.
  std::unique_ptr<RecordReader> Open(int64_t in_flight_bytes) {
    auto reader = OpenRecordReader(path_, {.kind = GetParam(), .in_flight_bytes = in_flight_bytes});
    if (reader.status().code() == absl::StatusCode::kFailedPrecondition) return nullptr;
    CHECK_OK(reader.status());
    return *std::move(reader);
  }

  const std::string path_ =
      testing::TempDir() + "/records" + std::to_string(static_cast<int>(GetParam()));
  std::string bytes_;
};

TEST_P(RecordReaderTest, ReadsRecords) {
  for (const int64_t in_flight_bytes : {int64_t{1}, 4 * kRecord, 4 * kBig}) {
    auto memory = MappedMemory::Create(40 * kRecord + kBig);
    ASSERT_TRUE(memory.ok());
    Results results(41);
    const auto reader = Open(in_flight_bytes);
    if (reader == nullptr) GTEST_SKIP() << "no io_uring here";
    reader->Start(
        [&](const RecordRead& read, const absl::Status& status) { results.Put(read, status); });
    for (int64_t i = 0; i < 40; ++i) {
      reader->Read({.ticket = i,
                    .offset = i * kRecord,
                    .bytes = kRecord,
                    .into = memory->data() + i * kRecord},
                   i % 3 == 0 ? ReadPriority::kSpeculative : ReadPriority::kDemand);
    }
    reader->Read({.ticket = 40,
                  .offset = 40 * kRecord,
                  .bytes = kBig,
                  .into = memory->data() + 40 * kRecord},
                 ReadPriority::kDemand);
    for (const absl::Status& status : results.Await()) EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(std::memcmp(memory->data(), bytes_.data(), 40 * kRecord + kBig), 0);
  }
}

TEST_P(RecordReaderTest, ATruncatedFileIsDataLoss) {
  auto memory = MappedMemory::Create(3 * kBig);
  ASSERT_TRUE(memory.ok());
  Results results(3);
  const auto reader = Open(4 * kRecord);
  if (reader == nullptr) GTEST_SKIP() << "no io_uring here";
  reader->Start(
      [&](const RecordRead& read, const absl::Status& status) { results.Put(read, status); });
  const int64_t size = static_cast<int64_t>(bytes_.size());
  const int64_t past = (size / kRecordAlignment + 4) * kRecordAlignment;
  const int64_t offsets[] = {0, 40 * kRecord + kRecordAlignment, past};
  for (int64_t i = 0; i < 3; ++i) {
    reader->Read(
        {.ticket = i, .offset = offsets[i], .bytes = kBig, .into = memory->data() + i * kBig},
        ReadPriority::kDemand);
  }
  const std::vector<absl::Status>& status = results.Await();
  EXPECT_TRUE(status[0].ok());
  EXPECT_EQ(status[1].code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status[2].code(), absl::StatusCode::kDataLoss);
}

// Truncates the file at any offset, also inside a block. (The kernel still returns the first part
// of this block.) The error is DATA_LOSS, not a temporary error.
TEST_P(RecordReaderTest, TruncationAtAnyOffsetIsDataLoss) {
  auto memory = MappedMemory::Create(2 * kRecord + kBig);
  ASSERT_TRUE(memory.ok());
  std::vector<std::unique_ptr<Results>> results;  // the last element is the current one
  const auto reader = Open(4 * kRecord);
  if (reader == nullptr) GTEST_SKIP() << "no io_uring here";
  reader->Start([&](const RecordRead& read, const absl::Status& status) {
    results.back()->Put(read, status);
  });
  // The file is truncated further and further while the reader has it open.
  constexpr int64_t kSecond = kRecord;
  constexpr int64_t kThird = 40 * kRecord;
  for (const int64_t left :
       {kThird + kBig - 1, kThird + kBig - 777, kThird + kBig - 1024,
        kThird + (int64_t{5} << 20) + 100, kThird + kRecordAlignment, kThird + 512, kThird + 1,
        kThird, kSecond + 2 * kRecordAlignment + 300, kSecond + 3, kSecond}) {
    ASSERT_EQ(truncate(path_.c_str(), left), 0);
    results.push_back(std::make_unique<Results>(3));
    const RecordRead reads[] = {
        {.ticket = 0, .offset = 0, .bytes = kRecord, .into = memory->data()},
        {.ticket = 1, .offset = kSecond, .bytes = kRecord, .into = memory->data() + kRecord},
        {.ticket = 2, .offset = kThird, .bytes = kBig, .into = memory->data() + 2 * kRecord}};
    for (const RecordRead& read : reads) reader->Read(read, ReadPriority::kDemand);
    const std::vector<absl::Status>& status = results.back()->Await();
    for (const RecordRead& read : reads) {
      if (read.offset + read.bytes <= left) {
        EXPECT_TRUE(status[read.ticket].ok()) << left << ": " << status[read.ticket];
        EXPECT_EQ(std::memcmp(read.into, bytes_.data() + read.offset, read.bytes), 0);
      } else {
        EXPECT_EQ(status[read.ticket],
                  absl::DataLossError("is truncated: the file ends before its last byte"))
            << left;
      }
    }
  }
}

// Each read is either withdrawn or done, but never both.
TEST_P(RecordReaderTest, SpeculativeReadsCanBeWithdrawn) {
  constexpr int64_t kReads = 64;
  auto memory = MappedMemory::Create(kReads * kRecord);
  ASSERT_TRUE(memory.ok());
  base::Mutex mutex;
  std::vector<int> seen(kReads, 0);
  {
    const auto reader = Open(1);
    if (reader == nullptr) GTEST_SKIP() << "no io_uring here";
    reader->Start([&](const RecordRead& read, const absl::Status& status) {
      EXPECT_TRUE(status.ok());
      base::MutexLock lock(&mutex);
      ++seen[read.ticket];
    });
    for (int64_t i = 0; i < kReads; ++i) {
      reader->Read({.ticket = i,
                    .offset = i % 40 * kRecord,
                    .bytes = kRecord,
                    .into = memory->data() + i * kRecord},
                   ReadPriority::kSpeculative);
    }
    for (const RecordRead& read : reader->Withdraw()) {
      base::MutexLock lock(&mutex);
      ++seen[read.ticket];
    }
    EXPECT_TRUE(reader->Withdraw().empty());
  }
  EXPECT_EQ(seen, std::vector<int>(kReads, 1));
}

// Demand reads overtake speculative ones that have not begun.
TEST_P(RecordReaderTest, DemandReadsBeginBeforeSpeculativeReads) {
  constexpr int64_t kReads = 200;  // number of reads of each kind
  auto memory = MappedMemory::Create(2 * kReads * kRecord);
  ASSERT_TRUE(memory.ok());
  base::Mutex mutex;
  std::vector<int64_t> order;
  int64_t expected_at_demand = 0;
  {
    Results results(2 * kReads);
    const auto reader = Open(1);
    if (reader == nullptr) GTEST_SKIP() << "no io_uring here";
    reader->Start([&](const RecordRead& read, const absl::Status& status) {
      {
        base::MutexLock lock(&mutex);
        order.push_back(read.ticket);
      }
      results.Put(read, status);
    });
    for (int64_t i = 0; i < 2 * kReads; ++i) {
      reader->Read({.ticket = i,
                    .offset = i % 40 * kRecord,
                    .bytes = kRecord,
                    .into = memory->data() + i * kRecord},
                   i < kReads ? ReadPriority::kSpeculative : ReadPriority::kDemand);
    }
    {
      base::MutexLock lock(&mutex);
      for (const int64_t ticket : order) expected_at_demand += ticket < kReads;
    }
    results.Await();
  }
  // The number of reads that may be reported out of order, because the machine may delay a thread
  // in between.
  constexpr int64_t kLate = 16;
  int64_t expected_before = 0;
  int64_t demands = 0;
  for (const int64_t ticket : order) {
    if (ticket >= kReads) {
      ++demands;
    } else if (demands < kReads - kLate) {
      ++expected_before;
    }
  }
  EXPECT_LE(expected_before, expected_at_demand + kLate);
}

// Reading one's own memory at an unmapped address gives an I/O error.
TEST_P(RecordReaderTest, AReadErrorIsUnavailable) {
  auto reader = OpenRecordReader("/proc/self/mem", {.kind = GetParam()});
  if (absl::IsFailedPrecondition(reader.status())) GTEST_SKIP() << "no io_uring here";
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto memory = MappedMemory::Create(kRecord);
  ASSERT_TRUE(memory.ok());
  Results results(1);
  (*reader)->Start(
      [&](const RecordRead& read, const absl::Status& status) { results.Put(read, status); });
  (*reader)->Read({.offset = 0, .bytes = kRecord, .into = memory->data()}, ReadPriority::kDemand);
  const absl::Status status = results.Await()[0];
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(status.message(), "cannot be read: Input/output error");
}

std::string KindName(const testing::TestParamInfo<ReaderKind>& kind) {
  constexpr const char* kNames[] = {"Auto", "Uring", "Threads"};
  return kNames[static_cast<int>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecordReaderTest,
                         testing::Values(ReaderKind::kUring, ReaderKind::kThreads,
                                         ReaderKind::kAuto),
                         KindName);

// Refuses a system call for this thread and its children, as containers do.
bool Refuse(uint32_t call, int error) {
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter = {static_cast<uint16_t>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

TEST(OpenRecordReaderTest, UsesThreadsIfUringIsRefused) {
  const std::string path = testing::TempDir() + "/refused";
  std::string bytes(4 * kRecord, '\0');
  std::mt19937 random(2);
  for (char& byte : bytes) byte = static_cast<char>(random());
  std::ofstream(path, std::ios::binary) << bytes;
  bool refused = true;
  for (const int error : {EPERM, ENOSYS}) {
    std::thread refusing([&] {
      refused = Refuse(__NR_io_uring_setup, error);
      if (!refused) return;
      EXPECT_EQ(OpenRecordReader(path, {.kind = ReaderKind::kUring}).status().code(),
                absl::StatusCode::kFailedPrecondition);
      auto memory = MappedMemory::Create(4 * kRecord);
      ASSERT_TRUE(memory.ok());
      Results results(4);
      const auto reader = OpenRecordReader(path, {});
      ASSERT_TRUE(reader.ok()) << reader.status();
      EXPECT_EQ((*reader)->Description().substr(0, 7), "threads");
      (*reader)->Start(
          [&](const RecordRead& read, const absl::Status& status) { results.Put(read, status); });
      for (int64_t i = 0; i < 4; ++i) {
        (*reader)->Read({.ticket = i,
                         .offset = i * kRecord,
                         .bytes = kRecord,
                         .into = memory->data() + i * kRecord},
                        ReadPriority::kDemand);
      }
      for (const absl::Status& status : results.Await()) EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(std::memcmp(memory->data(), bytes.data(), bytes.size()), 0);
    });
    refusing.join();
  }
  std::remove(path.c_str());
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
}

// The ring exists, but it accepts no reads: it returns a permanent error, or a temporary error
// again and again.
TEST(OpenRecordReaderTest, UsesBlockingReadsIfUringStopsAcceptingReads) {
  const std::string path = testing::TempDir() + "/given_up";
  constexpr int64_t kReads = 12;
  std::string bytes(kReads * kRecord, '\0');
  std::mt19937 random(3);
  for (char& byte : bytes) byte = static_cast<char>(random());
  std::ofstream(path, std::ios::binary) << bytes;
  if (!OpenRecordReader(path, {.kind = ReaderKind::kUring}).ok()) GTEST_SKIP() << "no io_uring";
  bool refused = true;
  for (const int error : {EINVAL, ENOMEM, EAGAIN}) {
    std::thread refusing([&] {
      std::vector<std::string> notes;
      const auto reader = OpenRecordReader(
          path, {.kind = ReaderKind::kUring,
                 .note = [&](absl::string_view line) { notes.emplace_back(line); }});
      ASSERT_TRUE(reader.ok()) << reader.status();
      auto memory = MappedMemory::Create(kReads * kRecord);
      ASSERT_TRUE(memory.ok());
      refused = Refuse(__NR_io_uring_enter, error);
      if (!refused) return;
      Results results(kReads);
      (*reader)->Start(
          [&](const RecordRead& read, const absl::Status& status) { results.Put(read, status); });
      for (int64_t i = 0; i < kReads; ++i) {
        (*reader)->Read({.ticket = i,
                         .offset = i * kRecord,
                         .bytes = kRecord,
                         .into = memory->data() + i * kRecord},
                        ReadPriority::kDemand);
      }
      for (const absl::Status& status : results.Await()) EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(std::memcmp(memory->data(), bytes.data(), bytes.size()), 0);
      ASSERT_EQ(notes.size(), 1u);
      EXPECT_NE(notes[0].find(std::strerror(error)), std::string::npos) << notes[0];
    });
    refusing.join();
  }
  std::remove(path.c_str());
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
}

// Some file systems allow opening a file for direct reads, but refuse each read. The test refuses
// pread; io_uring's reads do not use pread, so they still work.
TEST(OpenRecordReaderTest, UsesThePageCacheIfDirectReadsAreRefused) {
  const std::string path = testing::TempDir() + "/indirect";
  const std::string bytes(2 * kRecord, 'x');
  std::ofstream(path, std::ios::binary) << bytes;
  const ReaderOptions options = {.kind = ReaderKind::kUring};
  const auto usual = OpenRecordReader(path, options);
  if (!usual.ok()) GTEST_SKIP() << "no io_uring here";
  if ((*usual)->Description() != "io_uring") GTEST_SKIP() << "no direct reads here";
  bool refused = true;
  std::thread refusing([&] {
    refused = Refuse(__NR_pread64, EINVAL);
    if (!refused) return;
    auto memory = MappedMemory::Create(kRecord);
    ASSERT_TRUE(memory.ok());
    Results results(1);
    const auto reader = OpenRecordReader(path, options);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->Description(), "io_uring, buffered");
    (*reader)->Start(
        [&](const RecordRead& read, const absl::Status& status) { results.Put(read, status); });
    (*reader)->Read({.offset = kRecord, .bytes = kRecord, .into = memory->data()},
                    ReadPriority::kDemand);
    EXPECT_TRUE(results.Await()[0].ok()) << results.Await()[0];
    EXPECT_EQ(std::memcmp(memory->data(), bytes.data(), kRecord), 0);
  });
  refusing.join();
  std::remove(path.c_str());
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
}

TEST(OpenRecordReaderTest, ErrorsNameAMissingFile) {
  const absl::Status status = OpenRecordReader("/nowhere/m.tidepack", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nowhere/m.tidepack"), absl::string_view::npos);
}

}  // namespace
}  // namespace tidepool::moe

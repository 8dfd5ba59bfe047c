#include "tests/kernels/protected_copies.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::kernels {
namespace {

size_t HashOf(absl::Span<const std::byte> bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a);
  const auto second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

}  // namespace

ProtectedCopies::~ProtectedCopies() {
  CHECK(pinned_.empty()) << pinned_.size() << " ranges of host memory are still pinned";
}

absl::Status ProtectedCopies::Pin(absl::Span<std::byte> memory) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  CHECK(reinterpret_cast<uintptr_t>(memory.data()) % page == 0 && memory.size() % page == 0)
      << "pinned memory must be whole pages";
  for (const auto& [data, bytes] : pinned_) {
    CHECK(!Overlap(data, bytes, memory.data(), memory.size())) << "memory is pinned twice";
  }
  if (memory.size() > options_.pinned_bytes - pinned_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot pin ", memory.size(), " bytes of host memory: ", pinned_bytes_, " of ",
                     options_.pinned_bytes, " bytes are pinned (ulimit -l)"));
  }
  pinned_.emplace(memory.data(), memory.size());
  pinned_bytes_ += memory.size();
  return absl::OkStatus();
}

void ProtectedCopies::Unpin(absl::Span<std::byte> memory) {
  const auto found = pinned_.find(memory.data());
  CHECK(found != pinned_.end() && found->second == memory.size())
      << "this memory was not pinned, or with another size";
  for (const auto& [copy, record] : records_) {
    CHECK(record.has_run ||
          !Overlap(record.from.data(), record.from.size(), memory.data(), memory.size()))
        << "memory is unpinned before copy " << copy << " has ended, which reads it";
  }
  pinned_bytes_ -= memory.size();
  pinned_.erase(found);
}

CopyTicket ProtectedCopies::Begin(absl::Span<const std::byte> from, std::byte* to, int64_t ops) {
  const auto after = pinned_.upper_bound(from.data());
  CHECK(after != pinned_.begin()) << "the source of a copy is not pinned";
  const auto [data, bytes] = *std::prev(after);
  CHECK(from.data() + from.size() <= data + bytes) << "the source of a copy is not pinned";
  constexpr uint64_t kMaxAsks = 6;
  records_[++begun_] = {
      .from = from, .to = to, .ops = ops, .hash = HashOf(from), .asks_left = random_() % kMaxAsks};
  ++pending_;
  return begun_;
}

void ProtectedCopies::Await(CopyTicket copy) {
  CHECK(copy > 0 && copy <= begun_) << "copy " << copy << " was not begun";
  const auto found = records_.find(copy);
  if (found != records_.end()) found->second.awaited = true;
}

void ProtectedCopies::CheckAwaited(const void* data, size_t bytes) const {
  for (const auto& [copy, record] : records_) {
    CHECK(record.awaited || !Overlap(record.to, record.from.size(), data, bytes))
        << "an operand is the target of copy " << copy << ", which was not awaited";
  }
}

bool ProtectedCopies::HasRun(CopyTicket copy) const {
  const auto found = records_.find(copy);
  CHECK(found != records_.end()) << "copy " << copy << " was not begun, or its time was read";
  return found->second.has_run;
}

CopyTicket ProtectedCopies::PickRandom() {
  if (pending_ == 0) return 0;
  size_t skipped = random_() % pending_;
  for (const auto& [copy, record] : records_) {
    if (!record.has_run && skipped-- == 0) return copy;
  }
  return 0;
}

bool ProtectedCopies::AskedOften(CopyTicket copy) {
  uint64_t& left = records_.at(copy).asks_left;
  return left == 0 || --left == 0;
}

absl::Status ProtectedCopies::Run(CopyTicket copy) {
  const auto found = records_.find(copy);
  if (found == records_.end() || found->second.has_run) return absl::OkStatus();
  for (auto& [ticket, record] : records_) {
    if (ticket > copy) break;
    if (record.has_run ||
        !Overlap(record.to, record.from.size(), found->second.to, found->second.from.size())) {
      continue;
    }
    if (ticket == options_.failing_copy) {
      return absl::InternalError(absl::StrCat("copy ", ticket, " of the device failed"));
    }
    CHECK(HashOf(record.from) == record.hash)
        << "the source of copy " << ticket << " has changed before the copy ended";
    std::copy(record.from.begin(), record.from.end(), record.to);
    record.has_run = true;
    --pending_;
  }
  return absl::OkStatus();
}

void ProtectedCopies::DropAll() {
  for (auto& [copy, record] : records_) record.has_run = true;
  pending_ = 0;
}

absl::Duration ProtectedCopies::TakeTime(CopyTicket copy) {
  const auto found = records_.find(copy);
  CHECK(found != records_.end() && found->second.has_run);
  // The invented times are those of 2 to 8 GB/s.
  constexpr double kNanosecondsPerByte = 0.125;
  const double bytes = static_cast<double>(found->second.from.size());
  const double slowness = 1 + static_cast<double>(random_() % 4);
  records_.erase(found);
  return absl::Nanoseconds(1000 + bytes * kNanosecondsPerByte * slowness);
}

}  // namespace tidepool::kernels

// kernels/cuda/runtime.h on the emulated device.
#include <cstring>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime.h"
#include "tests/kernels/cuda/emulated_block.h"
#include "tests/kernels/cuda/emulated_stream.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr auto kDeviceAlignment = static_cast<std::align_val_t>(256);
constexpr int kMaxThreads = 1024;
constexpr int kMaxSharedBytes = 227 << 10;

uint64_t next_seed = 1;

// All streams, with one lock for all of them. The lock is recursive, because work of a stream may
// free memory, and may wait for another stream.
struct Streams {
  std::recursive_mutex lock;
  std::vector<Stream*> all;  // in the order of their creation
  std::mt19937_64 random{1};
};
Streams& AllStreams() {
  static Streams streams;
  return streams;
}
using Lock = std::lock_guard<std::recursive_mutex>;

// On a GPU, work of streams may run at any time. So this runs all work of each stream with a
// probability of one half.
void RunSomeStreams() {
  const Lock lock(AllStreams().lock);
  for (Stream* stream : AllStreams().all) {
    if (AllStreams().random() % 2 == 0) stream->RunUntil(stream->added());
  }
}

void RunAllStreams() {
  const Lock lock(AllStreams().lock);
  for (Stream* stream : AllStreams().all) stream->RunUntil(stream->added());
}

std::string CheckShape(const LaunchShape& shape) {
  const auto [grid, threads, shared_bytes] = shape;
  constexpr int kMaxYz = 65535;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > kMaxYz || grid.z > kMaxYz ||
      threads < kWarpLanes || threads > kMaxThreads || threads % kWarpLanes != 0 ||
      shared_bytes < 0 || shared_bytes > kMaxSharedBytes) {
    return absl::StrCat("launch of ", grid.x, ",", grid.y, ",", grid.z, " blocks of ", threads,
                        " threads with ", shared_bytes, " bytes of shared memory");
  }
  return "";
}

}  // namespace

void SetEmulationSeed(uint64_t seed) {
  const Lock lock(AllStreams().lock);
  next_seed = seed;
  AllStreams().random.seed(seed);
}

void Stream::Add(std::function<void()> work) {
  const Lock lock(AllStreams().lock);
  work_.push_back(std::move(work));
}

uint64_t Stream::added() const {
  const Lock lock(AllStreams().lock);
  return done_ + work_.size();
}

void Stream::AddKernel(const LaunchShape& shape, std::function<void()> kernel) {
  Add([this, shape, kernel = std::move(kernel)] { RunKernel(shape, kernel); });
}

void Stream::RunKernel(const LaunchShape& shape, const std::function<void()>& kernel) {
  error_ = CheckShape(shape);
  if (!error_.empty()) return;
  const Grid& grid = shape.grid;
  const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
  ++seed_;
  // If the step has no common factor with the number of blocks, all blocks are visited.
  int64_t step = static_cast<int64_t>(seed_ * 0x9e3779b97f4a7c15 >> 33) % blocks + 1;
  while (std::gcd(step, blocks) != 1) step = step % blocks + 1;
  int64_t at = step - 1;
  for (int64_t i = 0; i < blocks && error_.empty(); ++i, at = (at + step) % blocks) {
    const Grid place = {static_cast<int>(at % grid.x), static_cast<int>(at / grid.x % grid.y),
                        static_cast<int>(at / grid.x / grid.y)};
    error_ = block_.Run(kernel, shape, place);
  }
}

uint64_t Stream::done() const {
  const Lock lock(AllStreams().lock);
  return done_;
}

std::string Stream::error() const {
  const Lock lock(AllStreams().lock);
  return error_;
}

void Stream::RunUntil(uint64_t count) {
  const Lock lock(AllStreams().lock);
  while (done_ < count && !work_.empty()) {
    if (error_.empty()) work_.front()();
    work_.pop_front();
    ++done_;
  }
}

class Event {
 public:
  Stream* stream = nullptr;
  uint64_t at = 0;  // work items of the stream before the event
};

absl::StatusOr<DeviceInfo> FindDevice(int device) {
  if (device != 0) {
    return absl::FailedPreconditionError(absl::StrCat("no emulated device ", device));
  }
  return DeviceInfo{.name = "emulated",
                    .processors = 3,
                    .memory_bytes = size_t{1} << 30,
                    .shared_bytes = kMaxSharedBytes};
}

std::byte* AllocateDevice(int, size_t bytes) {
  auto* data = static_cast<std::byte*>(::operator new(bytes, kDeviceAlignment, std::nothrow));
  if (data != nullptr) std::memset(data, 0xff, bytes);  // NaN, if it is read as floats
  return data;
}
// As on a GPU, this waits for all work that may use the memory.
void FreeDevice(int, std::byte* data) {
  RunAllStreams();
  ::operator delete(data, kDeviceAlignment);
}
std::optional<size_t> FreeDeviceBytes(int) { return std::nullopt; }

std::byte* AllocatePinned(int device, size_t bytes) { return AllocateDevice(device, bytes); }
void FreePinned(int device, std::byte* data) { FreeDevice(device, data); }

// The emulated copies may read any host memory.
absl::Status PinHost(int, std::byte*, size_t) { return absl::OkStatus(); }
void UnpinHost(int, std::byte*) {}

absl::StatusOr<Stream*> MakeStream(int) {
  const Lock lock(AllStreams().lock);
  return AllStreams().all.emplace_back(new Stream(next_seed * 1000003));
}

// Work of other streams may wait for this stream, so all work runs first.
void DeleteStream(Stream* stream) {
  const Lock lock(AllStreams().lock);
  RunAllStreams();
  std::erase(AllStreams().all, stream);
  delete stream;
}

absl::Status Synchronize(Stream* stream) {
  RunSomeStreams();
  stream->RunUntil(stream->added());
  return ErrorOf(stream);
}

absl::Status ErrorOf(const Stream* stream) {
  const std::string error = stream->error();
  if (error.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("emulated device: ", error));
}

Event* MakeEvent(int, EventKind) { return new Event(); }
void DeleteEvent(Event* event) { delete event; }
void Record(Stream* stream, Event* event) { *event = {stream, stream->added()}; }
void Wait(Stream*, Event* event) {
  if (event->stream != nullptr) event->stream->RunUntil(event->at);
}
void WaitOnDevice(Stream* stream, Event* event) {
  stream->Add([stream, first = *event] {
    first.stream->RunUntil(first.at);
    stream->TakeError(*first.stream);
  });
}
bool HasHappened(Stream*, Event* event) {
  const Lock lock(AllStreams().lock);
  RunSomeStreams();
  return event->stream->error().empty() && event->stream->done() >= event->at;
}
// Each work item of the stream counts as one microsecond.
absl::Duration TimeBetween(Stream*, Event* begin, Event* end) {
  return absl::Microseconds(end->at - begin->at);
}

void CopyPinnedIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Add([=] { std::memcpy(to, from, bytes); });
}

void CopyHostIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Add([to, copy = std::vector<std::byte>(from, from + bytes)] {
    std::memcpy(to, copy.data(), copy.size());
  });
}

void CopyHostOut(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  CopyPinnedIn(stream, from, to, bytes);
}

void CopyOnDevice(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  CopyPinnedIn(stream, from, to, bytes);
}

}  // namespace tidepool::kernels::cuda

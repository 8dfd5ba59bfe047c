// The functions with which the host uses a device, except those that start kernels (device.h).
// nvidia_runtime.cc implements them with CUDA's runtime library.
// tests/kernels/cuda/emulated_runtime.cc implements them on the host.
//
// Any thread may call these functions. The work of a stream runs in order, and may run after the
// call that requests it has returned. A stream keeps its first error. Synchronize and all later
// calls for this stream return it.
#ifndef TIDEPOOL_KERNELS_CUDA_RUNTIME_H_
#define TIDEPOOL_KERNELS_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tidepool::kernels::cuda {

class Stream;
class Event;

struct DeviceInfo {
  std::string name;
  int processors = 0;  // streaming multiprocessors
  size_t memory_bytes = 0;
  size_t shared_bytes = 0;  // the largest shared memory of a block
};

// Returns FAILED_PRECONDITION, with the driver's message, if there is no such device or if this
// build has no code for it.
absl::StatusOr<DeviceInfo> FindDevice(int device);

// Memory of the device, aligned to 256 bytes; null if there is no room.
std::byte* AllocateDevice(int device, size_t bytes);
void FreeDevice(int device, std::byte* data);
// The number of bytes that are free now, which other processes may take at any time; nullopt if
// unknown.
std::optional<size_t> FreeDeviceBytes(int device);
// Pinned host memory, which copies can read while the host does something else; null if it cannot
// be allocated.
std::byte* AllocatePinned(int device, size_t bytes);
void FreePinned(int device, std::byte* data);
// Pins existing host memory, so that copies can read it like memory of AllocatePinned. Its pages
// must not be pinned yet. Returns RESOURCE_EXHAUSTED with a remedy if the system does not allow it.
absl::Status PinHost(int device, std::byte* data, size_t bytes);
// `data` must be the beginning of pinned memory. Copies that read it must have ended.
void UnpinHost(int device, std::byte* data);

absl::StatusOr<Stream*> MakeStream(int device);
// Waits for the stream's work first.
void DeleteStream(Stream* stream);
absl::Status Synchronize(Stream* stream);
// Returns the error of earlier calls, without waiting.
absl::Status ErrorOf(const Stream* stream);

enum class EventKind : uint8_t { kUntimed, kTimed };
// Returns null if the device has failed.
Event* MakeEvent(int device, EventKind kind);
void DeleteEvent(Event* event);
// The event happens when all earlier work of the stream is complete. An event may be recorded
// again. A wait that was requested before still waits only for the earlier work.
void Record(Stream* stream, Event* event);
// The host waits until the event happens. Returns at once if it was never recorded.
void Wait(Stream* stream, Event* event);
// Later work of `stream` runs after the event, which usually belongs to another stream.
void WaitOnDevice(Stream* stream, Event* event);
// Returns whether the event has happened. If there is an error, the stream keeps it, and the result
// is false.
bool HasHappened(Stream* stream, Event* event);
// The time between two events of kind kTimed that have happened.
absl::Duration TimeBetween(Stream* stream, Event* begin, Event* end);

// Reads `from`, which is pinned memory, when the stream reaches the copy.
void CopyPinnedIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);
// Reads `from`, any host memory, before it returns.
void CopyHostIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);
// Writes `to`, any host memory, before the next Synchronize returns.
void CopyHostOut(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);
void CopyOnDevice(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_RUNTIME_H_

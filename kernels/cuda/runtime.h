// What the host asks of a device, except to start kernels (device.h). nvidia_runtime.cc implements
// this with CUDA's runtime library, and tests/kernels/cuda/emulated_runtime.cc on the host.
//
// Work of a stream runs in order, and later than the call that asks for it. An error of a stream is
// kept: Synchronize and all later calls of it return the first one.
#ifndef TIDEPOOL_KERNELS_CUDA_RUNTIME_H_
#define TIDEPOOL_KERNELS_CUDA_RUNTIME_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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
// The number of bytes that are free now, which other processes may take at any time; 0 if unknown.
size_t FreeDeviceBytes(int device);
// Host memory that copies read while the host does something else; null if it cannot be had.
std::byte* AllocatePinned(int device, size_t bytes);
void FreePinned(int device, std::byte* data);

absl::StatusOr<Stream*> MakeStream(int device);
// Waits for the stream's work first.
void DeleteStream(Stream* stream);
absl::Status Synchronize(Stream* stream);

Event* MakeEvent(int device);
void DeleteEvent(Event* event);
// The event happens when all earlier work of the stream is complete.
void Record(Stream* stream, Event* event);
// Waits until the event happens. Returns at once if it was never recorded.
void Wait(Stream* stream, Event* event);

// Reads `from`, which is pinned memory, when the stream comes to it.
void CopyPinnedIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);
// Reads `from`, any host memory, before it returns.
void CopyHostIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);
// Writes `to`, any host memory, before the next Synchronize returns.
void CopyHostOut(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);
void CopyOnDevice(Stream* stream, const std::byte* from, std::byte* to, size_t bytes);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_RUNTIME_H_

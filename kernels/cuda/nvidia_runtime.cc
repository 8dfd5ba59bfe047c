// Implements runtime.h with CUDA's runtime library.
#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/nvidia_stream.h"
#include "kernels/cuda/runtime.h"

namespace tidepool::kernels::cuda {
namespace {

std::string TextOf(cudaError_t error) {
  return absl::StrCat("CUDA: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
}

absl::Status StatusOf(cudaError_t error) {
  return error == cudaSuccess ? absl::OkStatus() : absl::InternalError(TextOf(error));
}

}  // namespace

class Event {
 public:
  explicit Event(cudaEvent_t handle) : handle_(handle) {}
  cudaEvent_t handle() const { return handle_; }

 private:
  cudaEvent_t handle_;
};

absl::StatusOr<DeviceInfo> FindDevice(int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device ", device, ": ", cudaGetErrorString(error)));
  }
  if (properties.major < 8) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", device, " (", properties.name, ") has compute capability ",
                     properties.major, ".", properties.minor, ": it must be at least 8.0"));
  }
  return DeviceInfo{.name = properties.name,
                    .processors = properties.multiProcessorCount,
                    .memory_bytes = properties.totalGlobalMem,
                    .shared_bytes = properties.sharedMemPerBlockOptin};
}

std::byte* AllocateDevice(int device, size_t bytes) {
  void* data = nullptr;
  if (UseDevice(device) != cudaSuccess || cudaMalloc(&data, bytes) != cudaSuccess) {
    (void)cudaGetLastError();  // the next call must not see this error
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void FreeDevice(int device, std::byte* data) {
  if (UseDevice(device) == cudaSuccess) (void)cudaFree(data);
}

std::optional<size_t> FreeDeviceBytes(int device) {
  size_t free = 0;
  size_t all = 0;
  if (UseDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &all) != cudaSuccess) {
    (void)cudaGetLastError();
    return std::nullopt;
  }
  return free;
}

std::byte* AllocatePinned(int device, size_t bytes) {
  void* data = nullptr;
  if (UseDevice(device) != cudaSuccess ||
      cudaHostAlloc(&data, bytes, cudaHostAllocDefault) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void FreePinned(int device, std::byte* data) {
  if (UseDevice(device) == cudaSuccess) (void)cudaFreeHost(data);
}

absl::Status PinHost(int device, std::byte* data, size_t bytes) {
  cudaError_t error = UseDevice(device);
  if (error == cudaSuccess) error = cudaHostRegister(data, bytes, cudaHostRegisterDefault);
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  if (error == cudaErrorHostMemoryAlreadyRegistered || error == cudaErrorInvalidValue) {
    return StatusOf(error);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot pin ", bytes, " bytes of host memory: ", TextOf(error),
                   "; raise the limit of locked memory (ulimit -l, or memlock of the container), "
                   "or use less host memory"));
}

void UnpinHost(int device, std::byte* data) {
  if (UseDevice(device) != cudaSuccess || cudaHostUnregister(data) != cudaSuccess) {
    (void)cudaGetLastError();
  }
}

absl::StatusOr<Stream*> MakeStream(int device) {
  cudaStream_t handle;
  cudaError_t error = UseDevice(device);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
  if (error != cudaSuccess) return StatusOf(error);
  return new Stream(device, handle);
}

void DeleteStream(Stream* stream) {
  stream->Use();
  (void)cudaStreamSynchronize(stream->handle());
  (void)cudaStreamDestroy(stream->handle());
  delete stream;
}

absl::Status Synchronize(Stream* stream) {
  stream->Use();
  stream->Note(cudaStreamSynchronize(stream->handle()));
  return ErrorOf(stream);
}

absl::Status ErrorOf(const Stream* stream) { return StatusOf(stream->error()); }

Event* MakeEvent(int device, EventKind kind) {
  const unsigned flags =
      kind == EventKind::kTimed ? cudaEventDefault : unsigned{cudaEventDisableTiming};
  cudaEvent_t handle = nullptr;
  if (UseDevice(device) != cudaSuccess || cudaEventCreateWithFlags(&handle, flags) != cudaSuccess) {
    return nullptr;
  }
  return new Event(handle);
}

void DeleteEvent(Event* event) {
  (void)cudaEventDestroy(event->handle());
  delete event;
}

void Record(Stream* stream, Event* event) {
  stream->Use();
  stream->Note(cudaEventRecord(event->handle(), stream->handle()));
}

void Wait(Stream* stream, Event* event) {
  stream->Use();
  stream->Note(cudaEventSynchronize(event->handle()));
}

void WaitOnDevice(Stream* stream, Event* event) {
  stream->Use();
  stream->Note(cudaStreamWaitEvent(stream->handle(), event->handle(), cudaEventWaitDefault));
}

bool HasHappened(Stream* stream, Event* event) {
  stream->Use();
  const cudaError_t error = cudaEventQuery(event->handle());
  if (error != cudaErrorNotReady) stream->Note(error);
  return error == cudaSuccess;
}

absl::Duration TimeBetween(Stream* stream, Event* begin, Event* end) {
  stream->Use();
  float milliseconds = 0;
  stream->Note(cudaEventElapsedTime(&milliseconds, begin->handle(), end->handle()));
  return absl::Milliseconds(double{milliseconds});
}

void CopyPinnedIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Use();
  stream->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream->handle()));
}

// The runtime copies pageable memory to its own staging memory before the call returns. Pinned
// memory is read later, so there the call must wait.
void CopyHostIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  CopyPinnedIn(stream, from, to, bytes);
  cudaPointerAttributes attributes;
  const cudaError_t error = cudaPointerGetAttributes(&attributes, from);
  if (error == cudaSuccess && attributes.type == cudaMemoryTypeUnregistered) return;
  stream->Note(cudaStreamSynchronize(stream->handle()));
}

void CopyHostOut(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Use();
  stream->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream->handle()));
}

void CopyOnDevice(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Use();
  stream->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream->handle()));
}

}  // namespace tidepool::kernels::cuda

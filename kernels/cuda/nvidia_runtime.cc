#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/nvidia_stream.h"
#include "kernels/cuda/runtime.h"

namespace tidepool::kernels::cuda {
namespace {

absl::Status ErrorOf(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("CUDA: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"));
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
  if (cudaSetDevice(device) != cudaSuccess || cudaMalloc(&data, bytes) != cudaSuccess) {
    (void)cudaGetLastError();  // the next call must not see this error
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void FreeDevice(int device, std::byte* data) {
  if (cudaSetDevice(device) == cudaSuccess) (void)cudaFree(data);
}

size_t FreeDeviceBytes(int device) {
  size_t free = 0;
  size_t all = 0;
  if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &all) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return free;
}

std::byte* AllocatePinned(int device, size_t bytes) {
  void* data = nullptr;
  if (cudaSetDevice(device) != cudaSuccess ||
      cudaHostAlloc(&data, bytes, cudaHostAllocDefault) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void FreePinned(int device, std::byte* data) {
  if (cudaSetDevice(device) == cudaSuccess) (void)cudaFreeHost(data);
}

absl::StatusOr<Stream*> MakeStream(int device) {
  cudaStream_t handle;
  cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
  if (error != cudaSuccess) return ErrorOf(error);
  return new Stream(device, handle);
}

void DeleteStream(Stream* stream) {
  (void)cudaStreamSynchronize(stream->handle());
  (void)cudaStreamDestroy(stream->handle());
  delete stream;
}

absl::Status Synchronize(Stream* stream) {
  stream->Note(cudaStreamSynchronize(stream->handle()));
  return ErrorOf(stream->error());
}

Event* MakeEvent(int device) {
  cudaEvent_t handle = nullptr;
  if (cudaSetDevice(device) != cudaSuccess ||
      cudaEventCreateWithFlags(&handle, cudaEventDisableTiming) != cudaSuccess) {
    return nullptr;
  }
  return new Event(handle);
}

void DeleteEvent(Event* event) {
  (void)cudaEventDestroy(event->handle());
  delete event;
}

void Record(Stream* stream, Event* event) {
  stream->Note(cudaEventRecord(event->handle(), stream->handle()));
}

void Wait(Stream* stream, Event* event) { stream->Note(cudaEventSynchronize(event->handle())); }

void CopyPinnedIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream->handle()));
}

// The runtime copies pageable memory to its own staging memory before the call returns. Pinned
// memory is read later, so there the call must wait.
void CopyHostIn(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream->handle()));
  cudaPointerAttributes attributes;
  const cudaError_t error = cudaPointerGetAttributes(&attributes, from);
  if (error == cudaSuccess && attributes.type == cudaMemoryTypeUnregistered) return;
  stream->Note(cudaStreamSynchronize(stream->handle()));
}

void CopyHostOut(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream->handle()));
}

void CopyOnDevice(Stream* stream, const std::byte* from, std::byte* to, size_t bytes) {
  stream->Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream->handle()));
}

}  // namespace tidepool::kernels::cuda

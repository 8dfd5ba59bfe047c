#include "kernels/allocate.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tidepool::kernels {

absl::StatusOr<Buffer> AllocateBuffer(size_t bytes, const AllocationPurpose& purpose,
                                      Memory* memory) {
  std::optional<Buffer> buffer = Buffer::Try(bytes, memory);
  if (buffer.has_value()) return *std::move(buffer);
  const std::optional<size_t> available = memory->available();
  const std::string free =
      available.has_value() ? absl::StrCat(" (", *available, " bytes are free)") : "";
  return absl::ResourceExhaustedError(
      absl::StrCat(purpose.what, " of ", bytes, " bytes does not fit into the memory of the ",
                   memory->on_host() ? "host" : "device", free, "; ", purpose.remedy));
}

}  // namespace tidepool::kernels

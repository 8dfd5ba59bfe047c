#include "kernels/tensor.h"

#include <cstdlib>

namespace tidepool::kernels {

Buffer::Buffer(size_t bytes, Memory* memory) : size_(bytes) {
  if (bytes == 0) return;
  data_ = std::unique_ptr<std::byte[], Free>(memory->Allocate(bytes), Free{memory});
  CHECK(data_ != nullptr) << "out of memory for a buffer of " << bytes << " bytes";
}

void Arena::DieFull(size_t bytes) const {
  CHECK(false) << "the arena of " << capacity() << " bytes is full: " << bytes
               << " more requested with " << used_ << " used";
  std::abort();
}

}  // namespace tidepool::kernels

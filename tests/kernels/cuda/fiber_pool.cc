#include "tests/kernels/cuda/fiber_pool.h"

#include <utility>

#include "boost/context/fiber.hpp"
#include "boost/context/fixedsize_stack.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
// Without ASan, a change of the stack need not be reported.
static void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

namespace tidepool::kernels::cuda {
namespace {

constexpr size_t kStackBytes = 128 << 10;

}  // namespace

struct FiberPool::Fiber {
  Fiber() : allocator(kStackBytes), stack(allocator.allocate()) {}

  boost::context::fixedsize_stack allocator;
  boost::context::stack_context stack;
  boost::context::fiber self;    // valid while the fiber is paused
  boost::context::fiber caller;  // valid while the fiber runs
};

FiberPool::FiberPool(std::function<void(int)> body) : body_(std::move(body)) {}

FiberPool::~FiberPool() {
  for (size_t i = 0; i < fibers_.size(); ++i) Abandon(static_cast<int>(i));
}

void FiberPool::Loop(int index) {
  __sanitizer_finish_switch_fiber(nullptr, &caller_stack_, &caller_stack_bytes_);
  while (true) {
    body_(index);
    Pause();
  }
}

void FiberPool::Resume(int index) {
  if (fibers_.size() <= static_cast<size_t>(index)) fibers_.resize(index + 1);
  std::unique_ptr<Fiber>& fiber = fibers_[index];
  if (fiber == nullptr) {
    fiber = std::make_unique<Fiber>();
    fiber->self = boost::context::fiber(
        std::allocator_arg,
        boost::context::preallocated(fiber->stack.sp, fiber->stack.size, fiber->stack),
        fiber->allocator, [this, index](boost::context::fiber&& caller) {
          fibers_[index]->caller = std::move(caller);
          Loop(index);
          return boost::context::fiber();
        });
  }
  running_ = fiber.get();
  void* fake_stack = nullptr;
  const auto* bottom = static_cast<const char*>(fiber->stack.sp) - fiber->stack.size;
  __sanitizer_start_switch_fiber(&fake_stack, bottom, fiber->stack.size);
  boost::context::fiber next = std::move(fiber->self).resume();
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  running_->self = std::move(next);
}

void FiberPool::Pause() {
  Fiber* const fiber = running_;
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, caller_stack_, caller_stack_bytes_);
  fiber->caller = std::move(fiber->caller).resume();
  __sanitizer_finish_switch_fiber(fake_stack, &caller_stack_, &caller_stack_bytes_);
}

// A fiber that is destroyed unwinds its stack with an exception, so it is released instead: its
// memory is freed here.
void FiberPool::Abandon(int index) {
  if (fibers_.size() <= static_cast<size_t>(index)) return;
  std::unique_ptr<Fiber>& fiber = fibers_[index];
  if (fiber == nullptr) return;
  boost::context::stack_context stack = fiber->stack;
  boost::context::fixedsize_stack allocator = fiber->allocator;
  // never destroyed: the destructors would resume the fiber
  alignas(boost::context::fiber) std::byte released[sizeof(boost::context::fiber)];
  new (released) boost::context::fiber(std::move(fiber->self));
  fiber = nullptr;
  allocator.deallocate(stack);
}

}  // namespace tidepool::kernels::cuda

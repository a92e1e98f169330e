// SPDX-License-Identifier: Apache-2.0
#include "host_allocator.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <mutex>
#include <new>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include "plimsoll/base/error.h"

#include "operator_threads.h"

namespace plimsoll::detail {
namespace {

// Initial-exec: no call into the loader for each allocation, in shared libraries too.
[[gnu::tls_model("initial-exec")]] constinit thread_local ArenaSource* t_source = nullptr;

// The same for allocations on a device that is not the CPU.
[[gnu::tls_model("initial-exec")]] constinit thread_local ArenaSource* t_device_source = nullptr;

// The arena that this OpenMP worker's team works for.
[[gnu::tls_model("initial-exec")]] constinit thread_local ArenaSource* t_team = nullptr;

// What every call reads stands in one cache line; the calls themselves are cold, operators run
// between them.
struct alignas(64) HotLine {
  // The arena of the operator that runs now, for OpenMP workers, which have no scope of their own.
  // Operators of one session run one at a time except on engine threads of several devices, which
  // share the session's arena; so one pointer and a count suffice. Other threads have workers of
  // their own, which are told apart by the team they were enrolled in.
  std::atomic<ArenaSource*> worker_source{nullptr};
  std::atomic<int> open_scopes{0};
  // The allocator, made here once: whoever frees finds it without a pointer or a guard.
  alignas(HostAllocator) std::byte allocator[sizeof(HostAllocator)] = {};
};
constinit HotLine g_hot;

std::mutex g_arenas_mutex;

// The heap as the resource that plans' arenas come from.
class HeapResource final : public pool::MemoryResource {
 public:
  explicit HeapResource(HostAllocator& allocator) : allocator_(allocator) {}
  void* allocate(std::int64_t bytes, device::Queue queue) override {
    c10::DataPtr memory = allocator_.allocate_on_heap(static_cast<std::size_t>(bytes));
    use_huge_pages(memory.get(), static_cast<std::size_t>(bytes));
    return memory.release_context();
  }
  void deallocate(void* pointer, std::int64_t bytes, device::Queue queue) noexcept override {
    allocator_.free_on_heap(pointer);
  }
  std::int64_t alignment_bytes() const noexcept override { return 64; }
  pool::ResourceStatistics stats() const noexcept override { return {}; }
  std::string name() const override { return "LibTorch's heap"; }

 private:
  // An arena is filled from end to end, so that huge pages cost nothing and save the operators
  // most of their misses in the table of pages. Where the system has none, nothing happens.
  static void use_huge_pages(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__)
    constexpr std::uintptr_t kHuge = std::uintptr_t{2} << 20;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge;
    const std::uintptr_t last = (begin + bytes) / kHuge * kHuge;
    if (first < last)
      madvise(static_cast<std::byte*>(memory) + (first - begin), last - first, MADV_HUGEPAGE);
#endif
  }
  HostAllocator& allocator_;
};

}  // namespace

ArenaSource* device_source() noexcept { return t_device_source; }

ArenaScope::ArenaScope(ArenaSource* source) noexcept : source_(source), previous_(nullptr) {
  if (source_ == nullptr) return;
  if (!source_->arena_device().is_cpu()) {
    previous_ = std::exchange(t_device_source, source_);
    return;
  }
  previous_ = std::exchange(t_source, source_);
  g_hot.worker_source.store(source_, std::memory_order_release);
  g_hot.open_scopes.fetch_add(1, std::memory_order_acq_rel);
}

ArenaScope::~ArenaScope() {
  if (source_ == nullptr) return;
  if (!source_->arena_device().is_cpu()) {
    t_device_source = previous_;
    return;
  }
  t_source = previous_;
  g_hot.open_scopes.fetch_sub(1, std::memory_order_acq_rel);
}

HeapScope::HeapScope() noexcept
    : previous_(std::exchange(t_source, nullptr)),
      previous_device_(std::exchange(t_device_source, nullptr)) {}

HeapScope::~HeapScope() {
  t_source = previous_;
  t_device_source = previous_device_;
}

void enroll_workers(ArenaSource* source) {
  on_operator_threads(at::get_num_threads(), /*grain=*/1,
                      [source](std::int64_t, std::int64_t) { t_team = source; });
}

HostAllocator& HostAllocator::installed() {
  // Never destroyed: LibTorch frees storages through it after static destructors have run.
  static HostAllocator* const kAllocator = [] {
    auto* allocator = new (g_hot.allocator) HostAllocator();
    c10::SetCPUAllocator(allocator, kAllocatorPriority);
    return allocator;
  }();
  return *kAllocator;
}

HostAllocator::HostAllocator() : heap_(c10::GetDefaultCPUAllocator()) {}

c10::DeleterFnPtr HostAllocator::raw_deleter() const { return &HostAllocator::release; }

void HostAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  default_copy_data(dest, src, count);
}

bool HostAllocator::owns_deleter(c10::DeleterFnPtr deleter) const {
  return deleter == &HostAllocator::release || deleter == heap_->raw_deleter();
}

c10::DataPtr HostAllocator::allocate(std::size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  // Null without context: zero-size storages are common and must take part in nothing.
  if (bytes == 0) return {nullptr, nullptr, &HostAllocator::release, cpu};
  ArenaSource* source = t_source;
  if (source == nullptr && g_hot.open_scopes.load(std::memory_order_acquire) > 0 &&
      at::in_parallel_region()) {
    ArenaSource* const worker_source = g_hot.worker_source.load(std::memory_order_acquire);
    if (worker_source == t_team) source = worker_source;
  }
  if (source == nullptr) {
    exec::ReplayEngine* engine = planning_.load(std::memory_order_acquire);
    return engine == nullptr ? allocate_on_heap(bytes) : allocate_planned(*engine, bytes);
  }
  void* address = source->allocate(bytes);
  return {address, address, &HostAllocator::release, cpu};
}

// The size alone tells requests apart: naming the operator would cost more than the hand-out.
c10::DataPtr HostAllocator::allocate_planned(exec::ReplayEngine& engine, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  if (void* address = engine.try_allocate(size))
    return {address, address, &HostAllocator::release, c10::Device(c10::DeviceType::CPU)};
  c10::DataPtr memory = allocate_on_heap(bytes);
  engine.note(memory.get(), size);
  return memory;
}

void HostAllocator::set_planning(bool wanted) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (wanted && plan_engine() == nullptr) {
    // Neither is ever destroyed, like the allocator.
    auto* resource = new HeapResource(*this);
    engine_.store(new (engine_place_) exec::ReplayEngine(*resource), std::memory_order_release);
  }
  planning_.store(wanted ? plan_engine() : nullptr, std::memory_order_release);
}

void HostAllocator::free_on_heap(void* address) noexcept {
  account_.discharge(address);
  heap_->raw_deallocate(address);
}

c10::DataPtr HostAllocator::allocate_on_heap(std::size_t bytes) {
  HeapAccount::Charge charge(account_, bytes);
  c10::DataPtr memory = heap_->allocate(bytes);
  void* address = memory.release_context();
  charge.commit(address);
  return {address, address, &HostAllocator::release, c10::Device(c10::DeviceType::CPU)};
}

void HostAllocator::release(void* address) {
  if (address == nullptr) return;
  HostAllocator& self = *std::launder(reinterpret_cast<HostAllocator*>(g_hot.allocator));
  exec::ReplayEngine* engine = self.plan_engine();
  if (engine != nullptr && engine->try_deallocate(address)) return;
  if (ArenaSource* source = self.arena_of(address)) {
    source->deallocate(address);
    return;
  }
  self.free_on_heap(address);
}

ArenaSource* HostAllocator::arena_of(const void* address) const noexcept {
  const auto* byte = static_cast<const char*>(address);
  for (const Range& range : arenas_) {
    // Whoever frees a block of an arena keeps that arena registered, so a range that matches
    // cannot be on its way out.
    if (byte >= range.begin.load(std::memory_order_acquire) &&
        byte < range.end.load(std::memory_order_acquire)) {
      return range.source.load(std::memory_order_acquire);
    }
  }
  return nullptr;
}

void HostAllocator::add_arena(const void* begin, const void* end, ArenaSource* source) {
  const std::lock_guard lock(g_arenas_mutex);
  for (Range& range : arenas_) {
    if (range.source.load() != nullptr) continue;
    range.source.store(source, std::memory_order_release);
    range.begin.store(static_cast<const char*>(begin), std::memory_order_release);
    range.end.store(static_cast<const char*>(end), std::memory_order_release);
    return;
  }
  throw Unsupported(
      "all 8 arenas are in use: storages of earlier sessions are still held by foreign code");
}

void HostAllocator::remove_arena(ArenaSource* source) noexcept {
  const std::lock_guard lock(g_arenas_mutex);
  for (Range& range : arenas_) {
    if (range.source.load() != source) continue;
    range.end.store(nullptr, std::memory_order_release);
    range.begin.store(nullptr, std::memory_order_release);
    range.source.store(nullptr, std::memory_order_release);
  }
}

}  // namespace plimsoll::detail

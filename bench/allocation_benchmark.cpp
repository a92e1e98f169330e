// SPDX-License-Identifier: Apache-2.0
// Planned allocation beside the C library's, jemalloc's and mimalloc's, on the recorded allocations
// of small nets (bench/traces, made by `small_nets NET inference|training record FILE`).
//
//   allocation_benchmark FOLDER-OF-TRACES [Google Benchmark's flags]
//
// One iteration is one step of the net, with its step mark. The counter `call` is its time divided
// by the number of calls (each allocation and each free is one), reading the trace included; the
// row `loop` does the same without an allocator. Results are checked first: every allocator's
// blocks against an independent list.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>

#include "plimsoll/exec/replay_engine.h"
#include "plimsoll/pool/host_resource.h"

namespace {

struct Event {
  std::int64_t bytes = 0;  // 0 for a free
  std::size_t block = 0;
};
struct Trace {
  std::string name;
  std::vector<Event> events;
  std::size_t blocks = 0;
};

// Reads "a BYTES" and "f NUMBER-OF-ALLOCATION" lines; what outlives the step is freed at its end.
Trace read_trace(const std::filesystem::path& path) {
  Trace trace{path.stem().string(), {}, 0};
  std::ifstream file(path);
  std::vector<bool> is_live;
  char kind = 0;
  std::int64_t value = 0;
  while (file >> kind >> value) {
    if (kind == 'a') {
      trace.events.push_back({value, trace.blocks++});
      is_live.push_back(true);
    } else {
      trace.events.push_back({0, static_cast<std::size_t>(value)});
      is_live[static_cast<std::size_t>(value)] = false;
    }
  }
  for (std::size_t block = 0; block < is_live.size(); ++block)
    if (is_live[block]) trace.events.push_back({0, block});
  return trace;
}

// An allocator of the C kind, taken from its library by name, so that none replaces another.
struct CAllocator {
  int (*align)(void**, std::size_t, std::size_t);
  void (*release)(void*);
  void* allocate(std::int64_t bytes) const {
    void* block = nullptr;
    if (align(&block, 64, static_cast<std::size_t>(bytes)) != 0) std::abort();
    return block;
  }
  void deallocate(void* block, std::int64_t) const { release(block); }
  void mark() const {}
};

CAllocator from_library(const char* library, const char* align, const char* release) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(4);
  }
  return {reinterpret_cast<int (*)(void**, std::size_t, std::size_t)>(dlsym(handle, align)),
          reinterpret_cast<void (*)(void*)>(dlsym(handle, release))};
}

// What the benchmark itself costs.
struct Loop {
  void* allocate(std::int64_t) const { return nullptr; }
  void deallocate(void*, std::int64_t) const {}
  void mark() const {}
};

// The engine with the C library behind it.
class Planned {
 public:
  void* allocate(std::int64_t bytes) {
    if (void* block = engine_.try_allocate(bytes)) return block;
    void* block = host_.allocate(bytes, plimsoll::device::Queue::kCompute);
    engine_.note(block, bytes);
    return block;
  }
  void deallocate(void* block, std::int64_t bytes) {
    if (!engine_.try_deallocate(block))
      host_.deallocate(block, bytes, plimsoll::device::Queue::kCompute);
  }
  void mark() { engine_.step_mark(); }
  void settle() { engine_.wait_for_planner(); }

 private:
  plimsoll::pool::HostResource host_;
  plimsoll::exec::ReplayEngine engine_{host_};
};

template <typename Allocator>
void run_step(Allocator& allocator, const Trace& trace, std::vector<void*>& blocks,
              std::vector<std::int64_t>& sizes) {
  for (const Event& event : trace.events) {
    if (event.bytes != 0) {
      blocks[event.block] = allocator.allocate(event.bytes);
      sizes[event.block] = event.bytes;
      benchmark::DoNotOptimize(blocks[event.block]);
    } else {
      allocator.deallocate(blocks[event.block], sizes[event.block]);
    }
  }
  allocator.mark();
}

// Live blocks by address, to check an allocator before it is timed.
template <typename Allocator>
class Checked {
 public:
  explicit Checked(Allocator& allocator) : allocator_(allocator) {}
  void* allocate(std::int64_t bytes) {
    void* block = allocator_.allocate(bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(block);
    const auto above = live_.lower_bound(begin);
    const bool overlaps = (above != live_.end() && above->first < begin + std::uintptr_t(bytes)) ||
                          (above != live_.begin() && std::prev(above)->second > begin);
    if (overlaps || begin % 64 != 0) {
      std::fprintf(stderr, "an allocator has handed out a byte twice\n");
      std::abort();
    }
    live_[begin] = begin + static_cast<std::uintptr_t>(bytes);
    return block;
  }
  void deallocate(void* block, std::int64_t bytes) {
    live_.erase(reinterpret_cast<std::uintptr_t>(block));
    allocator_.deallocate(block, bytes);
  }
  void mark() { allocator_.mark(); }

 private:
  Allocator& allocator_;
  std::map<std::uintptr_t, std::uintptr_t> live_;
};

template <typename Allocator>
void benchmark_trace(benchmark::State& state, Allocator& allocator, const Trace& trace) {
  std::vector<void*> blocks(trace.blocks);
  std::vector<std::int64_t> sizes(trace.blocks);
  if constexpr (!std::is_same_v<Allocator, Loop>) {
    Checked<Allocator> checked(allocator);
    for (int i = 0; i < 8; ++i) {
      run_step(checked, trace, blocks, sizes);
      if constexpr (requires { allocator.settle(); }) allocator.settle();
    }
  }
  for (auto _ : state) run_step(allocator, trace, blocks, sizes);
  state.counters["call"] = benchmark::Counter(
      static_cast<double>(trace.events.size()) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

template <typename Allocator>
void add(const std::string& name, Allocator& allocator, const Trace& trace) {
  auto* entry = benchmark::RegisterBenchmark(
      (trace.name + "/" + name).c_str(),
      [&allocator, &trace](benchmark::State& state) { benchmark_trace(state, allocator, trace); });
  // CPU time: what else the machine does counts less.
  entry->ThreadRange(1, 8)->MinTime(0.03)->ComputeStatistics(
      "least", [](const auto& values) { return *std::min_element(values.begin(), values.end()); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "allocation_benchmark FOLDER-OF-TRACES [flags]\n");
    return 2;
  }
  // jemalloc wants more thread-local memory than a library opened at run time gets by default.
  if (std::getenv("GLIBC_TUNABLES") == nullptr) {
    setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=65536", 1);
    execv("/proc/self/exe", argv);
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.path().extension() == ".trace") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<std::unique_ptr<Planned>> planned;
  Loop loop;
  CAllocator glibc{&posix_memalign, &std::free};
  CAllocator jemalloc = from_library("libjemalloc.so.2", "posix_memalign", "free");
  CAllocator mimalloc = from_library("libmimalloc.so.2", "mi_posix_memalign", "mi_free");
  for (const auto& file : files) {
    const Trace& trace = *traces.emplace_back(std::make_unique<Trace>(read_trace(file)));
    add("planned", *planned.emplace_back(std::make_unique<Planned>()), trace);
    add("loop", loop, trace);
    add("glibc", glibc, trace);
    add("jemalloc", jemalloc, trace);
    add("mimalloc", mimalloc, trace);
  }
  --argc;
  argv[1] = argv[0];
  ++argv;
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

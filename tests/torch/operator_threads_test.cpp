// SPDX-License-Identifier: Apache-2.0
// LibTorch's operator threads: used for copies, enrolled for what kernels allocate on them.
#include "operator_threads.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plimsoll/base/bytes.h"
#include "plimsoll/session.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kUnit = kib(256);

class OperatorThreads : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(2); }
};

TEST_F(OperatorThreads, AreAsManyAsLibTorchUses) {
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    std::mutex mutex;
    std::set<std::thread::id> seen;
    std::int64_t covered = 0;
    detail::on_operator_threads(3000, 1, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      covered += end - begin;
    });
    EXPECT_EQ(static_cast<int>(seen.size()), threads);
    EXPECT_EQ(covered, 3000);
  }
}

// The thread sanitizer does not survive a thread that starts in a forked child.
#ifndef __SANITIZE_THREAD__
std::size_t threads_used() {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  detail::on_operator_threads(2, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return seen.size();
}

// In a process where LibTorch used its workers before anything of ours did.
TEST_F(OperatorThreads, AreNotWaitedForInAForkedChild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    at::set_num_threads(2);
    torch::ones({1 << 20}).add_(1);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const std::size_t own = threads_used();
      std::size_t of_another = 0;
      std::thread([&] { of_another = threads_used(); }).join();
      _exit(own == 1 && of_another == 2 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    _exit(status == 0 ? 0 : 1);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST_F(OperatorThreads, AllocateInTheArenaDuringAnOperator) {
  Session session({.budget_bytes = 8 * kUnit});
  const auto step = session.step();
  std::set<std::thread::id> seen;
  std::vector<torch::Tensor> made;
  std::mutex mutex;
  const auto allocate = [&](std::int64_t, std::int64_t) {
    torch::Tensor one = at::detail::empty_cpu({kUnit / 4}, at::kFloat, false, std::nullopt);
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
    made.push_back(std::move(one));
  };
  const std::vector<torch::Tensor> results = session.run_opaque("allocate_on_workers", {}, [&] {
    detail::on_operator_threads(2, 1, allocate);
    return made;
  });
  EXPECT_EQ(seen.size(), 2U);
  ASSERT_EQ(results.size(), 2U);
  for (const torch::Tensor& one : results) EXPECT_TRUE(session.holds(one.storage()));
  EXPECT_EQ(session.report().peak_bytes, 2 * kUnit);
}

TEST_F(OperatorThreads, ParallelRegionsOfOtherThreadsAreLeftAlone) {
  Session session({.budget_bytes = 4 * kUnit});
  std::atomic<int> rounds{0};
  std::exception_ptr failure;
  std::jthread other([&](const std::stop_token& stop) {
    try {
      for (; !stop.stop_requested(); ++rounds) {
        detail::on_operator_threads(2, 1, [](std::int64_t, std::int64_t) {
          at::detail::empty_cpu({16 * kUnit / 4}, at::kFloat, false, std::nullopt);
        });
      }
    } catch (...) {
      failure = std::current_exception();
    }
  });
  {
    const auto step = session.step();
    torch::Tensor x = torch::ones({kUnit / 4});
    int added = 0;
    for (; added < 2000 || rounds == 0; ++added) x = x.add(1);
    EXPECT_EQ(x[0].item<float>(), static_cast<float>(added + 1));
  }
  other.request_stop();
  other.join();
  EXPECT_EQ(failure, nullptr);
}

}  // namespace
}  // namespace plimsoll

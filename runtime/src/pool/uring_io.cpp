// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include <liburing.h>

#include "pool/file_io.h"

namespace plimsoll::pool {
namespace {

// Source: Axboe, "Efficient IO with io_uring" (2019).
class UringIo final : public FileIo {
 public:
  explicit UringIo(int queue_depth) : depth_(queue_depth) {
    is_open_ = io_uring_queue_init(static_cast<unsigned>(queue_depth), &ring_, 0) == 0;
  }
  ~UringIo() override {
    if (is_open_) io_uring_queue_exit(&ring_);
  }
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;
  bool is_open() const { return is_open_; }
  bool is_io_uring() const noexcept override { return true; }

  // Keeps up to depth_ requests in flight; a short one is submitted again for its rest. After an
  // error nothing new is submitted, but what is in flight is waited for: it uses the memory.
  int transfer(int file, FileDirection direction, std::vector<FileRequest> requests) override {
    if (is_broken_) return fallback_->transfer(file, direction, std::move(requests));
    std::vector<std::size_t> waiting;
    for (std::size_t i = requests.size(); i-- > 0;) waiting.push_back(i);
    int in_flight = 0;
    int error = 0;
    while (in_flight > 0 || (!waiting.empty() && error == 0)) {
      while (!waiting.empty() && in_flight < depth_ && error == 0) {
        io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
        if (entry == nullptr) break;
        prepare(entry, file, direction, requests[waiting.back()], waiting.back());
        waiting.pop_back();
        ++in_flight;
      }
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
        retire(in_flight);
        return -submitted;
      }
      io_uring_cqe* completion = nullptr;
      while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        const auto index = static_cast<std::size_t>(io_uring_cqe_get_data64(completion));
        const int moved = completion->res;
        io_uring_cqe_seen(&ring_, completion);
        --in_flight;
        if (has_rest(requests[index], moved, direction, error)) waiting.push_back(index);
      }
    }
    return error;
  }

 private:
  // Takes what was moved, or the code of an error, off the request.
  static bool has_rest(FileRequest& request, int moved, FileDirection direction, int& error) {
    if (moved == -EINTR || moved == -EAGAIN) return true;
    if (moved <= 0) {
      if (error == 0) error = moved < 0 ? -moved : end_error(direction);
      return false;
    }
    request.data += moved;
    request.offset += moved;
    request.bytes -= moved;
    return request.bytes > 0;
  }

  // The ring takes nothing more: waits for what it has taken, whose memory is in use, and leaves
  // the rest and all later transfers to plain calls.
  void retire(int in_flight) {
    is_broken_ = true;
    in_flight -= static_cast<int>(io_uring_sq_ready(&ring_));
    for (io_uring_cqe* completion = nullptr; in_flight > 0;) {
      if (io_uring_wait_cqe(&ring_, &completion) != 0) continue;  // EINTR: no other error waits
      io_uring_cqe_seen(&ring_, completion);
      --in_flight;
    }
  }

  static int end_error(FileDirection direction) {
    return direction == FileDirection::kWrite ? ENOSPC : EIO;
  }
  static void prepare(io_uring_sqe* entry, int file, FileDirection direction,
                      const FileRequest& request, std::size_t index) {
    const auto bytes = static_cast<unsigned>(request.bytes);
    const auto offset = static_cast<std::uint64_t>(request.offset);
    if (direction == FileDirection::kWrite)
      io_uring_prep_write(entry, file, request.data, bytes, offset);
    else
      io_uring_prep_read(entry, file, request.data, bytes, offset);
    io_uring_sqe_set_data64(entry, index);
  }

  int depth_;
  bool is_open_ = false;
  bool is_broken_ = false;
  std::unique_ptr<FileIo> fallback_ = make_positioned_io();
  io_uring ring_{};
};

}  // namespace

std::unique_ptr<FileIo> make_io_uring(int queue_depth) {
  auto io = std::make_unique<UringIo>(queue_depth);
  if (!io->is_open()) return nullptr;
  return io;
}

}  // namespace plimsoll::pool

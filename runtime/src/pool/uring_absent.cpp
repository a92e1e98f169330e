// SPDX-License-Identifier: Apache-2.0
// Takes uring_io.cpp's place in a build without liburing.
#include "pool/file_io.h"

namespace plimsoll::pool {

std::unique_ptr<FileIo> make_io_uring(int) { return nullptr; }

}  // namespace plimsoll::pool

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace plimsoll::simgpu {

void register_device_guard();

}  // namespace plimsoll::simgpu

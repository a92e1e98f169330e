// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace plimsoll::simgpu {

// What LibTorch asks an accelerator beside its guard: generators, pinned memory, storages.
void register_hooks();

}  // namespace plimsoll::simgpu

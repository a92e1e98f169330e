// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>

#include <ATen/Parallel.h>

#include "plimsoll/capabilities.h"
#include "plimsoll/session.h"

#include "torch_commands.h"

namespace plimsoll::cli {

LibTorchFacts find_libtorch_facts() {
  LibTorchFacts facts;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) != 0)
    facts.folder = std::filesystem::path(info.dli_fname).parent_path();
  const Capabilities found = find_capabilities();
  facts.threads = found.operator_threads;
  facts.copy_threads = found.copy_threads;
  facts.can_forbid_pointers = found.can_forbid_pointers;
  facts.cuda_refusal = found.cuda_refusal;
  facts.self_test = interposer_self_test();
  return facts;
}

}  // namespace plimsoll::cli

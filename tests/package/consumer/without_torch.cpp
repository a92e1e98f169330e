// SPDX-License-Identifier: Apache-2.0
#include <plimsoll/base/size.h>

int main() { return plimsoll::parse_size("64MiB", "size") == 64 << 20 ? 0 : 1; }

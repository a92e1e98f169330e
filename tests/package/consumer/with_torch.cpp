// SPDX-License-Identifier: Apache-2.0
// A user's program: ATen only, to keep it short to compile.
#include <plimsoll/session.h>

#include <ATen/ATen.h>

int main() {
  at::Tensor weight = at::ones({64, 64}).requires_grad_(true);
  plimsoll::Session session({.budget_bytes = plimsoll::mib(1)});
  float sum = 0;
  for (int i = 0; i < 3; ++i) {
    const auto step = session.step();
    at::Tensor loss = weight.mul(2).sum();
    loss.backward();
    sum = loss.item<float>();
  }
  return sum == 8192.0F && session.report().peak_bytes <= plimsoll::mib(1) ? 0 : 1;
}

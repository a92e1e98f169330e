// SPDX-License-Identifier: Apache-2.0
// The checker re-proves what the solver claims on real graphs, of every kind of proof.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "plimsoll/graph/text.h"
#include "plimsoll/order/certificate.h"
#include "plimsoll/order/from_graph.h"

namespace plimsoll::order {
namespace {

TEST(Verify, AcceptsTheCertificatesOfRealGraphsAndNoHigherBound) {
  std::set<Certificate::Kind> kinds;
  for (const std::string name :
       {"inference/amoebanet-cifar", "inference/darts-imagenet", "inference/nasnet-cifar",
        "inference/pnas-imagenet", "inference/randwire3-wsum-32", "training/t-resnet50",
        "training/t-randwire32", "training/x-resnet18-1", "training/x-densenet121-1"}) {
    SCOPED_TRACE(name);
    const graph::Graph graph = graph::read_text_file(PLIMSOLL_TEST_DATA "/graphs/" + name + ".txt");
    const OrderResult solved = solve(graph, {});
    ASSERT_TRUE(solved.proved());
    Certificate certificate = make_certificate(graph, solved);
    kinds.insert(certificate.kind);
    const Verdict verdict = verify(graph, certificate);
    EXPECT_TRUE(verdict.valid()) << verdict.reason;
    EXPECT_EQ(verdict.peak_bytes, solved.peak_bytes);
    // A worse order with a bound as high as its own peak is refused: its proof does not reach it.
    OrderResult program = program_order(graph);
    if (program.peak_bytes == solved.peak_bytes) continue;
    program.lower_bound_bytes = program.peak_bytes;
    program.proof = solved.proof;
    program.bound_op = solved.bound_op;
    EXPECT_FALSE(verify(graph, make_certificate(graph, program)).valid());
  }
  EXPECT_TRUE(kinds.contains(Certificate::Kind::kCut));
  EXPECT_TRUE(kinds.contains(Certificate::Kind::kExhausted));
}

}  // namespace
}  // namespace plimsoll::order

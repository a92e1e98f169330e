// SPDX-License-Identifier: Apache-2.0
// How fast a device is, for planning on one that need not be here.
//
// Noun: DeviceModel.
//
// The model of an operator that was not measured is a roofline:
//     max(flops / (flops_per_second x flops_efficiency),
//         bytes touched / (bytes_per_second x bandwidth_efficiency)) + launch
// of a copy: latency + bytes / bandwidth of its direction; of a move within the device: a launch
// and twice the bytes over the bandwidth of device memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/graph/graph.h"
#include "plimsoll/plan/plan.h"

namespace plimsoll::plan {

struct DeviceModel {
  std::string name;
  std::string note;  // what the figures are
  std::int64_t memory_bytes = 0;
  std::int64_t alignment_bytes = 512;
  double flops_per_second = 0;    // fp32, peak
  double flops_efficiency = 0.6;  // of dense operators
  double bytes_per_second = 0;    // device memory, peak
  double bandwidth_efficiency = 0.8;
  double launch_ns = 0;
  double copy_out_bytes_per_second = 0;  // to the host; 0: no copy engine
  double copy_in_bytes_per_second = 0;
  double copy_latency_ns = 0;
  std::int64_t host_bytes = 0;             // the host tier; beyond it copies go to the file tier
  double file_write_bytes_per_second = 0;  // 0: no file tier
  double file_read_bytes_per_second = 0;
  double file_latency_ns = 0;

  bool can_copy() const { return copy_out_bytes_per_second > 0 && copy_in_bytes_per_second > 0; }
  double copy_ns(std::int64_t bytes, Stream direction, Tier tier) const;
  // Within the device, to an address so far away: where both places overlap, in parts of at most
  // the distance. Bytes are read and written once, each part is one launch.
  double move_ns(std::int64_t bytes, std::int64_t distance) const;
};

// "v100-12g", "a100-80g", "h100", "h200", "rtx4090", "laptop-8g", "host".
std::vector<std::string> device_model_names();

// One of the above, or a JSON file with the same keys as this struct. Errors: InvalidArgument for
// an unknown name, InvalidFile naming the key for a missing, unknown or absurd figure.
DeviceModel load_device_model(const std::string& name_or_file);

// Reads the JSON text of a device; `file` names it in messages. Errors: as above.
DeviceModel parse_device_model(std::string_view text, const std::string& file);

// Floating-point operations of `op`: its attribute "flops"; else from shapes for convolutions and
// matrix products; else 32 a byte for those without shapes, and one an element for the rest.
double op_flops(const graph::Graph& graph, graph::OpId op);

enum class CostSource : std::uint8_t {
  kMeasured,  // every op carries a measured cost
  kModelled,  // none does, or the device is another one: roofline
  kMixed,     // the measured where there is one
};
const char* cost_source_name(CostSource source) noexcept;

struct OpCosts {
  std::vector<double> ns;  // by op
  CostSource source = CostSource::kModelled;
};

// Measured costs count only where `use_measured` says that they come from this device.
// Cost: O(ops + touches).
OpCosts op_costs(const graph::Graph& graph, const DeviceModel& device, bool use_measured);

}  // namespace plimsoll::plan

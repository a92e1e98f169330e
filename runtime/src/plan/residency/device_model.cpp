// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/device_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::plan {
namespace {

// Vendors' data sheets for the peaks; copy bandwidths are what pinned copies reach in practice.
// "host" is a two-core AVX-512 machine on which copies are memory copies.
constexpr std::string_view kDevices = R"json([
  {"name": "v100-12g", "note": "V100 PCIe with 12 GiB enabled; fp32, PCIe 3 x16",
   "memory_bytes": 12884901888, "flops_per_second": 14.0e12, "bytes_per_second": 900e9,
   "launch_ns": 5000, "copy_out_bytes_per_second": 12e9, "copy_in_bytes_per_second": 12e9,
   "copy_latency_ns": 10000, "host_bytes": 137438953472,
   "file_write_bytes_per_second": 2e9, "file_read_bytes_per_second": 3e9, "file_latency_ns": 100000},
  {"name": "a100-80g", "note": "A100 SXM 80 GB; fp32 without tensor cores, PCIe 4 x16",
   "memory_bytes": 85899345920, "flops_per_second": 19.5e12, "bytes_per_second": 2039e9,
   "launch_ns": 4000, "copy_out_bytes_per_second": 25e9, "copy_in_bytes_per_second": 25e9,
   "copy_latency_ns": 8000, "host_bytes": 549755813888,
   "file_write_bytes_per_second": 3e9, "file_read_bytes_per_second": 6e9, "file_latency_ns": 80000},
  {"name": "h100", "note": "H100 SXM 80 GB; fp32 without tensor cores, PCIe 5 x16",
   "memory_bytes": 85899345920, "flops_per_second": 66.9e12, "bytes_per_second": 3350e9,
   "launch_ns": 3500, "copy_out_bytes_per_second": 55e9, "copy_in_bytes_per_second": 55e9,
   "copy_latency_ns": 6000, "host_bytes": 1099511627776,
   "file_write_bytes_per_second": 5e9, "file_read_bytes_per_second": 10e9, "file_latency_ns": 80000},
  {"name": "h200", "note": "H200 SXM 141 GB; fp32 without tensor cores, PCIe 5 x16",
   "memory_bytes": 151397597184, "flops_per_second": 66.9e12, "bytes_per_second": 4800e9,
   "launch_ns": 3500, "copy_out_bytes_per_second": 55e9, "copy_in_bytes_per_second": 55e9,
   "copy_latency_ns": 6000, "host_bytes": 1099511627776,
   "file_write_bytes_per_second": 5e9, "file_read_bytes_per_second": 10e9, "file_latency_ns": 80000},
  {"name": "rtx4090", "note": "RTX 4090 24 GB; fp32, PCIe 4 x16",
   "memory_bytes": 25769803776, "flops_per_second": 82.6e12, "bytes_per_second": 1008e9,
   "launch_ns": 4000, "copy_out_bytes_per_second": 25e9, "copy_in_bytes_per_second": 25e9,
   "copy_latency_ns": 8000, "host_bytes": 68719476736,
   "file_write_bytes_per_second": 3e9, "file_read_bytes_per_second": 6e9, "file_latency_ns": 80000},
  {"name": "laptop-8g", "note": "RTX 4060 Laptop 8 GB; fp32, PCIe 4 x8",
   "memory_bytes": 8589934592, "flops_per_second": 11.6e12, "bytes_per_second": 256e9,
   "launch_ns": 6000, "copy_out_bytes_per_second": 12e9, "copy_in_bytes_per_second": 12e9,
   "copy_latency_ns": 12000, "host_bytes": 17179869184,
   "file_write_bytes_per_second": 1.5e9, "file_read_bytes_per_second": 3e9, "file_latency_ns": 100000},
  {"name": "host", "note": "two cores with AVX-512; copies are memory copies",
   "memory_bytes": 25769803776, "alignment_bytes": 64, "flops_per_second": 0.15e12,
   "bytes_per_second": 20e9, "launch_ns": 2000, "copy_out_bytes_per_second": 15e9,
   "copy_in_bytes_per_second": 15e9, "copy_latency_ns": 500, "host_bytes": 17179869184,
   "file_write_bytes_per_second": 1e9, "file_read_bytes_per_second": 2e9, "file_latency_ns": 100000}
])json";

// Of a link or a file, in bytes a second, where there is one.
constexpr double kLeastSpeed = 1e3;

struct Figure {
  const char* key;
  std::function<void(DeviceModel&, double)> set;
  double least;
  double most;
  bool required;
};

const std::vector<Figure>& figures() {
  static const std::vector<Figure> kFigures = {
      {"memory_bytes", [](DeviceModel& d, double x) { d.memory_bytes = std::int64_t(x); }, 1 << 20,
       1e15, true},
      {"alignment_bytes", [](DeviceModel& d, double x) { d.alignment_bytes = std::int64_t(x); }, 1,
       1 << 21, false},
      {"flops_per_second", [](DeviceModel& d, double x) { d.flops_per_second = x; }, 1e6, 1e18,
       true},
      {"flops_efficiency", [](DeviceModel& d, double x) { d.flops_efficiency = x; }, 0.001, 1,
       false},
      {"bytes_per_second", [](DeviceModel& d, double x) { d.bytes_per_second = x; }, 1e6, 1e16,
       true},
      {"bandwidth_efficiency", [](DeviceModel& d, double x) { d.bandwidth_efficiency = x; }, 0.001,
       1, false},
      {"launch_ns", [](DeviceModel& d, double x) { d.launch_ns = x; }, 0, 1e9, true},
      {"copy_out_bytes_per_second",
       [](DeviceModel& d, double x) { d.copy_out_bytes_per_second = x; }, 0, 1e16, true},
      {"copy_in_bytes_per_second", [](DeviceModel& d, double x) { d.copy_in_bytes_per_second = x; },
       0, 1e16, true},
      {"copy_latency_ns", [](DeviceModel& d, double x) { d.copy_latency_ns = x; }, 0, 1e9, true},
      {"host_bytes", [](DeviceModel& d, double x) { d.host_bytes = std::int64_t(x); }, 0, 1e17,
       true},
      {"file_write_bytes_per_second",
       [](DeviceModel& d, double x) { d.file_write_bytes_per_second = x; }, 0, 1e16, false},
      {"file_read_bytes_per_second",
       [](DeviceModel& d, double x) { d.file_read_bytes_per_second = x; }, 0, 1e16, false},
      {"file_latency_ns", [](DeviceModel& d, double x) { d.file_latency_ns = x; }, 0, 1e10, false},
  };
  return kFigures;
}

DeviceModel model_of(const nlohmann::json& json, const std::string& file) {
  if (!json.is_object()) throw InvalidFile(file, "", "a device is a JSON object");
  DeviceModel device;
  if (!json.contains("name") || !json["name"].is_string())
    throw InvalidFile(file, "name", "a device needs a name, a string");
  device.name = json["name"];
  if (json.contains("note") && json["note"].is_string()) device.note = json["note"];
  for (const auto& [key, value] : json.items()) {
    const bool known = key == "name" || key == "note" ||
                       std::any_of(figures().begin(), figures().end(),
                                   [&key = key](const Figure& f) { return key == f.key; });
    if (!known) throw InvalidFile(file, key, "no such figure of a device");
  }
  for (const Figure& figure : figures()) {
    if (!json.contains(figure.key)) {
      if (figure.required) throw InvalidFile(file, figure.key, "this figure is missing");
      continue;
    }
    const nlohmann::json& value = json[figure.key];
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= figure.least && number <= figure.most))
      throw InvalidFile(file, figure.key,
                        fmt::format("{} is not a number from {:g} to {:g}", value.dump(),
                                    figure.least, figure.most));
    figure.set(device, number);
  }
  for (const char* key : {"copy_out_bytes_per_second", "copy_in_bytes_per_second",
                          "file_write_bytes_per_second", "file_read_bytes_per_second"})
    if (const double speed = json.value(key, 0.0); speed > 0 && speed < kLeastSpeed)
      throw InvalidFile(file, key,
                        fmt::format("{} is neither 0 nor at least {:g}", speed, kLeastSpeed));
  if ((device.file_write_bytes_per_second > 0) != (device.file_read_bytes_per_second > 0))
    throw InvalidFile(file, "file_read_bytes_per_second",
                      "a file tier is both written and read, or there is none");
  if ((device.alignment_bytes & (device.alignment_bytes - 1)) != 0)
    throw InvalidFile(file, "alignment_bytes",
                      fmt::format("{} is no power of two", device.alignment_bytes));
  return device;
}

const nlohmann::json& built_in() {
  static const nlohmann::json kJson = nlohmann::json::parse(kDevices);
  return kJson;
}

// Elements of one operand whose shape is known, -1 else.
double elements_of(const graph::Graph& graph, graph::ValueId v) {
  if (!graph.has_shape(v)) return -1;
  double elements = 1;
  for (const std::int64_t side : graph.shape(v)) elements *= static_cast<double>(side);
  return elements;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Of a convolution: 2 x elements of the output x weights of one output channel.
double convolution_flops(const graph::Graph& graph, graph::OpId op, bool backward) {
  const auto operands = graph.operands(op);
  const auto results = graph.results(op);
  if (operands.size() < 2 || results.empty()) return -1;
  const graph::ValueId weight =
      operands[backward ? std::min<std::size_t>(2, operands.size() - 1) : 1];
  const double out = elements_of(graph, backward ? operands[0] : results[0]);
  const double weights = elements_of(graph, weight);
  if (out < 0 || weights < 0 || graph.shape(weight).size() < 3) return -1;
  const double a_channel =
      weights / static_cast<double>(std::max<std::int64_t>(1, graph.shape(weight)[0]));
  return (backward ? 4 : 2) * out * a_channel;
}

double product_flops(const graph::Graph& graph, graph::OpId op) {
  if (graph.results(op).empty()) return -1;
  const double out = elements_of(graph, graph.results(op)[0]);
  if (out < 0) return -1;
  for (const graph::ValueId v : graph.operands(op)) {
    if (!graph.has_shape(v) || graph.shape(v).size() < 2) continue;
    return 2 * out * static_cast<double>(graph.shape(v).back());
  }
  return -1;
}

double touched_bytes(const graph::Graph& graph, graph::OpId op) {
  double bytes = 0;
  for (const graph::ValueId v : graph.operands(op))
    bytes += static_cast<double>(graph.size_bytes(v));
  for (const graph::ValueId v : graph.results(op))
    bytes += static_cast<double>(graph.size_bytes(v));
  return bytes;
}

constexpr double kDenseFlopsPerByte = 32;

}  // namespace

double DeviceModel::copy_ns(std::int64_t bytes, Stream direction, Tier tier) const {
  const bool out = direction == Stream::kCopyOut;
  const double size = static_cast<double>(bytes);
  if (tier == Tier::kFile)
    return file_latency_ns +
           1e9 * size / (out ? file_write_bytes_per_second : file_read_bytes_per_second);
  return copy_latency_ns +
         1e9 * size / (out ? copy_out_bytes_per_second : copy_in_bytes_per_second);
}

double DeviceModel::move_ns(std::int64_t bytes, std::int64_t distance) const {
  const std::int64_t parts =
      distance >= bytes || distance <= 0 ? 1 : (bytes + distance - 1) / distance;
  return launch_ns * static_cast<double>(parts) +
         1e9 * 2 * static_cast<double>(bytes) / (bytes_per_second * bandwidth_efficiency);
}

std::vector<std::string> device_model_names() {
  std::vector<std::string> names;
  for (const auto& json : built_in()) names.push_back(json["name"]);
  return names;
}

DeviceModel parse_device_model(std::string_view text, const std::string& file) {
  try {
    return model_of(nlohmann::json::parse(text), file);
  } catch (const nlohmann::json::exception& error) {
    throw InvalidFile(file, "", error.what());
  }
}

DeviceModel load_device_model(const std::string& name_or_file) {
  for (const auto& json : built_in())
    if (json["name"] == name_or_file) return model_of(json, name_or_file);
  std::ifstream in(name_or_file);
  if (!in || !name_or_file.ends_with(".json")) {
    std::string names;
    for (const std::string& name : device_model_names())
      names += (names.empty() ? "" : ", ") + name;
    throw InvalidArgument(fmt::format(
        "--device {}: neither a JSON file that can be read nor one of {}", name_or_file, names));
  }
  std::stringstream text;
  text << in.rdbuf();
  return parse_device_model(text.str(), name_or_file);
}

double op_flops(const graph::Graph& graph, graph::OpId op) {
  const auto given = graph.attribute(op, "flops");
  if (!given.empty()) return static_cast<double>(given[0]);
  const std::string_view kind = graph.kind(op);
  double flops = -1;
  const bool dense = has(kind, "conv") || has(kind, "mm") || has(kind, "linear") ||
                     has(kind, "attention") || has(kind, "gemm") || has(kind, "Gemm");
  if (has(kind, "conv")) flops = convolution_flops(graph, op, has(kind, "backward"));
  if (flops < 0 && dense && !has(kind, "conv")) flops = product_flops(graph, op);
  if (flops >= 0) return flops;
  return touched_bytes(graph, op) * (dense ? kDenseFlopsPerByte : 0.25);
}

const char* cost_source_name(CostSource source) noexcept {
  switch (source) {
    case CostSource::kMeasured:
      return "measured";
    case CostSource::kModelled:
      return "modelled";
    case CostSource::kMixed:
      return "mixed";
  }
  return "?";
}

OpCosts op_costs(const graph::Graph& graph, const DeviceModel& device, bool use_measured) {
  OpCosts costs;
  std::size_t measured = 0;
  for (std::size_t i = 0; i < graph.op_count(); ++i) {
    const graph::OpId op(i);
    if (use_measured && graph.cost_ns(op) > 0) {
      costs.ns.push_back(graph.cost_ns(op));
      ++measured;
      continue;
    }
    const double compute =
        op_flops(graph, op) / (device.flops_per_second * device.flops_efficiency);
    const double memory =
        touched_bytes(graph, op) / (device.bytes_per_second * device.bandwidth_efficiency);
    costs.ns.push_back(device.launch_ns + 1e9 * std::max(compute, memory));
  }
  if (measured > 0)
    costs.source = measured == graph.op_count() ? CostSource::kMeasured : CostSource::kMixed;
  return costs;
}

}  // namespace plimsoll::plan

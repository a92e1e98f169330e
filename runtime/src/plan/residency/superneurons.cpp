// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/plan/superneurons.h"

#include <algorithm>
#include <utility>

#include "plimsoll/base/error.h"

#include "layer_buffers.h"

namespace plimsoll::plan {
namespace {

// A fetched checkpoint is kept on the device where its next use is at most this many steps away.
constexpr int kReturnedWindow = 8;

// Adds up intervals of steps, both ends included, and gives the peak.
class Curve {
 public:
  explicit Curve(int steps) : change_(std::size_t(steps) + 1) {}
  void add(int first, int last, std::int64_t bytes) {
    change_[std::size_t(first)] += bytes;
    change_[std::size_t(last) + 1] -= bytes;
  }
  std::int64_t peak() const {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const std::int64_t change : change_) peak = std::max(peak, now += change);
    return peak;
  }

 private:
  std::vector<std::int64_t> change_;
};

int last_step(const Buffer& buffer) {
  return buffer.backward_steps.empty() ? buffer.last_forward : buffer.backward_steps.back();
}

int first_step(const Buffer& buffer) {
  return buffer.is_output ? buffer.layer : buffer.backward_steps.front();
}

std::int64_t liveness_peak(const LayerBuffers& it, int layers) {
  Curve curve(2 * layers);
  for (const Buffer& buffer : it.buffers)
    curve.add(first_step(buffer), last_step(buffer), buffer.bytes);
  return curve.peak();
}

// CONV outputs leave after their last forward use and come back while the backward of the next
// CONV runs, or where that is too late, when they are needed.
std::int64_t offload_peak(const LayerNet& net, const LayerBuffers& it) {
  const int layers = static_cast<int>(net.layers().size());
  std::vector<int> next_convolution(std::size_t(layers), -1);
  for (int layer = layers - 1, next = -1; layer >= 0; --layer) {
    next_convolution[std::size_t(layer)] = next;
    if (net.layers()[std::size_t(layer)].kind == LayerKind::kConvolution) next = layer;
  }
  Curve curve(2 * layers);
  for (const Buffer& buffer : it.buffers) {
    const bool leaves = buffer.is_output && !buffer.backward_steps.empty() &&
                        net.layers()[std::size_t(buffer.layer)].kind == LayerKind::kConvolution;
    if (!leaves) {
      curve.add(first_step(buffer), last_step(buffer), buffer.bytes);
      continue;
    }
    const int next = next_convolution[std::size_t(buffer.layer)];
    int back = buffer.backward_steps.front();
    if (next >= 0) back = std::min(back, 2 * layers - 1 - next);
    curve.add(buffer.layer, buffer.last_forward, buffer.bytes);
    curve.add(std::max(back, buffer.last_forward + 1), last_step(buffer), buffer.bytes);
  }
  return curve.peak();
}

// Replays one step with recomputation. All sets of buffers are small: what is resident during the
// backward pass of one segment.
class RecomputeReplay {
 public:
  RecomputeReplay(const LayerNet& net, const LayerBuffers& buffers, std::int64_t layer_peak,
                  RecomputeMode mode)
      : net_(net),
        it_(buffers),
        layers_(static_cast<int>(net.layers().size())),
        is_resident_(buffers.buffers.size()),
        on_host_(buffers.buffers.size()),
        next_use_(buffers.buffers.size()) {
    choose_modes(layer_peak, mode);
  }

  void run() {
    for (int layer = 0; layer < layers_; ++layer) forward(layer);
    for (int layer = layers_ - 1; layer >= 0; --layer) backward(layer);
  }

  std::int64_t peak() const { return peak_; }
  std::int64_t recomputes() const { return recomputes_; }
  std::int64_t offloaded() const { return offloaded_; }
  std::int64_t prefetched() const { return prefetched_; }

 private:
  LayerKind kind(int layer) const { return net_.layers()[std::size_t(layer)].kind; }
  const Buffer& buffer(int b) const { return it_.buffers[std::size_t(b)]; }
  int output(int layer) const { return it_.outputs[std::size_t(layer)].front(); }
  bool is_recomputed(int layer) const {
    return !is_checkpoint(kind(layer)) && kind(layer) != LayerKind::kSoftmax;
  }

  // A segment is a run of recomputed layers behind one checkpoint. Its sum: the checkpoint, every
  // output of the segment, and the gradients its last layer's backward writes and reads.
  void choose_modes(std::int64_t layer_peak, RecomputeMode mode) {
    drops_at_once_.assign(std::size_t(layers_), mode == RecomputeMode::kMemory);
    if (mode != RecomputeMode::kCostAware) return;
    for (int first = 0; first < layers_; ++first) {
      if (!starts_segment(first)) continue;
      std::vector<int> segment = {first};
      while (continues(segment.back())) segment.push_back(net_.successors(segment.back()).front());
      const int source = net_.layers()[std::size_t(first)].inputs.front();
      std::int64_t sum = source < 0 ? 0 : net_.output_bytes(source);
      for (const int layer : segment) sum += net_.output_bytes(layer);
      std::vector<int> gradients = it_.output_gradients[std::size_t(segment.back())];
      for (const int dx : it_.input_gradients[std::size_t(segment.back())])
        if (std::find(gradients.begin(), gradients.end(), dx) == gradients.end())
          gradients.push_back(dx);
      sum += it_.bytes_of(gradients);
      for (const int layer : segment) drops_at_once_[std::size_t(layer)] = sum > layer_peak;
    }
  }
  bool starts_segment(int layer) const {
    if (!is_recomputed(layer)) return false;
    const int source = net_.layers()[std::size_t(layer)].inputs.front();
    return source < 0 || !is_recomputed(source);
  }
  bool continues(int layer) const {
    return net_.successors(layer).size() == 1 && is_recomputed(net_.successors(layer).front());
  }

  void forward(int layer) {
    for (const int b : it_.outputs[std::size_t(layer)]) make_resident(b);
    leave_forward(it_.inputs[std::size_t(layer)], layer);
    leave_forward(it_.outputs[std::size_t(layer)], layer);
  }
  void leave_forward(const std::vector<int>& list, int layer) {
    for (const int b : list) {
      if (buffer(b).last_forward != layer || kind(buffer(b).layer) == LayerKind::kSoftmax) continue;
      if (is_checkpoint(kind(buffer(b).layer)) && !buffer(b).backward_steps.empty()) {
        on_host_[std::size_t(b)] = 1;
        offloaded_ += buffer(b).bytes;
      }
      drop(b);
    }
  }

  void backward(int layer) {
    const int step = 2 * layers_ - 1 - layer;
    const std::vector<int>& needs = it_.needs[std::size_t(layer)];
    for (const int b : needs) obtain(b, needs);  // ascending: outputs nearer to the input first
    const std::vector<int> resident = resident_;
    for (const int b : resident) {
      const auto& uses = buffer(b).backward_steps;
      std::size_t& next = next_use_[std::size_t(b)];
      while (next < uses.size() && uses[next] <= step) ++next;
      const bool is_dead = next == uses.size();
      const bool may_leave = buffer(b).is_output && on_host_[std::size_t(b)] != 0;
      if (is_dead || (may_leave && uses[next] - step > kReturnedWindow)) drop(b);
    }
  }

  void obtain(int b, const std::vector<int>& needs) {
    if (is_resident_[std::size_t(b)]) return;
    const int layer = buffer(b).layer;
    if (buffer(b).is_output && is_recomputed(layer)) {
      recompute(layer, needs);
    } else {
      if (on_host_[std::size_t(b)]) prefetched_ += buffer(b).bytes;
      make_resident(b);
    }
  }

  void recompute(int target, const std::vector<int>& needs) {
    std::vector<int> chain = {target};
    while (true) {
      const int source = net_.layers()[std::size_t(chain.back())].inputs.front();
      if (source < 0 || !is_recomputed(source) || is_resident_[std::size_t(output(source))]) break;
      chain.push_back(source);
    }
    for (const int b : it_.inputs[std::size_t(chain.back())]) obtain(b, needs);
    for (std::size_t i = chain.size(); i-- > 0;) {
      make_resident(output(chain[i]));
      ++recomputes_;
      if (!drops_at_once_[std::size_t(target)] || i + 1 == chain.size()) continue;
      const int before = output(chain[i + 1]);
      if (!std::binary_search(needs.begin(), needs.end(), before)) drop(before);
    }
  }

  void make_resident(int b) {
    if (is_resident_[std::size_t(b)]) return;
    is_resident_[std::size_t(b)] = 1;
    resident_.push_back(b);
    live_ += buffer(b).bytes;
    peak_ = std::max(peak_, live_);
  }
  void drop(int b) {
    if (!is_resident_[std::size_t(b)]) return;
    is_resident_[std::size_t(b)] = 0;
    std::erase(resident_, b);
    live_ -= buffer(b).bytes;
  }

  const LayerNet& net_;
  const LayerBuffers& it_;
  int layers_;
  std::vector<std::uint8_t> drops_at_once_;  // by layer
  std::vector<std::uint8_t> is_resident_, on_host_;
  std::vector<std::size_t> next_use_;  // by buffer, into backward_steps
  std::vector<int> resident_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t recomputes_ = 0;
  std::int64_t offloaded_ = 0;
  std::int64_t prefetched_ = 0;
};

}  // namespace

SuperNeuronsReport simulate_superneurons(const LayerNet& net) {
  if (net.layers().empty()) throw InvalidArgument("a layer net without layers has no step");
  const LayerBuffers buffers = derive_layer_buffers(net);
  const int layers = static_cast<int>(net.layers().size());
  SuperNeuronsReport report;
  report.layers = net.paper_layer_count();
  for (const Buffer& buffer : buffers.buffers) report.baseline_bytes += buffer.bytes;
  report.liveness_bytes = liveness_peak(buffers, layers);
  report.offload_bytes = offload_peak(net, buffers);
  for (int layer = 0; layer < layers; ++layer) {
    const std::int64_t distinct = buffers.bytes_of(buffers.needs[std::size_t(layer)]);
    if (distinct > report.layer_peak_bytes) {
      report.layer_peak_bytes = distinct;
      report.layer_peak_at = net.layers()[std::size_t(layer)].name;
    }
    report.layer_peak_as_coded_bytes =
        std::max(report.layer_peak_as_coded_bytes, buffers.as_coded_bytes[std::size_t(layer)]);
  }
  for (std::size_t mode = 0; mode < kRecomputeModes; ++mode) {
    RecomputeReplay replay(net, buffers, report.layer_peak_bytes, RecomputeMode(mode));
    replay.run();
    report.recompute_bytes[mode] = replay.peak();
    report.extra_recomputes[mode] = replay.recomputes();
    report.offloaded_bytes = replay.offloaded();
    report.prefetched_bytes = replay.prefetched();
  }
  return report;
}

}  // namespace plimsoll::plan

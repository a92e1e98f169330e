// SPDX-License-Identifier: Apache-2.0
#include "arrange.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "plimsoll/base/bytes.h"

namespace plimsoll::plan {

using graph::OpId;
using graph::StorageId;

namespace {

// What ends within so many steps is short-lived.
constexpr std::size_t kShortSteps = 64;
// Blocks of at most this part of the arena are small: they keep together at its high end, so that
// they part no hole for a large one.
constexpr std::int64_t kSmallPart = 1024;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Free bytes, and from when on they can be written.
struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double ready_ns = 0;
};

// The free bytes of an arena: pieces in order of address. Neighbours are not joined, for each has
// its own time.
class FreeSpace {
 public:
  explicit FreeSpace(std::int64_t bytes) {
    if (bytes > 0) pieces_.push_back({0, bytes, 0});
  }
  const std::vector<Piece>& pieces() const { return pieces_; }

  // `settled_ns`: what is ready by then is ready for everybody.
  void give(std::int64_t begin, std::int64_t end, double ready_ns, double settled_ns) {
    auto at = std::lower_bound(pieces_.begin(), pieces_.end(), begin,
                               [](const Piece& p, std::int64_t b) { return p.begin < b; });
    const auto joins = [&](const Piece& other) {
      return other.ready_ns == ready_ns || (other.ready_ns <= settled_ns && ready_ns <= settled_ns);
    };
    if (at != pieces_.begin() && std::prev(at)->end == begin && joins(*std::prev(at))) {
      --at;
      at->end = end;
      at->ready_ns = std::max(at->ready_ns, ready_ns);
    } else {
      at = pieces_.insert(at, {begin, end, ready_ns});
    }
    const auto next = std::next(at);
    if (next == pieces_.end() || next->begin != end || !joins(*next)) return;
    at->end = next->end;
    at->ready_ns = std::max(at->ready_ns, next->ready_ns);
    pieces_.erase(next);
  }

  // Takes [begin, end), which is free; returns from when on it can be written.
  double take(std::int64_t begin, std::int64_t end) {
    auto at = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                               [](std::int64_t b, const Piece& p) { return b < p.begin; });
    --at;
    double ready = 0;
    if (at->begin < begin) {
      const Piece left{at->begin, begin, at->ready_ns};
      at->begin = begin;
      at = std::next(pieces_.insert(at, left));
    }
    auto last = at;
    while (last != pieces_.end() && last->begin < end) {
      ready = std::max(ready, last->ready_ns);
      if (last->end > end) {
        last->begin = end;
        break;
      }
      ++last;
    }
    pieces_.erase(at, last);
    return ready;
  }

 private:
  std::vector<Piece> pieces_;
};

class Arranger {
 public:
  Arranger(const Problem& problem, const Draft& draft, std::int64_t capacity_bytes,
           double give_up_ns, Plan* plan)
      : it_(problem),
        draft_(draft),
        capacity_(capacity_bytes - capacity_bytes % problem.device->alignment_bytes),
        give_up_ns_(give_up_ns),
        plan_(plan),
        free_(capacity_),
        blocks_(draft.instances.size()),
        on_host_ns_(problem.bytes.size()) {}

  Arrangement run() {
    find_ends();
    start_plan();
    Arrangement result;
    bool ok = place_initial();
    for (at_ = 0; ok && at_ < draft_.steps.size(); ++at_) {
      const DraftStep& step = draft_.steps[at_];
      if (step.kind == StepKind::kFree) {
        free_block(step);
      } else {
        ok = step.op.valid() ? run_op(step) : run_copy(step);
      }
      ok = ok && compute_ns_ < give_up_ns_;
    }
    result.fits = ok;
    result.total_ns = std::max({compute_ns_, out_ns_, in_ns_});
    result.moved_bytes = moved_bytes_;
    if (plan_ != nullptr) {
      plan_->arena_bytes = top_;
      plan_->live_bytes = most_live_;
    }
    return result;
  }

 private:
  struct Block {
    std::int64_t address = -1;  // -1: not alive
    std::size_t end = 0;        // the step that ends it
    double written_ns = 0;
    double used_ns = 0;
    InstanceId now;  // in the plan
  };
  Block& block(InstanceId id) { return blocks_[id.index()]; }
  StorageId storage(InstanceId id) const { return draft_.instances[id.index()]; }
  std::int64_t bytes(InstanceId id) const { return it_.bytes[storage(id).index()]; }
  StorageId heir_of(OpId o) const { return it_.graph->storage(it_.graph->inplace_result(o)); }

  // A block that is handed over in place ends with its heir.
  void find_ends() {
    for (Block& it : blocks_) it.end = draft_.steps.size();
    for (std::size_t i = draft_.steps.size(); i-- > 0;) {
      const DraftStep& step = draft_.steps[i];
      if (step.kind == StepKind::kFree) block(step.instance).end = i;
      if (step.taken_over.valid()) block(step.taken_over).end = block(heir(step)).end;
    }
  }
  InstanceId heir(const DraftStep& step) const {
    for (const InstanceId id : draft_.touched_of(step))
      if (id.valid() && storage(id) == heir_of(step.op)) return id;
    return {};
  }

  void start_plan() {
    if (plan_ == nullptr) return;
    *plan_ = Plan();
    plan_->alignment_bytes = it_.device->alignment_bytes;
    plan_->starts_on_host = draft_.starts_on_host;
    plan_->instances.reserve(draft_.instances.size() + 64);
    plan_->steps.reserve(draft_.steps.size() + 64);
  }
  // What stays where it is lies lowest, then what stays longest.
  bool place_initial() {
    std::vector<InstanceId> ids = draft_.initial;
    std::stable_sort(ids.begin(), ids.end(),
                     [&](InstanceId a, InstanceId b) { return block(a).end > block(b).end; });
    std::int64_t at = 0;
    for (const InstanceId id : ids) {
      if (at + bytes(id) > capacity_) return false;
      if (bytes(id) > 0) free_.take(at, at + bytes(id));
      settle(id, at);
      if (is_fixed(id)) fixed_top_ = at + bytes(id);
      at += bytes(id);
    }
    if (plan_ != nullptr)
      for (const InstanceId id : draft_.initial) plan_->initial.push_back(block(id).now);
    return true;
  }
  // It has to end where it began.
  bool is_fixed(InstanceId id) const {
    return it_.graph->live_at_start(storage(id)) && it_.graph->live_at_end(storage(id)) &&
           it_.is_streamed[storage(id).index()] == 0;
  }

  // The block lies at `address` from here on.
  void settle(InstanceId id, std::int64_t address) {
    Block& it = block(id);
    const bool is_new = it.address < 0;
    it.address = address;
    if (is_new) {
      live_ += bytes(id);
      if (bytes(id) > 0) alive_.insert(alive_from(address), id);
    }
    note_top(address + bytes(id));
    if (plan_ == nullptr) return;
    it.now = InstanceId(plan_->instances.size());
    plan_->instances.push_back({storage(id), address});
  }
  void note_top(std::int64_t top) { top_ = std::max(top_, top); }
  void forget(InstanceId id) {
    live_ -= bytes(id);
    if (bytes(id) > 0) alive_.erase(alive_from(block(id).address));
    block(id).address = -1;
  }
  // The first that does not lie below.
  std::vector<InstanceId>::iterator alive_from(std::int64_t address) {
    return std::partition_point(alive_.begin(), alive_.end(),
                                [&](InstanceId id) { return block(id).address < address; });
  }

  // --- steps
  // --------------------------------------------------------------------------------------
  void free_block(const DraftStep& step) {
    const Block& it = block(step.instance);
    if (bytes(step.instance) > 0)
      free_.give(it.address, it.address + bytes(step.instance), it.used_ns, settled_ns());
    forget(step.instance);
    if (plan_ != nullptr) {
      Step& made = plan_->steps.emplace_back();
      made.kind = StepKind::kFree;
      made.instance = it.now;
    }
    if (first_late_ < late_.size()) fetch_late({});
  }
  double settled_ns() const { return std::min(compute_ns_, in_ns_); }

  bool run_op(const DraftStep& step) {
    const auto touched = draft_.touched_of(step);
    if (first_late_ < late_.size())
      for (const InstanceId id : touched)
        if (id.valid() && block(id).address < 0 && !fetch_late(id)) return false;
    wanted_.clear();
    for (const InstanceId id : touched)
      if (id.valid() && block(id).address < 0 && !(step.taken_over.valid() && id == heir(step)))
        wanted_.push_back({id, bytes(id), block(id).end - at_});
    const std::int64_t workspace = align_up(step.workspace_bytes, it_.device->alignment_bytes);
    if (workspace > 0) wanted_.push_back({{}, workspace, 0});
    double start = compute_ns_;
    for (const InstanceId id : touched)
      if (id.valid() && block(id).address >= 0) start = std::max(start, block(id).written_ns);
    if (!place_wanted(start)) return false;
    std::int64_t workspace_address = 0;
    for (const Wanted& it : wanted_) {
      if (it.id.valid()) {
        settle(it.id, it.address);
      } else {
        workspace_address = it.address;
        note_top(it.address + it.bytes);
      }
    }
    if (step.taken_over.valid()) {
      const std::int64_t address = block(step.taken_over).address;
      start = std::max(start, block(step.taken_over).used_ns);
      forget(step.taken_over);
      settle(heir(step), address);
    }
    most_live_ = std::max(most_live_, live_ + workspace);
    const double end = compute_ns_ = start + step.cost_ns;
    for (std::size_t i = 0; i < touched.size(); ++i) {
      if (!touched[i].valid()) continue;
      Block& it = block(touched[i]);
      if (it_.touches[step.op.index()][i].writes) it.written_ns = end;
      it.used_ns = std::max(it.used_ns, end);
    }
    if (workspace > 0)
      free_.give(workspace_address, workspace_address + workspace, end, settled_ns());
    if (plan_ != nullptr) write_op(step, workspace_address);
    return true;
  }
  void write_op(const DraftStep& step, std::int64_t workspace_address) {
    Step& made = plan_->steps.emplace_back();
    made.kind = step.kind;
    made.op = step.op;
    for (const InstanceId id : draft_.touched_of(step))
      made.touched.push_back(id.valid() ? block(id).now : InstanceId());
    if (step.taken_over.valid()) made.taken_over = block(step.taken_over).now;
    made.workspace_bytes = step.workspace_bytes;
    made.workspace_address = workspace_address;
    made.cost_ns = step.cost_ns;
  }

  bool run_copy(const DraftStep& step) {
    if (step.kind == StepKind::kPrefetch) {
      late_.push_back(&step);
      return fetch_late({});
    }
    Block& it = block(step.instance);
    const double start = std::max(out_ns_, it.written_ns);
    out_ns_ = start + step.cost_ns;
    on_host_ns_[storage(step.instance).index()] = out_ns_;
    it.used_ns = std::max(it.used_ns, out_ns_);
    write_copy(step);
    return true;
  }
  // Fetches wait for a hole, in their order, until somebody needs them; then a hole is made.
  bool fetch_late(InstanceId needed) {
    std::size_t forced = 0;
    for (std::size_t i = first_late_; i < late_.size(); ++i)
      if (late_[i]->instance == needed) forced = i + 1;
    for (; first_late_ < late_.size(); ++first_late_) {
      const DraftStep& step = *late_[first_late_];
      Block& it = block(step.instance);
      double start = std::max(in_ns_, on_host_ns_[storage(step.instance).index()]);
      wanted_.assign(1, {step.instance, bytes(step.instance), it.end - at_});
      if (first_late_ >= forced && it.address < 0 && wanted_[0].bytes > 0 &&
          find_place(wanted_[0], start).address < 0)
        return true;
      is_copy_ = true;
      const bool ok = place_wanted(start);
      is_copy_ = false;
      if (!ok) return false;
      settle(step.instance, wanted_[0].address);
      most_live_ = std::max(most_live_, live_);
      it.written_ns = it.used_ns = in_ns_ = start + step.cost_ns;
      write_copy(step);
    }
    late_.clear();
    first_late_ = 0;
    return true;
  }
  void write_copy(const DraftStep& step) {
    if (plan_ == nullptr) return;
    Step& made = plan_->steps.emplace_back();
    made.kind = step.kind;
    made.tier = step.tier;
    made.instance = block(step.instance).now;
    made.cost_ns = step.cost_ns;
  }

  // --- places
  // -------------------------------------------------------------------------------------
  struct Wanted {
    InstanceId id;  // invalid: the workspace
    std::int64_t bytes = 0;
    std::size_t steps = 0;  // how long it will live
    std::int64_t address = 0;
    double ready_ns = 0;  // when its bytes are free
  };
  // Of everything wanted; `start` becomes the time from when on it is free.
  bool place_wanted(double& start) {
    std::stable_sort(wanted_.begin(), wanted_.end(),
                     [](const Wanted& a, const Wanted& b) { return a.bytes > b.bytes; });
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      Wanted& it = wanted_[i];
      if (it.bytes == 0) {
        it.address = 0;
        continue;
      }
      const Place place = find_place(it, start);
      if (place.address < 0) return take_back(i) && place_in_one(start);
      it.address = place.address;
      it.ready_ns = free_.take(it.address, it.address + it.bytes);
      start = std::max(start, it.ready_ns);
    }
    return true;
  }
  // The first few, which nobody has written to yet.
  bool take_back(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const Wanted& it = wanted_[i];
      if (it.bytes > 0) free_.give(it.address, it.address + it.bytes, it.ready_ns, settled_ns());
    }
    return true;
  }
  // Side by side in one hole.
  bool place_in_one(double& start) {
    std::int64_t sum = 0;
    for (const Wanted& it : wanted_) sum += it.bytes;
    if (!slide_together(sum)) return false;
    if (!is_copy_) start = std::max(start, compute_ns_);
    std::int64_t at = hole_begin_;
    for (Wanted& it : wanted_) {
      it.address = at;
      if (it.bytes > 0) start = std::max(start, free_.take(at, at + it.bytes));
      at += it.bytes;
    }
    return true;
  }

  struct Place {
    std::int64_t address = -1;
    double start_ns = kInfinite;
    std::int64_t hole_bytes = 0;
  };
  // Where it can begin first; among those the smallest hole.
  Place find_place(const Wanted& wanted, double start) const {
    const bool is_small = wanted.bytes <= capacity_ / kSmallPart;
    const bool is_low = !is_small && wanted.steps > kShortSteps;
    Place best;
    const std::vector<Piece>& pieces = free_.pieces();
    for (std::size_t first = 0; first < pieces.size();) {
      std::size_t last = first;
      while (last + 1 < pieces.size() && pieces[last + 1].begin == pieces[last].end) ++last;
      const std::int64_t hole = pieces[last].end - pieces[first].begin;
      if (hole >= wanted.bytes) {
        Place place;
        place.hole_bytes = hole;
        place.address = is_low ? pieces[first].begin : pieces[last].end - wanted.bytes;
        place.start_ns = start;
        for (std::size_t i = first; i <= last; ++i)
          if (pieces[i].end > place.address && pieces[i].begin < place.address + wanted.bytes)
            place.start_ns = std::max(place.start_ns, pieces[i].ready_ns);
        const bool is_better = place.start_ns != best.start_ns ? place.start_ns < best.start_ns
                               : is_small                      ? true
                                                               : place.hole_bytes < best.hole_bytes;
        if (is_better) best = place;
      }
      first = last + 1;
    }
    return best;
  }

  // --- slides
  // ------------------------------------------------------------------------------------- Makes a
  // hole of at least so many bytes by sliding a stretch of neighbours to one side, the cheapest
  // stretch. False where the free bytes are too few.
  bool slide_together(std::int64_t bytes_wanted) {
    const auto first = static_cast<std::size_t>(alive_from(fixed_top_) - alive_.begin());
    find_holes(first);
    Slide best;
    std::int64_t sum = 0;
    std::size_t low = 0;
    for (std::size_t high = 0; high < holes_.size(); ++high) {
      sum += holes_[high];
      while (low < high && sum - holes_[low] >= bytes_wanted) sum -= holes_[low++];
      if (sum < bytes_wanted || holes_[high] == 0) continue;
      for (const bool down : {true, false}) {
        Slide slide{low, high, down, slide_ns(first, low, high, down)};
        if (slide.cost_ns < best.cost_ns) best = slide;
      }
    }
    if (best.cost_ns == kInfinite) return false;
    perform(first, best);
    return true;
  }
  struct Slide {
    std::size_t low = 0;  // holes
    std::size_t high = 0;
    bool down = true;
    double cost_ns = kInfinite;
  };
  // What it delays the compute stream by, in-flight copies of what moves included.
  double slide_ns(std::size_t first, std::size_t low, std::size_t high, bool down) const {
    double end = compute_ns_;
    for (std::size_t i = low; i <= high; ++i) end = std::max(end, holes_ready_ns_[i]);
    std::int64_t distance = 0;
    for (std::size_t k = 0; k < high - low; ++k) {
      const std::size_t i = down ? low + k : high - 1 - k;
      distance += holes_[down ? i : i + 1];
      if (distance == 0) continue;
      const Block& it = blocks_[alive_[first + i].index()];
      end = std::max({end, it.written_ns, it.used_ns}) +
            it_.device->move_ns(bytes(alive_[first + i]), distance);
    }
    return end - compute_ns_;
  }
  // holes_[i] lies before alive_[first + i].
  void find_holes(std::size_t first) {
    holes_.clear();
    holes_ready_ns_.clear();
    const std::vector<Piece>& pieces = free_.pieces();
    auto piece = pieces.begin();
    std::int64_t at = fixed_top_;
    for (std::size_t i = first; i <= alive_.size(); ++i) {
      const std::int64_t end = i < alive_.size() ? block(alive_[i]).address : capacity_;
      holes_.push_back(end - at);
      double ready = 0;
      for (; piece != pieces.end() && piece->begin < end; ++piece)
        if (piece->begin >= at) ready = std::max(ready, piece->ready_ns);
      holes_ready_ns_.push_back(ready);
      if (i < alive_.size()) at = end + bytes(alive_[i]);
    }
  }
  void perform(std::size_t first, const Slide& slide) {
    std::int64_t distance = 0;
    for (std::size_t k = 0; k < slide.high - slide.low; ++k) {
      const std::size_t i = slide.down ? slide.low + k : slide.high - 1 - k;
      distance += holes_[slide.down ? i : i + 1];
      if (distance > 0) move(alive_[first + i], slide.down ? -distance : distance);
    }
    std::int64_t total = 0;
    for (std::size_t i = slide.low; i <= slide.high; ++i) total += holes_[i];
    if (slide.low == slide.high) {
      const std::size_t i = first + slide.low;
      const std::int64_t end = i < alive_.size() ? block(alive_[i]).address : capacity_;
      hole_begin_ = end - total;
    } else if (slide.down) {
      const InstanceId last = alive_[first + slide.high - 1];
      hole_begin_ = block(last).address + bytes(last);
    } else {
      hole_begin_ = block(alive_[first + slide.low]).address - total;
    }
  }
  void move(InstanceId id, std::int64_t by) {
    Block& it = block(id);
    const std::int64_t from = it.address;
    const std::int64_t to = from + by;
    const std::int64_t size = bytes(id);
    const InstanceId old = it.now;
    double start = std::max({compute_ns_, it.written_ns, it.used_ns});
    // The bytes it comes to, apart from its own.
    if (by < 0) start = std::max(start, free_.take(to, std::min(to + size, from)));
    if (by > 0) start = std::max(start, free_.take(std::max(to, from + size), to + size));
    const double cost = it_.device->move_ns(size, by < 0 ? -by : by);
    compute_ns_ = start + cost;
    it.written_ns = it.used_ns = compute_ns_;
    moved_bytes_ += size;
    settle(id, to);
    if (by < 0)
      free_.give(std::max(from, to + size), from + size, compute_ns_, settled_ns());
    else
      free_.give(from, std::min(to, from + size), compute_ns_, settled_ns());
    if (plan_ == nullptr) return;
    Step& made = plan_->steps.emplace_back();
    made.kind = StepKind::kMove;
    made.instance = it.now;
    made.taken_over = old;
    made.cost_ns = cost;
  }

  const Problem& it_;
  const Draft& draft_;
  std::int64_t capacity_;
  double give_up_ns_;
  Plan* plan_;
  FreeSpace free_;
  std::vector<Block> blocks_;
  std::vector<double> on_host_ns_;
  std::vector<InstanceId> alive_;       // of at least one byte, in order of address
  std::vector<const DraftStep*> late_;  // fetches that found no hole yet, from first_late_
  std::size_t first_late_ = 0;
  std::vector<Wanted> wanted_;
  std::vector<std::int64_t> holes_;
  std::vector<double> holes_ready_ns_;
  std::size_t at_ = 0;
  bool is_copy_ = false;
  std::int64_t fixed_top_ = 0;
  std::int64_t hole_begin_ = 0;
  std::int64_t top_ = 0;
  std::int64_t live_ = 0;
  std::int64_t most_live_ = 0;
  std::int64_t moved_bytes_ = 0;
  double compute_ns_ = 0;
  double out_ns_ = 0;
  double in_ns_ = 0;
};

}  // namespace

Arrangement arrange(const Problem& problem, const Draft& draft, std::int64_t capacity_bytes,
                    double give_up_ns, Plan* plan) {
  return Arranger(problem, draft, capacity_bytes, give_up_ns, plan).run();
}

}  // namespace plimsoll::plan

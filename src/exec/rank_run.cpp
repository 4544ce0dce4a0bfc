// One rank's run of a prepared program.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/clock.h"
#include "exec/rank_program.h"
#include "lang/reference.h"

namespace tessera {
namespace {

void fill_with(const View& view, double fill) {
  const std::int64_t count = view.elements();
  if (count == 0) return;  // an empty part has no memory
  if (fill == 0 && !std::signbit(fill)) {
    std::memset(view.data, 0, static_cast<std::size_t>(count) * size_of(view.dtype));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) store(view, i, fill);
}

// Minus infinity is what masks put where attention must not look: no fault by itself.
template <class T>
bool all_finite(const T* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    if (!(static_cast<double>(data[i]) < std::numeric_limits<double>::infinity())) return false;
  return true;
}

bool is_finite(const View& view) {
  switch (view.dtype) {
    case DType::F32:
      return all_finite(view.as<float>(), view.elements());
    case DType::BF16:
      return all_finite(view.as<bf16>(), view.elements());
    case DType::F64:
      return all_finite(view.as<double>(), view.elements());
    default:
      return true;
  }
}

void place(std::vector<View>& views, std::span<void*> data, std::size_t i, void* address) {
  views[i].data = address;
  data[i] = address;
}

// Start and full size of a view's dimensions in the given windows.
void set_window(View& view, const Type& global, const Box& box,
                const std::map<std::string, Window>& windows) {
  for (std::size_t d = 0; d < view.shape.count(); ++d) {
    view.start[d] = box.start[d];
    view.full[d] = global.shape[d].size;
    const auto it = windows.find(view.shape[d].name);
    if (it == windows.end()) continue;
    view.start[d] += it->second.offset;
    view.full[d] = it->second.full;
  }
}

}  // namespace

std::int64_t RankProgram::bytes_before(int rows, int whole) const {
  const Box &part = bound_.boxes[static_cast<std::size_t>(rows)],
            &all = bound_.boxes[static_cast<std::size_t>(whole)];
  std::int64_t elements = 0, stride = 1;
  for (std::size_t d = part.size.size(); d-- > 0;) {
    elements += (part.start[d] - all.start[d]) * stride;
    stride *= all.size[d];
  }
  return elements * static_cast<std::int64_t>(size_of(value(rows).type.dtype));
}

void* RankProgram::address(int id) const {
  const int stored = plan_.stored_in[static_cast<std::size_t>(id)];
  int b = stored >= 0 ? stored : id;
  std::int64_t skipped = 0;  // bytes before the rank's own rows
  for (; value(b).view_of >= 0; b = value(b).view_of)
    if (value(b).own_rows) skipped += bytes_before(b, value(b).view_of);
  if (value(b).kind == ProgramValue::Kind::Variable)
    return store_.get(value(b).variable).shard(rank_).data.data() + skipped;
  const std::int64_t offset = plan_.offset[static_cast<std::size_t>(id)];
  if (offset < 0) return nullptr;
  for (int whole; (whole = plan_.gathered_in[static_cast<std::size_t>(b)]) >= 0; b = whole)
    skipped += bytes_before(b, whole);
  return arena_ + offset + skipped;
}

void RankProgram::set_arena(std::byte* arena) {
  arena_ = arena;
  for (Prepared& p : steps_) {
    for (std::size_t i = 0; i < p.in.size(); ++i) place(p.in, p.in_data, i, address(p.step->in[i]));
    for (std::size_t o = 0; o < p.out.size(); ++o) place(p.out, p.out_data, o, address(p.step->out[o]));
    for (std::size_t i = 0; i < p.in_shift.size(); ++i)
      p.in_data[i] = static_cast<char*>(p.in_data[i]) + p.in_shift[i];
    for (std::size_t o = 0; o < p.out_shift.size(); ++o)
      p.out_data[o] = static_cast<char*>(p.out_data[o]) + p.out_shift[o];
    for (std::size_t i = 0; i < p.saved.size(); ++i)
      if (p.saved[i].size() > 0) place(p.in, p.in_data, i, p.saved[i].data());
  }
}

void RankProgram::set_windows(const std::map<std::string, Window>& windows) {
  auto equal = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.offset == b.second.offset && a.second.full == b.second.full;
  };
  if (std::equal(windows.begin(), windows.end(), windows_.begin(), windows_.end(), equal)) return;
  windows_ = windows;
  for (Prepared& p : steps_) {
    auto set = [&](View& view, int id) {
      set_window(view, value(id).type, bound_.boxes[static_cast<std::size_t>(id)], windows);
    };
    for (std::size_t i = 0; i < p.in.size(); ++i) set(p.in[i], p.step->in[i]);
    for (std::size_t o = 0; o < p.out.size(); ++o) set(p.out[o], p.step->out[o]);
  }
}

bool RankProgram::run(RunState& state) {
  contraction_seconds_ = wait_seconds_ = 0;
  first_nonfinite_ = -1;
  helped_ = 0;
  trace_.clear();
  if (state.trace) trace_.reserve(steps_.size());
  const auto note_time = [&](double& time) { time = state.trace ? now() : 0; };
  note_time(times_.begin);
  communicator_.take_wait_seconds();
  set_windows(state.windows);
  note_time(times_.feeding);
  feed(state);
  note_time(times_.fed);
  times_.stepped = times_.fed;
  for (int s = 0; s < static_cast<int>(steps_.size()); ++s) {
    const Mark mark = marks_[static_cast<std::size_t>(s)];
    if (mark.awaited) {
      local_.announce(rank_, s);
    } else {
      local_.reach(rank_, s);
    }
    if (state.hook && !state.hook(rank_, s)) return false;
    if (mark.idle) continue;
    Prepared& p = steps_[static_cast<std::size_t>(s)];
    communicator_.check();
    const bool timed = p.heavy || state.trace;
    const double begin = state.trace ? times_.stepped : timed ? now() : 0;
    execute(p, state);
    if (timed) {
      const double end = now();
      if (p.heavy) contraction_seconds_ += end - begin;
      if (state.trace) record(s, begin, end);
    }
    if (state.find_nonfinite) look_for_nonfinite(p, s);
  }
  local_.announce(rank_, std::numeric_limits<int>::max());
  note_time(times_.fetching);
  fetch(state);
  wait_seconds_ += communicator_.take_wait_seconds();
  for (const Help& h : local_.helped(rank_))
    if (steps_[static_cast<std::size_t>(h.step)].heavy) contraction_seconds_ += h.end - h.begin;
  note_time(times_.end);
  return true;
}

void RankProgram::record(int index, double begin, double end) {
  const double before = trace_.empty() ? 0 : waited_;
  wait_seconds_ += communicator_.take_wait_seconds();
  waited_ = wait_seconds_;
  double helped = 0;
  for (const std::vector<Help>& all = local_.helped(rank_); helped_ < all.size(); ++helped_)
    helped += all[helped_].end - all[helped_].begin;
  trace_.push_back({index, begin, end, waited_ - before, helped});
  times_.stepped = end;
}

void RankProgram::feed(RunState& state) {
  for (int id : feeds_) {
    std::lock_guard<std::mutex> lock(state.fill_mutex);
    communicator_.check();
    state.fill(value(id).variable, bound_.boxes[static_cast<std::size_t>(id)], address(id));
  }
}

void RankProgram::fetch(RunState& state) {
  for (std::size_t f = 0; f < program_.fetches.size(); ++f) {
    for (Results::Impl::Part& part : state.results->fetches[f].parts)
      if (part.rank == rank_ && !part.data.empty())
        std::memcpy(part.data.data(), address(program_.fetches[f]), part.data.size());
  }
}

void RankProgram::execute(Prepared& p, RunState& state) {
  switch (p.action) {
    case Action::Skip:
      return;
    case Action::Kernel:
      return run_kernel(p, state);
    case Action::Reference:
      return run_reference_kernel(p, state);
    case Action::Fused:
      if (p.stores) await_sharers(p, state);
      return p.loop->run(p.in_data.data(), p.out_data.data(),
                         p.workspace < 0 ? nullptr : arena_ + p.workspace);
    case Action::Fill:
      for (const View& view : p.out) fill_with(view, p.fill);
      return;
    case Action::Copy:
      for (const LocalCopy& copy : p.copies)
        copy_piece(copy.piece, p.in_data[static_cast<std::size_t>(copy.input)], p.out_data[0],
                   size_of(p.out[0].dtype));
      return;
    case Action::Start:  // of a Contract and of a bucket there are several buffers: their addresses
      p.ticket = communicator_.start(*p.collective, p.in_data.size() == 1 ? p.in_data[0] : p.in_data.data(),
                                     p.out_data.size() == 1 ? p.out_data[0] : p.out_data.data());
      return;
    case Action::Wait:
      return communicator_.wait(steps_[static_cast<std::size_t>(p.start)].ticket);
    case Action::Contract:
      return communicator_.wait(steps_[static_cast<std::size_t>(p.start)].ticket, p.contract);
    case Action::Assign:
      return run_assign(p, state);
  }
}

void RankProgram::run_kernel(Prepared& p, RunState& state) {
  const KernelContext context{p.step->call, p.in, p.out, state.seed, state.step, &p.step->key, p.peers.get()};
  p.kernel(context, p.workspace < 0 ? nullptr : arena_ + p.workspace);
  if (p.peers != nullptr) p.peers->finish();
}

void RankProgram::run_reference_kernel(Prepared& p, RunState& state) {
  for (std::size_t i = 0; i < p.saved.size(); ++i)
    if (p.saved[i].size() > 0) std::memcpy(p.saved[i].data(), address(p.step->in[i]), p.saved[i].size());
  KernelContext context{p.step->call, p.in, p.out, state.seed, state.step, &p.step->key, p.peers.get()};
  run_reference(*p.step->call.op, context);
  if (p.peers != nullptr) p.peers->finish();
}

// Before a shared buffer is overwritten, all that share it must be past their last read; nobody reads it
// again in this run.
void RankProgram::await_sharers(const Prepared& p, RunState& state) {
  for (int other : p.sharers)
    wait_seconds_ +=
        local_.await(rank_, other, p.last_read + 1, [&] { return "the update of " + where(*p.step); });
  state.assigned.store(true, std::memory_order_relaxed);
}

// Ranks that share the buffer write a slice each.
void RankProgram::run_assign(Prepared& p, RunState& state) {
  if (!state.assign) return;
  await_sharers(p, state);
  if (p.slice_begin == p.slice_end) return;
  std::memcpy(static_cast<char*>(p.out_data[0]) + p.slice_begin,
              static_cast<const char*>(p.in_data[0]) + p.slice_begin, p.slice_end - p.slice_begin);
}

void RankProgram::look_for_nonfinite(const Prepared& p, int index) {
  if (first_nonfinite_ >= 0 || p.action == Action::Start || p.action == Action::Assign) return;
  for (const View& view : p.out)
    if (!is_finite(view)) first_nonfinite_ = index;
}

}  // namespace tessera

#ifndef TESSERA_TRAIN_PROFILER_HPP
#define TESSERA_TRAIN_PROFILER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/here.hpp>
#include <tessera/train/key_averages.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <new>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#if defined(__linux__)
#include <unistd.h>
#endif

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/intrusive_ptr.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/json_text.hpp>
#include <tessera/data/replaced_file.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/executor/profile_hook.hpp>
#endif

namespace tessera {

struct ProfilerOptions {
  std::int64_t event_limit = 1'000'000;  ///< events stored for export_chrome_trace, 24 bytes each
};

namespace detail {
struct Profile;
struct DestroyProfile {
  TESSERA_ONCE void operator()(Profile* profile) const;
};
}  // namespace detail

/// Times the programs that this thread runs while the profiler is alive, by operation and line, as torch.profiler and
/// jax.profiler: the steps of compiled functions and expressions, those in bodies of loops too, first calls' planning,
/// and ts::reshard, ts::to_host and ts::shard of stored tensors. The programs run as they do without a profiler; each
/// step takes about 70 ns longer.
///
///     const ts::Profiler profiler;
///     for (int i = 0; i < 10; ++i) step(model, x);
///     std::cout << profiler.key_averages();
///     profiler.export_chrome_trace("trace.json");  // for chrome://tracing and Perfetto
///
/// Threads: a profiler sees what the thread that made it calls, whichever threads compute it, and is used and destroyed
/// by that thread. Profilers nest: each sees all that runs while it is alive. Of several processes each times its own
/// steps; bytes and flops are those of all processes. In oracle mode a program is one row: its steps are not those of
/// other runs. A step that throws is not counted; its time is in KeyAverages::run_ms.
///
/// Errors: `option` for a limit below 0. Communication: none.
class Profiler {
 public:
  TESSERA_ONCE explicit Profiler(const ProfilerOptions& options = {}, Here at = Here::current());
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  TESSERA_ONCE ~Profiler();

  /// The time until now.
  TESSERA_ONCE KeyAverages key_averages(ProfileGroup group_by = ProfileGroup::operation_and_line) const;
  /// Writes the events as JSON for chrome://tracing and Perfetto. Its processes are those of ts::process_index(); its
  /// clock is the system's monotonic clock, so that files of processes on one machine fit together.
  /// Errors: `file` with the path and the system's reason.
  TESSERA_ONCE void export_chrome_trace(const std::string& path, Here at = Here::current()) const;
  /// Events that are stored, and events beyond the limit, which are counted in key_averages() all the same.
  TESSERA_ONCE std::int64_t event_count() const;
  TESSERA_ONCE std::int64_t dropped_events() const;
  /// Forgets what was timed, such as first calls, and begins anew.
  TESSERA_ONCE void clear() const;

 private:
  std::unique_ptr<detail::Profile, detail::DestroyProfile> profile_;
};

#if TESSERA_HAS_DEFINITIONS
namespace detail {

/// The number by which the system knows this thread; 0 where it has none.
inline long thread_number() {
#if defined(__linux__)
  return ::gettid();
#else
  return 0;
#endif
}
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What is timed: a step of a program, or work outside of programs.
struct ProfiledStep {
  std::string operation;
  Source source{};
  double bytes = 0, flops = 0, sent_bytes = 0;  // of one call
};

/// The steps of one executable. Outlives it in profilers, since the plan cache may drop executables.
struct ProfiledSteps final : RefCounted {
  Growable<ProfiledStep> steps;
  Growable<Growable<std::int32_t>> at;  // by graph and step of its plan: the index in `steps` of a prepared step
  const Plan* plan = nullptr;           // only for the executable's own runs

  explicit ProfiledSteps(const runtime::Executable& executable) : plan(&executable.plan()) {
    for (const GraphPlan& graph : plan->graphs) at.push_back(Growable<std::int32_t>(graph.steps.size(), -1));
    executable.for_each_step([&](const runtime::FrameLayout& layout, const runtime::RanSteps& ran, std::int64_t) {
      const int g = graph_of(layout);
      at[static_cast<std::size_t>(g)][static_cast<std::size_t>(ran.first)] = static_cast<std::int32_t>(steps.size());
      ProfiledStep made;
      for (int s = ran.first; s < ran.first + ran.count; ++s)
        add(made, executable.compiled(), g, layout.plan().steps[static_cast<std::size_t>(s)]);
      steps.push_back(std::move(made));
    });
  }
  int graph_of(const runtime::FrameLayout& layout) const {
    return static_cast<int>(&layout.plan() - plan->graphs.data());
  }
  int index(const runtime::FrameLayout& layout, const runtime::RanSteps& ran) const {
    return at[static_cast<std::size_t>(graph_of(layout))][static_cast<std::size_t>(ran.first)];
  }
  /// Those of an executable, made when they are first needed.
  static ProfiledSteps& of(runtime::Executable& executable) {
    IntrusivePtr<RefCounted>& own = executable.profiled_steps();
    if (!own) own = IntrusivePtr<RefCounted>(new ProfiledSteps(executable));
    return static_cast<ProfiledSteps&>(*own);
  }

 private:
  void add(ProfiledStep& to, const CompiledProgram& compiled, int graph, const PlanStep& step) const {
    const auto also = [&](const std::string& text) { to.operation += (to.operation.empty() ? "" : ", ") + text; };
    if (step.kind == StepKind::repeat) also("repeat");
    if (step.kind == StepKind::compute) {
      also(unit_text(compiled.program.graphs[graph], compiled.units[graph], step.unit));
      to.bytes += static_cast<double>(step.bytes);
      to.flops += static_cast<double>(step.flops);
    }
    if (step.kind == StepKind::reshard && step.collectives.empty()) also("reshard");
    Source source = step.source;
    for (const CollectiveInfo& collective : step.collectives) {
      also(concat_text(name_of(collective.kind), " over ", axes_text(plan->mesh, collective.axes)));
      to.sent_bytes += static_cast<double>(collective.wire_bytes);
      if (source.line == 0) source = collective.source;
    }
    if (step.kind == StepKind::reshard) to.bytes += static_cast<double>(step.bytes);
    if (to.source.line == 0) to.source = source;
  }
};

/// What a Profiler has counted.
struct Profile {
  struct Counter {
    std::int64_t calls, self_ns, total_ns;
  };
  /// The steps of a program that a line runs.
  struct Program {
    IntrusivePtr<RefCounted> table;  // which is not freed while the program is looked up by its address
    ProfiledStep itself{.operation = "program"};
    Growable<ProfiledStep> steps;
    Growable<Counter> counters;
  };
  /// Work outside of programs on one line.
  struct Range {
    ProfiledStep what;
    Counter counter{};
    double bytes = 0, sent_bytes = 0;  // of all calls, which may differ
  };
  struct Event {
    const ProfiledStep* what;
    std::int64_t begin_ns, duration_ns;
  };

  const std::int64_t event_limit;
  Profile* outer = nullptr;
  std::map<std::tuple<const ProfiledSteps*, std::string_view, std::uint32_t>, Program> programs;
  std::map<std::tuple<runtime::ProfiledWork, std::string_view, std::uint32_t>, Range> ranges;
  Growable<Event> events;
  std::int64_t dropped = 0;
  std::int64_t begin_ns = now_ns();
  Counter runs{}, planning{};
  // The program that ran last, and its key.
  const ProfiledSteps* last_table = nullptr;
  Source last_source{};
  Program* last = nullptr;

  explicit Profile(std::int64_t limit) : event_limit(limit) {}

  static Profile*& innermost() {
    static thread_local Profile* profile = nullptr;
    return profile;
  }
  static runtime::OpenTimer*& running() {
    static thread_local runtime::OpenTimer* timer = nullptr;
    return timer;
  }

  Program& of(ProfiledSteps& table, const Source& source) {
    if (last != nullptr && last_table == &table && last_source.line == source.line && last_source.file == source.file)
      return *last;
    Program& found = programs[{&table, source.file, source.line}];
    if (!found.table) {
      found.steps = table.steps;
      for (ProfiledStep& step : found.steps)
        if (step.source.line == 0) step.source = source;
      found.itself.source = source;
      found.counters.resize(table.steps.size(), Counter{});
      found.table = IntrusivePtr<RefCounted>(&table);
    }
    last_table = &table;
    last_source = source;
    last = &found;
    return found;
  }
  /// Counts what ran from `begin` to `end`, `inner` of it in other timers. A profiler that was made or cleared
  /// meanwhile sees only the rest.
  void count(Counter& counter, const ProfiledStep& what, std::int64_t begin, std::int64_t end, std::int64_t inner) {
    begin = std::max(begin, begin_ns);
    ++counter.calls;
    counter.total_ns += end - begin;
    counter.self_ns += std::max<std::int64_t>(end - begin - inner, 0);
    if (static_cast<std::int64_t>(events.size()) < event_limit) try {
        events.push_back({&what, begin, end - begin});
        return;
      } catch (const std::bad_alloc&) {  // as beyond the limit
      }
    ++dropped;
  }
  void add(const runtime::ProfiledRange& range, std::int64_t end) noexcept try {
    const std::string_view file(range.source.file);
    Range& own = ranges[{range.work, file, range.source.line}];
    if (own.what.operation.empty()) own.what = {.operation = name_of(range.work), .source = range.source};
    const bool plans = range.work == runtime::ProfiledWork::planning;
    own.bytes += static_cast<double>(range.bytes);
    own.sent_bytes += static_cast<double>(range.sent_bytes);
    count(plans ? planning : own.counter, own.what, range.begin_ns, end, range.own_inner_ns);
  } catch (const std::bad_alloc&) {
    ++dropped;
  }
  static const char* name_of(runtime::ProfiledWork work) {
    switch (work) {
      case runtime::ProfiledWork::planning:
        return "planning";
      case runtime::ProfiledWork::oracle:
        return "oracle mode";
      case runtime::ProfiledWork::reshard:
        return "ts::reshard";
      case runtime::ProfiledWork::to_host:
        return "ts::to_host";
      case runtime::ProfiledWork::shard:
        return "ts::shard";
    }
    return "";
  }
  void clear() {
    events.clear();
    programs.clear();
    ranges.clear();
    last = nullptr;
    dropped = 0;
    runs = planning = {};
    begin_ns = now_ns();
  }
};

/// Times the steps of one run for all profilers of the thread.
class StepTimer final : public runtime::StepObserver, public runtime::OpenTimer {
 public:
  StepTimer(runtime::Executable& executable, const Source& source)
      : table_(&ProfiledSteps::of(executable)), source_(source) {
    for (Profile* p = Profile::innermost(); p != nullptr; p = p->outer) p->of(*table_, source_);
    open_.reserve(8);
    outer = std::exchange(Profile::running(), this);
    begins();
  }
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;
  ~StepTimer() override {
    const std::int64_t end = now_ns();
    Open own = open_[0];
    // After an exception, steps are open: what ended in them is counted, the rest is of the run.
    for (std::size_t i = 1; i < open_.size(); ++i) own.inner += open_[i].inner;
    Profile::running() = outer;
    if (outer != nullptr) *outer->inner_ns += end - own.begin;
    for (Profile* p = Profile::innermost(); p != nullptr; p = p->outer) try {
        p->count(p->runs, p->of(*table_, source_).itself, own.begin, end, own.inner);
      } catch (const std::bad_alloc&) {  // of a profiler that was made or cleared during the run
        ++p->dropped;
      }
  }

  void begins() override {
    open_.push_back({0, 0});
    inner_ns = &open_.back().inner;
    open_.back().begin = now_ns();
  }
  void ran(const runtime::FrameLayout& layout, runtime::Frame&, const runtime::RanSteps& ran) override {
    const std::int64_t end = now_ns();
    const Open own = open_.back();
    open_.pop_back();
    inner_ns = &open_.back().inner;
    *inner_ns += end - own.begin;
    const auto step = static_cast<std::size_t>(table_->index(layout, ran));
    for (Profile* p = Profile::innermost(); p != nullptr; p = p->outer) {
      Profile::Program& program = p->of(*table_, source_);
      p->count(program.counters[step], program.steps[step], own.begin, end, own.inner);
    }
  }

  static Growable<Leaf> run(runtime::Executable& executable, std::span<const Leaf> arguments, const Source& source) {
    StepTimer timer(executable, source);
    return executable.run(arguments, &timer);
  }
  static StoragePtr run_plain(runtime::Executable& executable, TensorStorage* const* tensors, const HostNumber* numbers,
                              const Source& source) {
    StepTimer timer(executable, source);
    return executable.run_plain(tensors, numbers, &timer);
  }
  static void begin(runtime::ProfiledRange& range) {
    range.outer = std::exchange(Profile::running(), &range);
    range.inner_ns = &range.own_inner_ns;
    range.begin_ns = now_ns();
  }
  static void end(runtime::ProfiledRange& range) noexcept {
    const std::int64_t end = now_ns();
    Profile::running() = range.outer;
    if (range.outer != nullptr) *range.outer->inner_ns += end - range.begin_ns;
    for (Profile* p = Profile::innermost(); p != nullptr; p = p->outer) p->add(range, end);
  }

  static constexpr runtime::ProfileHook hook{&run, &run_plain, &begin, &end};

 private:
  struct Open {
    std::int64_t begin, inner;
  };
  ProfiledSteps* const table_;
  const Source source_;
  Growable<Open> open_;  // the run, then the steps that run: a loop, and the step of its body
};

}  // namespace detail

TESSERA_ONCE void detail::DestroyProfile::operator()(Profile* profile) const { delete profile; }

TESSERA_ONCE Profiler::Profiler(const ProfilerOptions& options, Here at) {
  if (options.event_limit < 0)
    fail(errc::option, "[profiler] event_limit: ", options.event_limit, " events; a limit is at least 0",
         Source::from(at));
  profile_.reset(new detail::Profile(options.event_limit));
  profile_->outer = std::exchange(detail::Profile::innermost(), profile_.get());
  runtime::ProfileHook::own() = &detail::StepTimer::hook;
}
TESSERA_ONCE Profiler::~Profiler() {
  // Not always the innermost: profilers may be destroyed in any order.
  for (detail::Profile** at = &detail::Profile::innermost(); *at != nullptr; at = &(*at)->outer)
    if (*at == profile_.get()) {
      *at = profile_->outer;
      break;
    }
  if (detail::Profile::innermost() == nullptr) runtime::ProfileHook::own() = nullptr;
}

TESSERA_ONCE KeyAverages Profiler::key_averages(ProfileGroup group_by) const {
  using detail::Profile;
  using detail::ProfiledStep;
  const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / 1e6; };
  KeyAverages made;
  made.wall_ms = ms(detail::now_ns() - profile_->begin_ns);
  std::map<std::tuple<std::string_view, std::string_view, std::uint32_t>, std::size_t> place;
  const auto add = [&](const ProfiledStep& what, const Profile::Counter& counter) -> KeyAverage* {
    if (counter.calls == 0) return nullptr;
    const bool operation = group_by != ProfileGroup::line, line = group_by != ProfileGroup::operation;
    const auto [at, is_new] =
        place.try_emplace({operation ? what.operation : std::string_view(),
                           line ? what.source.file : std::string_view(), line ? what.source.line : 0},
                          made.rows.size());
    if (is_new)
      made.rows.push_back({.operation = operation ? what.operation : "", .line = line ? what.source.text() : ""});
    KeyAverage& row = made.rows[at->second];
    row.calls += counter.calls;
    row.self_ms += ms(counter.self_ns);
    row.total_ms += ms(operation ? counter.total_ns : counter.self_ns);
    return &row;
  };
  for (const auto& [key, program] : profile_->programs)
    for (std::size_t s = 0; s < program.counters.size(); ++s) {
      const ProfiledStep& step = program.steps[s];
      const auto calls = static_cast<double>(program.counters[s].calls);
      if (KeyAverage* const row = add(step, program.counters[s])) {
        row->bytes += calls * step.bytes;
        row->flops += calls * step.flops;
        row->sent_bytes += calls * step.sent_bytes;
      }
    }
  for (const auto& [key, range] : profile_->ranges)
    if (KeyAverage* const row = add(range.what, range.counter)) {
      row->bytes += range.bytes;
      row->sent_bytes += range.sent_bytes;
    }
  detail::sort_rows(made.rows, ProfileSort::self_time);
  made.runs = profile_->runs.calls;
  made.run_ms = ms(profile_->runs.self_ns);
  made.plans = profile_->planning.calls;
  made.planning_ms = ms(profile_->planning.self_ns);
  made.outside_ms = made.wall_ms - made.run_ms - made.planning_ms;
  for (const KeyAverage& row : made.rows) made.outside_ms -= row.self_ms;
  return made;
}

TESSERA_ONCE void Profiler::export_chrome_trace(const std::string& path, Here at) const {
  data::detail::ReplacedFile file("export_chrome_trace", path, at);
  const auto us = [](std::int64_t ns) {  // exactly: a double would round the clock
    char text[40];
    std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000), static_cast<int>(ns % 1000));
    return std::string(text);
  };
  const std::string pid = std::to_string(process_index()), thread = std::to_string(detail::thread_number());
  std::string text =
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":" + std::to_string(profile_->dropped) +
      "},\"traceEvents\":[\n" + "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + pid +
      ",\"args\":{\"name\":\"process " + pid + "\"}}";
  for (const detail::Profile::Event& event : profile_->events) {
    const detail::ProfiledStep& what = *event.what;
    std::string arguments;
    const auto add = [&](const char* name, const std::string& value) {
      arguments += concat_text(arguments.empty() ? "" : ",", "\"", name, "\":", value);
    };
    if (what.source.line != 0) add("line", detail::json_text(what.source.text()));
    if (what.bytes != 0) add("bytes", detail::fixed_text(what.bytes, 0));
    if (what.flops != 0) add("flops", detail::fixed_text(what.flops, 0));
    if (what.sent_bytes != 0) add("sent_bytes", detail::fixed_text(what.sent_bytes, 0));
    text += ",\n{\"name\":" + detail::json_text(what.operation) + ",\"ph\":\"X\",\"ts\":" + us(event.begin_ns) +
            ",\"dur\":" + us(event.duration_ns) + ",\"pid\":" + pid + ",\"tid\":" + thread + ",\"args\":{" + arguments +
            "}}";
    if (text.size() < 1 << 16) continue;
    file.write(text.data(), text.size());
    text.clear();
  }
  text += "\n]}\n";
  file.write(text.data(), text.size());
  file.finish();
}

TESSERA_ONCE std::int64_t Profiler::event_count() const { return static_cast<std::int64_t>(profile_->events.size()); }
TESSERA_ONCE std::int64_t Profiler::dropped_events() const { return profile_->dropped; }
TESSERA_ONCE void Profiler::clear() const { profile_->clear(); }
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif

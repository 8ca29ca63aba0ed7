#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/page.hpp"
#include "../../support/scratch_folder.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/runtime/executor/profile_hook.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/profiler.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

using Matrix = ts::ShardedTensor<float, 2>;
constexpr ts::Mesh one({{"x", 1}});
constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

Matrix filled(std::int64_t rows, std::int64_t columns, const ts::Mesh& on, const ts::PartitionSpec& spec) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(static_cast<float>(i % 7) * 0.25f);
  return ts::shard(values, {rows, columns}, on, spec);
}

/// The only row of this operation.
ts::KeyAverage row_of(const ts::KeyAverages& all, std::string_view operation) {
  ts::KeyAverage found;
  int count = 0;
  for (const ts::KeyAverage& row : all.rows)
    if (row.operation == operation) found = row, ++count;
  EXPECT_EQ(count, 1) << operation << " in\n" << all.table();
  return found;
}
std::int64_t calls_of(const ts::KeyAverages& all) {
  std::int64_t calls = 0;
  for (const ts::KeyAverage& row : all.rows) calls += row.calls;
  return calls;
}
double self_ms_of(const ts::KeyAverages& all) {
  double sum = 0;
  for (const ts::KeyAverage& row : all.rows) sum += row.self_ms;
  return sum;
}
/// How often the steps of a plan run; two that are fused are one.
std::int64_t steps_of(const ts::Plan& plan, int graph = 0) {
  std::int64_t count = 0;
  const auto& steps = plan.graphs[static_cast<std::size_t>(graph)].steps;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    count += 1 + (steps[s].kind == ts::StepKind::repeat ? steps[s].layers * steps_of(plan, steps[s].body) : 0);
    if (steps[s].fusion != ts::Fusion::apart) ++s;
  }
  return count;
}

struct Nap {
  static constexpr std::string_view name = "nap";
  static constexpr std::string_view signature = "(n)->(n)";
  static inline int left = -1;  // calls before one that throws
  template <class T> static void run(ts::CallArray<const T, 1> x, ts::CallArray<T, 1> y) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (left-- == 0) throw ts::error(ts::errc::option, "[nap] disturbed", {});
    for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i) + 1;
  }
};

/// A value of JSON, read strictly.
struct Json {
  std::string text;  // of a string or a number
  std::map<std::string, Json> members;
  std::vector<Json> items;

  static Json parse(std::string_view all) {
    Reader reader{all};
    Json made = reader.value();
    reader.skip();
    EXPECT_TRUE(reader.rest.empty()) << "after the value: " << reader.rest.substr(0, 40);
    return made;
  }
  double number() const { return std::stod(text); }

 private:
  struct Reader {
    std::string_view rest;
    void skip() { rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size())); }
    bool take(char c) {
      skip();
      if (rest.empty() || rest[0] != c) return false;
      rest.remove_prefix(1);
      return true;
    }
    void expect(char c) {
      if (!take(c))
        throw std::runtime_error("expected " + std::string(1, c) + " at " + std::string(rest.substr(0, 40)));
    }
    std::string string() {
      expect('"');
      std::string made;
      for (; rest.at(0) != '"'; rest.remove_prefix(1)) {
        if (static_cast<unsigned char>(rest[0]) < 0x20) throw std::runtime_error("a control character");
        if (rest[0] == '\\') {
          rest.remove_prefix(1);
          if (rest.at(0) != '"' && rest[0] != '\\') throw std::runtime_error("an escape that no name here needs");
        }
        made += rest[0];
      }
      rest.remove_prefix(1);
      return made;
    }
    Json value() {
      Json made;
      skip();
      if (take('{')) {
        if (take('}')) return made;
        do {
          const std::string name = (skip(), string());
          expect(':');
          if (!made.members.emplace(name, value()).second) throw std::runtime_error("twice: " + name);
        } while (take(','));
        expect('}');
      } else if (take('[')) {
        if (take(']')) return made;
        do made.items.push_back(value());
        while (take(','));
        expect(']');
      } else if (!rest.empty() && rest[0] == '"') {
        made.text = string();
      } else {
        const std::size_t length = std::min(rest.find_first_not_of("0123456789.-"), rest.size());
        if (length == 0) throw std::runtime_error("no value at " + std::string(rest.substr(0, 40)));
        made.text = rest.substr(0, length);
        rest.remove_prefix(length);
      }
      return made;
    }
  };
};
Json trace_of(const ts::Profiler& profiler) {
  const ScratchFolder folder;
  const std::string path = (folder.path / "trace.json").string();
  profiler.export_chrome_trace(path);
  std::ifstream file(path);
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}
/// The complete events of a trace, without the names of processes.
std::vector<Json> events_of(const Json& trace) {
  std::vector<Json> made;
  for (const Json& event : trace.members.at("traceEvents").items)
    if (event.members.at("ph").text == "X") made.push_back(event);
  return made;
}

TEST(Profiler, CountsOfAProductAndAChainAreThoseByHand) {
  const Matrix x = filled(8, 16, one, {}), w = filled(16, 4, one, {});
  constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); });
  constexpr auto chain = ts::compile([](auto a) { return (a * 2.0f + a) * a; });
  const ts::Profiler profiler;
  for (int i = 0; i < 3; ++i) (void)product(x, w);
  for (int i = 0; i < 2; ++i) (void)chain(x);
  const ts::KeyAverages all = profiler.key_averages();

  const ts::KeyAverage matmul = row_of(all, "einsum");
  EXPECT_EQ(matmul.calls, 3);
  EXPECT_EQ(matmul.flops, 3.0 * 2 * 8 * 16 * 4);
  EXPECT_EQ(matmul.bytes, 3.0 * 4 * (8 * 16 + 16 * 4 + 8 * 4));
  EXPECT_EQ(matmul.sent_bytes, 0);
  EXPECT_EQ(matmul.line.find("profiler_test.cpp:"), 0u) << matmul.line;
  EXPECT_GT(matmul.self_ms, 0);
  EXPECT_EQ(matmul.self_ms, matmul.total_ms);
  EXPECT_DOUBLE_EQ(matmul.mean_us(), matmul.total_ms * 1000 / 3);
  EXPECT_DOUBLE_EQ(matmul.gflop_per_s(), matmul.flops / (matmul.self_ms * 1e-3) / 1e9);
  EXPECT_DOUBLE_EQ(matmul.gb_per_s(), matmul.bytes / (matmul.self_ms * 1e-3) / 1e9);

  const ts::KeyAverage fused = row_of(all, "fused mul+add+mul");
  EXPECT_EQ(fused.calls, 2);
  EXPECT_EQ(fused.flops, 2.0 * 3 * 8 * 16);
  EXPECT_EQ(fused.bytes, 2.0 * 4 * (8 * 16 + 8 * 16));  // x is read once, and what is between is not stored
  EXPECT_NE(fused.line, matmul.line);
  EXPECT_EQ(calls_of(all), 5);
  EXPECT_EQ(all.runs, 5);
  EXPECT_EQ(all.plans, 2);
}

struct Layer {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return x + ts::matmul(ts::relu(ts::matmul(x, up)), down); }
};

TEST(Profiler, CallsAndBytesAreThePlansOnAnyMesh) {
  constexpr auto step = ts::compile([](auto layers, auto x) {
    return ts::value_and_grad([](const auto& m, const auto& in) { return ts::sum(ts::square(m(in))); })(layers, x);
  });
  // 7 rows are split unevenly, as 4 and 3, or as 3, 3 and 1.
  for (const ts::Mesh& on : {one, mesh, ts::Mesh({{"data", 3}, {"model", 2}})}) {
    SCOPED_TRACE(on.text());
    const bool split = on.size() > 1;
    const ts::PartitionSpec rows = split ? ts::PartitionSpec{"data"} : ts::PartitionSpec{};
    const ts::PartitionSpec across = split ? ts::PartitionSpec{ts::none, "model"} : ts::PartitionSpec{};
    const ts::PartitionSpec down = split ? ts::PartitionSpec{"model"} : ts::PartitionSpec{};
    const ts::Stack<Layer> layers(5, [&](int) { return Layer{filled(8, 16, on, across), filled(16, 8, on, down)}; });
    const Matrix x = filled(7, 8, on, rows);
    const auto [expected, unused] = step(layers, x);
    const ts::Plan plan = step.plan(layers, x);
    const ts::Profiler profiler;
    for (int i = 0; i < 2; ++i) {
      const auto [loss, gradient] = step(layers, x);
      EXPECT_EQ(ts::item(loss), ts::item(expected)) << "what is timed computes the same bits";
    }
    const ts::KeyAverages all = profiler.key_averages();
    double flops = 0, bytes = 0, sent = 0;
    std::int64_t calls = 0;
    for (const ts::KeyAverage& row : all.rows) {
      if (row.operation == "ts::to_host") continue;
      calls += row.calls;
      flops += row.flops;
      bytes += row.bytes;
      sent += row.sent_bytes;
    }
    EXPECT_EQ(calls, 2 * steps_of(plan));
    EXPECT_EQ(flops, 2.0 * static_cast<double>(plan.flops()));
    EXPECT_EQ(bytes, 2.0 * static_cast<double>(plan.traffic_bytes()));
    EXPECT_EQ(sent, 2.0 * static_cast<double>(plan.wire_bytes()));
    EXPECT_EQ(sent > 0, split);
    EXPECT_EQ(all.plans, 0) << "made before";
  }
}

TEST(Profiler, StepsOfALoopHaveRowsOfTheirOwn) {
  constexpr auto power = ts::compile([](auto start, auto w, auto xs) {
    return ts::scan(
        [&](const auto& h, const auto& x) {
          const auto next = ts::matmul(h, w) + x;
          return std::tuple(next, ts::sum(next));
        },
        start, xs);
  });
  const Matrix start = filled(4, 8, one, {}), w = filled(8, 8, one, {});
  const auto xs = ts::ones<float>({6, 4, 8}, one, {});
  const ts::Profiler profiler;
  for (int i = 0; i < 3; ++i) (void)power(start, w, xs);
  const ts::KeyAverages all = profiler.key_averages();
  const ts::KeyAverage loop = row_of(all, "repeat");
  EXPECT_EQ(loop.calls, 3);
  EXPECT_EQ(loop.flops, 0) << "those of its body are in other rows";
  double inside = 0;
  std::int64_t products = 0;
  double flops = 0;
  for (const ts::KeyAverage& row : all.rows) {
    if (row.operation.find("einsum") == 0) {
      products += row.calls;
      flops += row.flops;
    }
    if (row.operation != "repeat" && row.operation != "ts::shard") inside += row.total_ms;
  }
  EXPECT_EQ(products, 3 * 6);
  EXPECT_GE(flops, 3.0 * 6 * 2 * 4 * 8 * 8);
  EXPECT_GT(inside, 0);
  EXPECT_NEAR(loop.total_ms - loop.self_ms, inside, 1e-9) << "nothing of the program is outside of the loop";
  double lines = 0;
  for (const ts::KeyAverage& row : profiler.key_averages(ts::ProfileGroup::line).rows) lines += row.total_ms;
  EXPECT_NEAR(lines, self_ms_of(all), 1e-9) << "a loop and its body may be on one line, which counts once";
}

TEST(Profiler, TimeIsThatOfTheClock) {
  const auto x = ts::ones<float>({8}, one, {});
  constexpr auto f = ts::compile([](auto a) { return ts::custom_call<Nap>(a); });
  const auto before = std::chrono::steady_clock::now();
  const ts::Profiler profiler;
  for (int i = 0; i < 3; ++i) (void)f(x);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const ts::KeyAverages all = profiler.key_averages();
  const double wall = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
  const ts::KeyAverage nap = row_of(all, "nap");
  EXPECT_EQ(nap.calls, 3);
  EXPECT_GE(nap.self_ms, 60);
  EXPECT_GE(nap.mean_us(), 20'000);
  EXPECT_GE(all.outside_ms, 50);
  EXPECT_GT(all.planning_ms, 0);
  EXPECT_GT(all.run_ms, 0);
  EXPECT_LE(nap.self_ms + all.planning_ms + all.run_ms + 50, wall);
  EXPECT_LE(all.wall_ms, wall);
  EXPECT_NEAR(self_ms_of(all) + all.planning_ms + all.run_ms + all.outside_ms, all.wall_ms, 1e-6);
}

TEST(Profiler, ARunThatThrowsLeavesItConsistent) {
  const auto x = ts::ones<float>({8}, one, {});
  constexpr auto f = ts::compile([](auto a) { return ts::custom_call<Nap>(ts::cumsum<0>(a)); });
  const ts::Profiler profiler;
  (void)f(x);
  Nap::left = 0;
  EXPECT_THROW((void)f(x), ts::error);
  const ts::KeyAverages failed = profiler.key_averages();
  EXPECT_EQ(row_of(failed, "nap").calls, 1);
  EXPECT_EQ(row_of(failed, "cumsum").calls, 2) << "it ended before the step that throws";
  EXPECT_EQ(failed.runs, 2);
  EXPECT_GE(failed.run_ms, 20) << "the time of the step that throws";
  (void)f(x);
  const ts::KeyAverages all = profiler.key_averages();
  EXPECT_EQ(row_of(all, "nap").calls, 2);
  EXPECT_GE(row_of(all, "nap").self_ms, 40);
  EXPECT_EQ(all.runs, 3);
  EXPECT_GE(all.outside_ms, 0);
  EXPECT_LE(self_ms_of(all) + all.planning_ms + all.run_ms, all.wall_ms);
  // Two of three runs have both of their steps.
  EXPECT_EQ(profiler.event_count(), 1 + 3 + 5);
}

TEST(Profiler, AThrowInALoopIsTimeOfTheRun) {
  constexpr auto f = ts::compile([](auto start, auto xs) {
    return std::get<0>(ts::scan(
        [](const auto& h, const auto& x) { return std::tuple(ts::custom_call<Nap>(h) + x, ts::sum(x)); }, start, xs));
  });
  const auto x = ts::ones<float>({8}, one, {});
  const auto xs = ts::ones<float>({4, 8}, one, {});
  const ts::Profiler profiler;
  Nap::left = 3;
  EXPECT_THROW((void)f(x, xs), ts::error);
  const ts::KeyAverages all = profiler.key_averages();
  EXPECT_EQ(row_of(all, "nap").calls, 3);
  EXPECT_GE(row_of(all, "nap").self_ms, 60);
  EXPECT_GE(all.run_ms, 20);
  EXPECT_GE(all.outside_ms, 0) << "nothing is counted twice";
  for (const ts::KeyAverage& row : all.rows) EXPECT_NE(row.operation, "repeat") << "it did not end";
}

TEST(Profiler, WorkOutsideOfPrograms) {
  const ts::Profiler profiler;
  const Matrix x = filled(8, 4, mesh, {"data", "model"});
  const Matrix y = ts::reshard(x, {"data"});
  const Matrix z = ts::eval(x + y);
  (void)ts::to_host(z);
  const ts::KeyAverages all = profiler.key_averages();
  EXPECT_EQ(row_of(all, "ts::shard").bytes, 2.0 * 4 * 8 * 4);
  const ts::KeyAverage moved = row_of(all, "ts::reshard");
  EXPECT_EQ(moved.calls, 1);
  EXPECT_EQ(moved.bytes, 2.0 * 4 * 8 * 4);
  EXPECT_EQ(moved.sent_bytes, 4.0 * 4 * 4 / 2) << "an all_gather of 4 x 4 elements over two devices";
  EXPECT_EQ(moved.line.find("profiler_test.cpp:"), 0u);
  EXPECT_EQ(row_of(all, "ts::to_host").calls, 1);
  EXPECT_EQ(row_of(all, "fused add").calls, 1) << "an expression is a program";
  EXPECT_EQ(all.runs, 1);
  EXPECT_EQ(all.plans, 1);
  profiler.clear();
  const ts::KeyAverages none = profiler.key_averages();
  EXPECT_TRUE(none.rows.empty());
  EXPECT_EQ(none.runs, 0);
  EXPECT_EQ(none.plans, 0);
  EXPECT_EQ(profiler.event_count(), 0);
  EXPECT_LT(none.wall_ms, all.wall_ms);
  (void)ts::reshard(x, {"data"});
  EXPECT_EQ(calls_of(profiler.key_averages()), 1);
}

TEST(Profiler, EqualExpressionsOnTwoLinesHaveARowEach) {
  const Matrix x = filled(8, 4, one, {});
  const ts::Profiler profiler;
  for (int i = 0; i < 3; ++i) {
    (void)ts::eval(ts::log1p(x));
    if (i > 0) (void)ts::eval(ts::log1p(x));
  }
  const ts::KeyAverages all = profiler.key_averages();
  ASSERT_EQ(all.rows.size(), 2u) << all.table();
  EXPECT_EQ(all.rows[0].calls + all.rows[1].calls, 5);
  EXPECT_NE(all.rows[0].line, all.rows[1].line);
  for (const ts::KeyAverage& row : all.rows) EXPECT_EQ(row.line.find("profiler_test.cpp:"), 0u);
  EXPECT_EQ(all.plans, 1) << "they share a program";
  EXPECT_EQ(row_of(profiler.key_averages(ts::ProfileGroup::operation), "fused log1p").calls, 5);
}

TEST(Profiler, ProfilersNestAndEndInAnyOrder) {
  const Matrix x = filled(4, 4, one, {});
  const auto run = [&] { (void)ts::eval(x * 3.0f); };
  run();
  EXPECT_EQ(ts::runtime::ProfileHook::own(), nullptr);
  auto outer = std::make_unique<ts::Profiler>();
  run();
  auto inner = std::make_unique<ts::Profiler>();
  run();
  EXPECT_EQ(calls_of(outer->key_averages()), 2);
  EXPECT_EQ(calls_of(inner->key_averages()), 1);
  outer.reset();
  run();
  EXPECT_EQ(calls_of(inner->key_averages()), 2);
  // Another thread has its own.
  std::thread([&] {
    run();
    const ts::Profiler own;
    run();
    EXPECT_EQ(calls_of(own.key_averages()), 1);
  }).join();
  EXPECT_EQ(calls_of(inner->key_averages()), 2);
  inner.reset();
  EXPECT_EQ(ts::runtime::ProfileHook::own(), nullptr);
}

TEST(Profiler, KeepsWhatPlansShowedAfterTheyAreDropped) {
  const Matrix x = filled(4, 4, one, {});
  const ts::Profiler profiler;
  for (int i = 0; i < 3; ++i) {
    (void)ts::eval(x / 3.0f);
    ts::clear_plan_cache();
  }
  const ts::KeyAverages all = profiler.key_averages();
  ASSERT_EQ(all.rows.size(), 1u);
  EXPECT_EQ(all.rows[0].calls, 3);
  EXPECT_EQ(all.plans, 3);
  EXPECT_EQ(events_of(trace_of(profiler)).size(), 9u);
}

TEST(Profiler, AProgramInOracleModeIsOneRow) {
  const Matrix x = filled(8, 4, mesh, {"data"});
  const ts::Profiler profiler;
  {
    const ts::OracleScope oracle;
    (void)ts::eval(ts::exp(x));
  }
  const ts::KeyAverages all = profiler.key_averages();
  EXPECT_EQ(row_of(all, "oracle mode").calls, 1);
  EXPECT_EQ(all.rows.size(), 1u);
  EXPECT_EQ(all.runs, 0);
}

TEST(Profiler, TraceIsJsonOfAllEvents) {
  const Matrix x = filled(8, 16, mesh, {"data", "model"}), w = filled(16, 4, mesh, {"model"});
  const Matrix before = ts::eval(ts::matmul(x, w));
  const ts::Profiler profiler;
  for (int i = 0; i < 2; ++i) (void)ts::eval(ts::matmul(x, w));
  const ts::KeyAverages all = profiler.key_averages();
  const Json trace = trace_of(profiler);
  const std::vector<Json> events = events_of(trace);
  EXPECT_EQ(static_cast<std::int64_t>(events.size()), calls_of(all) + all.runs);
  EXPECT_EQ(static_cast<std::int64_t>(events.size()), profiler.event_count());
  EXPECT_EQ(trace.members.at("otherData").members.at("dropped_events").number(), 0);
  std::map<std::string, double> us;
  double programs = 0, steps = 0, sent = 0;
  for (const Json& event : events) {
    const auto& m = event.members;
    EXPECT_EQ(m.at("pid").number(), ts::process_index());
    EXPECT_EQ(m.at("tid").text, events[0].members.at("tid").text);
    us[m.at("name").text] += m.at("dur").number();
    (m.at("name").text == "program" ? programs : steps) += m.at("dur").number();
    const auto& arguments = m.at("args").members;
    if (arguments.contains("sent_bytes")) sent += arguments.at("sent_bytes").number();
    EXPECT_EQ(arguments.at("line").text.find("profiler_test.cpp:"), 0u);
    if (m.at("name").text != "program") {
      int around = 0;  // programs that begin before the step and end after it
      for (const Json& other : events)
        if (const auto& o = other.members;
            o.at("name").text == "program" && o.at("ts").number() <= m.at("ts").number() &&
            o.at("ts").number() + o.at("dur").number() >= m.at("ts").number() + m.at("dur").number() - 1e-2)
          ++around;
      EXPECT_EQ(around, 1);
    }
  }
  EXPECT_GE(programs, steps);
  EXPECT_EQ(sent, 2 * 64);
  for (const ts::KeyAverage& row : all.rows) EXPECT_NEAR(us[row.operation], row.total_ms * 1e3, 1e-2) << row.operation;
}

TEST(Profiler, EventsBeyondTheLimitAreOnlyCounted) {
  const Matrix x = filled(8, 16, one, {});
  const ts::Profiler all_of_them, profiler({.event_limit = 3});
  for (int i = 0; i < 10; ++i) (void)ts::eval(x - 2.0f);
  EXPECT_EQ(profiler.event_count(), 3);
  EXPECT_EQ(profiler.dropped_events(), all_of_them.event_count() - 3);
  EXPECT_EQ(row_of(profiler.key_averages(), "fused sub").calls, 10);
  EXPECT_EQ(row_of(profiler.key_averages(), "fused sub").self_ms,
            row_of(all_of_them.key_averages(), "fused sub").self_ms);
  const Json trace = trace_of(profiler);
  EXPECT_EQ(events_of(trace).size(), 3u);
  EXPECT_EQ(trace.members.at("otherData").members.at("dropped_events").number(),
            static_cast<double>(profiler.dropped_events()));
}

TEST(Profiler, GroupsAndSorts) {
  const Matrix small = filled(2, 4, one, {}), large = filled(4, 64, one, {}), square = filled(64, 64, one, {});
  constexpr auto two = ts::compile([](auto a, auto b) {
    const auto once = ts::matmul(a, b);
    return std::tuple(once, ts::matmul(once, b));
  });
  const ts::Profiler profiler;
  for (int i = 0; i < 4; ++i) (void)ts::eval(ts::tanh(small));
  (void)two(large, square);
  const auto all = profiler.key_averages(), operations = profiler.key_averages(ts::ProfileGroup::operation),
             lines = profiler.key_averages(ts::ProfileGroup::line);
  EXPECT_EQ(all.rows.size(), 3u) << all.table();
  EXPECT_EQ(operations.rows.size(), 2u);
  EXPECT_EQ(lines.rows.size(), 3u);
  EXPECT_EQ(row_of(operations, "einsum").calls, 2);
  EXPECT_EQ(row_of(operations, "einsum").flops, 2.0 * 2 * 4 * 64 * 64);
  EXPECT_EQ(row_of(operations, "einsum").line, "");
  EXPECT_EQ(lines.rows[0].operation, "");
  for (std::size_t r = 1; r < all.rows.size(); ++r) EXPECT_GE(all.rows[r - 1].self_ms, all.rows[r].self_ms);

  const auto first_of = [&](ts::ProfileSort by) {
    const std::string table = operations.table({.sort_by = by, .row_limit = 1});
    EXPECT_NE(table.find("1 more rows\n"), std::string::npos) << table;
    const std::string line = table.substr(table.find('\n') + 1);
    return line.substr(0, line.find("  "));
  };
  EXPECT_EQ(first_of(ts::ProfileSort::calls), "fused tanh");
  EXPECT_EQ(first_of(ts::ProfileSort::flops), "einsum");
  EXPECT_EQ(first_of(ts::ProfileSort::bytes), "einsum");

  const std::string table = all.table();
  const std::string header = table.substr(0, table.find('\n'));
  EXPECT_EQ(header.find("operation"), 0u);
  EXPECT_EQ(header.find("sent"), std::string::npos) << "a column that no row fills";
  EXPECT_NE(table.find("GFLOP/s"), std::string::npos);
  EXPECT_EQ(table.find("more rows"), std::string::npos);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 3 + 1);
  EXPECT_NE(table.find("planning"), std::string::npos);
  std::ostringstream printed;
  printed << all;
  EXPECT_EQ(printed.str(), table);
}

TEST(Profiler, Errors) {
  expect_error(
      ts::errc::option, [] { const ts::Profiler p({.event_limit = -1}); }, "-1 events", "profiler_test.cpp");
  const ts::Profiler profiler;
  expect_error(
      ts::errc::option, [&] { (void)profiler.key_averages().table({.row_limit = -2}); }, "-2 rows");
  expect_error(
      ts::errc::file, [&] { profiler.export_chrome_trace("/nowhere/trace.json"); }, "/nowhere/trace.json",
      "export_chrome_trace", "profiler_test.cpp");
  EXPECT_EQ(profiler.key_averages().table().find("all "), 0u) << "without rows there is no header";
  EXPECT_EQ(events_of(trace_of(profiler)).size(), 0u);
}

TEST(ProfilerDoc, Runs) {
  const ScratchFolder folder;
  const std::string path = (folder.path / "trace.json").string();
  const Matrix x = filled(8, 8, one, {});
  const auto run_step = [&] { (void)ts::eval(ts::matmul(x, x)); };
  const tessera_test::Output output;
  // clang-format off
    const ts::Profiler profiler;
    for (int i = 0; i < 100; ++i) run_step();
    std::cout << profiler.key_averages();      // a table: .table({.sort_by = ..., .row_limit = 20}) sorts and shortens it
    profiler.export_chrome_trace(path);        // a file for chrome://tracing and https://ui.perfetto.dev
  // clang-format on
  EXPECT_NE(output.text().find("einsum"), std::string::npos);
  EXPECT_EQ(profiler.event_count(), 1 + 2 * 100);
  EXPECT_TRUE(std::filesystem::exists(path));
  tessera_test::expect_lines({.name = "running.md", .section = "Where the time goes", .lines = 5}, __FILE__);
}

// The name of the file is the compiler's, so a test can choose it. The last test, since it ends the file's own lines.
#line 7 "a \"quoted\"\\name.cpp"
TEST(Profiler, TextInATraceIsEscaped) {
  const Matrix x = filled(4, 4, one, {});
  const ts::Profiler profiler;
  constexpr auto f = ts::compile([](auto a) { return ts::sinh(a); });
  (void)f(x);
  int lines = 0;
  for (const Json& event : events_of(trace_of(profiler)))
    if (event.members.at("args").members.contains("line")) {
      EXPECT_EQ(event.members.at("args").members.at("line").text, "a \"quoted\"\\name.cpp:10");
      ++lines;
    }
  EXPECT_EQ(lines, 2);  // the program and its step
}

}  // namespace

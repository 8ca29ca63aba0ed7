#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/partition/plan/static_plan.hpp>
#include <tessera/partition/reshard/halo.hpp>

// What slices, pads and concats send along a split dim, compared with sets of rows and boxes of devices.

namespace {

namespace ts = tessera;
using ts::tests::Matrix;
using ts::tests::number;
using ts::tests::Planned;
using ts::tests::tensor;

/// The number of rows sent by the device that sends most, counted row by row.
std::int64_t counted(const std::vector<ts::HaloWindow>& windows, std::int64_t rows, std::int64_t count) {
  const auto owner = [&](std::int64_t row, std::int64_t extent) { return row / ((extent + count - 1) / count); };
  std::vector<std::int64_t> sent(static_cast<std::size_t>(count), 0);
  for (const ts::HaloWindow& window : windows) {
    std::set<std::pair<std::int64_t, std::int64_t>> moved;  // row of the operand, device that needs it
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t from = row * window.stride + window.first; from < row * window.stride + window.last; ++from)
        if (from >= 0 && from < window.extent) moved.emplace(from, owner(row, rows));
    for (const auto& [row, device] : moved)
      if (owner(row, window.extent) != device) ++sent[static_cast<std::size_t>(owner(row, window.extent))];
  }
  return *std::max_element(sent.begin(), sent.end());
}
std::int64_t planned(const std::vector<ts::HaloWindow>& windows, std::int64_t rows, std::int64_t count) {
  ts::Halo halo(rows, count);
  for (const ts::HaloWindow& window : windows) halo.read(window);
  return halo.most_sent();
}
std::string text(const std::vector<ts::HaloWindow>& windows, std::int64_t rows, std::int64_t count) {
  std::string out = ts::concat_text(rows, " rows on ", count);
  for (const ts::HaloWindow& w : windows)
    out += ts::concat_text(", ", w.extent, " [", w.first, ",", w.last, ") by ", w.stride);
  return out;
}
void expect_counted(const std::vector<ts::HaloWindow>& windows, std::int64_t rows, std::int64_t count) {
  EXPECT_EQ(planned(windows, rows, count), counted(windows, rows, count)) << text(windows, rows, count);
}

TEST(Halo, RowsOfEverySliceAndPad) {
  for (std::int64_t count = 1; count <= 5; ++count)
    for (std::int64_t n = 0; n <= 14; ++n)
      for (std::int64_t start = 0; start <= n; ++start)
        for (std::int64_t size = 0; start + size <= n; ++size) {
          expect_counted({{n, start, start + 1}}, size, count);
          expect_counted({{size, -start, 1 - start}}, n, count);  // the transpose: `size` rows in n
        }
}

TEST(Halo, RowsOfJoins) {
  for (std::int64_t count = 1; count <= 4; ++count)
    for (std::int64_t a = 0; a <= 6; ++a)
      for (std::int64_t b = 0; b <= 6; ++b)
        for (const std::int64_t c : {0, 1, 5})
          expect_counted({{a, 0, 1}, {b, -a, 1 - a}, {c, -a - b, 1 - a - b}}, a + b + c, count);
}

// With many devices, only some of them are looked at.
TEST(Halo, RowsAmongManyDevices) {
  for (const std::int64_t count : {65, 96, 300})
    for (const std::int64_t n : {1, 64, 299, 300, 301, 1000, 4097})
      for (const std::int64_t size : {std::int64_t{1}, n / 3, n / 2 + 1, n - 1, n})
        for (const std::int64_t start : {std::int64_t{0}, std::int64_t{1}, (n - size) / 2, n - size}) {
          if (size < 0 || start < 0 || start + size > n) continue;
          expect_counted({{n, start, start + 1}}, size, count);
          expect_counted({{size, -start, 1 - start}}, n, count);
          expect_counted({{size, 0, 1}, {start, -size, 1 - size}}, size + start, count);
        }
}

// Convolutions: windows that overlap, or touch, with padding on either side.
TEST(Halo, RowsOfWindows) {
  for (const std::int64_t count : {1, 2, 3, 4})
    for (std::int64_t n = 1; n <= 13; ++n)
      for (const std::int64_t window : {1, 2, 3, 5})
        for (std::int64_t padding = 0; padding <= window; ++padding)
          for (std::int64_t stride = 1; stride <= window; ++stride) {
            if (n + 2 * padding < window) continue;
            const std::int64_t rows = (n + 2 * padding - window) / stride + 1;
            expect_counted({{n, -padding, window - padding, stride}}, rows, count);
          }
}

static_assert([] {
  ts::Halo halo(100'000'000, 100'000);
  halo.read({100'000'007, 7, 8});  // 1,001 rows a device before, 1,000 after
  return halo.most_sent();
}() == 1001);

struct Cut {
  constexpr auto operator()(auto x, auto start, auto size) const { return ts::slice<0>(x, start, size); }
};
struct Padded {
  constexpr auto operator()(auto x, auto before, auto after) const { return ts::pad<0>(x, before, after); }
};
struct Joined {
  constexpr auto operator()(auto a, auto b) const { return ts::concat<0>(a, b); }
};

const ts::Mesh mesh({{"x", 2}, {"y", 3}});
const ts::Sharding& result_of(const Planned& made) {
  return made.plan.main().values[static_cast<std::size_t>(made.plan.main().outputs[0])].sharding;
}

/// Bytes sent by the device that sends most, from the boxes of all devices. Each device gets what it lacks of its part
/// of the result from the device that has it, among those with its coordinates along the axes that don't split dim 0.
std::int64_t counted(const Planned& made, const std::vector<std::pair<ts::Shape, std::int64_t>>& parts,
                     const ts::Shape& result) {
  const ts::Sharding& sharding = result_of(made);
  std::int64_t most = 0;
  for (int sender = 0; sender < mesh.size(); ++sender) {
    std::int64_t sent = 0;
    for (int other = 0; other < mesh.size(); ++other) {
      const ts::Coordinates a = mesh.coordinates_of(sender), b = mesh.coordinates_of(other);
      bool peers = sender != other;
      for (std::size_t axis = 0; axis < a.size(); ++axis)
        peers = peers && (a[axis] == b[axis] || sharding.dims[0].contains(static_cast<std::uint8_t>(axis)));
      if (!peers) continue;
      for (const auto& [shape, offset] : parts) {
        ts::Box has = ts::device_box(shape, sharding, mesh, sender);
        has.begin[0] += offset;
        has.end[0] += offset;
        sent += 4 * ts::volume(ts::extents(ts::intersect(has, ts::device_box(result, sharding, mesh, other))));
      }
    }
    most = std::max(most, sent);
  }
  return most;
}

const std::vector<ts::PartitionSpec> placements{{"x"},      {"y"}, {{"x", "y"}},    {{"y", "x"}},          {"x", "y"},
                                                {"y", "x"}, {},    {ts::none, "x"}, {ts::none, {"y", "x"}}};

TEST(Halo, PlansSendWhatBoxesLack) {
  for (const ts::PartitionSpec& spec : placements)
    for (const std::int64_t n : {1, 5, 6, 12, 17})
      for (const std::int64_t start : {0, 1, 3, 8})
        for (const std::int64_t size : {0, 1, 2, 5, 9, 17}) {
          SCOPED_TRACE(ts::concat_text(spec.text(), " ", n, " ", start, " ", size));
          const auto expect = [&](const Planned& made, const std::vector<std::pair<ts::Shape, std::int64_t>>& parts,
                                  const ts::Shape& result) {
            EXPECT_EQ(ts::text(result_of(made), mesh), ts::text(ts::resolve(spec, mesh, 2), mesh));
            const std::int64_t bytes = counted(made, parts, result);
            EXPECT_EQ(made.plan.count(ts::Collective::permute), bytes != 0 ? 1 : 0);
            EXPECT_EQ(made.plan.payload_bytes(ts::Collective::permute), bytes);
            EXPECT_EQ(made.plan.wire_bytes(), bytes);
            EXPECT_EQ(made.plan.implicit_count(), 0);
          };
          if (start + size <= n)
            expect(Planned(ts::Traced<Cut, Matrix, ts::Dim, ts::Dim>::program(), mesh,
                           {tensor(mesh, {n, 7}, spec), number(static_cast<double>(start)),
                            number(static_cast<double>(size))}),
                   {{{n, 7}, -start}}, {size, 7});
          expect(Planned(ts::Traced<Padded, Matrix, ts::Dim, ts::Dim>::program(), mesh,
                         {tensor(mesh, {n, 7}, spec), number(static_cast<double>(start)),
                          number(static_cast<double>(size))}),
                 {{{n, 7}, start}}, {start + n + size, 7});
          expect(Planned(ts::Traced<Joined, Matrix, Matrix>::program(), mesh,
                         {tensor(mesh, {n, 7}, spec), tensor(mesh, {size, 7}, spec)}),
                 {{{n, 7}, 0}, {{size, 7}, n}}, {n + size, 7});
        }
}

struct Corner {
  constexpr auto operator()(auto x) const { return ts::slice<1>(ts::slice<0>(x, 1, 8), 2, 4); }
};
struct One {
  constexpr auto operator()(auto x) const { return ts::slice<0>(x, 3, 1); }
};

// The choice between a halo and the whole dim, by bytes.
TEST(Halo, OperandsAreGatheredWhereThatSendsLess) {
  const ts::Mesh line({{"x", 4}});
  const auto cut = [&](std::int64_t start, std::int64_t size, const ts::PartitionSpec& spec,
                       const ts::PartitionSpec& wanted) {
    const ts::OutputRequest request{true, ts::resolve(wanted, line, 2)};
    return Planned(ts::Traced<Cut, Matrix, ts::Dim, ts::Dim>::program(), line,
                   {tensor(line, {16, 2}, spec), number(static_cast<double>(start)), number(static_cast<double>(size))},
                   {.outputs = &request})
        .collectives();
  };
  EXPECT_EQ(cut(0, 16, {"x"}, {"x"}), "");
  EXPECT_EQ(cut(1, 15, {"x"}, {"x"}), "permute x 8\n");
  // Few rows of the whole result are gathered after the slice, many rows before it.
  EXPECT_EQ(cut(4, 2, {"x"}, {}), "permute x 8\nall_gather x 16\n");
  EXPECT_EQ(cut(1, 15, {"x"}, {}), "all_gather x 128\n");
  // Every device already has all rows.
  EXPECT_EQ(cut(1, 15, {}, {"x"}), "");
  // The other dim takes over the axis, before or after the slice.
  EXPECT_EQ(cut(1, 15, {"x"}, {ts::none, "x"}), "all_to_all x 128\n");
  EXPECT_EQ(cut(4, 1, {"x"}, {ts::none, "x"}), "permute x 8\nall_to_all x 32\n");

  // A short replicated operand joins a long split one: it is sliced, which sends nothing, then its rows are moved.
  const auto join = [&](std::int64_t a, const ts::PartitionSpec& of_a, std::int64_t b, const ts::PartitionSpec& of_b) {
    return Planned(ts::Traced<Joined, Matrix, Matrix>::program(), line,
                   {tensor(line, {a, 2}, of_a), tensor(line, {b, 2}, of_b)});
  };
  EXPECT_EQ(join(16, {"x"}, 4, {}).collectives(), "permute x 24\n");
  EXPECT_EQ(ts::text(result_of(join(16, {"x"}, 4, {})), line), "{x,-}");

  // Slices along two dims, one after the other; a single row can't be split, so it is a partial value.
  const Planned corner(ts::Traced<Corner, Matrix>::program(), mesh, {tensor(mesh, {12, 8}, {"x", "y"})});
  EXPECT_EQ(corner.collectives(), "permute x 12\npermute y 16\n");
  EXPECT_EQ(Planned(ts::Traced<One, Matrix>::program(), line, {tensor(line, {16, 2}, {"x"})}).collectives(),
            "all_reduce x 8\n");
}

TEST(Halo, SaysWhatItSends) {
  const ts::Mesh line({{"x", 4}});
  const std::string text = Planned(ts::Traced<Cut, Matrix, ts::Dim, ts::Dim>::program(), line,
                                   {tensor(line, {16, 2}, {"x"}), number(1), number(15)})
                               .text();
  EXPECT_NE(text.find("\n    permute over x: 8 B, 8 B on the wire"), std::string::npos) << text;
  EXPECT_NE(text.find("  (halo)\n"), std::string::npos) << text;
  const ts::OutputRequest whole{true, ts::replicated(2)};
  const std::string gathered = Planned(ts::Traced<Cut, Matrix, ts::Dim, ts::Dim>::program(), line,
                                       {tensor(line, {16, 2}, {"x"}), number(1), number(15)}, {.outputs = &whole})
                                   .text();
  EXPECT_NE(gathered.find("(a halo exchange would send more; implicit)"), std::string::npos) << gathered;
}

// A stencil and its gradient, planned in a constant expression: rows of two neighbours each way, and no gathers.
constexpr auto smooth = [](auto x) {
  const auto rows = ts::extent<0>(x) - 2;
  const auto y = (ts::slice<0>(x, 0, rows) + 2.0 * ts::slice<0>(x, 1, rows) + ts::slice<0>(x, 2, rows)) * 0.25;
  return ts::pad<0>(y, 1, 1);
};
constexpr auto descent = [](auto x) {
  return ts::grad([](const auto& v) {
    const auto y = smooth(v);
    return ts::sum(y * y);
  })(x);
};
constexpr ts::Mesh four({{"x", 4}});
constexpr auto forward = ts::freeze([] { return ts::plan(smooth, four, ts::abstract<float>({16, 8}, {"x"})); });
constexpr auto backward = ts::freeze([] { return ts::plan(descent, four, ts::abstract<float>({16, 8}, {"x"})); });
static_assert(forward.count(ts::all_gather) == 0 && forward.count(ts::Collective::permute, "x") == 3);
static_assert(forward.wire_bytes() == (1 + 2 + 1) * 8 * 4 && forward.implicit_count() == 0);
static_assert(backward.count(ts::all_gather) == 0 && backward.wire_bytes() == 2 * forward.wire_bytes() &&
              backward.count(ts::Collective::permute, "x") == 6);

}  // namespace

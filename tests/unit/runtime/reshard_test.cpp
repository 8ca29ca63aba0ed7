#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "../../support/plan_reshard.hpp"
#include "../../support/threads.hpp"
#include "../base/expect_error.hpp"
#include "../partition/exhaustive.hpp"
#include <gtest/gtest.h>

#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/reshard.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>

namespace {

using tessera::Box;
using tessera::Coordinates;
using tessera::DType;
using tessera::Mesh;
using tessera::Reduction;
using tessera::Shape;
using tessera::ShardGrid;
using tessera::Sharding;
using tessera::runtime::ReshardPlan;
using tessera::runtime::ShardRef;
using tessera_test::error_of;
using tessera_test::Threads;

/// Calls f(global index) for every index of a box.
template <class F> void for_each_index(const Box& box, F f) {
  if (box.empty()) return;
  Shape at = box.begin;
  for (;;) {
    f(at);
    std::size_t dim = at.size();
    while (dim > 0 && ++at[dim - 1] == box.end[dim - 1]) {
      --dim;
      at[dim] = box.begin[dim];
    }
    if (dim == 0) return;
  }
}

std::size_t local_offset(const Box& box, const Shape& at) {
  std::int64_t offset = 0;
  for (std::size_t dim = 0; dim < at.size(); ++dim)
    offset = offset * (box.end[dim] - box.begin[dim]) + at[dim] - box.begin[dim];
  return static_cast<std::size_t>(offset);
}

/// A number that tells an element and a partial value of it from all others; small, so that sums are exact.
template <class T> T value_at(const Shape& at, int partial) {
  std::int64_t h = 17 + partial * 7;
  for (std::int64_t i : at) h = (h * 31 + i) % 1009;
  return static_cast<T>(h % 101 - 50);
}

template <class T> T combine(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::sum:
      return static_cast<T>(a + b);
    case Reduction::max:
      return a > b ? a : b;
    case Reduction::product:
      return static_cast<T>(a * b);
    default:
      return a < b ? a : b;
  }
}

/// Index over some axes of a mesh, the first one major.
int partial_index(const Mesh& mesh, unsigned axes, const Coordinates& at) {
  int index = 0;
  for (int axis = 0; axis < mesh.rank(); ++axis)
    if (axes >> axis & 1) index = index * mesh.axis_size(axis) + at[static_cast<std::size_t>(axis)];
  return index;
}

struct Random {
  std::mt19937 engine;
  int below(int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); }

  Mesh mesh() {
    tessera::AxisTable axes;
    const char* names[] = {"a", "b", "c"};
    int devices = 1;
    for (int axis = 0, n = below(4); axis < n; ++axis) {
      const int size = 1 + below(5);
      if (devices * size > 64) break;
      devices *= size;
      axes.push_back({tessera::Name(names[axis]), size});
    }
    return Mesh(axes);
  }
  Shape shape(int rank) {
    Shape shape;
    for (int dim = 0; dim < rank; ++dim) shape.push_back(below(12) == 0 ? 0 : 1 + below(13));
    return shape;
  }
  Sharding sharding(const Mesh& mesh, int rank, Reduction reduction) {
    Sharding s = tessera::replicated(rank);
    std::vector<int> axes(static_cast<std::size_t>(mesh.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), engine);
    for (int axis : axes) {
      const int use = below(rank + 3);
      if (use < rank && s.dims[use].size() < s.dims[use].capacity())
        s.dims[use].push_back(static_cast<std::uint8_t>(axis));
      if (use == rank) s.unreduced = static_cast<std::uint16_t>(s.unreduced | 1u << axis);
    }
    if (s.unreduced != 0) s.reduction = reduction;
    return s;
  }
};

template <class T> void check_random(unsigned seed, Reduction reduction) {
  Random random{std::mt19937(seed)};
  for (int round = 0; round < 120; ++round) {
    const Mesh mesh = random.mesh();
    const int rank = random.below(5);
    const Shape shape = random.shape(rank);
    const Sharding from = random.sharding(mesh, rank, reduction), to = random.sharding(mesh, rank, reduction);
    const ShardGrid source_grid(mesh, from), destination_grid(mesh, to);
    SCOPED_TRACE(text(from, mesh) + " -> " + text(to, mesh) + " on " + mesh.text());

    std::vector<std::vector<T>> in, out;
    for (int i = 0; i < source_grid.count(); ++i) {
      const Coordinates at = source_grid.coordinates(i);
      const Box box = shard_box(shape, from, mesh, at);
      auto& data = in.emplace_back(static_cast<std::size_t>(volume(extents(box))) + 1);
      const int partial = partial_index(mesh, from.unreduced, at);
      for_each_index(box, [&](const Shape& index) { data[local_offset(box, index)] = value_at<T>(index, partial); });
    }
    for (int i = 0; i < destination_grid.count(); ++i) {
      const Box box = shard_box(shape, to, mesh, destination_grid.coordinates(i));
      out.emplace_back(static_cast<std::size_t>(volume(extents(box))) + 1, T{77});
    }
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    for (auto& data : in) sources.push_back(data.data());
    for (auto& data : out) destinations.push_back(data.data());
    const ReshardPlan plan = tessera_test::plan_reshard(tessera::dtype_v<T>, shape, mesh, from, to);
    plan.run(destinations, sources);

    for (int i = 0; i < destination_grid.count(); ++i) {
      const Coordinates at = destination_grid.coordinates(i);
      const Box box = shard_box(shape, to, mesh, at);
      const auto& data = out[static_cast<std::size_t>(i)];
      ASSERT_EQ(data.back(), T{77}) << "written past its end";
      for_each_index(box, [&](const Shape& index) {
        // Every device that agrees with this one on the axes that stay unreduced holds a part.
        const unsigned kept = from.unreduced & to.unreduced, fresh = to.unreduced & ~kept;
        bool any = false;
        T expected{};
        for (int device = 0; device < mesh.size(); ++device) {
          const Coordinates other = mesh.coordinates_of(device);
          if (partial_index(mesh, kept, other) != partial_index(mesh, kept, at)) continue;
          if (partial_index(mesh, ~unsigned{from.unreduced}, other) != 0) continue;
          const T part = value_at<T>(index, partial_index(mesh, from.unreduced, other));
          expected = any ? combine(reduction, expected, part) : part;
          any = true;
        }
        const bool splits = reduction == Reduction::sum || reduction == Reduction::product;
        if (splits && partial_index(mesh, fresh, at) != 0) expected = static_cast<T>(reduction == Reduction::product);
        ASSERT_EQ(data[local_offset(box, index)], expected);
      });
      const int source = plan.source_of(i);
      if (source == ReshardPlan::none || box.empty()) continue;
      ASSERT_EQ(in[static_cast<std::size_t>(source)].front(), data.front());
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Reshard, AnySumToAnySharding) {
  for (int threads : {1, 3}) {
    const Threads team(threads);
    check_random<float>(1, Reduction::sum);
    check_random<std::int64_t>(2, Reduction::sum);
  }
}
TEST(Reshard, AnyMaxToAnySharding) { check_random<double>(3, Reduction::max); }
TEST(Reshard, AnyProductToAnySharding) { check_random<double>(5, Reduction::product); }
TEST(Reshard, AnyMinToAnySharding) { check_random<std::int8_t>(4, Reduction::min); }

TEST(Reshard, LargeShardsAreSharedByThreads) {
  const Threads team(4);
  const Mesh mesh({{"x", 3}, {"y", 2}});
  const Shape shape = {3, 501, 1003};
  Sharding from = tessera::replicated(3), to = tessera::replicated(3);
  from.dims[2].push_back(0);
  from.unreduced = 2;
  to.dims[1].push_back(1);
  const ShardGrid in_grid(mesh, from), out_grid(mesh, to);
  std::vector<std::vector<float>> in, out;
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (int i = 0; i < in_grid.count(); ++i) {
    const Box box = shard_box(shape, from, mesh, in_grid.coordinates(i));
    auto& data = in.emplace_back(static_cast<std::size_t>(volume(extents(box))));
    for_each_index(box, [&](const Shape& at) {
      data[local_offset(box, at)] = value_at<float>(at, partial_index(mesh, 2, in_grid.coordinates(i)));
    });
  }
  for (int i = 0; i < out_grid.count(); ++i)
    out.emplace_back(static_cast<std::size_t>(volume(extents(shard_box(shape, to, mesh, out_grid.coordinates(i))))));
  for (auto& data : in) sources.push_back(data.data());
  for (auto& data : out) destinations.push_back(data.data());
  const auto plan = tessera_test::plan_reshard(DType::f32, shape, mesh, from, to);
  EXPECT_EQ(plan.bytes(), 3 * volume(shape) * 4);
  for (int round = 0; round < 5; ++round) {
    for (auto& data : out) data.assign(data.size(), -1);
    plan.run(destinations, sources);
    for (int i = 0; i < out_grid.count(); ++i) {
      const Box box = shard_box(shape, to, mesh, out_grid.coordinates(i));
      std::int64_t wrong = 0;
      for_each_index(box, [&](const Shape& at) {
        const float expected = value_at<float>(at, 0) + value_at<float>(at, 1);
        wrong += out[static_cast<std::size_t>(i)][local_offset(box, at)] != expected;
      });
      ASSERT_EQ(wrong, 0);
    }
  }
}

TEST(Reshard, FewLongRowsAreSharedByThreads) {
  const Threads team(4);
  constexpr std::int64_t rows = 4, columns = 300001;
  std::vector<std::int32_t> in(rows * columns), out(rows * columns, -1);
  std::iota(in.begin(), in.end(), 0);
  const Box box{{0, 0}, {rows, columns}};
  const ShardRef from = tessera::runtime::shard_ref(in.data(), box), to = tessera::runtime::shard_ref(out.data(), box);
  reshard(DType::i32, Reduction::sum, std::span(&to, 1), std::span(&from, 1));
  EXPECT_TRUE(in == out);
}

TEST(Reshard, PartialValuesAreReducedInOrder) {
  // 1e8 absorbs a 1 that comes later, and not one that comes earlier together with others.
  constexpr int n = 70;
  std::vector<float> parts(n);
  std::mt19937 random(5);
  for (float& part : parts) part = static_cast<float>(random() % 1000) * (random() % 9 == 0 ? 1e6f : 0.001f);
  float expected = parts[0];
  for (int i = 1; i < n; ++i) expected += parts[static_cast<std::size_t>(i)];
  float result = -1;
  const Box scalar;
  std::vector<ShardRef> sources;
  for (float& part : parts) sources.push_back(tessera::runtime::shard_ref(&part, scalar));
  const ShardRef destination = tessera::runtime::shard_ref(&result, scalar);
  reshard(DType::f32, Reduction::sum, std::span(&destination, 1), sources, n, &tessera::kernels::strided_reduce<>);
  EXPECT_EQ(result, expected);
}

TEST(Reshard, ReadsAndWritesStridedShards) {
  // A column-major source and a destination that is a window of a larger array.
  std::vector<int> source(12), window(40, -1);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) source[static_cast<std::size_t>(j * 3 + i)] = 10 * i + j;
  const ShardRef from{source.data(), {{0, 0}, {3, 4}}, {1, 3}};
  const ShardRef to{window.data() + 11, {{1, 0}, {3, 4}}, {10, 1}};
  tessera::runtime::reshard(DType::i32, Reduction::sum, std::span(&to, 1), std::span(&from, 1));
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 10; ++j) {
      const bool inside = (i == 1 || i == 2) && j >= 1 && j <= 4;
      EXPECT_EQ(window[static_cast<std::size_t>(10 * i + j)], inside ? 10 * i + j - 1 : -1) << i << "," << j;
    }
}

TEST(Reshard, SourcesNeedNotFormAGrid) {
  // A pinwheel: four bars around a centre.
  std::vector<Box> boxes = {{{0, 0}, {1, 2}}, {{0, 2}, {2, 3}}, {{2, 1}, {3, 3}}, {{1, 0}, {3, 1}}, {{1, 1}, {2, 2}}};
  std::vector<std::vector<float>> data;
  std::vector<ShardRef> sources;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    data.emplace_back(static_cast<std::size_t>(volume(extents(boxes[i]))), static_cast<float>(i));
    sources.push_back(tessera::runtime::shard_ref(data[i].data(), boxes[i]));
  }
  std::vector<float> out(9, -1);
  const ShardRef destination = tessera::runtime::shard_ref(out.data(), {{0, 0}, {3, 3}});
  reshard(DType::f32, Reduction::sum, std::span(&destination, 1), sources);
  EXPECT_EQ(out, (std::vector<float>{0, 0, 1, 3, 4, 1, 3, 2, 2}));
}

TEST(Reshard, TellsWhichBuffersCanBeShared) {
  const Mesh mesh({{"x", 4}, {"y", 2}});
  Sharding sharded = tessera::replicated(1), partial = tessera::replicated(1);
  sharded.dims[0].push_back(0);
  partial.unreduced = 2;
  const Shape shape = {10};
  auto same = tessera_test::plan_reshard(DType::f32, shape, mesh, sharded, sharded);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(same.source_of(i), i);
  auto gathered = tessera_test::plan_reshard(DType::f32, shape, mesh, sharded, tessera::replicated(1));
  EXPECT_EQ(gathered.source_of(0), ReshardPlan::none);
  auto reduced = tessera_test::plan_reshard(DType::f32, shape, mesh, partial, tessera::replicated(1));
  EXPECT_EQ(reduced.source_of(0), ReshardPlan::none);

  // A shared buffer is left alone.
  std::vector<float> shards[4] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10}};
  std::vector<void*> out;
  std::vector<const void*> in;
  for (auto& shard : shards) {
    out.push_back(shard.data());
    in.push_back(shard.data());
  }
  same.run(out, in);
  EXPECT_EQ(shards[3][0], 10);
}

TEST(Reshard, MovesDtypesWithoutArithmetic) {
  std::vector<std::uint16_t> in = {1, 2, 3, 4}, out(4);
  const ShardRef from = tessera::runtime::shard_ref(in.data(), {{0}, {4}});
  const ShardRef to = tessera::runtime::shard_ref(out.data(), {{0}, {4}});
  tessera::runtime::reshard(DType::bf16, Reduction::sum, std::span(&to, 1), std::span(&from, 1));
  EXPECT_EQ(in, out);
}

TEST(Reshard, MisuseIsAnError) {
  float a[8] = {}, b[8] = {};
  const auto ref = [](float* data, std::int64_t begin, std::int64_t end) {
    return tessera::runtime::shard_ref(data, {{begin}, {end}});
  };
  const auto run = [&](DType type, Reduction reduction, ShardRef to, std::vector<ShardRef> from, int partials) {
    return error_of(
        [&] { reshard(type, reduction, std::span(&to, 1), from, partials, &tessera::kernels::strided_reduce<>); });
  };
  using tessera::errc;
  EXPECT_EQ(run(DType::f32, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 8)}, 1), errc{});
  EXPECT_EQ(run(DType::f32, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 6)}, 1), errc::graph_invalid);
  EXPECT_EQ(run(DType::f32, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 8), ref(b, 0, 8)}, 1), errc::graph_invalid);
  EXPECT_EQ(run(DType::f32, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 8), ref(b, 4, 8)}, 1), errc::graph_invalid);
  EXPECT_EQ(run(DType::f32, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 8)}, 2), errc::graph_invalid);
  EXPECT_EQ(run(DType::f32, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 8), ref(b, 0, 7)}, 2), errc::graph_invalid);
  EXPECT_EQ(run(DType::f8_e4m3, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 8), ref(b, 0, 8)}, 2), errc::dtype_mismatch);
  EXPECT_EQ(run(DType::bool_, Reduction::sum, ref(a, 0, 8), {ref(b, 0, 8), ref(b, 0, 8)}, 2), errc::dtype_mismatch);
  const Sharding whole = tessera::replicated(1);
  const ReshardPlan plan = tessera_test::plan_reshard(DType::f32, {8}, Mesh(), whole, whole);
  EXPECT_EQ(error_of([&] { plan.run({}, {}); }), errc::graph_invalid);
}

// ---- bytes between devices

// What a ring of n devices sends for V bytes, times the devices; replicas along other axes do it each for themselves.
TEST(Reshard, MovesWhatRingsSend) {
  for (const int n : {2, 3, 4, 8})
    for (const int replicas : {1, 2, 5})
      for (const bool replicas_first : {false, true}) {
        const Mesh mesh = replicas_first ? Mesh({{"r", replicas}, {"x", n}}) : Mesh({{"x", n}, {"r", replicas}});
        SCOPED_TRACE(mesh.text());
        const Shape shape = {24, 48};
        const std::int64_t value = volume(shape) * 4, parts = n - 1;
        const Sharding whole = tessera::replicated(2);
        Sharding rows = whole, columns = whole, partial = whole;
        const auto x = static_cast<std::uint8_t>(replicas_first ? 1 : 0);
        rows.dims[0].push_back(x);
        columns.dims[1].push_back(x);
        partial.unreduced = static_cast<std::uint16_t>(1u << x);
        const auto bytes = [&](const Sharding& from, const Sharding& to) {
          return tessera_test::plan_reshard(DType::f32, shape, mesh, from, to).moved_bytes();
        };
        EXPECT_EQ(bytes(partial, whole), 2 * parts * value * replicas);   // all_reduce: 2(n-1)/n V
        EXPECT_EQ(bytes(partial, rows), parts * value * replicas);        // reduce_scatter: (n-1)/n V
        EXPECT_EQ(bytes(rows, whole), parts * value * replicas);          // all_gather: (n-1)/n V
        EXPECT_EQ(bytes(rows, columns), parts * (value / n) * replicas);  // all_to_all: (n-1)/n^2 V
        EXPECT_EQ(bytes(whole, rows), 0);                                 // slice
        EXPECT_EQ(bytes(rows, rows), 0);
      }
}

// What a device lacks of its shard, found device by device and element by element, is what it is sent.
TEST(Reshard, MovesWhatDevicesLack) {
  Random random{std::mt19937(7)};
  for (int round = 0; round < 200; ++round) {
    const Mesh mesh = random.mesh();
    const int rank = 1 + random.below(3);
    const Shape shape = random.shape(rank);
    Sharding from = random.sharding(mesh, rank, Reduction::sum), to = random.sharding(mesh, rank, Reduction::sum);
    from.unreduced = to.unreduced = 0;
    SCOPED_TRACE(text(from, mesh) + " -> " + text(to, mesh) + " on " + mesh.text());
    std::int64_t lacking = 0;
    for (int device = 0; device < mesh.size(); ++device) {
      const Coordinates at = mesh.coordinates_of(device);
      const Box has = shard_box(shape, from, mesh, at), gets = shard_box(shape, to, mesh, at);
      lacking += volume(extents(gets)) - volume(extents(intersect(has, gets)));
    }
    ASSERT_EQ(tessera_test::plan_reshard(DType::f64, shape, mesh, from, to).moved_bytes(), 8 * lacking);
  }
}

// The collectives of a plan, found from axes alone, send at least what devices lack, also where axes split a dim
// unevenly.
TEST(Reshard, PlannedCollectivesSendWhatMoves) {
  const Mesh meshes[] = {Mesh({{"x", 4}, {"y", 4}}), Mesh({{"x", 2}, {"y", 3}}), Mesh({{"x", 3}, {"y", 2}}),
                         Mesh({{"x", 2}, {"y", 2}, {"z", 2}})};
  int pairs = 0, shifted = 0;
  for (const Mesh& mesh : meshes)
    for (const Shape& shape : {Shape{12}, Shape{1}, Shape{17}, Shape{5, 9}}) {
      const std::vector<Sharding> shardings = tessera::tests::all_shardings(mesh, static_cast<int>(shape.size()), true);
      for (const Sharding& from : shardings)
        for (const Sharding& to : shardings) {
          if (to.unreduced != 0) continue;
          const auto path = tessera::reshard_path(shape, DType::f32, mesh, from, to);
          const std::int64_t moved = tessera_test::plan_reshard(DType::f32, shape, mesh, from, to).moved_bytes();
          ASSERT_LE(moved, wire_bytes(path) * mesh.size())
              << text(from, mesh) << " -> " << text(to, mesh) << " on " << mesh.text() << ", rank " << shape.size()
              << ", first extent " << shape[0];
          ++pairs;
          shifted += path.size() == 2 && path[0].kind == tessera::Collective::slice && path[1].wire_bytes != 0;
        }
    }
  EXPECT_GT(pairs, 5000);
  EXPECT_GT(shifted, 50);  // else no shards were uneven
}

}  // namespace

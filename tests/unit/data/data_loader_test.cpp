#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/data/array.hpp>
#include <tessera/data/data_loader.hpp>
#include <tessera/data/map.hpp>
#include <tessera/tensor/host.hpp>

namespace {

namespace ts = tessera;
namespace data = tessera::data;
using tessera_test::expect_error;

struct Sample {
  ts::ShardedTensor<float, 3> images;
  ts::ShardedTensor<std::int32_t, 1> labels;
  static constexpr std::array field_names{"images", "labels"};
};

/// Rows [3, 5] whose elements are 15 row, 15 row + 1, ...
data::Array<float, 2> images(std::int64_t rows) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < 15 * rows; ++i) values.push_back(static_cast<float>(i));
  return data::array(std::move(values), {rows, 3, 5});
}
data::Array<std::int32_t, 0> labels(std::int64_t rows) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < rows; ++i) values.push_back(static_cast<std::int32_t>(i));
  return data::array(std::move(values));
}

/// The labels of all batches of the rest of the epoch; checks that each image is that of its label.
template <class Loader> std::vector<std::vector<std::int32_t>> epoch_of(Loader& loader) {
  std::vector<std::vector<std::int32_t>> batches;
  for (const auto& [x, y] : loader) {
    const auto values = ts::to_host(x);
    batches.push_back(ts::to_host(y));
    EXPECT_EQ(values.size(), 15 * batches.back().size());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(values[i], static_cast<float>(15 * batches.back()[i / 15]) + static_cast<float>(i % 15));
  }
  return batches;
}

const ts::Mesh& line(int devices) {
  static const ts::Mesh meshes[] = {ts::Mesh({{"x", 1}}), ts::Mesh({{"x", 2}}), ts::Mesh({{"x", 3}})};
  return meshes[devices - 1];
}

TEST(DataLoader, ReadsEveryRowOfAnEpochInOrder) {
  auto loader = data::data_loader(line(2), {.batch_size = 4, .spec = {"x"}}, images(12), labels(12));
  EXPECT_EQ(loader.batches(), 3);
  EXPECT_EQ(loader.rows(), 12);
  const std::vector<std::vector<std::int32_t>> all{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
  EXPECT_EQ(epoch_of(loader), all);
  EXPECT_EQ(epoch_of(loader), all);
  EXPECT_EQ(loader.state(), (data::DataLoaderState{2, 0}));
}

TEST(DataLoader, BatchesDoNotDependOnMeshSpecOrPrefetch) {
  const ts::Mesh grid({{"x", 3}, {"y", 2}});
  std::optional<std::vector<std::vector<std::int32_t>>> expected;
  for (const int prefetch : {0, 1, 4})
    for (const ts::PartitionSpec& spec :
         {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{"x", "y"},
          ts::PartitionSpec{ts::none, "x", "y"}, ts::PartitionSpec{"y", ts::none, "x"}}) {
      auto loader = data::data_loader(
          grid,
          {.batch_size = 5, .shuffle = ts::Key(4), .ragged = ts::Ragged::keep, .spec = spec, .prefetch = prefetch},
          images(17), labels(17));
      EXPECT_EQ(loader.batches(), 4);
      auto found = epoch_of(loader);
      EXPECT_EQ(found.back().size(), 2u);
      for (auto& batch : epoch_of(loader)) found.push_back(std::move(batch));
      std::set<std::int32_t> first, second;
      for (std::size_t i = 0; i < found.size(); ++i) (i < 4 ? first : second).insert(found[i].begin(), found[i].end());
      EXPECT_EQ(first.size(), 17u);
      EXPECT_EQ(second.size(), 17u);
      EXPECT_NE(found[0], found[4]);
      if (!expected) expected = found;
      EXPECT_EQ(found, *expected);
    }
}

TEST(DataLoader, BatchesAreShardedAsTheirSpecsSay) {
  const ts::Mesh grid({{"x", 2}, {"y", 2}});
  auto loader = data::data_loader<Sample>(grid, {.batch_size = 4, .spec = {"x"}, .specs = {{"images", {"y", "x"}}}},
                                          images(8), labels(8));
  const Sample batch = loader.next().value();
  EXPECT_EQ(ts::sharding(batch.images), ts::resolve({"y", "x"}, grid, 3));
  EXPECT_EQ(ts::sharding(batch.labels), ts::resolve({"x"}, grid, 1));
  EXPECT_EQ(ts::shape(batch.images), (ts::Shape{4, 3, 5}));
  EXPECT_EQ(ts::to_host(batch.labels), (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(DataLoader, RowsMayLieInAnyDim) {
  const ts::Mesh grid({{"x", 2}, {"y", 3}});
  for (const int dim : {0, 1, 2})
    for (const ts::PartitionSpec& spec :
         {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{"y", "x"}, ts::PartitionSpec{ts::none, "y"},
          ts::PartitionSpec{"x", ts::none, "y"}, ts::PartitionSpec{ts::none, "x", "y"}}) {
      auto loader = data::data_loader<Sample>(
          grid, {.batch_size = 4, .ragged = ts::Ragged::keep, .spec = spec, .batch_dim = dim}, images(7), labels(7));
      std::int64_t row = 0;
      for (const Sample& batch : loader) {
        const std::vector<float> values = ts::to_host(batch.images);
        const ts::Shape shape = ts::shape(batch.images);
        const std::int64_t rows = row == 0 ? 4 : 3;
        ASSERT_EQ(shape, dim == 0   ? (ts::Shape{rows, 3, 5})
                         : dim == 1 ? (ts::Shape{3, rows, 5})
                                    : (ts::Shape{3, 5, rows}));
        EXPECT_EQ(ts::shape(batch.labels), ts::Shape{rows});
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < 3; ++j)
            for (std::int64_t k = 0; k < 5; ++k) {
              const std::int64_t at = dim == 0   ? (i * 3 + j) * 5 + k
                                      : dim == 1 ? (j * rows + i) * 5 + k
                                                 : (j * 5 + k) * rows + i;
              EXPECT_EQ(values[static_cast<std::size_t>(at)], static_cast<float>(15 * (row + i) + 5 * j + k));
            }
        row += rows;
      }
      EXPECT_EQ(row, 7);
    }
  expect_error(
      ts::errc::option, [&] { data::data_loader(grid, {.batch_size = 4, .batch_dim = 3}, images(8), labels(8)); },
      "batch_dim: 3 is not a dim of any column", "data_loader_test.cpp");
}

TEST(DataLoader, APartialLastBatchIsKeptDroppedOrAnError) {
  const auto rows = [](ts::Ragged ragged, std::int64_t count) {
    auto loader =
        data::data_loader(line(3), {.batch_size = 4, .ragged = ragged, .spec = {"x"}}, images(count), labels(count));
    std::vector<std::size_t> sizes;
    for (const auto& batch : epoch_of(loader)) sizes.push_back(batch.size());
    EXPECT_EQ(loader.batches(), static_cast<std::int64_t>(sizes.size()));
    return std::pair(sizes, loader.rows());
  };
  EXPECT_EQ(rows(ts::Ragged::keep, 10), std::pair(std::vector<std::size_t>({4, 4, 2}), std::int64_t{10}));
  EXPECT_EQ(rows(ts::Ragged::drop, 10), std::pair(std::vector<std::size_t>({4, 4}), std::int64_t{8}));
  EXPECT_EQ(rows(ts::Ragged::drop, 3), std::pair(std::vector<std::size_t>(), std::int64_t{0}));
  EXPECT_EQ(rows(ts::Ragged::keep, 0), std::pair(std::vector<std::size_t>(), std::int64_t{0}));
  expect_error(
      ts::errc::not_divisible, [&] { rows(ts::Ragged::error, 10); }, "10 rows are not divisible by the batch size 4",
      "data_loader_test.cpp");
}

TEST(DataLoader, ResumesInTheMiddleOfAnEpoch) {
  const auto made = [] {
    return data::data_loader(line(2), {.batch_size = 3, .shuffle = ts::Key(9), .spec = {"x"}}, images(21), labels(21));
  };
  auto whole = made();
  epoch_of(whole);
  whole.next();
  whole.next();
  const data::DataLoaderState saved = whole.state();
  EXPECT_EQ(saved, (data::DataLoaderState{1, 2}));
  auto again = made();
  again.next();
  again.resume(saved);
  EXPECT_EQ(epoch_of(again), epoch_of(whole));
  EXPECT_EQ(epoch_of(again), epoch_of(whole));  // the next epoch too
  again.resume({1, 2});                         // back
  EXPECT_EQ(again.state(), saved);
  again.resume({0, 7});  // the end of an epoch
  EXPECT_FALSE(again.next());
  expect_error(
      ts::errc::option,
      [&] {
        again.resume({0, 8});
      },
      "batch 8 of epoch 0, but an epoch has 7 batches");
  expect_error(ts::errc::option, [&] { again.resume({-1, 0}); });
  // The number of a batch, counted from the first epoch on, stays far below the largest number.
  constexpr std::int64_t last = (std::int64_t{1} << 52) / 7;
  again.resume({last, 6});
  EXPECT_TRUE(again.next());
  EXPECT_FALSE(again.next());
  EXPECT_TRUE(again.next());
  const auto too_late = [&](std::int64_t epoch) {
    expect_error(
        ts::errc::capacity,
        [&] {
          again.resume({epoch, 0});
        },
        "epoch " + std::to_string(epoch) + " of 7 batches", "data_loader_test.cpp");
  };
  too_late(last + 1);
  too_late(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(again.state(), (data::DataLoaderState{last + 1, 1}));
}

// What a process that is killed leaves is the state that it has saved; another one goes on with it, on its own mesh.
TEST(DataLoader, AKilledLoaderIsResumedOnAnotherMesh) {
  const auto made = [](int devices, int prefetch) {
    return data::data_loader(
        line(devices),
        {.batch_size = 3, .shuffle = ts::Key(9), .ragged = ts::Ragged::keep, .spec = {"x"}, .prefetch = prefetch},
        images(20), labels(20));
  };
  auto whole = made(1, 0);
  std::vector<std::vector<std::int32_t>> wanted = epoch_of(whole);
  for (auto& batch : epoch_of(whole)) wanted.push_back(std::move(batch));
  std::vector<std::vector<std::int32_t>> got;
  data::DataLoaderState saved;
  for (int run = 0; run < 5; ++run) {
    auto loader = made(1 + run % 3, run % 4);
    loader.resume(saved);
    for (int i = 0; i < 3 && got.size() < wanted.size(); ++i) {
      auto batch = loader.next();
      if (!batch) batch = loader.next();
      got.push_back(ts::to_host(std::get<1>(*batch)));
      saved = loader.state();
    }
  }  // a loader ends while batches are loaded ahead
  EXPECT_EQ(got, wanted);
}

TEST(DataLoader, AnErrorOfARowIsThrownWhenItsBatchIsDue) {
  for (const int prefetch : {0, 2}) {
    std::atomic<bool> broken = true;
    const auto column = data::generate<float>(12, {2}, [&](std::int64_t i, std::span<float> row) {
      if (i == 7 && broken) throw std::runtime_error("row 7 is broken");
      row[0] = row[1] = static_cast<float>(i);
    });
    auto loader = data::data_loader(line(2), {.batch_size = 3, .spec = {"x"}, .prefetch = prefetch}, column);
    EXPECT_TRUE(loader.next());
    EXPECT_TRUE(loader.next());
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        loader.next();
        ADD_FAILURE() << "no error";
      } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "row 7 is broken");
      }
      EXPECT_EQ(loader.state(), (data::DataLoaderState{0, 2}));
    }
    broken = false;
    EXPECT_EQ(ts::to_host(std::get<0>(*loader.next())), (std::vector<float>{6, 6, 7, 7, 8, 8}));
    EXPECT_TRUE(loader.next());
    EXPECT_FALSE(loader.next());
  }
}

TEST(DataLoader, LoadsNoMoreThanItWasAllowed) {
  std::atomic<int> read = 0;
  const auto column = data::generate<float>(100, {1}, [&](std::int64_t, std::span<float> row) { ++read, row[0] = 0; });
  {
    auto loader = data::data_loader(line(1), {.batch_size = 1, .prefetch = 3}, column);
    EXPECT_EQ(read, 0);  // nothing before the first batch is due
    loader.next();
    loader.next();
  }  // waits for its thread
  EXPECT_GE(read, 2);
  EXPECT_LE(read, 2 + 3 + 1);
}

TEST(Prefetcher, RefusesWhatItCouldOnlyWaitFor) {
  const auto load = [](std::int64_t item) { return std::make_shared<std::int64_t>(item); };
  for (const int ahead : {-1, std::numeric_limits<int>::min()})
    expect_error(
        ts::errc::option, [&] { data::Prefetcher(ahead, load); },
        "[Prefetcher] ahead: " + std::to_string(ahead) + " is negative", "data_loader_test.cpp");
  expect_error(
      ts::errc::option, [] { data::Prefetcher(1, nullptr); }, "empty function");
  data::Prefetcher none(0, load);
  EXPECT_EQ(*std::static_pointer_cast<std::int64_t>(none.get(7)), 7);
}

TEST(DataLoader, MayBeMovedWhileItLoads) {
  auto loader = data::data_loader(line(2), {.batch_size = 4, .spec = {"x"}}, images(12), labels(12));
  loader.next();
  auto moved = std::move(loader);
  EXPECT_EQ(epoch_of(moved), (std::vector<std::vector<std::int32_t>>{{4, 5, 6, 7}, {8, 9, 10, 11}}));
}

TEST(DataLoader, ReplicasLoadPartsOfTheRows) {
  std::set<std::int32_t> seen;
  for (std::int64_t replica = 0; replica < 3; ++replica) {
    auto loader = data::data_loader(
        line(1), {.batch_size = 2, .shuffle = ts::Key(2), .replicas = 3, .replica = replica}, images(12), labels(12));
    EXPECT_EQ(loader.batches(), 2);
    for (const auto& batch : epoch_of(loader)) seen.insert(batch.begin(), batch.end());
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST(DataLoader, MapsRowsAndAugmentsThemByEpoch) {
  const auto halves = data::map<double>(images(6), [](float x) { return x / 2; });
  const auto corners = data::map<std::int32_t>(images(6), {2}, [](auto in, auto out) {
    out[0] = static_cast<std::int32_t>(in[0]), out[1] = static_cast<std::int32_t>(in[14]);
  });
  const auto noisy = data::map<std::int64_t>(
      labels(6), {1}, [](auto in, auto out, data::Row row) { out[0] = in[0] + 100 * row.epoch + 1000 * row.index; });
  auto loader = data::data_loader(line(2), {.batch_size = 6, .spec = {"x"}}, halves, corners, noisy);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    for (const auto& [half, corner, label] : loader) {
      EXPECT_EQ(ts::shape(half), (ts::Shape{6, 3, 5}));
      EXPECT_EQ(ts::to_host(half)[89], 44.5);
      EXPECT_EQ(ts::to_host(corner), (std::vector<std::int32_t>{0, 14, 15, 29, 30, 44, 45, 59, 60, 74, 75, 89}));
      for (std::int64_t i = 0; i < 6; ++i)
        EXPECT_EQ(ts::to_host(label)[static_cast<std::size_t>(i)], 1001 * i + 100 * epoch);
    }
}

/// A column whose rows have another rank than it says.
struct OtherRank {
  using element = float;
  static constexpr int row_rank = 2;
  std::int64_t rows() const { return 4; }
  ts::Shape row_shape() const { return {3}; }
  void read(data::Row, float*) const {}
};
TEST(DataLoader, RefusesColumnsAndOptionsThatDoNotFit) {
  expect_error(
      ts::errc::shape_mismatch, [] { data::data_loader(line(1), {}, images(4), labels(5)); },
      "the first has 4 rows, another 5", "data_loader_test.cpp");
  expect_error(
      ts::errc::option, [] { data::data_loader(line(1), {.batch_size = 0}, labels(4)); }, "0 is below 1");
  expect_error(
      ts::errc::option, [] { data::data_loader(line(1), {.prefetch = -1}, labels(4)); }, "-1 is negative");
  expect_error(
      ts::errc::option,
      [] {
        data::data_loader(line(1), {.specs = {{"labels", {"x"}}}}, labels(4));
      },
      "\"labels\" names a field", "data_loader<Batch>()", "data_loader_test.cpp");
  const auto named = [](std::vector<data::NamedSpec> specs) {
    data::data_loader<Sample>(line(1), {.specs = std::move(specs)}, images(4), labels(4));
  };
  expect_error(
      ts::errc::option,
      [&] {
        named({{"label", {"x"}}});
      },
      "no field \"label\"");
  expect_error(
      ts::errc::option,
      [&] {
        named({{"labels", {"x"}}, {"labels", {}}});
      },
      "\"labels\" is named twice");
  expect_error(
      ts::errc::spec_axis, [] { data::data_loader(line(1), {.spec = {"z"}}, labels(4)).next(); }, "z",
      "data_loader_test.cpp");
  expect_error(
      ts::errc::rank_mismatch, [] { data::data_loader(line(1), {.batch_dim = 2}, OtherRank()); },
      "rows of row_rank 2 have the shape f32[3]", "data_loader_test.cpp");
  expect_error(
      ts::errc::host_data,
      [] {
        data::array(std::vector<float>(5), {2, 3});
      },
      "5 values for f32[2,3]", "data_loader_test.cpp");
}

}  // namespace

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "../../support/threads.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/collectives.hpp>

namespace {

using tessera::DType;
using tessera::Reduction;
using tessera::Shape;
using namespace tessera::runtime;
using tessera_test::error_of;

/// An array seen as [outer, along, inner] around one dim: enough to check collectives by plain loops.
struct Array {
  Shape shape;
  std::vector<float> data;

  explicit Array(Shape s, float value = -99) : shape(s), data(static_cast<std::size_t>(volume(s)), value) {}
  MemberArray part() { return {data.data(), shape}; }
  std::int64_t outer(int dim) const {
    return std::accumulate(shape.begin(), shape.begin() + dim, std::int64_t{1}, std::multiplies<>());
  }
  std::int64_t inner(int dim) const {
    return std::accumulate(shape.begin() + dim + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  float& at(int dim, std::int64_t o, std::int64_t a, std::int64_t i) {
    return data[static_cast<std::size_t>((o * shape[static_cast<std::size_t>(dim)] + a) * inner(dim) + i)];
  }
};

/// The indices [begin, end) of an array along a dim.
Array slice(Array& from, int dim, std::int64_t begin, std::int64_t end) {
  Shape shape = from.shape;
  shape[static_cast<std::size_t>(dim)] = end - begin;
  Array out(shape);
  for (std::int64_t o = 0; o < from.outer(dim); ++o)
    for (std::int64_t a = begin; a < end; ++a)
      for (std::int64_t i = 0; i < from.inner(dim); ++i) out.at(dim, o, a - begin, i) = from.at(dim, o, a, i);
  return out;
}

Array join(std::vector<Array> parts, int dim) {
  Shape shape = parts[0].shape;
  std::int64_t length = 0;
  for (const Array& part : parts) length += part.shape[static_cast<std::size_t>(dim)];
  shape[static_cast<std::size_t>(dim)] = length;
  Array out(shape);
  std::int64_t at = 0;
  for (Array& part : parts) {
    const std::int64_t extent = part.shape[static_cast<std::size_t>(dim)];
    for (std::int64_t o = 0; o < out.outer(dim); ++o)
      for (std::int64_t a = 0; a < extent; ++a)
        for (std::int64_t i = 0; i < out.inner(dim); ++i) out.at(dim, o, at + a, i) = part.at(dim, o, a, i);
    at += extent;
  }
  return out;
}

Array reduced(const std::vector<Array>& parts, Reduction reduction) {
  Array out = parts[0];
  for (std::size_t k = 1; k < parts.size(); ++k)
    for (std::size_t i = 0; i < out.data.size(); ++i) {
      const float x = parts[k].data[i];
      float& y = out.data[i];
      y = reduction == Reduction::sum ? y + x : reduction == Reduction::max ? std::max(y, x) : std::min(y, x);
    }
  return out;
}

std::vector<MemberArray> parts_of(std::vector<Array>& arrays) {
  std::vector<MemberArray> parts;
  for (Array& array : arrays) parts.push_back(array.part());
  return parts;
}

/// Several groups of random arrays. Extents along `uneven` differ between members, and may be zero.
struct Case {
  std::mt19937 random;
  int groups, members, rank, dim, other;
  std::vector<std::vector<Array>> in, out;

  int below(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

  explicit Case(unsigned seed) : random(seed) {
    groups = 1 + below(4);
    members = 1 + (below(6) == 0 ? below(64) : below(8));
    rank = 1 + below(3);
    dim = below(rank);
    other = below(rank);
    in.resize(static_cast<std::size_t>(groups));
    out.resize(static_cast<std::size_t>(groups));
  }
  Shape shape() {
    Shape s;
    for (int d = 0; d < rank; ++d) s.push_back(below(10) == 0 ? 0 : 1 + below(9));
    return s;
  }
  Array array(const Shape& s) {
    Array a(s);
    for (float& x : a.data) x = static_cast<float>(below(2001) - 1000) / 16;
    return a;
  }
  void fill(std::vector<Array>& to, const Shape& s) {
    for (int i = 0; i < members; ++i) to.push_back(array(s));
  }
  std::vector<Group> views() {
    parts_.clear();
    for (std::size_t g = 0; g < in.size(); ++g) {
      parts_.push_back(parts_of(in[g]));
      parts_.push_back(parts_of(out[g]));
    }
    std::vector<Group> list;
    for (std::size_t g = 0; g < in.size(); ++g) list.push_back({parts_[2 * g], parts_[2 * g + 1]});
    return list;
  }

 private:
  std::vector<std::vector<MemberArray>> parts_;
};

constexpr unsigned rounds = 80;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

TEST(Collectives, AllReduce) {
  for (unsigned seed = 0; seed < rounds; ++seed) {
    Case c(seed);
    const auto reduction = static_cast<Reduction>(seed % 3);
    for (int g = 0; g < c.groups; ++g) {
      c.fill(c.in[index(g)], c.shape());
      const int copies = seed % 2 == 0 ? 1 : c.members;
      for (int i = 0; i < copies; ++i) c.out[index(g)].emplace_back(c.in[index(g)][0].shape);
    }
    all_reduce(DType::f32, reduction, c.views());
    for (int g = 0; g < c.groups; ++g)
      for (const Array& out : c.out[index(g)]) ASSERT_EQ(out.data, reduced(c.in[index(g)], reduction).data) << seed;
  }
}

TEST(Collectives, AllGather) {
  for (unsigned seed = 0; seed < rounds; ++seed) {
    Case c(seed);
    for (int g = 0; g < c.groups; ++g) {
      Shape shape = c.shape();
      for (int i = 0; i < c.members; ++i) {
        shape[index(c.dim)] = c.below(5);
        c.in[index(g)].push_back(c.array(shape));
      }
      for (int i = 0; i < (seed % 2 == 0 ? 1 : c.members); ++i)
        c.out[index(g)].emplace_back(join(c.in[index(g)], c.dim).shape);
    }
    all_gather(DType::f32, c.dim, c.views());
    for (int g = 0; g < c.groups; ++g)
      for (const Array& out : c.out[index(g)]) ASSERT_EQ(out.data, join(c.in[index(g)], c.dim).data) << seed;
  }
}

TEST(Collectives, ReduceScatter) {
  for (unsigned seed = 0; seed < rounds; ++seed) {
    Case c(seed);
    const auto reduction = static_cast<Reduction>(seed % 3);
    for (int g = 0; g < c.groups; ++g) {
      Shape shape = c.shape();
      std::vector<Shape> shapes(index(c.members), shape);
      std::int64_t length = 0;
      for (Shape& s : shapes) length += s[index(c.dim)] = c.below(5);
      shape[index(c.dim)] = length;
      c.fill(c.in[index(g)], shape);
      for (const Shape& s : shapes) c.out[index(g)].emplace_back(s);
    }
    reduce_scatter(DType::f32, reduction, c.dim, c.views());
    for (int g = 0; g < c.groups; ++g) {
      Array all = reduced(c.in[index(g)], reduction);
      std::int64_t at = 0;
      for (const Array& out : c.out[index(g)]) {
        const std::int64_t next = at + out.shape[index(c.dim)];
        ASSERT_EQ(out.data, slice(all, c.dim, at, next).data) << seed;
        at = next;
      }
    }
  }
}

TEST(Collectives, AllToAll) {
  for (unsigned seed = 0; seed < 2 * rounds; ++seed) {
    Case c(seed);
    const int split = c.dim, concat = c.other;
    std::vector<std::vector<std::int64_t>> lengths(index(c.groups));
    for (int g = 0; g < c.groups; ++g) {
      Shape shape = c.shape();
      auto& in = c.in[index(g)];
      if (split == concat) {
        shape[index(split)] = c.members * c.below(4);
        c.fill(in, shape);
        for (int j = 0; j < c.members; ++j) lengths[index(g)].push_back(shape[index(split)] / c.members);
      } else {
        for (int j = 0; j < c.members; ++j) lengths[index(g)].push_back(c.below(4));
        shape[index(split)] = std::accumulate(lengths[index(g)].begin(), lengths[index(g)].end(), std::int64_t{0});
        for (int i = 0; i < c.members; ++i) {
          shape[index(concat)] = c.below(4);
          in.push_back(c.array(shape));
        }
      }
    }
    std::vector<std::vector<Array>> expected(index(c.groups));
    for (int g = 0; g < c.groups; ++g) {
      std::int64_t at = 0;
      for (std::int64_t length : lengths[index(g)]) {
        std::vector<Array> pieces;
        for (Array& in : c.in[index(g)]) pieces.push_back(slice(in, split, at, at + length));
        expected[index(g)].push_back(join(pieces, concat));
        c.out[index(g)].emplace_back(expected[index(g)].back().shape);
        at += length;
      }
    }
    all_to_all(DType::f32, split, concat, c.views());
    for (int g = 0; g < c.groups; ++g)
      for (int j = 0; j < c.members; ++j)
        ASSERT_EQ(c.out[index(g)][index(j)].data, expected[index(g)][index(j)].data) << seed;
  }
}

TEST(Collectives, Permute) {
  for (unsigned seed = 0; seed < rounds; ++seed) {
    Case c(seed);
    std::vector<int> order(index(c.members));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), c.random);
    std::vector<Route> routes;
    for (int i = 0; i < c.members; ++i)
      if (c.below(3) != 0) routes.push_back({c.below(c.members), order[index(i)]});
    for (int g = 0; g < c.groups; ++g) {
      const Shape shape = c.shape();
      c.fill(c.in[index(g)], shape);
      for (int i = 0; i < c.members; ++i) c.out[index(g)].emplace_back(shape);
    }
    collective_permute(DType::f32, routes, c.views());
    for (int g = 0; g < c.groups; ++g) {
      std::vector<Array> expected(index(c.members), Array(c.in[index(g)][0].shape, 0));
      for (Route route : routes) expected[index(route.destination)] = c.in[index(g)][index(route.source)];
      for (int j = 0; j < c.members; ++j) ASSERT_EQ(c.out[index(g)][index(j)].data, expected[index(j)].data) << seed;
    }
  }
}

TEST(Collectives, Broadcast) {
  for (unsigned seed = 0; seed < rounds; ++seed) {
    Case c(seed);
    const int root = c.below(c.members);
    for (int g = 0; g < c.groups; ++g) {
      c.fill(c.in[index(g)], c.shape());
      for (int i = 0; i < c.members; ++i) c.out[index(g)].emplace_back(c.in[index(g)][0].shape);
    }
    broadcast(DType::f32, root, c.views());
    for (int g = 0; g < c.groups; ++g)
      for (const Array& out : c.out[index(g)]) ASSERT_EQ(out.data, c.in[index(g)][index(root)].data);
  }
}

TEST(Collectives, OfLargeArraysOnSeveralThreads) {
  const tessera_test::Threads threads(4);
  for (int members : {2, 8, 64}) {
    Case c(9);
    c.members = members;
    c.groups = 1;
    c.in.resize(1);
    c.out.resize(1);
    c.fill(c.in[0], {700, 513});
    c.out[0].emplace_back(c.in[0][0].shape);
    for (int round = 0; round < 3; ++round) {
      c.out[0][0].data.assign(c.out[0][0].data.size(), -1);
      all_reduce(DType::f32, Reduction::sum, c.views());
      ASSERT_EQ(c.out[0][0].data, reduced(c.in[0], Reduction::sum).data);
    }
  }
}

TEST(Collectives, MisuseIsAnError) {
  using tessera::errc;
  std::vector<Array> in(2, Array({4, 3})), out(2, Array({4, 3})), halves(2, Array({2, 3})), one(1, Array({8, 3}));
  const auto in_parts = parts_of(in), out_parts = parts_of(out);
  const auto half_parts = parts_of(halves), one_part = parts_of(one);
  const auto with = [](const std::vector<MemberArray>& from, const std::vector<MemberArray>& to) {
    return std::vector<Group>{{from, to}};
  };
  const auto sum = [&](DType type, const std::vector<MemberArray>& to) {
    return error_of([&] { all_reduce(type, Reduction::sum, with(in_parts, to)); });
  };
  EXPECT_EQ(sum(DType::f32, out_parts), errc{});
  EXPECT_EQ(sum(DType::f32, half_parts), errc::shape_mismatch);
  EXPECT_EQ(sum(DType::f8_e4m3, out_parts), errc::dtype_mismatch);
  EXPECT_EQ(error_of([&] { all_gather(DType::f32, 0, with(in_parts, one_part)); }), errc{});
  EXPECT_EQ(error_of([&] { all_gather(DType::f32, 1, with(in_parts, one_part)); }), errc::shape_mismatch);
  EXPECT_EQ(error_of([&] { all_gather(DType::f32, 2, with(in_parts, one_part)); }), errc::dim_range);
  EXPECT_EQ(error_of([&] { all_gather(DType::f32, 0, with({}, one_part)); }), errc::dim_range);
  EXPECT_EQ(error_of([&] { reduce_scatter(DType::f32, Reduction::sum, 0, with(in_parts, half_parts)); }), errc{});
  EXPECT_EQ(error_of([&] { reduce_scatter(DType::f32, Reduction::sum, 1, with(in_parts, half_parts)); }),
            errc::shape_mismatch);
  EXPECT_EQ(error_of([&] { reduce_scatter(DType::f32, Reduction::sum, 0, with(in_parts, one_part)); }),
            errc::shape_mismatch);
  EXPECT_EQ(error_of([&] { all_to_all(DType::f32, 0, 0, with(in_parts, out_parts)); }), errc{});
  EXPECT_EQ(error_of([&] { all_to_all(DType::f32, 1, 1, with(in_parts, out_parts)); }), errc::not_divisible);
  const Route twice[] = {{0, 1}, {1, 1}}, outside[] = {{0, 2}};
  EXPECT_EQ(error_of([&] { collective_permute(DType::f32, twice, with(in_parts, out_parts)); }), errc::dim_range);
  EXPECT_EQ(error_of([&] { collective_permute(DType::f32, outside, with(in_parts, out_parts)); }), errc::dim_range);
  EXPECT_EQ(error_of([&] { broadcast(DType::f32, 2, with(in_parts, out_parts)); }), errc::dim_range);
}

}  // namespace

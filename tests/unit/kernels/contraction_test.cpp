#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../support/indices.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/gemm/contraction.hpp>
#include <tessera/kernels/gemm/eigen_provider.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;
using tessera_test::for_each_index;

using Labels = ContractionShape::Labels;

constexpr double untouched = 12345;

/// Rows before and after the data catch stray writes.
constexpr std::size_t guard = 64;

/// Numbers small enough that sums of products are exact in float, so results can be compared with ==.
template <class T> std::vector<T> numbers(std::size_t n, std::mt19937& random) {
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(static_cast<int>(random() % 9) - 4);
  return values;
}

/// Strides of a dense array whose dims lie in memory in the order given, times `spread`.
Strides layout(const Shape& extents, const std::vector<std::size_t>& order, std::int64_t spread) {
  Strides strides(extents.size(), 0);
  std::int64_t step = spread;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<std::int64_t>(extents[order[i]], 1);
  }
  return strides;
}

std::size_t span_of(const Shape& extents, const Strides& strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < extents.size(); ++d) last += std::max<std::int64_t>(extents[d] - 1, 0) * strides[d];
  return static_cast<std::size_t>(last + 1);
}

Shape shape_of(const Labels& labels, const ContractionShape& shape) {
  Shape extents;
  for (std::int8_t label : labels) extents.push_back(shape.extents[static_cast<std::size_t>(label)]);
  return extents;
}

template <class T>
void naive(const ContractionShape& shape, const T* a, const T* b, double* out, bool accumulate, double alpha) {
  Shape out_extents = shape_of(shape.out, shape);
  if (!accumulate)
    for_each_index(out_extents, [&](const Shape& i) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < i.size(); ++d) at += i[d] * shape.out_strides[d];
      out[at] = 0;
    });
  // All labels in use, as one loop nest of up to 24 loops.
  struct Loop {
    std::int64_t extent, a, b, out, index;
  };
  const auto stride_of = [](std::size_t label, const Labels& labels, const Strides& strides) {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < labels.size(); ++d)
      if (static_cast<std::size_t>(labels[d]) == label) sum += strides[d];
    return sum;
  };
  std::vector<Loop> loops;
  for (std::size_t l = 0; l < shape.extents.size(); ++l) {
    bool used = false;
    for (const Labels* labels : {&shape.a, &shape.b, &shape.out})
      for (std::int8_t label : *labels) used = used || static_cast<std::size_t>(label) == l;
    if (!used) continue;
    if (shape.extents[l] == 0) return;
    loops.push_back({shape.extents[l], stride_of(l, shape.a, shape.a_strides), stride_of(l, shape.b, shape.b_strides),
                     stride_of(l, shape.out, shape.out_strides), 0});
  }
  for (std::int64_t at_a = 0, at_b = 0, at_out = 0;;) {
    out[at_out] += alpha * static_cast<double>(a[at_a]) * static_cast<double>(b[at_b]);
    auto loop = loops.begin();
    for (; loop != loops.end(); ++loop) {
      const std::int64_t steps = ++loop->index < loop->extent ? 1 : 1 - loop->extent;
      at_a += steps * loop->a, at_b += steps * loop->b, at_out += steps * loop->out;
      if (steps == 1) break;
      loop->index = 0;
    }
    if (loop == loops.end()) return;
  }
}

/// Counts how often an item reports each element of its region.
struct Reports {
  OutputRegion region;
  std::vector<int> times;

  FinishedBox hook() {
    return {[](const void* context, const OutputRegion& box) {
              Reports& reports = *static_cast<Reports*>(const_cast<void*>(context));
              for_each_index(box.extent, [&](const Shape& i) {
                std::int64_t at = 0;
                for (std::size_t d = 0; d < i.size(); ++d) {
                  const std::int64_t index = box.begin[d] + i[d] - reports.region.begin[d];
                  ASSERT_TRUE(index >= 0 && index < reports.region.extent[d]);
                  at = at * reports.region.extent[d] + index;
                }
                ++reports.times[static_cast<std::size_t>(at)];
              });
            },
            this};
  }
};

/// Runs every item, and checks the result, that regions cover the output once, and that items write only their region.
template <class T>
void check(const ContractionShape& shape, ContractionOptions options, std::mt19937& random, const std::string& what) {
  const Shape a_extents = shape_of(shape.a, shape), b_extents = shape_of(shape.b, shape),
              out_extents = shape_of(shape.out, shape);
  const auto a = numbers<T>(span_of(a_extents, shape.a_strides), random);
  const auto b = numbers<T>(span_of(b_extents, shape.b_strides), random);
  const std::size_t size = span_of(out_extents, shape.out_strides);
  for (const bool accumulate : {false, true}) {
    const T alpha = static_cast<T>(accumulate ? 2 : 1);
    std::vector<T> out(size + 2 * guard, static_cast<T>(untouched));
    std::vector<double> expected(out.begin(), out.end());
    naive(shape, a.data(), b.data(), expected.data() + guard, accumulate, static_cast<double>(alpha));

    const ContractionPlan plan(shape, options);
    std::vector<T> packed(static_cast<std::size_t>(plan.packed_size<T>()));
    if constexpr (std::is_floating_point_v<T>)
      for (std::int64_t part = 0; !packed.empty() && part < plan.pack_count<T>(); ++part)
        plan.pack(part, a.data(), b.data(), packed.data());
    std::vector<int> writers(out.size(), 0);
    for (std::int64_t item = 0; item < plan.item_count(); ++item) {
      const OutputRegion region = plan.rows_of(item);
      ASSERT_EQ(region.extent.size(), shape.out.size()) << what;
      if (options.whole_last_dim && !shape.out.empty()) {
        ASSERT_EQ(region.extent.back(), out_extents.back()) << what;
      }
      const std::vector<T> before = out;
      Reports reports{region, std::vector<int>(static_cast<std::size_t>(volume(region.extent)), 0)};
      plan.run(item, a.data(), b.data(), out.data() + guard, accumulate, alpha,
               packed.empty() ? nullptr : packed.data(), reports.hook());
      ASSERT_EQ(reports.times, std::vector<int>(reports.times.size(), 1)) << what << " item " << item;
      std::vector<bool> mine(out.size(), false);
      for_each_index(region.extent, [&](const Shape& i) {
        std::int64_t at = static_cast<std::int64_t>(guard);
        for (std::size_t d = 0; d < i.size(); ++d) {
          ASSERT_LT(region.begin[d] + i[d], out_extents[d]) << what;
          at += (region.begin[d] + i[d]) * shape.out_strides[d];
        }
        mine[static_cast<std::size_t>(at)] = true;
        ++writers[static_cast<std::size_t>(at)];
      });
      // Items share nothing outside their regions; looking at all of a large output for every item takes too long.
      for (std::size_t i = 0; i < out.size() && plan.item_count() < 40; ++i)
        ASSERT_TRUE(mine[i] || out[i] == before[i]) << what << " item " << item << " wrote outside its region";
    }
    for_each_index(out_extents, [&](const Shape& i) {
      std::int64_t at = static_cast<std::int64_t>(guard);
      for (std::size_t d = 0; d < i.size(); ++d) at += i[d] * shape.out_strides[d];
      ASSERT_EQ(writers[static_cast<std::size_t>(at)], 1) << what;
    });
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(static_cast<double>(out[i]), expected[i]) << what << " at " << i << " accumulate " << accumulate;
  }
}

/// "bik,kj->bij" with the extent of each letter, and dense row-major operands.
ContractionShape einsum(std::string_view equation, const std::vector<std::pair<char, std::int64_t>>& extents) {
  ContractionShape shape;
  for (const auto& [letter, extent] : extents) shape.extents.push_back(extent);
  Labels* targets[] = {&shape.a, &shape.b, &shape.out};
  std::size_t target = 0;
  for (char c : equation) {
    if (c == ',' || c == '>') {
      ++target;
    } else if (c != '-') {
      for (std::size_t l = 0; l < extents.size(); ++l)
        if (extents[l].first == c) targets[target]->push_back(static_cast<std::int8_t>(l));
    }
  }
  shape.a_strides = contiguous_strides(shape_of(shape.a, shape));
  shape.b_strides = contiguous_strides(shape_of(shape.b, shape));
  shape.out_strides = contiguous_strides(shape_of(shape.out, shape));
  return shape;
}

TEST(Contraction, KnownForms) {
  std::mt19937 random(1);
  const std::vector<std::pair<char, std::int64_t>> extents = {{'b', 3},  {'h', 5},  {'t', 37}, {'s', 41},
                                                              {'d', 17}, {'e', 19}, {'f', 70}};
  for (const char* equation : {"td,de->te",       "dt,de->te",     "td,ed->te",       "td,de->et",       "dt,ed->et",
                               "btd,de->bte",     "btd,dhe->bhte", "bthd,bshd->bhts", "bhts,bshd->bthd", "bte,btd->ed",
                               "bthd,hde->bte",   "bhtd,hde->bte", "bte,hde->bthd",   "t,t->",           "t,t->t",
                               "t,d->td",         "t,d->dt",       "td,d->t",         "td,t->d",         "bt,bt->b",
                               "bt,bt->t",        "btd,btd->bt",   "td,->td",         ",td->t",          ",->",
                               "td,bs->",         "td,td->td",     "bd,bde->be",      "tt,td->td",       "tt,tt->t",
                               "bhtf,bhfs->bhts", "td,de->bte",    "ft,tf->",         "hf,bf->bh",       "bf,f->b"}) {
    const ContractionShape shape = einsum(equation, extents);
    for (const int parallelism : {1, 16})
      for (const bool whole : {false, true}) {
        check<float>(shape, {parallelism, whole}, random, equation);
        check<double>(shape, {parallelism, whole}, random, equation);
        check<std::int32_t>(shape, {parallelism, whole}, random, equation);
        check<std::int64_t>(shape, {parallelism, whole}, random, equation);
        if (HasFatalFailure()) return;
      }
  }
}

TEST(Contraction, RandomEinsums) {
  std::mt19937 random(2);
  for (int round = 0; round < 700; ++round) {
    ContractionShape shape;
    const std::size_t labels = 1 + random() % 7;
    for (std::size_t l = 0; l < labels; ++l) {
      const std::int64_t pool[] = {1, 2, 3, 4, 5, 7, 9, 12};
      shape.extents.push_back(random() % 40 == 0 ? 0 : pool[random() % 8]);
    }
    std::string what = "round " + std::to_string(round) + ":";
    for (Labels* target : {&shape.a, &shape.b, &shape.out}) {
      std::vector<std::int8_t> all;
      for (std::size_t l = 0; l < labels; ++l) all.push_back(static_cast<std::int8_t>(l));
      std::shuffle(all.begin(), all.end(), random);
      // Out holds labels of neither operand only now and then.
      for (std::int8_t label : all) {
        const bool known = target != &shape.out || shape.a.contains(label) || shape.b.contains(label);
        if (random() % 100 < (known ? 65u : 10u)) target->push_back(label);
      }
      if (target != &shape.out && !target->empty() && target->size() < max_rank && random() % 20 == 0)
        target->push_back((*target)[0]);
      for (std::int8_t label : *target) what += static_cast<char>('a' + label);
      what += ' ';
    }
    const auto any_layout = [&](const Labels& of, bool may_repeat) {
      const Shape extents = shape_of(of, shape);
      std::vector<std::size_t> order(of.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      if (random() % 2) std::shuffle(order.begin(), order.end(), random);
      Strides strides = layout(extents, order, random() % 4 == 0 ? 2 : 1);
      if (may_repeat && !of.empty() && random() % 10 == 0) strides[random() % of.size()] = 0;
      return strides;
    };
    shape.a_strides = any_layout(shape.a, true);
    shape.b_strides = any_layout(shape.b, true);
    shape.out_strides = any_layout(shape.out, false);
    for (std::int64_t extent : shape.extents) what += " " + std::to_string(extent);
    const ContractionOptions options{static_cast<int>(1 + random() % 6), random() % 3 == 0};
    check<float>(shape, options, random, what);
    check<double>(shape, options, random, what);
    check<std::int32_t>(shape, options, random, what);
    if (HasFatalFailure()) return;
  }
}

TEST(Contraction, BigProductsSplitForThreads) {
  std::mt19937 random(3);
  for (const std::int64_t n : {512, 513, 1000}) {
    const ContractionShape shape = einsum("mk,kn->mn", {{'m', n}, {'k', 12}, {'n', n}});
    for (const int parallelism : {1, 2, 8})
      EXPECT_GE(ContractionPlan(shape, {parallelism, false}).item_count(), parallelism) << n;
    check<float>(shape, {2, false}, random, "square");
    check<float>(shape, {2, true}, random, "square, whole rows");
  }
  EXPECT_EQ(ContractionPlan(einsum("mk,kn->mn", {{'m', 10}, {'k', 20}, {'n', 30}})).flops(), 2.0 * 10 * 20 * 30);
  // A product that a single tile holds still feeds four threads.
  EXPECT_GE(ContractionPlan(einsum("mk,kn->mn", {{'m', 256}, {'k', 4096}, {'n', 256}}), {4, false}).item_count(), 4);
}

/// Products with long sums, in every way that they are computed: of matrices, packed once or by each item, over two
/// dims that do not merge; of vectors; by loops.
struct LongProduct {
  const char* equation;
  std::vector<std::pair<char, std::int64_t>> extents;
  bool packed = false;
};
const std::vector<LongProduct>& long_products() {
  static const std::vector<LongProduct> products = {
      {"mk,kn->mn", {{'m', 3}, {'k', 40'000}, {'n', 5}}},
      {"km,kn->nm", {{'m', 9}, {'k', 40'003}, {'n', 2}}},
      {"kmj,knj->mn", {{'m', 3}, {'k', 300}, {'n', 4}, {'j', 120}}},
      {"bmk,kn->bmn", {{'b', 3}, {'m', 100}, {'k', 10'501}, {'n', 32}}, true},
      {"k,k->", {{'k', 400'007}}},
      {"mk,k->m", {{'m', 3}, {'k', 50'000}}},
      {"km,k->m", {{'m', 3}, {'k', 50'000}}},
      {"kb,kb->b", {{'b', 70}, {'k', 5'000}}},
      {"kjb,jkb->b", {{'b', 3}, {'k', 70}, {'j', 1'000}}},
  };
  return products;
}

TEST(Contraction, LongSums) {
  std::mt19937 random(9);
  for (const LongProduct& product : long_products()) {
    const ContractionShape shape = einsum(product.equation, product.extents);
    EXPECT_EQ(ContractionPlan(shape, {3, false}).packed_size<float>() > 0, product.packed) << product.equation;
    check<float>(shape, {3, false}, random, product.equation);
    if (HasFatalFailure()) return;
  }
}

// The error does not grow with the number of terms: docs/decisions/0029.
TEST(Contraction, ErrorsOfLongSums) {
  std::mt19937 random(10);
  for (const LongProduct& product : long_products())
    for (const bool equal : {true, false}) {
      const ContractionShape shape = einsum(product.equation, product.extents);
      const auto values = [&](const Labels& labels, const Strides& strides) {
        std::vector<float> made(span_of(shape_of(labels, shape), strides), 0.1f);
        for (float& value : made) value = equal ? value : std::uniform_real_distribution<float>(0, 1)(random);
        return made;
      };
      const auto a = values(shape.a, shape.a_strides), b = values(shape.b, shape.b_strides);
      const std::size_t size = span_of(shape_of(shape.out, shape), shape.out_strides);
      std::vector<float> out(size);
      std::vector<double> expected(size);
      naive(shape, a.data(), b.data(), expected.data(), false, 1);
      const ContractionPlan plan(shape, {3, false});
      for (std::int64_t item = 0; item < plan.item_count(); ++item) plan.run(item, a.data(), b.data(), out.data());
      for (std::size_t i = 0; i < size; ++i)
        EXPECT_NEAR(out[i] / expected[i], 1, equal ? 5e-6 : 1e-6) << product.equation << (equal ? ", equal terms" : "");
    }
}

/// Counts what it is asked for, and lets Eigen do it.
struct CountingProvider final : ContractionProvider {
  mutable int calls = 0;
  std::string_view name() const override { return "counting"; }
  void gemm(const Gemm<float>& g) const override { ++calls, eigen_provider().gemm(g); }
  void gemm(const Gemm<double>& g) const override { ++calls, eigen_provider().gemm(g); }
};

TEST(Contraction, AnOperandThatAllItemsReadIsPackedOnce) {
  std::mt19937 random(7);
  const auto packs = [](const ContractionShape& shape) {
    return ContractionPlan(shape, {3, false}).packed_size<float>();
  };
  const std::vector<std::pair<char, std::int64_t>> extents = {{'b', 6}, {'t', 100}, {'d', 400}, {'e', 60}};
  for (const char* equation : {"btd,de->bte", "bdt,ed->bte", "de,btd->bte"}) {
    const ContractionShape shape = einsum(equation, extents);
    EXPECT_GT(packs(shape), 0) << equation;
    check<float>(shape, {3, false}, random, equation);
    check<double>(shape, {3, true}, random, equation);
    if (HasFatalFailure()) return;
  }
  // Batched, and too small.
  EXPECT_EQ(packs(einsum("btd,bde->bte", extents)), 0);
  EXPECT_EQ(packs(einsum("btd,de->bet", extents)), 0);
  EXPECT_EQ(packs(einsum("td,de->te", {{'t', 70}, {'d', 13}, {'e', 100}})), 0);
  const ContractionPlan plan(einsum("btd,de->bte", extents), {3, false});
  EXPECT_TRUE(plan.packs_as(plan));
  EXPECT_FALSE(plan.packs_as(ContractionPlan(einsum("btd,ed->bte", extents), {3, false})));
  // Another provider multiplies what lies where it lay.
  static const CountingProvider counting;
  set_contraction_provider(counting);
  check<float>(einsum("btd,de->bte", extents), {3, false}, random, "counted");
  set_contraction_provider(packed_provider());
  EXPECT_GT(counting.calls, 0);
}

TEST(Contraction, EmptyOutputsHaveNoItemsAndEmptySumsAreZero) {
  EXPECT_EQ(ContractionPlan(einsum("mk,kn->mn", {{'m', 0}, {'k', 3}, {'n', 4}})).item_count(), 0);
  const ContractionPlan plan(einsum("mk,kn->mn", {{'m', 40}, {'k', 0}, {'n', 30}}));
  std::vector<float> out(1200, 7.0f);
  for (std::int64_t item = 0; item < plan.item_count(); ++item)
    plan.run<float>(item, nullptr, nullptr, out.data(), true);
  EXPECT_EQ(out, std::vector<float>(1200, 7.0f));
  for (std::int64_t item = 0; item < plan.item_count(); ++item)
    plan.run<float>(item, nullptr, nullptr, out.data(), false);
  EXPECT_EQ(out, std::vector<float>(1200, 0.0f));
}

TEST(Contraction, MisusedLabelsAreErrors) {
  ContractionShape shape = einsum("mk,kn->mn", {{'m', 2}, {'k', 3}, {'n', 4}});
  shape.out = {0, 0};
  EXPECT_THROW(ContractionPlan{shape}, error);
  shape.out = {0, 9};
  EXPECT_THROW(ContractionPlan{shape}, error);
  shape = einsum("mk,kn->mn", {{'m', 2}, {'k', 3}, {'n', 4}});
  shape.a_strides.pop_back();
  EXPECT_THROW(ContractionPlan{shape}, error);
}

TEST(ContractionProvider, TheChosenOneIsUsed) {
  EXPECT_EQ(&contraction_provider(), &packed_provider());
  EXPECT_EQ(contraction_provider().name().substr(0, 7), "packed ");
  EXPECT_EQ(eigen_provider().name(), "eigen");
  EXPECT_FALSE(contraction_provider().supports(DType::i32));
  static const CountingProvider counting;
  EXPECT_EQ(&set_contraction_provider(counting), &packed_provider());
  std::mt19937 random(6);
  check<float>(einsum("mk,kn->mn", {{'m', 60}, {'k', 50}, {'n', 70}}), {}, random, "counted");
  EXPECT_GT(counting.calls, 0);
  EXPECT_EQ(&set_contraction_provider(packed_provider()), &counting);
  EXPECT_EQ(contraction_provider().name().substr(0, 7), "packed ");
}

TEST(LoopGemm, IntegersWrap) {
  const std::int32_t a = 2'000'000'000, b = 3;
  std::int32_t c = 0;
  loop_gemm(Gemm<std::int32_t>{1, 1, 1, &a, 1, 1, &b, 1, 1, &c, 1, 1});
  EXPECT_EQ(c, static_cast<std::int32_t>(6'000'000'000u % (1ull << 32)));
}

}  // namespace

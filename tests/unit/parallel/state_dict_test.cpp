// State dicts of wrapped models: whole and in parts, onto other meshes, and what is refused.
#include <string>

#include "../base/expect_error.hpp"
#include "model_results.hpp"
#include "wrapped_models.hpp"
#include <gtest/gtest.h>

#include <tessera/optim/optim.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/parallel/state/state_dict.hpp>

namespace ts = tessera;
using tessera_test::deep;
using tessera_test::expect_error;
using tessera_test::mlp;
using tessera_test::types;

namespace {

TEST(StateDict, WholePartsAndBack) {
  const ts::Mesh mesh({{"fsdp", 4}});
  const auto wrapped = ts::fsdp(deep(), mesh);
  const ts::StateDict full = ts::full_state_dict(wrapped), parts = ts::sharded_state_dict(wrapped);
  EXPECT_EQ(full.size(), 3u * 4 + 3);
  EXPECT_EQ(full[0].name, "blocks.0.up.weight");
  EXPECT_EQ(full.back().name, "half");
  EXPECT_EQ(parts.size(), 4u * (3 * 4 + 2) + 1);
  EXPECT_EQ(parts[1].box, (ts::Box{{0, 5}, {6, 10}}));
  const auto expect_same = [](const ts::StateDict& a, const ts::StateDict& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].name, b[i].name);
      EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
    }
  };
  expect_same(ts::full_state_dict(deep()), full);
  expect_same(ts::consolidate(parts), full);
  ts::StateDict turned(parts.rbegin(), parts.rend());
  turned = ts::consolidate(turned);
  expect_same({turned.rbegin(), turned.rend()}, full);
  // Onto another mesh, into a model of other values.
  auto other = ts::fsdp(deep(100), ts::Mesh({{"fsdp", 3}}));
  other.module.half = 2;
  const auto loaded = ts::load_state_dict(other, full);
  expect_same(ts::full_state_dict(loaded), full);
  expect_same(ts::full_state_dict(ts::load_state_dict(other, parts)), full);  // parts are joined
  EXPECT_EQ(types(loaded), types(other));
  EXPECT_EQ(ts::full_state_dict(ts::optim::init_state(ts::optim::AdamW{}, wrapped))[0].name, "mean.blocks.0.up.weight");
}

TEST(StateDict, RefusesWhatDoesNotFit) {
  const auto wrapped = ts::fsdp(mlp(5), ts::Mesh({{"fsdp", 2}}));
  const ts::StateDict full = ts::full_state_dict(wrapped), parts = ts::sharded_state_dict(wrapped);
  const auto refused = [&](const ts::StateDict& dict, auto change, ts::errc id, const std::string& why) {
    ts::StateDict changed = dict;
    change(changed);
    expect_error(
        id, [&] { &dict == &full ? (void)ts::load_state_dict(wrapped, changed) : (void)ts::consolidate(changed); }, why,
        "state_dict_test.cpp");
  };
  using enum ts::errc;
  refused(
      full, [](auto& d) { d.pop_back(); }, structure, "names: the dict lacks down.bias");
  refused(
      full, [](auto& d) { d[0].name = "first.weight", d[3].name = "last.bias"; }, structure,
      "names: the dict lacks up.weight, down.bias; the model lacks first.weight, last.bias");
  refused(
      full, [](auto& d) { d.push_back(d[1]); }, structure, "up.bias: is in the dict twice");
  refused(
      full, [](auto& d) { d.push_back({"scale"}); }, structure, "names: the model lacks scale");
  refused(
      full, [](auto& d) { d[0].dtype = ts::DType::f64; }, dtype_mismatch,
      "up.weight: the model has f32, the dict f64; load into a model of that element type, and convert it with "
      "ts::cast_model");
  refused(
      full,
      [](auto& d) {
        d[0].shape = {20, 6};
      },
      shape_mismatch, "the model has f32[6,20], the dict f32[20,6]");
  refused(
      full, [](auto& d) { d[0].bytes.pop_back(); }, structure, "a part has 479 bytes, not those of its box");
  refused(
      parts, [](auto& d) { d.erase(d.begin() + 1); }, structure, "up.weight: no part has the element 10 of f32[6,20]");
  refused(
      parts, [](auto& d) { d.push_back(d[2]); }, structure, "up.bias: two parts have the element 0");
  refused(
      parts,
      [](auto& d) {
        d[1].shape = {6, 30};
      },
      structure, "parts of f32[6,20] and of f32[6,30]");
  refused(
      parts, [](auto& d) { d[1].bytes.clear(); }, structure, "0 bytes, not those of its box");
  refused(
      parts,
      [](auto& d) {
        d[1].box = {{1'000'000, 0}, {1'000'006, 10}};
      },
      structure, "up.weight: a part has a box that is not in f32[6,20]");
  refused(
      parts,
      [](auto& d) {
        d[1].box = {{0, -10}, {6, 0}};
      },
      structure, "up.weight: a part has a box that is not in f32[6,20]");
  refused(
      parts,
      [](auto& d) {
        d[1].box = {{0}, {60}};
      },
      structure, "up.weight: a part has a box that is not in f32[6,20]");
  refused(
      full,
      [](auto& d) {
        d[0].box = {{0, 20}, {6, 40}};
      },
      structure, "up.weight: a part has a box that is not in f32[6,20]");
  refused(  // is joined first
      full,
      [](auto& d) {
        d[0].box.end = {6, 19};
        d[0].bytes.resize(6 * 19 * 4);
      },
      structure, "up.weight: no part has the element 19 of f32[6,20]");
  ts::StateEntry entry = full[0];
  entry.bytes.pop_back();
  expect_error(
      structure, [&] { ts::transposed(entry); }, "up.weight: a part has 479 bytes, not those of its box",
      "state_dict_test.cpp");
}

}  // namespace

// The examples of docs/data.md.
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "../../support/page.hpp"
#include "../../support/scratch_folder.hpp"
#include <gtest/gtest.h>

#include <tessera/data/data.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

struct Digits {
  ts::ShardedTensor<float, 3> images;
  ts::ShardedTensor<std::int32_t, 1> labels;
  static constexpr std::array field_names{"images", "labels"};
};

TEST(DataDoc, TrainsOnTheFilesOfAFolder) {
  const ScratchFolder folder;
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder.path / name, std::ios::binary) << bytes;
  };
  using namespace std::string_literals;
  std::string pixels = "\x00\x00\x08\x03\x00\x00\x00\x80\x00\x00\x00\x1c\x00\x00\x00\x1c"s,
              classes = "\x00\x00\x08\x01\x00\x00\x00\x80"s;
  pixels += std::string(128 * 28 * 28, '\xff');
  for (int i = 0; i < 128; ++i) classes += static_cast<char>(i % 10);
  write("train-images-idx3-ubyte", pixels);
  write("train-labels-idx1-ubyte", classes);
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);

  int model = 0, state = 0;
  double loss = 0;
  std::int64_t steps = 0;
  const auto step = [&](int m, int s, const auto& x, const auto& y) {
    EXPECT_EQ(ts::shape(x), (ts::Shape{64, 28, 28}));
    EXPECT_EQ(ts::to_host(x)[5], 1.0f);
    EXPECT_EQ(ts::shape(y), ts::Shape{64});
    ++steps;
    return std::tuple(m, s, 0.5);
  };
  // clang-format off
    const ts::Mesh mesh({{"data", 4}});
    const auto images = ts::data::map<float>(ts::data::idx<std::uint8_t, 3>("train-images-idx3-ubyte"),
                                             [](std::uint8_t pixel) { return pixel / 255.0f; });   // rows [28, 28]
    const auto labels = ts::data::map<std::int32_t>(ts::data::idx<std::uint8_t, 1>("train-labels-idx1-ubyte"),
                                                    [](std::uint8_t label) { return label; });
    auto loader = ts::data::data_loader(
        mesh, {.batch_size = 64, .shuffle = ts::Key(1), .ragged = ts::Ragged::drop, .spec = {"data"}}, images, labels);

    for (int epoch = 0; epoch < 10; ++epoch)
      for (const auto& [x, y] : loader)      // f32[64, 28, 28] and i32[64], split along "data"
        std::tie(model, state, loss) = step(model, state, x, y);
  // clang-format on
  EXPECT_EQ(steps, 20);
  {
    // clang-format off
    auto digits = ts::data::data_loader<Digits>(mesh, {.batch_size = 64, .specs = {{"images", {"data"}}}}, images, labels);
    // clang-format on
    const Digits batch = digits.next().value();
    EXPECT_EQ(ts::sharded_type_text(batch.images), "f32[64,28,28]{data,-,-}");
    EXPECT_EQ(ts::to_host(batch.labels)[13], 3);
  }
  std::filesystem::current_path(before);
}

TEST(DataDoc, CodeOnThePageIsInThisFile) { tessera_test::expect_lines({.name = "data.md", .lines = 15}, __FILE__); }

}  // namespace

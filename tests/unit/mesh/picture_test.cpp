#include <gtest/gtest.h>

#include <tessera/mesh/picture.hpp>

namespace {

using tessera::Mesh;
using tessera::none;
using tessera::parse_hlo_sharding;
using tessera::resolve;
using tessera::visualize_sharding;

const Mesh mesh({{"data", 2}, {"model", 2}});

TEST(PictureTest, TwoDims) {
  EXPECT_EQ(visualize_sharding(resolve({"data", "model"}, mesh, 2), mesh), "┌───────┬───────┐\n"
                                                                           "│ CPU 0 │ CPU 1 │\n"
                                                                           "├───────┼───────┤\n"
                                                                           "│ CPU 2 │ CPU 3 │\n"
                                                                           "└───────┴───────┘\n");
}

TEST(PictureTest, ReplicasShareACell) {
  EXPECT_EQ(visualize_sharding(resolve({none, "model"}, mesh, 2), mesh), "┌────────────┬────────────┐\n"
                                                                         "│ CPU [0, 2] │ CPU [1, 3] │\n"
                                                                         "└────────────┴────────────┘\n");
  EXPECT_EQ(visualize_sharding(resolve({}, mesh, 2), mesh, "GPU"), "┌──────────────────┐\n"
                                                                   "│ GPU [0, 1, 2, 3] │\n"
                                                                   "└──────────────────┘\n");
}

TEST(PictureTest, OneDimIsOneRow) {
  EXPECT_EQ(visualize_sharding(resolve({{"model", "data"}}, mesh, 1), mesh), "┌───────┬───────┬───────┬───────┐\n"
                                                                             "│ CPU 0 │ CPU 2 │ CPU 1 │ CPU 3 │\n"
                                                                             "└───────┴───────┴───────┴───────┘\n");
  EXPECT_EQ(visualize_sharding(resolve({}, Mesh(), 0), Mesh()), "┌───────┐\n"
                                                                "│ CPU 0 │\n"
                                                                "└───────┘\n");
}

TEST(PictureTest, LaterDimsAreTablesOfTheirOwn) {
  EXPECT_EQ(visualize_sharding(resolve({"data", none, "model"}, mesh, 3), mesh), "dim 2: shard 0 of 2\n"
                                                                                 "┌───────┐\n"
                                                                                 "│ CPU 0 │\n"
                                                                                 "├───────┤\n"
                                                                                 "│ CPU 2 │\n"
                                                                                 "└───────┘\n"
                                                                                 "dim 2: shard 1 of 2\n"
                                                                                 "┌───────┐\n"
                                                                                 "│ CPU 1 │\n"
                                                                                 "├───────┤\n"
                                                                                 "│ CPU 3 │\n"
                                                                                 "└───────┘\n");
  const std::string four = visualize_sharding(resolve({none, none, "model", "data"}, mesh, 4), mesh);
  EXPECT_NE(four.find("dims 2, 3: shard (1, 0) of (2, 2)\n┌───────┐\n│ CPU 1 │\n"), std::string::npos) << four;
}

TEST(PictureTest, ColumnsAreAsWideAsTheirCells) {
  EXPECT_EQ(visualize_sharding(parse_hlo_sharding("{devices=[1,12]<=[12]}"), 12).find("│ CPU 9 │ CPU 10 │ CPU 11 │") !=
                std::string::npos,
            true);
}

TEST(PictureTest, StringsWithoutTilesAreDrawnToo) {
  EXPECT_EQ(visualize_sharding(parse_hlo_sharding("{manual}"), 2), "┌───────────────────┐\n"
                                                                   "│ CPU [0, 1] manual │\n"
                                                                   "└───────────────────┘\n");
  EXPECT_EQ(visualize_sharding(parse_hlo_sharding("{maximal device=2}"), 4), "┌───────┐\n"
                                                                             "│ CPU 2 │\n"
                                                                             "└───────┘\n");
}

TEST(PictureTest, PartsThatAreManualOrUnreducedSaySo) {
  EXPECT_EQ(visualize_sharding(parse_hlo_sharding("{devices=[1,2,2]<=[4] last_tile_dims={manual}}"), 4),
            "┌───────────────────┬───────────────────┐\n"
            "│ CPU [0, 1] manual │ CPU [2, 3] manual │\n"
            "└───────────────────┴───────────────────┘\n");
  tessera::Sharding sum = resolve({"data"}, mesh, 1);
  sum.unreduced = 0b10;
  EXPECT_EQ(visualize_sharding(sum, mesh), "┌──────────────────────┬──────────────────────┐\n"
                                           "│ CPU [0, 1] unreduced │ CPU [2, 3] unreduced │\n"
                                           "└──────────────────────┴──────────────────────┘\n");
}

// The tables that PyTorch/XLA draws for 8 devices in a mesh of 2 x 4.
TEST(PictureTest, DrawsTheReferenceTables) {
  const Mesh eight({{"x", 2}, {"y", 4}});
  EXPECT_EQ(visualize_sharding(resolve({"x", "y"}, eight, 2), eight, "TPU"), "┌───────┬───────┬───────┬───────┐\n"
                                                                             "│ TPU 0 │ TPU 1 │ TPU 2 │ TPU 3 │\n"
                                                                             "├───────┼───────┼───────┼───────┤\n"
                                                                             "│ TPU 4 │ TPU 5 │ TPU 6 │ TPU 7 │\n"
                                                                             "└───────┴───────┴───────┴───────┘\n");
  EXPECT_EQ(visualize_sharding(resolve({"x", none}, eight, 2), eight, "TPU"), "┌──────────────────┐\n"
                                                                              "│ TPU [0, 1, 2, 3] │\n"
                                                                              "├──────────────────┤\n"
                                                                              "│ TPU [4, 5, 6, 7] │\n"
                                                                              "└──────────────────┘\n");
  EXPECT_EQ(visualize_sharding(resolve({none, none}, eight, 2), eight, "TPU"), "┌──────────────────────────────┐\n"
                                                                               "│ TPU [0, 1, 2, 3, 4, 5, 6, 7] │\n"
                                                                               "└──────────────────────────────┘\n");
}

TEST(PictureTest, LargeMeshesAreSummarized) {
  const Mesh large({{"x", 100}, {"y", 1000}});
  EXPECT_EQ(visualize_sharding(resolve({"x", "y"}, large, 2), large, {.max_rows = 4, .max_columns = 4}),
            "┌───────────┬───────────┬───┬───────────┐\n"
            "│ CPU 0     │ CPU 1     │ … │ CPU 999   │\n"
            "├───────────┼───────────┼───┼───────────┤\n"
            "│ CPU 1000  │ CPU 1001  │ … │ CPU 1999  │\n"
            "├───────────┼───────────┼───┼───────────┤\n"
            "│ ⋮         │ ⋮         │ ⋱ │ ⋮         │\n"
            "├───────────┼───────────┼───┼───────────┤\n"
            "│ CPU 99000 │ CPU 99001 │ … │ CPU 99999 │\n"
            "└───────────┴───────────┴───┴───────────┘\n"
            "100 x 1000 shards on 100000 devices\n");
  EXPECT_EQ(visualize_sharding(resolve({}, large, 2), large, {.max_ids = 4}), "┌──────────────────────┐\n"
                                                                              "│ CPU [0, 1, …, 99999] │\n"
                                                                              "└──────────────────────┘\n");
  EXPECT_EQ(visualize_sharding(resolve({"y"}, large, 1), large, {.max_columns = 3, .max_ids = 3}),
            "┌───────────────────┬───┬─────────────────────┐\n"
            "│ CPU [0, …, 99000] │ … │ CPU [999, …, 99999] │\n"
            "└───────────────────┴───┴─────────────────────┘\n"
            "1000 shards on 100000 devices\n");
}

TEST(PictureTest, ColorsAreAskedFor) {
  const tessera::Sharding sharding = resolve({"data", "model"}, mesh, 2);
  const std::string plain = visualize_sharding(sharding, mesh);
  std::string colored = visualize_sharding(sharding, mesh, {.color = true});
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_NE(colored.find("│\x1b[30;48;2;158;202;225m CPU 0 \x1b[0m│\x1b[30;48;2;253;208;162m CPU 1 \x1b[0m│\n"),
            std::string::npos);
  for (std::size_t begin; (begin = colored.find('\x1b')) != std::string::npos;)
    colored.erase(begin, colored.find('m', begin) + 1 - begin);
  EXPECT_EQ(colored, plain);
}

}  // namespace

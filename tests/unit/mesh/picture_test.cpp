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
  EXPECT_EQ(visualize_sharding(resolve({"data", "model"}, mesh, 2), mesh),
            "┌───────┬───────┐\n"
            "│ CPU 0 │ CPU 1 │\n"
            "├───────┼───────┤\n"
            "│ CPU 2 │ CPU 3 │\n"
            "└───────┴───────┘\n");
}

TEST(PictureTest, ReplicasShareACell) {
  EXPECT_EQ(visualize_sharding(resolve({none, "model"}, mesh, 2), mesh),
            "┌────────────┬────────────┐\n"
            "│ CPU [0, 2] │ CPU [1, 3] │\n"
            "└────────────┴────────────┘\n");
  EXPECT_EQ(visualize_sharding(resolve({}, mesh, 2), mesh, "GPU"),
            "┌──────────────────┐\n"
            "│ GPU [0, 1, 2, 3] │\n"
            "└──────────────────┘\n");
}

TEST(PictureTest, OneDimIsOneRow) {
  EXPECT_EQ(visualize_sharding(resolve({{"model", "data"}}, mesh, 1), mesh),
            "┌───────┬───────┬───────┬───────┐\n"
            "│ CPU 0 │ CPU 2 │ CPU 1 │ CPU 3 │\n"
            "└───────┴───────┴───────┴───────┘\n");
  EXPECT_EQ(visualize_sharding(resolve({}, Mesh(), 0), Mesh()),
            "┌───────┐\n"
            "│ CPU 0 │\n"
            "└───────┘\n");
}

TEST(PictureTest, LaterDimsFoldIntoTheFirstTwo) {
  EXPECT_EQ(visualize_sharding(resolve({"data", none, "model"}, mesh, 3), mesh),
            "┌────────────┐\n"
            "│ CPU [0, 1] │\n"
            "├────────────┤\n"
            "│ CPU [2, 3] │\n"
            "└────────────┘\n");
}

TEST(PictureTest, ColumnsAreAsWideAsTheirCells) {
  EXPECT_EQ(visualize_sharding(parse_hlo_sharding("{devices=[1,12]<=[12]}"), 12).find("│ CPU 9 │ CPU 10 │ CPU 11 │") !=
                std::string::npos,
            true);
}

TEST(PictureTest, StringsWithoutTilesAreDrawnToo) {
  EXPECT_EQ(visualize_sharding(parse_hlo_sharding("{manual}"), 2),
            "┌───────────────────┐\n"
            "│ CPU [0, 1] manual │\n"
            "└───────────────────┘\n");
  EXPECT_EQ(visualize_sharding(parse_hlo_sharding("{maximal device=2}"), 4),
            "┌───────┐\n"
            "│ CPU 2 │\n"
            "└───────┘\n");
}

}  // namespace

// A folder for the files of one test. Tests run in parallel processes, so its name has more than the name of the test:
// if two processes shared a folder, the first to finish would remove the files of the second.
#pragma once

#include <filesystem>
#include <random>
#include <string>

#include <gtest/gtest.h>

class ScratchFolder {
 public:
  ScratchFolder() {
    std::random_device random;
    do path = std::filesystem::path(testing::TempDir()) / ("tessera_test_" + std::to_string(random()));
    while (!std::filesystem::create_directory(path));
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::filesystem::path path;
};

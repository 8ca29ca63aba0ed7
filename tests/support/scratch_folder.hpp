// A folder for the files of one test. Tests run side by side, each in a process of its own, so the name holds more than
// the test's: a folder that two of them share vanishes under one when the other is done.
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

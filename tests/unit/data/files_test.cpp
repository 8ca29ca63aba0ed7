#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/scratch_folder.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/data/idx.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/data/npy.hpp>
#include <tessera/data/windows.hpp>

namespace {

namespace ts = tessera;
namespace data = tessera::data;
using namespace std::string_literals;
using tessera_test::expect_error;

class Files : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = (folder_.path / ("file" + std::to_string(next_++))).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  ScratchFolder folder_;
  int next_ = 0;
};

template <class T> std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T> std::vector<T> list(std::span<const T> values) { return {values.begin(), values.end()}; }

std::string npy(const std::string& header, const std::string& elements, int version = 1) {
  std::string file = "\x93NUMPY"s + static_cast<char>(version) + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> 8 * i & 0xff);
  return file + header + elements;
}

// What numpy 1.24 writes for numpy.save(file, numpy.arange(6, dtype="<f4").reshape(2, 3)).
TEST_F(Files, NpyAsNumpyWritesIt) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header += std::string(117 - header.size(), ' ') + '\n';
  const auto array = data::npy<float, 2>(write(npy(header, bytes_of<float>({0, 1, 2, 3, 4, 5}))));
  EXPECT_EQ(array.rows(), 2);
  EXPECT_EQ(array.row_shape(), ts::Shape{3});
  EXPECT_EQ(list(array.values()), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(list(array.row(1)), (std::vector<float>{3, 4, 5}));
}

TEST_F(Files, NpyOfOtherTypesFormatsAndAlignments) {
  const auto half = data::npy<ts::f16, 1>(write(
      npy("{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }", bytes_of<std::uint16_t>({0x3e00, 0xfbff}))));
  EXPECT_EQ(static_cast<float>(half.values()[0]), 1.5f);
  EXPECT_EQ(static_cast<float>(half.values()[1]), -65504.0f);
  const auto one = data::npy<std::int64_t, 1>(write(
      npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", bytes_of<std::int64_t>({-1, 5, 1ll << 40}))));
  EXPECT_EQ(list(one.values()), (std::vector<std::int64_t>{-1, 5, 1ll << 40}));  // 10 + 57 bytes: not aligned
  const auto bytes = data::npy<std::uint8_t, 3>(
      write(npy("{'shape': (1, 2, 2), 'fortran_order': False, 'descr': '|u1'}", "\x01\x02\xff\x04", 2)));
  EXPECT_EQ(list(bytes.values()), (std::vector<std::uint8_t>{1, 2, 255, 4}));
  const auto none =
      data::npy<double, 2>(write(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7), }", "", 3)));
  EXPECT_EQ(none.rows(), 0);
}

TEST_F(Files, NpyRefusesWhatItCantRead) {
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    const std::string path = write(bytes);
    expect_error(
        ts::errc::file, [&] { data::npy<float, 2>(path); }, path, why, "files_test.cpp");
  };
  const auto header = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return npy("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }",
               std::string(24, 0));
  };
  refused("", "does not begin");
  refused("PK\x03\x04", "does not begin");
  refused("\x93NUMPY\x01", "ends in its header");
  refused("\x93NUMPY\x01\x00\xff\xff{"s, "ends in its header");
  refused("\x93NUMPY\x09\x00\x00\x00{"s, "format");
  refused(npy("{}", ""), "without descr");
  refused(header("'>f4'", "False", "(2, 3)"), "the type >f4, not <f4 (f32)");
  refused(header("'<f8'", "False", "(2, 3)"), "the type <f8");
  refused(header("[('a', '<f4')]", "False", "(2, 3)"), "several fields");
  refused(header("'<f4'", "True", "(2, 3)"), "Fortran order");
  refused(header("'<f4'", "Perhaps", "(2, 3)"), "without descr");
  refused(header("'<f4'", "False", "(6,)"), "has 1 dims, not 2");
  refused(header("'<f4'", "False", "(2, 4)"), "24 bytes of elements, which are not those of f32[2,4]");
  refused(header("'<f4'", "False", "(2, -3)"), "shape");
  refused(header("'<f4'", "False", "(2, 3"), "shape");
  refused(header("'<f4'", "False", "(4294967296, 4294967296)"), "bytes of elements");
  refused(header("'<f4'", "False", "(9999999999999999999, 3)"), "18 digits");
  refused(header("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), "more than 8 dims");
  const std::string bools = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }",
                    path = write(npy(bools, "\0\1\2"s));
  EXPECT_EQ(list((data::npy<bool, 1>(write(npy(bools, "\0\1\1"s))).values())), (std::vector<bool>{false, true, true}));
  expect_error(
      ts::errc::file, [&] { data::npy<bool, 1>(path); }, path + ": has a bool that is neither 0 nor 1",
      "files_test.cpp");
  expect_error(
      ts::errc::file, [] { data::npy<float, 2>("/nowhere/x.npy"); }, "/nowhere/x.npy: can't be opened: No such file");
  expect_error(
      ts::errc::file, [] { data::npy<float, 2>("/tmp"); }, "no regular file");
}

TEST_F(Files, IdxOfBytesAndOfBigEndianElements) {
  const auto images = data::idx<std::uint8_t, 3>(
      write("\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x03"s + "\x01\x02\x03\x04\x05\xff"s));
  EXPECT_EQ(images.rows(), 2);
  EXPECT_EQ(images.row_shape(), (ts::Shape{1, 3}));
  EXPECT_EQ(list(images.row(1)), (std::vector<std::uint8_t>{4, 5, 255}));
  const auto shorts = data::idx<std::int16_t, 1>(write("\x00\x00\x0b\x01\x00\x00\x00\x02\x01\x02\xff\xfe"s));
  EXPECT_EQ(list(shorts.values()), (std::vector<std::int16_t>{258, -2}));
  const auto floats = data::idx<float, 1>(write("\x00\x00\x0d\x01\x00\x00\x00\x01\x3f\xc0\x00\x00"s));
  EXPECT_EQ(list(floats.values()), std::vector<float>{1.5f});
}

TEST_F(Files, IdxRefusesWhatItCantRead) {
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    const std::string path = write(bytes);
    expect_error(
        ts::errc::file, [&] { data::idx<std::uint8_t, 2>(path); }, path, why, "files_test.cpp");
  };
  refused("", "does not begin");
  refused("\x1f\x8b\x08\x00"s, "gunzip");
  refused("\x00\x00\x0d\x02"s, "the IDX type 13, not of u8");
  expect_error(
      ts::errc::file, [&] { data::idx<ts::f8_e5m2, 1>(write("\x00\x00\x0d\x01"s)); },
      "the IDX type 13, not of f8_e5m2");
  refused("\x00\x00\x08\x01"s, "has 1 dims, not 2");
  refused("\x00\x00\x08\x02\x00\x00"s, "ends in its header");
  refused("\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x02\x01\x02\x03"s, "has 3 bytes of elements");
  refused("\x00\x00\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff\x01"s, "has 1 bytes of elements");
}

TEST_F(Files, WindowsOfTokens) {
  std::vector<std::uint16_t> stored;
  for (int i = 0; i < 11; ++i) stored.push_back(static_cast<std::uint16_t>(60'000 + i));
  const auto tokens = data::tokens<std::uint16_t>(write(bytes_of(stored)));
  const auto read = [](const auto& column, std::int64_t row) {
    std::vector<std::int32_t> window(static_cast<std::size_t>(column.row_shape()[0]));
    column.read({row, 0}, window.data());
    return window;
  };
  const auto [inputs, targets] = data::next_token(tokens, 4);
  EXPECT_EQ(inputs.rows(), 2);  // tokens 0 to 3 and 4 to 7: tokens 8 to 11 would need a twelfth
  EXPECT_EQ(targets.rows(), 2);
  EXPECT_EQ(read(inputs, 1), (std::vector<std::int32_t>{60'004, 60'005, 60'006, 60'007}));
  EXPECT_EQ(read(targets, 1), (std::vector<std::int32_t>{60'005, 60'006, 60'007, 60'008}));
  const auto overlapping = data::next_token(tokens, 4, 3);
  EXPECT_EQ(overlapping.inputs.rows(), 3);
  EXPECT_EQ(read(overlapping.targets, 2), (std::vector<std::int32_t>{60'007, 60'008, 60'009, 60'010}));
  EXPECT_EQ(data::next_token(tokens, 10).inputs.rows(), 1);
  EXPECT_EQ(data::next_token(tokens, 11).inputs.rows(), 0);
  EXPECT_EQ(data::next_token(data::tokens(std::vector<std::uint8_t>{}), 1).inputs.rows(), 0);
  expect_error(
      ts::errc::option, [&] { data::next_token(tokens, 0); }, "0 is below 1", "files_test.cpp");
  expect_error(
      ts::errc::option, [&] { data::next_token(tokens, 1, -1); }, "-1 is negative");
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(data::next_token(tokens, most).inputs.rows(), 0);
  EXPECT_EQ(data::next_token(tokens, 4, most).inputs.rows(), 1);
  // Windows by hand: the last of three that begin 3 apart ends with the last token; one more token does not fit.
  EXPECT_EQ(read(data::Windows<std::uint16_t>(tokens, 3, 4, 3, 1), 2),
            (std::vector<std::int32_t>{60'007, 60'008, 60'009, 60'010}));
  const auto refused = [&](std::int64_t rows, std::int64_t length, std::int64_t stride, std::int64_t shift,
                           const char* why) {
    expect_error(
        ts::errc::option, [&] { data::Windows<std::uint16_t>(tokens, rows, length, stride, shift); }, "[data::Windows]",
        why, "files_test.cpp");
  };
  refused(3, 5, 3, 1, "3 windows of 5 tokens with stride 3 and shift 1 reach past the end of 11 tokens");
  refused(4, 4, 3, 0, "past the end");
  refused(1, 4, 0, 8, "past the end");
  refused(most, 4, most, 0, "past the end");
  refused(1, most, 0, most, "past the end");
  refused(-1, 4, 3, 0, "-1, 4, 3 and 0 are not all 0 or more");
  refused(1, -4, 3, 0, "not all 0 or more");
  refused(1, 4, -3, 0, "not all 0 or more");
  refused(1, 4, 3, -1, "not all 0 or more");
  expect_error(
      ts::errc::file, [&] { data::tokens<std::uint32_t>(write("abcde")); },
      "5 bytes, which are not divisible by the 4 bytes");
}

}  // namespace

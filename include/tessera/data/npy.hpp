#ifndef TESSERA_DATA_NPY_HPP
#define TESSERA_DATA_NPY_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/array.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/ops/operation.hpp>

namespace tessera::data {

namespace detail {
/// The header of a .npy file.
struct NpyHeader {
  std::string descr;  ///< "<f4": little-endian float of 4 bytes
  bool fortran_order = false;
  Shape shape;
  std::size_t data = 0;  ///< where the elements begin
};

/// Errors: `file` for what is no header of format 1, 2 or 3.
TESSERA_ONCE NpyHeader parse_npy(std::span<const std::byte> bytes, std::string_view name, Here at);
/// The elements, as `rank` dims of `dtype`. Errors: `file` for another type, rank, order or size.
TESSERA_ONCE MappedFile npy_elements(const MappedFile& file, DType dtype, int rank, std::string_view name, Shape& shape,
                                     Here at);

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE NpyHeader parse_npy(std::span<const std::byte> bytes, std::string_view name, Here at) {
  const auto refuse = [&](std::string_view why) { fail(errc::file, "[npy] ", name, ": ", why, Source::from(at)); };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(text[i])); };
  if (text.substr(0, 6) != "\x93NUMPY") refuse("is no .npy file: it does not begin with \\x93NUMPY");
  if (text.size() < 10) refuse("ends in its header");
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) refuse("has a format other than 1, 2 and 3");
  if (version > 1 && text.size() < 12) refuse("ends in its header");
  const std::size_t begin = version == 1 ? 10 : 12;
  const std::size_t length =
      version == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > text.size() - begin) refuse("ends in its header");
  const std::string_view header = text.substr(begin, length);

  // The header is a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
  const auto after = [&](std::string_view key) {
    const std::size_t found = header.find(key);
    if (found == header.npos) refuse("has a header without descr, fortran_order and shape");
    std::string_view rest = header.substr(found + key.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    return rest;
  };
  NpyHeader read;
  read.data = begin + length;
  const std::string_view descr = after("'descr':");
  if (descr.empty() || descr[0] != '\'') refuse("has elements of several fields");
  read.descr = descr.substr(1, descr.find('\'', 1) - 1);
  const std::string_view order = after("'fortran_order':");
  read.fortran_order = order.substr(0, 4) == "True";
  if (!read.fortran_order && order.substr(0, 5) != "False")
    refuse("has a header without descr, fortran_order and shape");
  std::string_view shape = after("'shape':");
  if (shape.empty() || shape[0] != '(' || shape.find(')') == shape.npos) refuse("has a shape that can't be read");
  shape = shape.substr(1, shape.find(')') - 1);
  while (true) {
    shape.remove_prefix(std::min(shape.find_first_not_of(" ,"), shape.size()));
    if (shape.empty()) return read;
    std::int64_t extent = 0;
    std::size_t digits = 0;
    while (digits < shape.size() && shape[digits] >= '0' && shape[digits] <= '9') {
      if (digits == 18) refuse("has an extent of more than 18 digits");
      extent = 10 * extent + (shape[digits++] - '0');
    }
    if (digits == 0) refuse("has a shape that can't be read");
    if (read.shape.size() == static_cast<std::size_t>(max_rank)) refuse("has more than 8 dims");
    read.shape.push_back(extent);
    shape.remove_prefix(digits);
  }
}

TESSERA_ONCE MappedFile npy_elements(const MappedFile& file, DType dtype, int rank, std::string_view name, Shape& shape,
                                     Here at) {
  const NpyHeader header = parse_npy(file.bytes, name, at);
  // In the order of DType; NumPy has no bf16 and no 8-bit floats.
  constexpr std::string_view names[] = {"<f4", "<f8", "", "<f2", "|i1", "<i2", "<i4", "<i8", "|u1", "|b1", "", ""};
  const std::string_view expected = names[static_cast<std::size_t>(dtype)];
  if (header.descr != expected)
    fail(errc::file, "[npy] ", name, ": has elements of the type ", header.descr, ", not ", expected, " (",
         name_of(dtype), ")", Source::from(at));
  if (header.fortran_order)
    fail(errc::file, "[npy] ", name, ": is in Fortran order; save numpy.ascontiguousarray(x)", Source::from(at));
  if (static_cast<int>(header.shape.size()) != rank)
    fail(errc::file, "[npy] ", name, ": has ", header.shape.size(), " dims, not ", rank, Source::from(at));
  const std::size_t available = file.bytes.size() - header.data;
  const std::int64_t elements = elements_of(header.shape);
  if (elements < 0 || static_cast<std::uint64_t>(elements) * size_of(dtype) != available)
    fail(errc::file, "[npy] ", name, ": has ", available, " bytes of elements, which are not those of ",
         shape_text(dtype, header.shape), Source::from(at));
  shape = header.shape;
  const std::span<const std::byte> bytes = file.bytes.subspan(header.data);
  if (dtype == DType::bool_ &&
      std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return std::to_integer<int>(b) > 1; }))
    fail(errc::file, "[npy] ", name, ": has a bool that is neither 0 nor 1", Source::from(at));
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(dtype) == 0) return {file.owner, bytes};
  // Old versions of NumPy aligned elements to 16 bytes or not at all.
  auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  const std::span<const std::byte> seen(*copy);
  return {std::move(copy), seen};
}
#endif
}  // namespace detail

/// The array of a .npy file, as numpy.load(path, mmap_mode="r"): elements T in `Rank` dims, the first of which are the
/// rows of the column. Elements are read when they are used, except bools, which are checked at once. Errors: `file`
/// with the name of the file and the problem.
///
///     const auto images = ts::data::npy<float, 3>("images.npy");   // [rows, height, width]
template <Element T, int Rank> Array<T, Rank - 1> npy(const std::string& path, Here at = Here::current()) {
  static_assert(Rank >= 1, "tessera: a column has at least the dim of its rows");
  static_assert(!std::is_same_v<T, bf16> && !is_float8_v<T>,
                "tessera: NumPy has no bf16 and no 8-bit floats; save float32 and use data::map<ts::bf16>");
  static_assert(std::endian::native == std::endian::little, "tessera: .npy files are read on little-endian processors");
  Shape shape;
  const MappedFile elements = detail::npy_elements(map_file(path, at), dtype_v<T>, Rank, path, shape, at);
  return {elements.owner,
          {reinterpret_cast<const T*>(elements.bytes.data()), elements.bytes.size() / sizeof(T)},
          shape,
          at};
}

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif

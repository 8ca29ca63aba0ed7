#ifndef TESSERA_DATA_WINDOWS_HPP
#define TESSERA_DATA_WINDOWS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/column.hpp>
#include <tessera/data/mapped_file.hpp>

namespace tessera::data {

/// A text as tokens, stored as signed or unsigned integers of 1, 2 or 4 bytes. Copies share the memory.
template <std::integral Stored> struct Tokens {
  static_assert(sizeof(Stored) <= 4, "tessera: tokens become i32, so they are stored as integers of at most 4 bytes");
  std::shared_ptr<const void> owner;
  std::span<const Stored> values;
};

/// The tokens of a file that contains only little-endian tokens, such as the .bin files of nanoGPT and llm.c:
/// tokens<std::uint16_t>("train.bin"). The file is mapped, so it may be larger than memory. Errors: `file` for a file
/// that can't be read, or whose size is not a multiple of the size of a token.
template <std::integral Stored> Tokens<Stored> tokens(const std::string& path, Here at = Here::current()) {
  const MappedFile file = map_file(path, at);
  if (file.bytes.size() % sizeof(Stored) != 0)
    fail(errc::file, "[tokens] ", path, ": has ", file.bytes.size(), " bytes, which are not divisible by the ",
         sizeof(Stored), " bytes of a token", Source::from(at));
  return {file.owner, {reinterpret_cast<const Stored*>(file.bytes.data()), file.bytes.size() / sizeof(Stored)}};
}
template <std::integral Stored> Tokens<Stored> tokens(std::vector<Stored> values) {
  auto kept = std::make_shared<const std::vector<Stored>>(std::move(values));
  const std::span<const Stored> seen(*kept);
  return {std::move(kept), seen};
}

/// A column of windows of a text: row i is tokens[i stride + shift], ..., as many as `length`, as i32. Errors: `option`
/// for negative numbers, and for windows that reach past the end of the tokens.
template <std::integral Stored> class Windows {
 public:
  using element = std::int32_t;
  static constexpr int row_rank = 1;

  Windows(Tokens<Stored> tokens, std::int64_t rows, std::int64_t length, std::int64_t stride, std::int64_t shift,
          Here at = Here::current())
      : tokens_(std::move(tokens)), rows_(rows), stride_(stride), shift_(shift), row_shape_{length} {
    if (rows < 0 || length < 0 || stride < 0 || shift < 0)
      fail(errc::option, "[data::Windows] rows, length, stride, shift: ", rows, ", ", length, ", ", stride, " and ",
           shift, " are not all 0 or more", Source::from(at));
    const auto count = static_cast<std::int64_t>(tokens_.values.size());
    // How far after the first window the last one may begin; by division, since products of large numbers overflow.
    const std::int64_t room = length > count || shift > count - length ? -1 : count - length - shift;
    if (rows > 0 && (room < 0 || (stride > 0 && rows - 1 > room / stride)))
      fail(errc::option, "[data::Windows] rows: ", rows, " windows of ", length, " tokens with stride ", stride,
           " and shift ", shift, " reach past the end of ", count, " tokens", Source::from(at));
  }

  std::int64_t rows() const { return rows_; }
  const Shape& row_shape() const { return row_shape_; }
  void read(Row row, std::int32_t* to) const {
    const Stored* const from = tokens_.values.data() + row.index * stride_ + shift_;
    std::transform(from, from + row_shape_[0], to, [](Stored token) { return static_cast<std::int32_t>(token); });
  }

 private:
  Tokens<Stored> tokens_;
  std::int64_t rows_, stride_, shift_;
  Shape row_shape_;
};

/// Inputs and targets of a language model: `length` consecutive tokens, and those that follow each of them.
template <std::integral Stored> struct NextToken {
  Windows<Stored> inputs, targets;
};

/// All windows of `length` tokens that begin `stride` tokens after each other (0: `length`, so that none overlap) and
/// have a next token. Errors: `option` for a length below 1 and a negative stride.
///
///     const auto [inputs, targets] = ts::data::next_token(ts::data::tokens<std::uint16_t>("train.bin"), 1024);
template <std::integral Stored>
NextToken<Stored> next_token(const Tokens<Stored>& tokens, std::int64_t length, std::int64_t stride = 0,
                             Here at = Here::current()) {
  if (length < 1) fail(errc::option, "[next_token] length: ", length, " is below 1", Source::from(at));
  if (stride < 0) fail(errc::option, "[next_token] stride: ", stride, " is negative", Source::from(at));
  if (stride == 0) stride = length;
  const auto count = static_cast<std::int64_t>(tokens.values.size());
  const std::int64_t rows = count > length ? (count - length - 1) / stride + 1 : 0;
  return {{tokens, rows, length, stride, 0, at}, {tokens, rows, length, stride, 1, at}};
}

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif

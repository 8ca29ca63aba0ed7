#ifndef TESSERA_TENSOR_PRINT_PRINT_HPP
#define TESSERA_TENSOR_PRINT_PRINT_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/text_output.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/trace_types.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/storage/storage_of.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <charconv>
#include <cmath>
#endif

TESSERA_PLANNING_BEGIN

namespace tessera {

/// How tensors print. The defaults are NumPy's.
struct PrintOptions {
  std::int64_t threshold = 1000;  ///< tensors with more elements are abbreviated
  std::int64_t edge_items = 3;    ///< elements shown at either end of an abbreviated dim
  int precision = 8;              ///< most digits after the point; fewer if they already identify the number
  int line_width = 75;
};

namespace detail {

/// The elements, and a line with type, shape, sharding and mesh.
TESSERA_ONCE std::string tensor_text(const TensorStorage& storage, const PrintOptions& options);
/// The elements of a dense row-major array.
TESSERA_ONCE std::string array_text(DType dtype, const Shape& shape, const void* data, const PrintOptions& options);

#if TESSERA_HAS_DEFINITIONS
inline void pad_left(std::string& word, std::size_t width) {
  if (word.size() < width) word.insert(0, width - word.size(), ' ');
}
inline void align_right(std::vector<std::string>& words) {
  std::size_t width = 0;
  for (const std::string& word : words) width = std::max(width, word.size());
  for (std::string& word : words) pad_left(word, width);
}

/// The parts of a decimal number, with the fewest digits that read back as the same number and at most `precision`
/// of them after the point.
struct Decimal {
  std::string whole, fraction, exponent;

  template <class T> static Decimal of(T value, std::chars_format format, int precision) {
    char text[128];
    auto end = std::to_chars(text, text + sizeof text, value, format).ptr;
    Decimal shortest(std::string_view(text, static_cast<std::size_t>(end - text)));
    if (shortest.fraction.size() <= static_cast<std::size_t>(precision)) return shortest;
    end = std::to_chars(text, text + sizeof text, value, format, precision).ptr;
    Decimal rounded(std::string_view(text, static_cast<std::size_t>(end - text)));
    while (!rounded.fraction.empty() && rounded.fraction.back() == '0') rounded.fraction.pop_back();
    return rounded;
  }

 private:
  explicit Decimal(std::string_view text) {
    const std::size_t e = std::min(text.find('e'), text.size()), point = std::min(text.find('.'), e);
    whole = text.substr(0, point);
    if (point < e) fraction = text.substr(point + 1, e - point - 1);
    exponent = text.substr(e);
  }
};

/// The text of each number, with decimal points aligned; with exponents if magnitudes differ by more than 1000.
template <class T> std::vector<std::string> real_words(const std::vector<T>& values, int precision) {
  T largest = 0, smallest = 0;
  bool finite = false, infinite = false, negative_infinity = false;
  for (T value : values) {
    const T magnitude = std::abs(value);
    finite = finite || std::isfinite(value);
    infinite = infinite || !std::isfinite(value);
    negative_infinity = negative_infinity || (std::isinf(value) && value < 0);
    if (!std::isfinite(value) || value == 0) continue;
    largest = std::max(largest, magnitude);
    smallest = smallest == 0 ? magnitude : std::min(smallest, magnitude);
  }
  const bool exponents = largest >= T(1e8) || (largest > 0 && (smallest < T(0.0001) || largest / smallest > T(1000)));

  std::vector<Decimal> decimals;
  std::size_t whole = 0, fraction = 0, exponent = 0;
  for (T value : values) {
    if (!std::isfinite(value)) continue;
    decimals.push_back(
        Decimal::of(value, exponents ? std::chars_format::scientific : std::chars_format::fixed, precision));
    whole = std::max(whole, decimals.back().whole.size());
    fraction = std::max(fraction, decimals.back().fraction.size());
    exponent = std::max(exponent, decimals.back().exponent.size());
  }
  std::size_t width = whole + 1 + fraction + exponent;
  if (infinite) width = std::max<std::size_t>(width, negative_infinity ? 4 : 3);

  std::vector<std::string> words;
  auto next = decimals.begin();
  for (T value : values) {
    std::string word;
    if (std::isnan(value)) {
      word = "nan";
    } else if (std::isinf(value)) {
      word = value < 0 ? "-inf" : "inf";
    } else {
      Decimal& d = *next++;
      d.fraction.append(fraction - d.fraction.size(), exponents ? '0' : ' ');
      if (exponents) d.exponent.insert(2, exponent - d.exponent.size(), '0');
      word = d.whole + "." + d.fraction + d.exponent;
    }
    pad_left(word, width);
    words.push_back(std::move(word));
  }
  return words;
}

/// What is printed: boxes of a tensor, each a dense row-major array.
struct PrintedTensor {
  struct Part {
    Box box;
    const void* data = nullptr;
  };
  DType dtype{};
  Shape shape;
  std::vector<Part> parts;
};

/// The elements at the given indices of each dim, as words of one width.
class PrintedElements {
 public:
  PrintedElements(const PrintedTensor& tensor, std::vector<std::vector<std::int64_t>> shown)
      : tensor_(tensor), shown_(std::move(shown)) {}

  std::vector<std::string> words(int precision) const {
    return dispatch(
        tensor_.dtype,
        [&]<class T>() {
          if constexpr (is_floating_v<T> || is_float8_v<T>) {
            return real_words(values<T, computed_t<T>>(), precision);
          } else {
            std::vector<std::string> words;
            for (std::int64_t value : values<T, std::int64_t>())
              words.push_back(!std::is_same_v<T, bool> ? std::to_string(value) : value ? "True" : "False");
            align_right(words);
            return words;
          }
        },
        [&]() -> std::vector<std::string> {
          fail(errc::dtype_mismatch, "[print] element type: tensors of ", name_of(tensor_.dtype), " can't be printed");
        });
  }

 private:
  template <class T, class Read> std::vector<Read> values() const {
    std::vector<Read> out;
    std::vector<std::size_t> at(shown_.size(), 0);
    Shape index(shown_.size(), 0);
    std::size_t part = 0;
    for (;;) {
      for (std::size_t dim = 0; dim < at.size(); ++dim) index[dim] = shown_[dim][at[dim]];
      while (!holds(tensor_.parts[part].box, index)) part = (part + 1) % tensor_.parts.size();
      const auto* data = static_cast<const T*>(tensor_.parts[part].data);
      out.push_back(static_cast<Read>(data[offset_in(tensor_.parts[part].box, index)]));
      std::size_t dim = at.size();
      while (dim > 0 && ++at[dim - 1] == shown_[dim - 1].size()) at[--dim] = 0;
      if (dim == 0) return out;
    }
  }
  static bool holds(const Box& box, const Shape& index) {
    for (std::size_t dim = 0; dim < index.size(); ++dim)
      if (index[dim] < box.begin[dim] || index[dim] >= box.end[dim]) return false;
    return true;
  }
  static std::int64_t offset_in(const Box& box, const Shape& index) {
    std::int64_t offset = 0;
    for (std::size_t dim = 0; dim < index.size(); ++dim)
      offset = offset * (box.end[dim] - box.begin[dim]) + index[dim] - box.begin[dim];
    return offset;
  }

  const PrintedTensor& tensor_;
  std::vector<std::vector<std::int64_t>> shown_;
};

/// Sets words in nested brackets, broken into lines, dim by dim.
class BracketedText {
 public:
  /// `sizes`: words along each dim. `gaps`: the index along each dim before which "..." stands, or 0.
  BracketedText(std::vector<std::string> words, std::vector<std::size_t> sizes, std::vector<std::size_t> gaps,
                int width)
      : words_(std::move(words)), sizes_(std::move(sizes)), gaps_(std::move(gaps)),
        width_(static_cast<std::size_t>(std::max(width, 0))) {}

  std::string text() {
    if (sizes_.empty()) return words_[0];
    append(0);
    return std::move(out_);
  }

 private:
  void append(std::size_t dim) {
    out_ += "[";
    if (dim + 1 == sizes_.size()) {
      append_row(dim);
    } else {
      const std::string separator(sizes_.size() - dim - 1, '\n');
      for (std::size_t i = 0; i < sizes_[dim]; ++i) {
        if (i > 0) out_ += separator + std::string(dim + 1, ' ');
        if (i > 0 && i == gaps_[dim]) out_ += "..." + separator + std::string(dim + 1, ' ');
        append(dim + 1);
      }
    }
    out_ += "]";
  }
  void append_row(std::size_t dim) {
    // Closing brackets follow the last word, even past the line width.
    const std::size_t indent = dim + 1, most = width_ > indent ? width_ - indent : 0;
    std::size_t column = indent;
    const auto append_word = [&](std::string_view word) {
      if (column > indent && column + 1 + word.size() > most) {
        out_ += "\n" + std::string(indent, ' ');
        column = indent;
      } else if (column > indent) {
        out_ += " ";
        ++column;
      }
      out_ += word;
      column += word.size();
    };
    for (std::size_t i = 0; i < sizes_[dim]; ++i) {
      if (i > 0 && i == gaps_[dim]) append_word("...");
      append_word(words_[next_++]);
    }
  }

  std::vector<std::string> words_;
  std::vector<std::size_t> sizes_, gaps_;
  std::size_t width_;
  std::size_t next_ = 0;
  std::string out_;
};

inline std::string elements_text(const PrintedTensor& tensor, const PrintOptions& options) {
  const std::int64_t elements = volume(tensor.shape), edge = std::max<std::int64_t>(options.edge_items, 1);
  if (elements == 0) return "[]";
  std::vector<std::vector<std::int64_t>> shown;
  std::vector<std::size_t> sizes, gaps;
  for (std::int64_t extent : tensor.shape) {
    const bool abbreviated = elements > options.threshold && extent - edge > edge;
    shown.emplace_back();
    for (std::int64_t i = 0; i < extent; ++i) {
      if (abbreviated && i == edge) i = extent - edge;
      shown.back().push_back(i);
    }
    sizes.push_back(shown.back().size());
    gaps.push_back(abbreviated ? static_cast<std::size_t>(edge) : 0);
  }
  std::vector<std::string> words =
      PrintedElements(tensor, std::move(shown)).words(std::clamp(options.precision, 0, 17));
  return BracketedText(std::move(words), std::move(sizes), std::move(gaps), options.line_width).text();
}

TESSERA_ONCE std::string tensor_text(const TensorStorage& storage, const PrintOptions& options) {
  const std::string type = sharded_type_text(storage) + " on " + storage.mesh().text();
  if (storage.layout()->is_whole()) {
    PrintedTensor tensor{storage.dtype(), storage.shape(), {}};
    for (int shard = 0; shard < storage.shard_count(); ++shard)
      tensor.parts.push_back({storage.box(shard), storage.data(shard)});
    return elements_text(tensor, options) + "\n" + type;
  }
  std::string out;
  for (int shard = 0; shard < storage.shard_count(); ++shard) {
    if (!storage.holds(shard)) continue;
    out += array_text(storage.dtype(), extents(storage.box(shard)), storage.data(shard), options) + "\n";
    for (std::size_t d = 0; d < storage.shape().size(); ++d)
      out += concat_text(d == 0 ? "[" : ",", storage.box(shard).begin[d], ":", storage.box(shard).end[d]);
    out += storage.shape().empty() ? "all of\n" : "] of\n";
  }
  return concat_text(out, type, ", in process ", process_index(), " of ", process_count());
}
TESSERA_ONCE std::string array_text(DType dtype, const Shape& shape, const void* data, const PrintOptions& options) {
  return elements_text({dtype, shape, {{{Shape(shape.size(), 0), shape}, data}}}, options);
}
#endif

}  // namespace detail

/// The elements as NumPy prints them, long dims abbreviated; then a line with type, shape, sharding and mesh. Only the
/// elements that are shown are read.
///
///     [[1.   2.5 ]
///      [3.   4.25]]
///     f32[2,2]{data,-} on mesh(data=2)
/// If a tensor is divided among processes, this is the text of the shards of this process, each with its range of
/// indices.
template <class T, int Rank> std::string to_string(const ShardedTensor<T, Rank>& x, const PrintOptions& options = {}) {
  if (!x.storage())
    return concat_text(x.traced() ? "traced " : "empty ", name_of(dtype_v<T>), " tensor of rank ", Rank);
  return detail::tensor_text(storage_of(x), options);
}

/// Runs an expression and prints its result.
template <ExprOperand E> std::string to_string(const E& expression, const PrintOptions& options = {}) {
  return to_string(ShardedTensor<typename E::element, E::rank>(expression), options);
}

/// Prints to_string(x). This header includes only <iosfwd>, since code that has a stream includes <ostream> itself.
template <class T, int Rank> std::ostream& operator<<(std::ostream& out, const ShardedTensor<T, Rank>& x) {
  return out << to_string(x);
}
template <SymOperand X> std::ostream& operator<<(std::ostream& out, const X&) {
  static_assert(std::is_void_v<X>,
                "tessera: values are not known while a function is traced; return the value from the traced "
                "function, and print the result of the call");
  return out;
}
template <ExprOperand E> std::ostream& operator<<(std::ostream& out, const E& expression) {
  return out << to_string(expression);
}
namespace detail {
/// Of a call with an error, which the compiler has reported.
template <std::derived_from<NoResult> X> std::ostream& operator<<(std::ostream& out, const X&) { return out; }
}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif

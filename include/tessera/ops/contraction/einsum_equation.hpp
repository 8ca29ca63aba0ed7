#ifndef TESSERA_OPS_CONTRACTION_EINSUM_EQUATION_HPP
#define TESSERA_OPS_CONTRACTION_EINSUM_EQUATION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/shape.hpp>

namespace tessera::detail {

/// The labels of the dims of a tensor in an einsum.
struct EinsumLetters {
  char letters[max_rank]{};
  int rank = 0;

  friend constexpr bool operator==(const EinsumLetters&, const EinsumLetters&) = default;
  constexpr int find(char letter, int from = 0) const {
    for (int d = from; d < rank; ++d)
      if (letters[d] == letter) return d;
    return -1;
  }
  constexpr EinsumLetters without(int dim) const {
    EinsumLetters rest;
    for (int d = 0; d < rank; ++d)
      if (d != dim) rest.letters[rest.rank++] = letters[d];
    return rest;
  }
  constexpr EinsumLetters with(char letter) const {
    EinsumLetters more = *this;
    more.letters[more.rank++] = letter;
    return more;
  }
  constexpr EinsumLetters distinct() const {
    EinsumLetters found;
    for (int d = 0; d < rank; ++d)
      if (found.find(letters[d]) < 0) found = found.with(letters[d]);
    return found;
  }
  constexpr int first_that_lacks(const EinsumLetters& other) const {
    for (int d = 0; d < rank; ++d)
      if (other.find(letters[d]) < 0) return d;
    return -1;
  }
  /// The first two dims with the same label; -1 where all labels are distinct.
  struct Repeat {
    int row = -1, column = -1;
  };
  constexpr Repeat repeat() const {
    for (int d = 0; d < rank; ++d)
      if (const int other = find(letters[d], d + 1); other >= 0) return {d, other};
    return {};
  }
};

enum class EinsumError : std::uint8_t { none, text, operands, rank };

/// An equation of einsum for operands of given ranks, with a letter for each dim that `...` stands for.
template <int Count> struct EinsumEquation {
  EinsumLetters operands[Count]{}, result{};
  EinsumError error;

  constexpr EinsumEquation(std::string_view text, const int (&ranks)[Count]) : error(parse(text, ranks)) {}

  /// The labels of a product of two operands: those of the result, or of an operand from `next` on.
  constexpr EinsumLetters kept(const EinsumLetters& a, const EinsumLetters& b, int next) const {
    if (next == Count) return result;
    EinsumLetters all;
    for (const EinsumLetters* of : {&a, &b})
      for (int d = 0; d < of->rank; ++d)
        if (const char c = of->letters[d]; all.find(c) < 0 && (result.find(c) >= 0 || occurs(c, next))) {
          if (all.rank == max_rank)
            fail(errc::capacity, "[einsum] rank: a product of the first ", next, " operands has more than ", max_rank,
                 " dims");
          all = all.with(c);
        }
    return all;
  }

 private:
  static constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  /// The label of a dim that `...` stands for, counted from the last.
  static constexpr char label_from_the_back(int position) { return static_cast<char>('0' + position); }

  constexpr EinsumError parse(std::string_view text, const int (&ranks)[Count]) {
    const std::size_t arrow = text.find("->");
    const std::string_view before = text.substr(0, arrow);
    int parts = 1, filled = 0;
    for (const char c : before) parts += c == ',';
    if (parts != Count) return EinsumError::operands;
    std::size_t begin = 0;
    for (int k = 0; k < Count; ++k) {
      const std::size_t end = before.find(',', begin);
      const std::string_view own = before.substr(begin, end - begin);
      if (const EinsumError found = read(own, ranks[k] - letters_of(own), operands[k]); found != EinsumError::none)
        return found;
      if (operands[k].rank != ranks[k]) return EinsumError::rank;
      if (const int dims = ranks[k] - letters_of(own); own.find('.') != own.npos && dims > filled) filled = dims;
      begin = end + 1;
    }
    const EinsumError found = arrow == text.npos ? fill_result(filled) : read(text.substr(arrow + 2), filled, result);
    if (found != EinsumError::none) return found;
    if (result.repeat().row >= 0) return EinsumError::text;
    for (int d = 0; d < result.rank; ++d)
      if (!occurs(result.letters[d], 0)) return EinsumError::text;
    return EinsumError::none;
  }
  constexpr bool occurs(char letter, int first) const {
    for (int k = first; k < Count; ++k)
      if (operands[k].find(letter) >= 0) return true;
    return false;
  }
  static constexpr int letters_of(std::string_view text) {
    int count = 0;
    for (const char c : text) count += is_letter(c);
    return count;
  }
  /// Reads the labels of a tensor, where `...` stands for `filled` dims.
  static constexpr EinsumError read(std::string_view text, int filled, EinsumLetters& into) {
    bool has_ellipsis = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') continue;
      if (text.substr(i, 3) == "..." && !has_ellipsis) {
        if (filled < 0 || into.rank + filled > max_rank) return EinsumError::rank;
        for (int position = filled; position > 0; --position) into = into.with(label_from_the_back(position - 1));
        has_ellipsis = true;
        i += 2;
        continue;
      }
      if (!is_letter(text[i])) return EinsumError::text;
      if (into.rank == max_rank) return EinsumError::rank;
      into = into.with(text[i]);
    }
    return EinsumError::none;
  }
  /// A result that is not stated has the dims of `...`, then the labels that occur once, capital letters first.
  constexpr EinsumError fill_result(int filled) {
    for (int position = filled; position > 0; --position) result = result.with(label_from_the_back(position - 1));
    for (char c = 'A'; c <= 'z'; ++c) {
      int count = 0;
      for (const EinsumLetters& of : operands)
        for (int d = 0; d < of.rank; ++d) count += of.letters[d] == c;
      if (count != 1) continue;
      if (result.rank == max_rank) return EinsumError::rank;
      result = result.with(c);
    }
    return EinsumError::none;
  }
};

/// The equation of two tensors with distinct labels, such as "ab,bc->ac": a letter for each label by its first dim.
template <EinsumLetters A, EinsumLetters B, EinsumLetters Out> consteval auto pair_equation() {
  constexpr int size = A.rank + B.rank + Out.rank + 4;  // with ',', "->" and the last 0
  char text[size]{};
  int n = 0;
  char seen[2 * max_rank]{};
  int count = 0;
  const auto add = [&](const EinsumLetters& of) {
    for (int d = 0; d < of.rank; ++d) {
      int label = 0;
      while (label < count && seen[label] != of.letters[d]) ++label;
      if (label == count) seen[count++] = of.letters[d];
      text[n++] = static_cast<char>(label < 26 ? 'a' + label : 'A' + label - 26);
    }
  };
  add(A);
  text[n++] = ',';
  add(B);
  text[n++] = '-', text[n++] = '>';
  add(Out);
  return FixedString<size>(text);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif

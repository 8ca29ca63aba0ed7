#ifndef TESSERA_GRAPH_IR_CUSTOM_FUNCTION_HPP
#define TESSERA_GRAPH_IR_CUSTOM_FUNCTION_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>
#include <string_view>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node.hpp>
#include <tessera/graph/ir/row.hpp>

namespace tessera {

/// A signature like those of NumPy's generalized ufuncs and jnp.vectorize: "(n,n),(n,k)->(n,k)". Each list has the core
/// dims of one operand or result, which come after its batch dims: letters from a to z, equal ones for equal extents,
/// or a digit for that extent.
struct CallSignature {
  static constexpr int max_values = 8;
  struct Core {
    int rank = 0;
    char labels[max_rank]{};
  };

  Core operands[max_values], results[max_values];
  int operand_count = 0, result_count = 0;
  bool valid = true;

  constexpr CallSignature() = default;
  constexpr explicit CallSignature(std::string_view text) {
    bool to_results = false;
    Core* open = nullptr;
    for (std::size_t i = 0; i < text.size() && valid; ++i) {
      const char c = text[i];
      const bool label = (c >= 'a' && c <= 'z') || (c >= '1' && c <= '9');
      if (c == ' ' || (c == ',' && i > 0)) continue;
      if (c == '(' && open == nullptr) {
        int& count = to_results ? result_count : operand_count;
        valid = count < max_values;
        if (valid) open = &(to_results ? results : operands)[count++];
      } else if (c == ')' && open != nullptr) {
        open = nullptr;
      } else if (c == '-' && open == nullptr && !to_results && i + 1 < text.size() && text[i + 1] == '>') {
        to_results = true;
        ++i;
      } else {
        valid = label && open != nullptr && open->rank < max_rank;
        if (valid) open->labels[open->rank++] = c;
      }
    }
    valid = valid && open == nullptr && operand_count > 0 && result_count > 0;
  }
};

/// The extents of the labels of a signature; -1: not known.
struct CallExtents {
  std::int64_t of[26];

  constexpr CallExtents() {
    for (std::int64_t& extent : of) extent = -1;
  }
  static constexpr bool is_letter(char label) { return label >= 'a'; }
  constexpr std::int64_t operator[](char label) const { return is_letter(label) ? of[label - 'a'] : label - '0'; }
  /// Gives a label an extent; returns false if it has another extent.
  constexpr bool bind(char label, std::int64_t extent) {
    if (is_letter(label) && of[label - 'a'] < 0) of[label - 'a'] = extent;
    return (*this)[label] == extent;
  }
  constexpr Shape shape(const CallSignature::Core& core) const {
    Shape made;
    for (int d = 0; d < core.rank; ++d) made.push_back((*this)[core.labels[d]]);
    return made;
  }
};

/// The function of a custom call. Made by custom_function_v in ops/custom/custom_call.hpp; the row of a call points to
/// it.
struct CustomFunction {
  std::string_view name;
  CallSignature signature;
  /// The extent of a label that only results have; null: there is no such label.
  std::int64_t (*extent)(char label, const CallExtents& known) = nullptr;
  /// Computes one batch entry, from dense row-major arrays to dense row-major arrays.
  void (*run)(const void* const* operands, void* const* results, const CallExtents& extents) = nullptr;
  GradientRule gradient = nullptr;
  DType results[CallSignature::max_values]{};
  std::uint64_t id = 0;  ///< differs between functions: a hash of the type
};

/// Attributes of a custom call: its function, and which of the function's results the node is.
struct CustomCall {
  std::uint64_t function = 0;
  std::int32_t result = 0;

  static constexpr CustomCall of(const Node& node) {
    const auto packed = std::bit_cast<Packed>(node.labels);
    return {packed.function, packed.result};
  }
  constexpr Labels pack() const { return std::bit_cast<Labels>(Packed{function, result, {}}); }

 private:
  struct Packed {
    std::uint64_t function;
    std::int32_t result, rest[3];
  };
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif

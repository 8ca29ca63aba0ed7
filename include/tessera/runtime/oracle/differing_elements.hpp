#ifndef TESSERA_RUNTIME_ORACLE_DIFFERING_ELEMENTS_HPP
#define TESSERA_RUNTIME_ORACLE_DIFFERING_ELEMENTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/runtime/oracle/oracle.hpp>
#include <tessera/runtime/oracle/oracle_value.hpp>

namespace tessera::runtime {

/// The elements in which a value differs from that on one device: their number, the first and the largest difference.
struct DifferingElements {
  const WholeValue& whole;
  OracleDifference all{};

  explicit DifferingElements(const WholeValue& wanted) : whole(wanted) { all.elements = wanted.size(); }

  /// Compares the element at a row-major index; `device` is -1 for a sum over devices.
  void compare(std::int64_t index, double got, double allowed, int device) {
    const double want = whole[index];
    if (got == want || (std::isnan(got) && std::isnan(want)) || std::fabs(got - want) <= allowed) return;
    OracleElement element{{}, device, got, want, allowed};
    for (std::size_t d = whole.shape.size(); d-- > 0; index /= whole.shape[d])
      element.index.insert(0, index % whole.shape[d]);
    ++all.count;
    if (all.count == 1 || is_earlier(element.index, all.first.index)) all.first = element;
    const double distance = std::isnan(got - want) ? INFINITY : std::fabs(got - want);
    if (distance > largest_) {
      largest_ = distance;
      all.largest = element;
    }
  }

 private:
  double largest_ = -1;

  static bool is_earlier(const Shape& a, const Shape& b) {
    for (std::size_t d = 0; d < a.size(); ++d)
      if (a[d] != b[d]) return a[d] < b[d];
    return false;
  }
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif

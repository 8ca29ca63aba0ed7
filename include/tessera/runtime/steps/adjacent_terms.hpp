#ifndef TESSERA_RUNTIME_STEPS_ADJACENT_TERMS_HPP
#define TESSERA_RUNTIME_STEPS_ADJACENT_TERMS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/gemm/contraction_plan.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Shards of the operands of a sum of products that lie one behind another in memory, by the layout of their values. A
/// frame may still place a shard elsewhere, such as in the memory of an argument, so that each run asks are_adjacent().
class AdjacentTerms {
 public:
  /// For each operand a value of the plan, or a shard: its pointer in the frame.
  struct Operands {
    std::int32_t a, b;
  };

  /// The shards `at` are `count` shards behind the shards `first`. False if the layout has them elsewhere.
  TESSERA_PLANNING bool add(const FrameLayout& layout, Operands values, Operands first, Operands at,
                            std::size_t count) {
    return add(layout, values.a, first.a, at.a, count) && add(layout, values.b, first.b, at.b, count);
  }

  /// Adds a summed label to the shape of a product: `count` shards of each operand, one behind another. False if an
  /// operand has no room for a further dim.
  TESSERA_PLANNING static bool join(const FrameLayout& layout, Operands values, Operands first, std::size_t count,
                                    kernels::ContractionShape& shape) {
    if (shape.a.size() >= max_rank || shape.b.size() >= max_rank || shape.extents.size() >= 3 * max_rank) return false;
    const auto label = static_cast<std::int8_t>(shape.extents.size());
    shape.extents.push_back(static_cast<std::int64_t>(count));
    shape.a.push_back(label);
    shape.b.push_back(label);
    shape.a_strides.push_back(elements(layout[values.a], first.a));
    shape.b_strides.push_back(elements(layout[values.b], first.b));
    return true;
  }

  std::int64_t table_bytes() const { return static_cast<std::int64_t>(terms_.size() * sizeof(Term)); }

  /// Whether they are there in this run, in the arena of the program: addresses of memory that a caller allocates could
  /// differ from run to run, and with them the order of a sum.
  bool are_adjacent(const Frame& frame) const {
    const Frame* program = &frame;
    while (program->around != nullptr) program = program->around;
    const auto address = [&](std::int32_t pointer) {
      return reinterpret_cast<std::uintptr_t>(frame.pointers[static_cast<std::size_t>(pointer)]);
    };
    const auto begin = reinterpret_cast<std::uintptr_t>(program->arena),
               end = reinterpret_cast<std::uintptr_t>(program->scratch);
    for (const Term& term : terms_) {
      const std::uintptr_t first = address(term.first);
      if (first < begin || first >= end || address(term.at) - first != term.distance) return false;
    }
    return true;
  }

 private:
  struct Term {
    std::int32_t first, at;
    std::uintptr_t distance;  // in bytes
  };
  Growable<Term> terms_;

  static std::int64_t elements(const ValueLayout& of, std::int32_t pointer) {
    return volume(extents(of.boxes[static_cast<std::size_t>(pointer - of.first)]));
  }

  TESSERA_PLANNING bool add(const FrameLayout& layout, int value, std::int32_t first, std::int32_t at,
                            std::size_t count) {
    const ValueLayout& of = layout[value];
    const std::int64_t distance = static_cast<std::int64_t>(count) * elements(of, first) * of.element;
    if (offset(layout, value, at) - offset(layout, value, first) != distance) return false;
    terms_.push_back({first, at, static_cast<std::uintptr_t>(distance)});
    return true;
  }

  /// Bytes from the first shard of the value, or of the value that it views.
  TESSERA_PLANNING static std::int64_t offset(const FrameLayout& layout, int value, std::int32_t pointer) {
    const ValueLayout& of = layout[value];
    const auto shard = static_cast<std::size_t>(pointer - of.first);
    if (of.root_shard.empty()) return of.offsets[shard];
    const int root = layout.value(value).view_of;
    return of.offsets[shard] + offset(layout, root, layout[root].first + of.root_shard[shard]);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif

#ifndef TESSERA_RUNTIME_STEPS_CUSTOM_STEP_HPP
#define TESSERA_RUNTIME_STEPS_CUSTOM_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/custom_function.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// A custom call: calls the function for each batch entry of each place. Operands and results are copied to and from
/// aligned dense arrays, so that results depend neither on strides nor on addresses.
template <class = void> class CustomStep final : public PreparedStep {
 public:
  explicit CustomStep(const StepContext& c) : function_(*row_of(c.graph[c.units[c.step.unit].root]).custom) {
    const Unit& unit = c.units[c.step.unit];
    const CallSignature& signature = function_.signature;
    for (int i = 0; i < unit.input_count; ++i) {
      const int operand = c.units.input(c.step.unit, i).operand, v = c.step.inputs[static_cast<std::size_t>(i)];
      add_array(c.layout, v, signature.operands[operand], operand, false);
    }
    for (int o = 0; o < unit.output_count; ++o) {
      const int k = CustomCall::of(c.graph[c.units.output(c.step.unit, o).node]).result;
      add_array(c.layout, c.step.outputs[static_cast<std::size_t>(o)], signature.results[k], k, true);
    }
    for (int k = 0; k < signature.result_count; ++k) {
      // A label of a result that is not in the plan has no extent yet.
      for (int d = 0; d < signature.results[k].rank; ++d)
        if (const char label = signature.results[k].labels[d]; extents_[label] < 0)
          extents_.bind(label, function_.extent(label, extents_));
      result_at_[k] = reserve(volume(extents_.shape(signature.results[k])), function_.results[k]);
    }
    const WorkGrid work(c.layout, c.step);
    for (int w = 0; w < work.count(); ++w) add_place(c.layout, work, work.coordinates(w));
    cost_ = 100 + std::pow(static_cast<double>(bytes_) / 4, 1.5) / 10;
  }

  std::int64_t table_bytes() const override {
    return static_cast<std::int64_t>(places_.size() * (sizeof(Place) + arrays_.size() * sizeof(Shard)));
  }

  void run(Frame& frame) const override {
    parallel_for(items_, Cost{cost_}, [&](std::int64_t item) {
      const auto after = std::upper_bound(places_.begin(), places_.end(), item,
                                          [](std::int64_t i, const Place& place) { return i < place.first_item; });
      run_entry(frame, *std::prev(after), item - std::prev(after)->first_item);
    });
  }

 private:
  /// An operand, or a result that the plan has.
  struct Array {
    std::int32_t value = -1;
    int index = 0;  ///< which operand or result of the function
    bool is_result = false;
    std::size_t batch = 0;  ///< number of batch dims
    Shape core;
    std::int64_t at = 0;  ///< of an operand: its place in the scratch memory
    std::int64_t element = 0;
  };
  /// The shard of an array that a place reads or writes; pointer -1: it does not write it.
  struct Shard {
    std::int32_t pointer = -1;
    kernels::Strides strides;
  };
  struct Place {
    Shape batch;
    Growable<Shard> shards;  // by array
    std::int64_t first_item = 0;
  };
  static constexpr std::int64_t alignment = 64;

  const CustomFunction& function_;
  CallExtents extents_;
  Growable<Array> arrays_;
  Growable<Place> places_;
  std::int64_t operand_at_[CallSignature::max_values]{}, result_at_[CallSignature::max_values]{};
  std::int64_t items_ = 0, bytes_ = 0;
  double cost_ = 0;

  std::int64_t reserve(std::int64_t elements, DType type) {
    const std::int64_t at = bytes_;
    bytes_ += (elements * static_cast<std::int64_t>(size_of(type)) + alignment - 1) / alignment * alignment;
    return at;
  }

  void add_array(const FrameLayout& layout, std::int32_t v, const CallSignature::Core& core, int index,
                 bool is_result) {
    if (v < 0) return;
    const PlanValue& value = layout.value(v);
    Array made;
    made.value = v;
    made.index = index;
    made.is_result = is_result;
    made.batch = value.shape.size() - static_cast<std::size_t>(core.rank);
    made.element = layout[v].element;
    for (int d = 0; d < core.rank; ++d) {
      made.core.push_back(value.shape[made.batch + static_cast<std::size_t>(d)]);
      extents_.bind(core.labels[d], made.core.back());
    }
    if (!is_result) operand_at_[index] = reserve(volume(made.core), value.dtype);
    arrays_.push_back(made);
  }

  void add_place(const FrameLayout& layout, const WorkGrid& work, const Coordinates& at) {
    Place place;
    place.first_item = items_;
    bool stores = false;
    for (const Array& array : arrays_) {
      const ValueLayout& own = layout[array.value];
      const auto shard = static_cast<std::size_t>(own.index(at));
      const bool used =
          !array.is_result || (work.stores(at, layout.value(array.value).sharding) && layout.holds(array.value, at));
      stores = stores || (array.is_result && used);
      const Shape extent = extents(own.boxes[shard]);
      place.batch.clear();
      for (std::size_t d = 0; d < array.batch; ++d) place.batch.push_back(extent[d]);
      place.shards.push_back({used ? own.first + static_cast<std::int32_t>(shard) : -1, own.strides[shard]});
    }
    const std::int64_t entries = volume(place.batch);
    if (!stores || entries == 0) return;
    items_ += entries;
    places_.push_back(std::move(place));
  }

  void run_entry(Frame& frame, const Place& place, std::int64_t entry) const {
    std::byte* const scratch =
        kernels::thread_scratch<kernels::Scratch::custom, std::byte>(static_cast<std::size_t>(bytes_));
    const void* operands[CallSignature::max_values]{};
    void* results[CallSignature::max_values]{};
    for (int i = 0; i < function_.signature.operand_count; ++i) operands[i] = scratch + operand_at_[i];
    for (int k = 0; k < function_.signature.result_count; ++k) results[k] = scratch + result_at_[k];
    const auto copy = [&](bool from_results) {
      for (std::size_t a = 0; a < arrays_.size(); ++a) {
        const Array& array = arrays_[a];
        const Shard& shard = place.shards[a];
        if (array.is_result != from_results || shard.pointer < 0) continue;
        std::int64_t offset = 0, left = entry;
        for (std::size_t d = array.batch; d-- > 0; left /= place.batch[d])
          offset += left % place.batch[d] * shard.strides[d];
        char* const stored = frame.pointers[static_cast<std::size_t>(shard.pointer)];
        if (stored == nullptr) continue;  // empty
        copy_core(array, shard, stored + offset * array.element,
                  from_results ? results[array.index] : scratch + operand_at_[array.index]);
      }
    };
    copy(false);
    function_.run(operands, results, extents_);
    copy(true);
  }

  /// Copies between a shard and a dense array.
  static void copy_core(const Array& array, const Shard& shard, void* stored, void* dense) {
    // A scalar is copied as an array of one element.
    Shape core = array.core;
    kernels::Strides strides;
    for (std::size_t d = 0; d < core.size(); ++d) strides.push_back(shard.strides[array.batch + d]);
    if (core.empty()) {
      core.push_back(1);
      strides.push_back(1);
    }
    const kernels::Strides own = kernels::contiguous_strides(core);
    const auto size = static_cast<std::size_t>(array.element);
    if (array.is_result)
      kernels::strided_copy(stored, strides, dense, own, core, size);
    else
      kernels::strided_copy(dense, own, stored, strides, core, size);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif

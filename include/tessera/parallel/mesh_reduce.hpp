#ifndef TESSERA_PARALLEL_MESH_REDUCE_HPP
#define TESSERA_PARALLEL_MESH_REDUCE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/parallel/process_group.hpp>

namespace tessera {

/// Returns reduce(values of all processes, ordered by rank) on every process, as xm.mesh_reduce of PyTorch/XLA.
/// Errors: those of rendezvous.
///
///     const double worst = ts::mesh_reduce(processes, "loss", loss, [](const auto& all) {
///       return *std::max_element(all.begin(), all.end());
///     });
template <class T, class Reduce>
auto mesh_reduce(ProcessGroup& processes, std::string_view tag, const T& value, Reduce&& reduce) {
  static_assert(std::is_trivially_copyable_v<T> || std::is_same_v<T, std::string>,
                "tessera: mesh_reduce takes trivially copyable values and strings");
  if constexpr (std::is_same_v<T, std::string>) {
    return reduce(processes.rendezvous(tag, value));
  } else {
    std::vector<T> values;
    const std::string_view bytes(reinterpret_cast<const char*>(&value), sizeof value);
    for (const std::string& payload : processes.rendezvous(tag, bytes)) {
      T one;
      if (payload.size() != sizeof one)
        fail(errc::structure, "[mesh_reduce] equal types: for '", tag, "' a process sent ", payload.size(),
             " bytes, but the value of this process has ", sizeof one);
      std::memcpy(&one, payload.data(), sizeof one);
      values.push_back(one);
    }
    return reduce(values);
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif

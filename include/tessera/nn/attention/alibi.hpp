#ifndef TESSERA_NN_ATTENTION_ALIBI_HPP
#define TESSERA_NN_ATTENTION_ALIBI_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <vector>

#include <tessera/base/error.hpp>

namespace tessera::nn {

/// The slopes of ALiBi, one for each head: 2^(-8 / n), 2^(-16 / n), ..., 2^-8 for n heads, if n is a power of 2. For
/// another n they are the slopes of the next lower power of 2, then every second slope of the next higher one. Errors:
/// option unless n is positive. Source: Press et al., 2108.12409.
inline std::vector<float> alibi_slopes(int heads) {
  if (heads < 1) fail(errc::option, "[alibi_slopes] number of heads: ", heads, " is not positive");
  int power = 1;
  while (power <= heads / 2) power *= 2;
  std::vector<float> slopes;
  for (int i = 1; i <= power; ++i) slopes.push_back(static_cast<float>(std::exp2(-8.0 * i / power)));
  for (int i = 1; power + i <= heads; ++i) slopes.push_back(static_cast<float>(std::exp2(-4.0 * (2 * i - 1) / power)));
  return slopes;
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif

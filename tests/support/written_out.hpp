#ifndef TESSERA_TESTS_SUPPORT_WRITTEN_OUT_HPP
#define TESSERA_TESTS_SUPPORT_WRITTEN_OUT_HPP

#include <string>
#include <vector>

#include "gradients.hpp"

namespace oracle::loops {

/// Programs are equal on the same arguments, all results of them.
template <class... Args, class F, class G>
void expect_equal(F, G, const std::vector<Array>& arguments, int repeats = 1) {
  const Program scanned = trace<F, Args...>(), written = trace<G, Args...>();
  EXPECT_EQ(scanned.count(Op::repeat), repeats);
  const auto got = run(scanned.view(), arguments), want = run(written.view(), arguments);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], 1e-12, "result " + std::to_string(k));
}

}  // namespace oracle::loops

#endif

#include <cstddef>
#include <memory>
#include <vector>

#include "../peer.hpp"
#include <blis.h>

namespace {

using compare::GemmShape;
using compare::Task;

class Blis : public compare::Peer {
 public:
  void set_threads(int threads) override { bli_thread_set_num_threads(threads); }

  Task gemm(const GemmShape& s, const float* a, const float* b) override {
    // For other processors BLIS has a kernel in plain C, which says nothing of what BLIS can do.
    if (bli_arch_query_id() == BLIS_ARCH_GENERIC) return {};
    const auto c = std::make_shared<std::vector<float>>(static_cast<std::size_t>(s.m) * static_cast<std::size_t>(s.n));
    const auto run = [=] {
      float one = 1, zero = 0;  // BLIS takes its operands without const, and does not change them
      bli_sgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, s.m, s.n, s.k, &one, const_cast<float*>(a), s.k, 1,
                const_cast<float*>(b), s.n, 1, &zero, c->data(), s.n, 1);
    };
    return Task(run, [=] { return *c; });
  }
};

}  // namespace

extern "C" compare::Peer* compare_peer() { return new Blis; }

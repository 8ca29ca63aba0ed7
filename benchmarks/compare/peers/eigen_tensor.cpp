#define EIGEN_USE_THREADS
#include <array>
#include <memory>
#include <vector>

#include "../peer.hpp"
#include <unsupported/Eigen/CXX11/Tensor>

// Contractions of Eigen::Tensor on Eigen's thread pool, which have loops and packing of their own.
namespace {

using compare::GemmShape;
using compare::Task;

class EigenTensorPeer : public compare::Peer {
 public:
  void set_threads(int threads) override {
    pool_ = std::make_unique<Eigen::ThreadPool>(threads);
    device_ = std::make_unique<Eigen::ThreadPoolDevice>(pool_.get(), threads);
  }

  Task gemm(const GemmShape& s, const float* a, const float* b) override {
    using Given = Eigen::TensorMap<Eigen::Tensor<const float, 2, Eigen::RowMajor>>;
    const auto c = std::make_shared<Eigen::Tensor<float, 2, Eigen::RowMajor>>(s.m, s.n);
    const auto run = [=, this] {
      const std::array<Eigen::IndexPair<int>, 1> contracted{Eigen::IndexPair<int>(1, 0)};
      c->device(*device_) = Given(a, s.m, s.k).contract(Given(b, s.k, s.n), contracted);
    };
    return Task(run, [=] { return std::vector<float>(c->data(), c->data() + c->size()); });
  }

 private:
  std::unique_ptr<Eigen::ThreadPool> pool_;
  std::unique_ptr<Eigen::ThreadPoolDevice> device_;
};

}  // namespace

extern "C" compare::Peer* compare_peer() { return new EigenTensorPeer; }

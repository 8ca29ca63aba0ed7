#ifndef TESSERA_DISTRIBUTIONS_DISTRIBUTIONS_HPP
#define TESSERA_DISTRIBUTIONS_DISTRIBUTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/distributions/continuous/beta.hpp>
#include <tessera/distributions/continuous/cauchy.hpp>
#include <tessera/distributions/continuous/chi2.hpp>
#include <tessera/distributions/continuous/dirichlet.hpp>
#include <tessera/distributions/continuous/exponential.hpp>
#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/continuous/gumbel.hpp>
#include <tessera/distributions/continuous/half_cauchy.hpp>
#include <tessera/distributions/continuous/half_normal.hpp>
#include <tessera/distributions/continuous/inverse_gamma.hpp>
#include <tessera/distributions/continuous/laplace.hpp>
#include <tessera/distributions/continuous/lkj_cholesky.hpp>
#include <tessera/distributions/continuous/log_normal.hpp>
#include <tessera/distributions/continuous/logistic.hpp>
#include <tessera/distributions/continuous/normal.hpp>
#include <tessera/distributions/continuous/pareto.hpp>
#include <tessera/distributions/continuous/student_t.hpp>
#include <tessera/distributions/continuous/uniform.hpp>
#include <tessera/distributions/continuous/von_mises.hpp>
#include <tessera/distributions/continuous/weibull.hpp>
#include <tessera/distributions/discrete/bernoulli.hpp>
#include <tessera/distributions/discrete/binomial.hpp>
#include <tessera/distributions/discrete/categorical.hpp>
#include <tessera/distributions/discrete/geometric.hpp>
#include <tessera/distributions/discrete/negative_binomial.hpp>
#include <tessera/distributions/discrete/one_hot_categorical.hpp>
#include <tessera/distributions/discrete/poisson.hpp>
#include <tessera/distributions/divergences.hpp>
#include <tessera/distributions/formula.hpp>
#include <tessera/distributions/independent.hpp>
#include <tessera/distributions/kl_divergence.hpp>
#include <tessera/distributions/mixture_same_family.hpp>
#include <tessera/distributions/transformed_distribution.hpp>
#include <tessera/distributions/transforms.hpp>
#include <tessera/distributions/univariate.hpp>

#include <tessera/base/pop_macros.hpp>

#endif

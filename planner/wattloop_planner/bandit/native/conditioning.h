/* Conditioning of a mixture of Gaussian priors on values; wattloop_planner.bandit.gaussian_process has the formula. */

#ifndef WATTLOOP_CONDITIONING_H
#define WATTLOOP_CONDITIONING_H

#include <stddef.h>

/* Equally likely priors with one covariance: means by component, and observed values, of which those with a
 * precision other than 0 count. */
typedef struct {
    ptrdiff_t components, arms;
    const double *means, *covariance, *values, *precisions;
} mixture;

typedef enum { CONDITIONED, NOT_POSITIVE_DEFINITE, NO_MEMORY } conditioning;

/* Fills the mean and the covariance of the posterior. */
conditioning condition_mixture(const mixture *prior, double *mean, double *covariance);

#endif

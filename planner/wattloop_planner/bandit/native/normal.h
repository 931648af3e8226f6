/* The standard normal distribution. */

#ifndef WATTLOOP_NORMAL_H
#define WATTLOOP_NORMAL_H

#include <math.h>

#define SQRT_HALF 0.70710678118654752440
#define LOG_SQRT_TWO_PI 0.91893853320467274178
/* Below it the probability underflows. */
#define FAR_BELOW (-36.0)

/* Probability of a value below x. */
static inline double normal_cdf(double x) { return 0.5 * erfc(-x * SQRT_HALF); }

/* Its logarithm, also where the probability underflows: four terms of the asymptotic series are exact there. */
static inline double log_normal_cdf(double x) {
    if (x > 0.0)
        return log1p(-normal_cdf(-x));
    if (x > FAR_BELOW)
        return log(normal_cdf(x));
    double inverse = 1.0 / (x * x);
    double series = -inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)));
    return -0.5 * x * x - log(-x) - LOG_SQRT_TWO_PI + log1p(series);
}

#endif

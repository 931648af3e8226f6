/* Expected costs, and the value and cost of a trial; wattloop_planner.bandit.trial_value and cost_posterior document
 * the formulas. Matrices are square and stored by rows. */

#ifndef WATTLOOP_TRIAL_VALUE_H
#define WATTLOOP_TRIAL_VALUE_H

#include <stddef.h>

/* An exponent of a cost is at most this. */
#define MAX_LOG 60.0

/* Rows of the moments of a cost posterior. */
enum {
    VARIANCE,
    EPOCHS_VARIANCE,
    LOG_EXPECTED_UNLIMITED,
    LIMIT_DISTANCE,
    REACH_PROBABILITY,
    LOG_EXPECTED,
    MOMENTS
};

/* A cost posterior: log_cost and log_epochs have an item for each arm, moments a row of them for each moment. */
typedef struct {
    ptrdiff_t arms;
    const double *log_cost, *covariance, *log_epochs, *epochs_covariance;
    double noise_sd, log_limit;
} cost_posterior;

/* A quadrature rule: the nodes, then their weights. */
typedef struct {
    ptrdiff_t nodes;
    const double *rule;
} quadrature;

/* A run whose stopping cost is chosen; costs are in runs of the incumbent. */
typedef struct {
    double mean, spread, failing, horizon, paid, limit, max_stop, retry;
} trial;

/* A stopping cost, the expected remaining cost with it, and what a run that costs less than the incumbent's saves. */
typedef struct {
    double remaining, stop, improvement;
} stop_choice;

/* Fills the moments of a cost posterior; returns whether the limit of epochs has an effect. */
int expected_costs(const cost_posterior *cost, double *moments);

/* Log of the factor by which a limit changes the expected cost of reaching the target. */
double log_limit_factor(double log_epochs, double spread, double log_limit);

/* Expected saving of each later recurrence after a trial of an arm. `offered` has a flag for each arm; scratch has room
 * for four items of each arm. */
double knowledge_gain(const cost_posterior *cost, const double *moments, int is_limited, const char *offered,
                      ptrdiff_t incumbent, ptrdiff_t arm, double spread, quadrature rule, double *scratch);

/* The best of some stopping costs. */
stop_choice best_stop(const double *stops, ptrdiff_t count, const trial *run);

/* Value of the option to stop after the first epoch of a trial, whose log cost then turns out to be
 * `epoch_cost_sd` standard deviations from its mean. `trial.spread` is that of the epochs alone. */
double probe_option(const double *stops, ptrdiff_t count, const trial *run, double log_epoch_cost,
                    double epoch_cost_sd, quadrature rule);

#endif

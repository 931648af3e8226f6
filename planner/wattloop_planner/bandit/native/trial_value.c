#include "trial_value.h"

#include "normal.h"

#define MIN_VARIANCE 1e-12
/* A limit of epochs that is this many standard deviations above the epochs of every arm has no effect. */
#define DISTANT_LIMIT 6.0
#define MIN_POSITIVE 1e-300
#define MIN_PAID 1e-9
#define MIN_ALIVE 1e-9

static double capped_exp(double exponent) { return exp(fmin(exponent, MAX_LOG)); }

/* Log of the factor by which a limit reduces the epochs of one attempt, and the probability that it is exhausted. */
static double log_attempt_factor(double log_epochs, double spread, double log_limit, double *exhausted) {
    double distance = (log_limit - log_epochs) / spread;
    *exhausted = normal_cdf(-distance);
    double at_limit = capped_exp(log_limit - log_epochs - spread * spread / 2) * *exhausted;
    return log(fmax(normal_cdf(distance - spread) + at_limit, MIN_POSITIVE));
}

double log_limit_factor(double log_epochs, double spread, double log_limit) {
    double exhausted;
    double of_attempt = log_attempt_factor(log_epochs, spread, log_limit, &exhausted);
    return of_attempt - log_normal_cdf((log_limit - log_epochs) / spread);
}

int expected_costs(const cost_posterior *cost, double *moments) {
    ptrdiff_t arms = cost->arms;
    double noise = cost->noise_sd * cost->noise_sd, nearest = INFINITY;
    for (ptrdiff_t i = 0; i < arms; i++) {
        double variance = fmax(cost->covariance[i * arms + i], MIN_VARIANCE);
        double epochs_variance = fmax(cost->epochs_covariance[i * arms + i], MIN_VARIANCE);
        double distance = (cost->log_limit - cost->log_epochs[i]) / sqrt(epochs_variance + noise);
        moments[VARIANCE * arms + i] = variance;
        moments[EPOCHS_VARIANCE * arms + i] = epochs_variance;
        moments[LOG_EXPECTED_UNLIMITED * arms + i] = cost->log_cost[i] + (variance + noise) / 2;
        moments[LIMIT_DISTANCE * arms + i] = distance;
        moments[REACH_PROBABILITY * arms + i] = normal_cdf(distance);
        nearest = fmin(nearest, distance);
    }
    int is_limited = nearest < DISTANT_LIMIT;
    for (ptrdiff_t i = 0; i < arms; i++) {
        double spread = sqrt(moments[EPOCHS_VARIANCE * arms + i] + noise);
        double factor = is_limited ? log_limit_factor(cost->log_epochs[i], spread, cost->log_limit) : 0.0;
        moments[LOG_EXPECTED * arms + i] = moments[LOG_EXPECTED_UNLIMITED * arms + i] + factor;
    }
    return is_limited;
}

/* The least of the costs of the arms offered. */
static double least(const double *costs, const char *offered, ptrdiff_t arms) {
    double found = INFINITY;
    for (ptrdiff_t i = 0; i < arms; i++)
        if (offered[i] && costs[i] < found)
            found = costs[i];
    return found;
}

/* The saving if no limit of epochs applied; moves has room for an item of each arm. */
static double unlimited_gain(const double *unlimited, const double *moves, const char *offered, ptrdiff_t arms,
                             ptrdiff_t incumbent, quadrature rule, double *costs) {
    double gain = 0.0;
    for (ptrdiff_t node = 0; node < rule.nodes; node++) {
        for (ptrdiff_t i = 0; i < arms; i++) {
            double change = moves[i] * rule.rule[node] - moves[i] * moves[i] / 2;
            costs[i] = capped_exp(unlimited[i] - unlimited[incumbent] + change);
        }
        gain += (costs[incumbent] - least(costs, offered, arms)) * rule.rule[rule.nodes + node];
    }
    return gain;
}

double knowledge_gain(const cost_posterior *cost, const double *moments, int is_limited, const char *offered,
                      ptrdiff_t incumbent, ptrdiff_t arm, double spread, quadrature rule, double *scratch) {
    ptrdiff_t arms = cost->arms;
    const double *unlimited = moments + LOG_EXPECTED_UNLIMITED * arms, *distances = moments + LIMIT_DISTANCE * arms;
    double *moves = scratch, *costs = scratch + arms, *spreads = scratch + 2 * arms, *unknown = scratch + 3 * arms;
    for (ptrdiff_t i = 0; i < arms; i++)
        moves[i] = cost->covariance[i * arms + arm] / spread;
    double gain = unlimited_gain(unlimited, moves, offered, arms, incumbent, rule, costs);
    if (!is_limited)
        return gain;
    for (ptrdiff_t i = 0; i < arms; i++) {
        double move = cost->epochs_covariance[i * arms + arm] / spread;
        double left = fmax(moments[EPOCHS_VARIANCE * arms + i] - move * move, 0.0);
        spreads[i] = sqrt(left + cost->noise_sd * cost->noise_sd);
        unknown[i] = 0.0;
    }
    double seen = 0.0, unit = moments[LOG_EXPECTED * arms + incumbent];
    for (ptrdiff_t node = 0; node < rule.nodes; node++) {
        double z = rule.rule[node], weight = rule.rule[rule.nodes + node];
        for (ptrdiff_t i = 0; i < arms; i++) {
            double log_epochs = cost->log_epochs[i] + cost->epochs_covariance[i * arms + arm] / spread * z, exhausted;
            double factor = log_attempt_factor(log_epochs, spreads[i], cost->log_limit, &exhausted);
            double change = moves[i] * z - moves[i] * moves[i] / 2;
            /* The retry after an exhausted attempt costs one run of the incumbent. */
            costs[i] = capped_exp(unlimited[i] - unit + change + factor) + exhausted;
        }
        /* An exhausted trial does not show how far beyond the limit its epochs are. */
        if (distances[arm] < z)
            for (ptrdiff_t i = 0; i < arms; i++)
                unknown[i] += costs[i] * weight;
        else
            seen += (costs[incumbent] - least(costs, offered, arms)) * weight;
    }
    double limited = seen + unknown[incumbent] - least(unknown, offered, arms);
    /* The limit adds no value to a trial of an arm that it affects more than the incumbent. */
    return distances[arm] < distances[incumbent] ? fmin(limited, gain) : limited;
}

stop_choice best_stop(const double *stops, ptrdiff_t count, const trial *run) {
    double mean = run->mean, spread = run->spread, paid = run->paid;
    double at_limit = capped_exp(mean + spread * run->limit);
    double at_paid = (log(fmax(paid, MIN_PAID)) - mean) / spread;
    double expected = capped_exp(mean + spread * spread / 2);
    double alive = fmax(normal_cdf(-at_paid), MIN_ALIVE), mass_paid = normal_cdf(at_paid - spread);
    double never = run->failing / (run->failing + (1 - run->failing) * alive);
    double at_one = fmin(-mean / spread, run->limit);
    double improvement = normal_cdf(at_one) - expected * normal_cdf(at_one - spread);
    double lowest = INFINITY;
    stop_choice best = {NAN, NAN, improvement};
    for (ptrdiff_t k = 0; k < count; k++) {
        double nominal = fmax(fmin(stops[k], run->max_stop), paid);
        double stop = fmax(fmin(nominal, at_limit), paid);
        double at_stop = (log(stop) - mean) / spread;
        double mass_below = normal_cdf(at_stop - spread);
        double below = expected * (mass_below - mass_paid) / alive;
        double above = fmin(normal_cdf(-at_stop) / alive, 1.0);
        double taken = (1 - never) * (below + stop * above) + never * stop - paid;
        double stopped = (1 - never) * above + never;
        double gained = normal_cdf(at_stop) - expected * mass_below;
        double lost = at_stop < at_one ? fmax(improvement - gained, 0.0) : 0.0;
        double remaining = taken + run->retry * stopped;
        if (k == 0 || remaining + run->horizon * lost < lowest) {
            lowest = remaining + run->horizon * lost;
            best = (stop_choice){remaining, nominal, improvement};
        }
    }
    return best;
}

double probe_option(const double *stops, ptrdiff_t count, const trial *run, double log_epoch_cost,
                    double epoch_cost_sd, quadrature rule) {
    double value = 0.0;
    for (ptrdiff_t node = 0; node < rule.nodes; node++) {
        double shift = epoch_cost_sd * rule.rule[node];
        trial shown = *run;
        shown.mean = run->mean + shift;
        stop_choice best = best_stop(stops, count, &shown);
        double net = run->horizon * best.improvement - (best.remaining - 1);
        double first_epoch = capped_exp(log_epoch_cost + shift) + (run->retry - 1);
        value += (fmax(net, -first_epoch) - net) * rule.rule[rule.nodes + node];
    }
    return value;
}

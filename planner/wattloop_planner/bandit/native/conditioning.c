#include "conditioning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Replaces the lower triangle of a matrix by that of its Cholesky factor; returns whether it is positive definite. */
static int factorise(double *matrix, ptrdiff_t size) {
    for (ptrdiff_t i = 0; i < size; i++)
        for (ptrdiff_t j = 0; j <= i; j++) {
            double left = matrix[i * size + j];
            for (ptrdiff_t k = 0; k < j; k++)
                left -= matrix[i * size + k] * matrix[j * size + k];
            if (i == j && !(left > 0.0))
                return 0;
            matrix[i * size + j] = i == j ? sqrt(left) : left / matrix[j * size + j];
        }
    return 1;
}

/* Solves L·X = B in place for the lower triangular factor L; B has `columns` columns. */
static void substitute(const double *factor, ptrdiff_t size, double *right, ptrdiff_t columns) {
    for (ptrdiff_t i = 0; i < size; i++) {
        double *row = right + i * columns;
        for (ptrdiff_t k = 0; k < i; k++) {
            double share = factor[i * size + k];
            const double *above = right + k * columns;
            for (ptrdiff_t j = 0; j < columns; j++)
                row[j] -= share * above[j];
        }
        for (ptrdiff_t j = 0; j < columns; j++)
            row[j] /= factor[i * size + i];
    }
}

/* Adds weight times the outer product of a vector with itself to a matrix. */
static void add_outer(double *matrix, const double *vector, ptrdiff_t size, double weight) {
    for (ptrdiff_t i = 0; i < size; i++)
        for (ptrdiff_t j = 0; j < size; j++)
            matrix[i * size + j] += weight * vector[i] * vector[j];
}

/* The mean of the components' means, and their spread added to the covariance. Replaces log weights by weights. */
static void mix(double *means, double *log_weights, ptrdiff_t components, ptrdiff_t arms, double *mean,
                double *covariance) {
    double largest = log_weights[0], total = 0.0;
    for (ptrdiff_t c = 1; c < components; c++)
        largest = fmax(largest, log_weights[c]);
    for (ptrdiff_t c = 0; c < components; c++)
        total += log_weights[c] = exp(log_weights[c] - largest);
    memset(mean, 0, (size_t)arms * sizeof *mean);
    for (ptrdiff_t c = 0; c < components; c++) {
        log_weights[c] /= total;
        for (ptrdiff_t i = 0; i < arms; i++)
            mean[i] += log_weights[c] * means[c * arms + i];
    }
    for (ptrdiff_t c = 0; c < components; c++) {
        for (ptrdiff_t i = 0; i < arms; i++)
            means[c * arms + i] -= mean[i];
        add_outer(covariance, means + c * arms, arms, log_weights[c]);
    }
}

/* Conditions all components. `inner` has room for arms², `cross` for arms², `residuals` for arms·components items. */
static int condition_all(const mixture *prior, double *means, double *log_weights, double *covariance, double *inner,
                         double *cross, double *residuals) {
    ptrdiff_t arms = prior->arms, components = prior->components, observed = 0;
    for (ptrdiff_t i = 0; i < arms; i++)
        if (prior->precisions[i] != 0.0) {
            memcpy(cross + observed * arms, prior->covariance + i * arms, (size_t)arms * sizeof *cross);
            for (ptrdiff_t c = 0; c < components; c++)
                residuals[observed * components + c] = prior->values[i] - prior->means[c * arms + i];
            observed++;
        }
    for (ptrdiff_t i = 0, row = 0; i < arms; i++)
        if (prior->precisions[i] != 0.0) {
            for (ptrdiff_t j = 0, column = 0; column < observed; j++)
                if (prior->precisions[j] != 0.0)
                    inner[row * observed + column++] = cross[row * arms + j];
            inner[row * observed + row] += 1 / prior->precisions[i];
            row++;
        }
    if (!factorise(inner, observed))
        return 0;
    substitute(inner, observed, cross, arms);
    substitute(inner, observed, residuals, components);
    for (ptrdiff_t k = 0; k < observed; k++) {
        add_outer(covariance, cross + k * arms, arms, -1.0);
        for (ptrdiff_t c = 0; c < components; c++) {
            double residual = residuals[k * components + c];
            log_weights[c] -= residual * residual / 2;
            for (ptrdiff_t i = 0; i < arms; i++)
                means[c * arms + i] += residual * cross[k * arms + i];
        }
    }
    return 1;
}

conditioning condition_mixture(const mixture *prior, double *mean, double *covariance) {
    size_t arms = (size_t)prior->arms, components = (size_t)prior->components;
    double *room = calloc(2 * arms * arms + (2 * arms + 1) * components, sizeof *room);
    if (room == NULL)
        return NO_MEMORY;
    double *inner = room, *cross = inner + arms * arms, *residuals = cross + arms * arms;
    double *means = residuals + arms * components, *log_weights = means + arms * components;
    memcpy(means, prior->means, arms * components * sizeof *means);
    memcpy(covariance, prior->covariance, arms * arms * sizeof *covariance);
    int solved = condition_all(prior, means, log_weights, covariance, inner, cross, residuals);
    if (solved && components == 1)
        memcpy(mean, means, arms * sizeof *mean);
    else if (solved)
        mix(means, log_weights, prior->components, prior->arms, mean, covariance);
    free(room);
    return solved ? CONDITIONED : NOT_POSITIVE_DEFINITE;
}

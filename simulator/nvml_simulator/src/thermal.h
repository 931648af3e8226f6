/* Temperature of a GPU and its effect on power; without a thermal model a GPU draws what the power curve says.
 *
 * The temperature T follows the power P like a body with one thermal resistance R and one time constant:
 *     dT/dt = (ambient + R · P − T) / time constant
 * Leakage adds leakage · (T − reference) to the power curve, which holds at the reference temperature. Integer
 * arithmetic, as in power.h.
 */
#ifndef THERMAL_H
#define THERMAL_H

#include "layout.h"

#define NANOKELVIN_PER_MILLIKELVIN 1000000LL
#define THERMAL_REFERENCE_MC 50000
#define THERMAL_SLICE_NS 100000000ULL /* longest interval in which a changing temperature counts as constant */

bool thermal_is_modelled(const struct gpu *gpu);

/* Power in addition to the power curve at the current temperature; negative below the reference temperature. */
int32_t thermal_leakage_mw(const struct gpu *gpu);

/* `power_mw` of the power curve with the leakage; at least a watt. */
uint32_t thermal_power_mw(const struct gpu *gpu, uint32_t power_mw);

/* Longest interval in which the power counts as constant. */
uint64_t thermal_stretch_ns(const struct gpu *gpu, uint32_t power_mw);

/* Changes the temperature as by an interval of constant power. */
void thermal_pass(struct gpu *gpu, uint32_t power_mw, uint64_t duration_ns);

#endif

#include "functions.h"

#include <stddef.h>
#include <string.h>

#define FUNCTION_TEXT(name) #name,
static const char *const NAMES[] = {NVML_FUNCTIONS(FUNCTION_TEXT)};

const char *function_name(unsigned function) { return function < FUNCTION_COUNT ? NAMES[function] : NULL; }

unsigned function_by_name(const char *name) {
    unsigned function = 0;
    while (function < FUNCTION_COUNT && strcmp(NAMES[function], name) != 0) {
        function++;
    }
    return function;
}

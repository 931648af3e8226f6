#include "network.h"

static int64_t step_residual(const network *net, int32_t step) {
    const activity *a = &net->activities[STEP_ACTIVITY(step)];
    if (!STEP_IS_BACKWARD(step))
        return a->corner > a->fastest ? a->room : UNLIMITED;
    return a->filled > 0 ? a->filled : net->capacities[a->corner + 1];
}

static void go_to_corner(network *net, activity *a, int32_t corner, int64_t filled) {
    a->corner = corner;
    a->filled = filled;
    a->room = net->capacities[corner] - filled;
}

/* Returns whether the step is saturated afterwards. */
static int push_flow(network *net, int32_t step, int64_t amount) {
    int32_t index = STEP_ACTIVITY(step);
    activity *a = &net->activities[index];
    int was_empty = a->filled == 0, saturated;
    if (STEP_IS_BACKWARD(step)) {
        if (was_empty)
            go_to_corner(net, a, a->corner + 1, net->capacities[a->corner + 1]);
        a->filled -= amount;
        a->room += amount;
        saturated = a->filled == 0;
    } else {
        a->filled += amount;
        saturated = a->corner > a->fastest && (a->room -= amount) == 0;
        if (saturated)
            go_to_corner(net, a, a->corner - 1, 0);
    }
    if (was_empty || saturated)
        refresh_links(net, index);
    return saturated;
}

static int64_t path_residual(const network *net, int32_t length) {
    int64_t minimum = UNLIMITED;
    for (int32_t i = 0; i < length; i++) {
        int64_t residual = step_residual(net, net->path[i]);
        if (residual < minimum)
            minimum = residual;
    }
    return minimum;
}

/* The first and the last saturated step of a path. */
typedef struct {
    int32_t first, last;
} saturated_steps;

static saturated_steps push_along_path(network *net, int32_t length, int64_t amount) {
    saturated_steps saturated = {length, 0};
    for (int32_t i = 0; i < length; i++)
        if (push_flow(net, net->path[i], amount)) {
            if (i < saturated.first)
                saturated.first = i;
            saturated.last = i;
        }
    return saturated;
}

int64_t augment_found_path(network *net, direction *next) {
    direction from = net->searched;
    int32_t length = 0;
    for (int32_t node = net->ends[1 - from]; node != net->ends[from];) {
        arrival came = net->arrivals[node];
        int32_t along = net->places[came.step], against = net->places[OPPOSITE(came.step)];
        net->onward[from][came.from] = (onward_link){node, from == FROM_SOURCE ? along : against};
        net->onward[1 - from][node] = (onward_link){came.from, from == FROM_SOURCE ? against : along};
        net->path[length++] = came.step;
        node = came.from;
    }
    int64_t pushed = path_residual(net, length);
    if (pushed >= UNLIMITED)
        return UNLIMITED;
    saturated_steps saturated = push_along_path(net, length, pushed);
    /* The next search will end near the saturated steps. The path is listed towards the start of the last search. */
    int near_start = length - saturated.last < saturated.first;
    *next = near_start ? from : (direction)(1 - from);
    return pushed;
}

int64_t augment_depth_first(network *net, int32_t limit) {
    const flow_link *links = net->links[FROM_SOURCE];
    int64_t total = 0;
    int32_t length = 0, source = net->ends[FROM_SOURCE], sink = net->ends[FROM_SINK], node = source;
    net->stamp++;
    net->events[node].mark = net->stamp;
    net->positions[node] = net->events[node].first_link;
    for (;;) {
        int32_t end = net->events[node + 1].first_link, at = net->positions[node];
        int64_t potential = net->events[node].potential;
        for (; at < end; at++) {
            const event *next = &net->events[links[at].node];
            if (next->mark != net->stamp && link_slack(&links[at], FROM_SOURCE, potential, next->potential) == 0)
                break;
        }
        net->positions[node] = at;
        if (at == end) {
            if (length == 0)
                return total;
            node = step_origin(net, net->path[--length]);
            net->positions[node]++;
            continue;
        }
        net->path[length++] = links[at].step;
        node = links[at].node;
        if (node != sink) {
            net->events[node].mark = net->stamp;
            net->positions[node] = net->events[node].first_link;
            continue;
        }
        int64_t pushed = path_residual(net, length);
        if (pushed >= UNLIMITED)
            return UNLIMITED;
        int32_t cut = push_along_path(net, length, pushed).first;
        total += pushed;
        if (--limit == 0)
            return total;
        for (int32_t i = cut + 1; i < length; i++)
            net->events[step_origin(net, net->path[i])].mark = 0;
        length = cut;
        node = step_origin(net, net->path[length]);
    }
}

int64_t augment_breadth_first(network *net) {
    const flow_link *links = net->links[FROM_SOURCE];
    int32_t source = net->ends[FROM_SOURCE], sink = net->ends[FROM_SINK];
    int64_t total = 0;
    for (;;) {
        net->stamp++;
        net->reached_count = 0;
        reach(net, source, source, -1, 0);
        for (int32_t i = 0; i < net->reached_count && net->events[sink].mark != net->stamp; i++) {
            int32_t node = net->reached[i];
            for (int32_t at = net->events[node].first_link; at < net->events[node + 1].first_link; at++) {
                const event *next = &net->events[links[at].node];
                if (next->mark != net->stamp &&
                    link_slack(&links[at], FROM_SOURCE, net->events[node].potential, next->potential) == 0)
                    reach(net, links[at].node, node, links[at].step, 0);
            }
        }
        if (net->events[sink].mark != net->stamp)
            return total;
        int32_t length = 0;
        for (int32_t node = sink; node != source; node = net->arrivals[node].from)
            net->path[length++] = net->arrivals[node].step;
        int64_t pushed = path_residual(net, length);
        if (pushed >= UNLIMITED)
            return UNLIMITED;
        push_along_path(net, length, pushed);
        total += pushed;
    }
}

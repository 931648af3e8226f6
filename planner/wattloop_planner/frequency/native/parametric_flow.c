#include "network.h"

static void reach(network *net, int32_t node, int32_t arrival, int64_t distance) {
    net->marks[node] = net->stamp;
    net->arrivals[node] = arrival;
    net->distances[node] = distance;
    net->reached[net->reached_count++] = node;
}

/* ---- the heap of the boundary ---- */

static void sift_up(network *net, int32_t at) {
    int64_t distance = net->boundary_distances[at];
    int32_t step = net->boundary_steps[at];
    while (at > 0 && net->boundary_distances[(at - 1) / 2] > distance) {
        int32_t parent = (at - 1) / 2;
        net->boundary_distances[at] = net->boundary_distances[parent];
        net->boundary_steps[at] = net->boundary_steps[parent];
        at = parent;
    }
    net->boundary_distances[at] = distance;
    net->boundary_steps[at] = step;
}

static void sift_down(network *net, int32_t at) {
    int64_t distance = net->boundary_distances[at];
    int32_t step = net->boundary_steps[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= net->boundary_count)
            break;
        if (child + 1 < net->boundary_count && net->boundary_distances[child + 1] < net->boundary_distances[child])
            child++;
        if (net->boundary_distances[child] >= distance)
            break;
        net->boundary_distances[at] = net->boundary_distances[child];
        net->boundary_steps[at] = net->boundary_steps[child];
        at = child;
    }
    net->boundary_distances[at] = distance;
    net->boundary_steps[at] = step;
}

static void boundary_append(network *net, int32_t step, int64_t distance) {
    net->boundary_steps[net->boundary_count] = step;
    net->boundary_distances[net->boundary_count++] = distance;
}

static int32_t boundary_pop(network *net, int64_t *distance) {
    int32_t step = net->boundary_steps[0];
    *distance = net->boundary_distances[0];
    net->boundary_count--;
    if (net->boundary_count > 0) {
        net->boundary_steps[0] = net->boundary_steps[net->boundary_count];
        net->boundary_distances[0] = net->boundary_distances[net->boundary_count];
        sift_down(net, 0);
    }
    return step;
}

/* Leave out the steps whose target was reached after all, and make the rest a heap. */
static void boundary_order(network *net) {
    int32_t kept = 0;
    for (int32_t at = 0; at < net->boundary_count; at++) {
        int32_t step = net->boundary_steps[at];
        if (net->marks[step_target(net, step)] == net->stamp)
            continue;
        net->boundary_steps[kept] = step;
        net->boundary_distances[kept++] = net->boundary_distances[at];
    }
    net->boundary_count = kept;
    for (int32_t at = kept / 2 - 1; at >= 0; at--)
        sift_down(net, at);
}

/* ---- flow along tight steps: time stays ---- */

/* Push as much as the path carries. Returns the first saturated place on it. */
static int32_t push_along_path(network *net, int32_t path_length, int64_t *pushed) {
    int64_t amount = UNLIMITED;
    for (int32_t i = 0; i < path_length; i++) {
        int64_t residual = step_residual(net, net->path[i]);
        if (residual < amount)
            amount = residual;
    }
    *pushed = amount;
    if (amount >= UNLIMITED)
        return 0;
    int32_t cut = path_length;
    for (int32_t i = 0; i < path_length; i++)
        if (push_flow(net, net->path[i], amount) && i < cut)
            cut = i;
    return cut;
}

/* Search depth first from the source along tight steps; augment at the sink and go on from the first saturated step, at
 * most `limit` times. Depth first because its long paths level the flow of many microbatches at once. Returns the flow
 * pushed, UNLIMITED when a path has no bound. When nothing is pushed, the reached nodes and their boundary are complete. */
static int64_t augment_depth_first(network *net, int32_t limit) {
    int64_t total = 0;
    int32_t path_length = 0, node = net->source;
    net->stamp++;
    net->reached_count = 0;
    net->boundary_count = 0;
    reach(net, node, -1, 0);
    net->positions[node] = net->first_steps[node];
    for (;;) {
        int32_t end = net->first_steps[node + 1], at = net->positions[node], step = -1;
        int64_t potential = net->potentials[node];
        for (; at < end; at++) {
            if (net->marks[net->targets[at]] == net->stamp)
                continue;
            step = net->steps[at];
            int64_t slack = step_slack(net, step, potential, net->targets[at]);
            if (slack == 0)
                break;
            if (total == 0 && slack > 0)
                boundary_append(net, step, slack);
        }
        net->positions[node] = at;
        if (at == end) {
            if (path_length == 0)
                return total;
            node = step_origin(net, net->path[--path_length]);
            net->positions[node]++;
            continue;
        }
        net->path[path_length++] = step;
        node = step_target(net, step);
        if (node != net->sink) {
            net->marks[node] = net->stamp;
            net->positions[node] = net->first_steps[node];
            if (total == 0)
                reach(net, node, step, 0);
            continue;
        }
        int64_t pushed;
        int32_t cut = push_along_path(net, path_length, &pushed);
        if (pushed >= UNLIMITED)
            return UNLIMITED;
        total += pushed;
        if (--limit == 0)
            return total;
        for (int32_t i = cut; i < path_length - 1; i++)
            net->marks[step_target(net, net->path[i])] = 0;
        node = step_origin(net, net->path[cut]);
        path_length = cut;
    }
}

/* Augment along shortest tight paths (Edmonds and Karp) until none is left: polynomial whatever the capacities are. */
static int64_t augment_breadth_first(network *net) {
    int64_t total = 0;
    for (;;) {
        net->stamp++;
        net->reached_count = 0;
        reach(net, net->source, -1, 0);
        for (int32_t i = 0; i < net->reached_count && net->marks[net->sink] != net->stamp; i++) {
            int32_t node = net->reached[i];
            for (int32_t at = net->first_steps[node]; at < net->first_steps[node + 1]; at++) {
                int32_t step = net->steps[at], target = net->targets[at];
                if (net->marks[target] != net->stamp && step_slack(net, step, net->potentials[node], target) == 0)
                    reach(net, target, step, 0);
            }
        }
        if (net->marks[net->sink] != net->stamp)
            return total;
        int32_t path_length = 0;
        for (int32_t node = net->sink; node != net->source; node = step_origin(net, net->arrivals[node]))
            net->path[path_length++] = net->arrivals[node];
        int64_t pushed;
        push_along_path(net, path_length, &pushed);
        if (pushed >= UNLIMITED)
            return UNLIMITED;
        total += pushed;
    }
}

/* Push along the path on which the last search reached the sink: it is tight now, and mostly the only one. Returns 0 when
 * it has no bound. */
static int augment_found_path(network *net) {
    if (net->time == net->previous_time)
        return 1;
    int32_t path_length = 0;
    for (int32_t node = net->sink; node != net->source; node = step_origin(net, net->arrivals[node]))
        net->path[path_length++] = net->arrivals[node];
    int64_t pushed;
    push_along_path(net, path_length, &pushed);
    if (pushed >= UNLIMITED)
        return 0;
    net->flow += pushed;
    return 1;
}

/* Fill the tight network. Returns 0 when a path without a bound is tight: no schedule is faster. Afterwards the nodes
 * reached are the source's side of the minimum cut. */
static int maximise_flow(network *net) {
    if (!augment_found_path(net))
        return 0;
    for (;;) {
        int64_t pushed = augment_depth_first(net, net->nodes);
        if (pushed == 0)
            return 1;
        if (pushed >= UNLIMITED)
            return 0;
        net->flow += pushed;
        pushed = augment_breadth_first(net);
        if (pushed >= UNLIMITED)
            return 0;
        net->flow += pushed;
    }
}

/* ---- the next time at which a path becomes tight ---- */

/* Carry the search of the reached nodes on by distance (Dijkstra) until the sink is reached; tight steps first, depth
 * first. Returns the sink's distance, NO_LENGTH when it cannot be reached. */
static int64_t search_beyond(network *net) {
    int64_t distance = 0;
    int32_t waiting = 0;
    boundary_order(net);
    for (;;) {
        int32_t node;
        if (waiting > 0) {
            node = net->stack[--waiting];
        } else {
            if (net->boundary_count == 0)
                return NO_LENGTH;
            int32_t step = boundary_pop(net, &distance);
            node = step_target(net, step);
            if (net->marks[node] == net->stamp)
                continue;
            reach(net, node, step, distance);
        }
        if (node == net->sink)
            return distance;
        for (int32_t at = net->first_steps[node + 1] - 1; at >= net->first_steps[node]; at--) {
            int32_t target = net->targets[at];
            if (net->marks[target] == net->stamp)
                continue;
            int32_t step = net->steps[at];
            int64_t slack = step_slack(net, step, net->potentials[node], target);
            if (slack == 0) {
                reach(net, target, step, distance);
                if (target == net->sink)
                    return distance;
                net->stack[waiting++] = target;
            } else if (slack > 0) {
                boundary_append(net, step, distance + slack);
                sift_up(net, net->boundary_count - 1);
            }
        }
    }
}

network_state network_advance(network *net) {
    int64_t fall = net->finished || !maximise_flow(net) ? NO_LENGTH : search_beyond(net);
    if (fall == NO_LENGTH) {
        net->finished = 1;
        net->previous_time = net->time;
        return FINISHED;
    }
    /* Raising the source's side is the same as lowering the sink's, and touches only what the search has seen. */
    for (int32_t i = 0; i < net->reached_count; i++) {
        int32_t node = net->reached[i];
        net->potentials[node] += fall - net->distances[node];
    }
    net->previous_time = net->time;
    net->time -= fall;
    return ADVANCED;
}

int64_t network_time(const network *net) { return net->time; }
int64_t network_previous_time(const network *net) { return net->previous_time; }
int64_t network_flow(const network *net) { return net->flow; }
int32_t network_activities(const network *net) { return net->activity_count; }

/* How far the last advance raised a node, up to this time of it. */
static int64_t raised(const network *net, int32_t node, int64_t fall) {
    if (net->time == net->previous_time || net->marks[node] != net->stamp)
        return 0;
    return fall > net->distances[node] ? fall - net->distances[node] : 0;
}

static int64_t potential_at(const network *net, int32_t node, int64_t fall) {
    int64_t whole_fall = net->previous_time - net->time;
    return net->potentials[node] - raised(net, node, whole_fall) + raised(net, node, fall);
}

void network_durations(const network *net, int64_t time, double unit, int32_t count, double *durations) {
    int64_t fall = net->previous_time - time;
    for (int32_t i = 0; i < count; i++) {
        const activity *a = &net->activities[i];
        int64_t span = potential_at(net, a->head, fall) - potential_at(net, a->tail, fall);
        int64_t slowest = net->lengths[a->slowest];
        durations[i] = (double)(span < slowest ? span : slowest) * unit;
    }
}

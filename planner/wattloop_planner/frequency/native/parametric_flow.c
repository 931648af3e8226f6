#include "network.h"

#include <math.h>

/* Maximise the flow along tight steps. Returns 0 if an unbounded path is tight: no schedule is faster. Afterwards the last
 * search has reached one side of a minimum cut. */
static int maximise_flow(network *net) {
    direction nearer = FROM_SOURCE;
    /* The last advance made the path of its search tight; usually it is the only one. */
    int64_t pushed = net->time < net->previous_time ? augment_found_path(net, &nearer) : 0;
    /* If other paths were tight at the last breakpoint, stages are balanced. All are then searched first, from the source:
     * paths through the same operations first balance the flow of the microbatches, and fewer are needed. */
    int balanced = net->balanced;
    net->balanced = 0;
    for (int searched = !balanced; pushed < UNLIMITED; searched = 1) {
        net->flow += pushed;
        if (searched && !search_tight(net, balanced ? FROM_SOURCE : nearer))
            return 1;
        pushed = augment_depth_first(net, net->nodes);
        if (pushed == 0 || pushed >= UNLIMITED)
            continue;
        net->balanced = 1;
        net->flow += pushed;
        pushed = augment_breadth_first(net);
    }
    return 0;
}

static int advance(network *net) {
    int64_t fall = net->finished || !maximise_flow(net) ? NO_LENGTH : search_beyond(net);
    net->previous_time = net->time;
    net->finished = fall == NO_LENGTH;
    if (net->finished)
        return 0;
    /* Raising the source's side and lowering the sink's side are equivalent. Only reached nodes, in order of distance,
     * change. */
    int64_t sign = net->searched == FROM_SOURCE ? 1 : -1;
    for (int32_t i = 0; i < net->reached_count && net->distances[net->reached[i]] < fall; i++) {
        int32_t node = net->reached[i];
        net->events[node].potential += sign * (fall - net->distances[node]);
    }
    net->piece_flow = net->flow;
    net->time -= fall;
    net->rise += (__int128)net->flow * fall;
    net->spread += sqrt((double)net->flow) * (double)fall;
    return 1;
}

int32_t network_advance(network *net, int32_t max_count, double until, int64_t *times, double *rises) {
    int32_t passed = 0;
    while (passed < max_count && (passed == 0 || net->spread < until) && advance(net)) {
        times[passed] = net->time;
        rises[passed++] = (double)net->rise;
    }
    return passed;
}

int64_t network_time(const network *net) { return net->time; }
int64_t network_previous_time(const network *net) { return net->previous_time; }
int64_t network_flow(const network *net) { return net->piece_flow; }
double network_spread(const network *net) { return net->spread; }
int network_finished(const network *net) { return net->finished; }
int32_t network_activities(const network *net) { return net->activity_count; }

/* The change of a node's potential in the last advance, up to this fall of the time. */
static int64_t moved(const network *net, int32_t node, int64_t fall) {
    if (net->time == net->previous_time || net->events[node].mark != net->stamp || fall <= net->distances[node])
        return 0;
    return net->searched == FROM_SOURCE ? fall - net->distances[node] : net->distances[node] - fall;
}

static int64_t potential_at(const network *net, int32_t node, int64_t fall) {
    int64_t total_fall = net->previous_time - net->time;
    return net->events[node].potential - moved(net, node, total_fall) + moved(net, node, fall);
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

#include "network.h"

#include <stdlib.h>
#include <string.h>

static const char *check(const network_input *in) {
    if (in->nodes < 2 || in->source < 0 || in->source >= in->nodes || in->sink < 0 || in->sink >= in->nodes ||
        in->source == in->sink)
        return "source and sink must be two of the nodes";
    if (in->first_points[0] != 0)
        return "the first activity's corners must start at 0";
    for (int32_t i = 0; i < in->activities; i++) {
        int32_t first = in->first_points[i], end = in->first_points[i + 1];
        if (in->tails[i] < 0 || in->tails[i] >= in->nodes || in->heads[i] < 0 || in->heads[i] >= in->nodes)
            return "an activity's node is out of range";
        if (first >= end)
            return "every activity needs a corner";
        for (int32_t k = first; k < end; k++) {
            if (in->lengths[k] < 0 || (k > first && in->lengths[k] <= in->lengths[k - 1]))
                return "an activity's lengths must rise from at least 0";
            if (in->capacities[k] <= 0 || in->capacities[k] > UNLIMITED)
                return "capacities must be above 0 and at most unlimited";
        }
    }
    return NULL;
}

static void *copied(const void *source, size_t size) {
    void *target = malloc(size > 0 ? size : 1);
    if (target != NULL && size > 0)
        memcpy(target, source, size);
    return target;
}

static int allocate(network *net, const network_input *in) {
    size_t nodes = (size_t)in->nodes, count = (size_t)in->activities, corners = (size_t)in->first_points[count];
    net->activities = calloc(count + 1, sizeof(activity));
    net->lengths = copied(in->lengths, corners * sizeof(int64_t));
    net->capacities = copied(in->capacities, corners * sizeof(int64_t));
    net->events = calloc(nodes + 2, sizeof(event));
    net->places = malloc((2 * count + 1) * sizeof(int32_t));
    net->reached = malloc(nodes * sizeof(int32_t));
    net->arrivals = malloc(nodes * sizeof(arrival));
    net->positions = malloc(nodes * sizeof(int32_t));
    net->path = malloc(nodes * sizeof(int32_t));
    net->stack = malloc(nodes * sizeof(int32_t));
    net->distances = calloc(nodes, sizeof(int64_t));
    /* A search examines each step at most once before and once after it continues beyond tight steps. */
    net->boundary = malloc((4 * count + 1) * sizeof(exit_step));
    int complete = net->activities && net->lengths && net->capacities && net->events && net->places && net->reached &&
                net->arrivals && net->positions && net->path && net->stack && net->distances && net->boundary;
    for (int from = 0; from < DIRECTIONS; from++) {
        net->links[from] = malloc((2 * count + 1) * sizeof(flow_link));
        net->onward[from] = malloc(nodes * sizeof(onward_link));
        complete = complete && net->links[from] && net->onward[from];
    }
    return complete;
}

void refresh_links(network *net, int32_t index) {
    const activity *a = &net->activities[index];
    int32_t along = 2 * index, against = 2 * index + 1;
    int64_t length = net->lengths[a->corner], longest = UNLIMITED;
    if (a->filled > 0)
        longest = length;
    else if (a->corner < a->slowest)
        longest = net->lengths[a->corner + 1];
    /* In a search from the sink, a step is among the links of the node it leads to, at the place of the opposite step. */
    net->links[FROM_SOURCE][net->places[along]].need = net->links[FROM_SINK][net->places[against]].need = length;
    net->links[FROM_SOURCE][net->places[against]].need = net->links[FROM_SINK][net->places[along]].need = -longest;
}

/* Forward steps come before backward steps: a depth-first search then goes towards the sink, which halves the searches on
 * the profiles of benchmarks/README.md. */
static void link_steps(network *net) {
    int32_t *next = net->positions;
    for (int32_t i = 0; i < net->activity_count; i++) {
        net->events[net->activities[i].tail + 1].first_link++;
        net->events[net->activities[i].head + 1].first_link++;
    }
    for (int32_t node = 0; node < net->nodes; node++) {
        net->events[node + 1].first_link += net->events[node].first_link;
        next[node] = net->events[node].first_link;
    }
    for (int against = 0; against < 2; against++)
        for (int32_t i = 0; i < net->activity_count; i++) {
            int32_t step = 2 * i + against, place = next[step_origin(net, step)]++;
            net->places[step] = place;
            net->links[FROM_SOURCE][place] = (flow_link){0, step_origin(net, OPPOSITE(step)), step};
            net->links[FROM_SINK][place] = (flow_link){0, step_origin(net, OPPOSITE(step)), OPPOSITE(step)};
        }
    for (int32_t i = 0; i < net->activity_count; i++)
        refresh_links(net, i);
}

/* Longest paths at the slowest corners, in topological order (Kahn). Returns 0 on a cycle. */
static int schedule_slowest(network *net) {
    int32_t *missing = net->positions, *order = net->reached, done = 0, ready = 0;
    memset(missing, 0, (size_t)net->nodes * sizeof(int32_t));
    for (int32_t i = 0; i < net->activity_count; i++)
        missing[net->activities[i].head]++;
    for (int32_t node = 0; node < net->nodes; node++)
        if (missing[node] == 0)
            order[ready++] = node;
    for (; done < ready; done++) {
        int32_t node = order[done];
        for (int32_t at = net->events[node].first_link; at < net->events[node + 1].first_link; at++) {
            const flow_link *l = &net->links[FROM_SOURCE][at];
            if (STEP_IS_BACKWARD(l->step))
                continue;
            int64_t finish = net->events[node].potential + l->need;
            if (finish > net->events[l->node].potential)
                net->events[l->node].potential = finish;
            if (--missing[l->node] == 0)
                order[ready++] = l->node;
        }
    }
    return done == net->nodes;
}

network *network_create(const network_input *in, const char **problem) {
    *problem = check(in);
    if (*problem != NULL)
        return NULL;
    network *net = calloc(1, sizeof(network));
    if (net == NULL)
        return NULL;
    if (!allocate(net, in)) {
        network_free(net);
        return NULL;
    }
    net->nodes = in->nodes;
    net->activity_count = in->activities;
    net->ends[FROM_SOURCE] = in->source;
    net->ends[FROM_SINK] = in->sink;
    for (int32_t node = 0; node < in->nodes; node++)
        net->onward[FROM_SOURCE][node] = net->onward[FROM_SINK][node] = (onward_link){node, NO_PLACE};
    for (int32_t i = 0; i < in->activities; i++) {
        int32_t slowest = in->first_points[i + 1] - 1;
        net->activities[i] = (activity){
            .room = in->capacities[slowest],
            .corner = slowest,
            .fastest = in->first_points[i],
            .slowest = slowest,
            .tail = in->tails[i],
            .head = in->heads[i],
        };
    }
    link_steps(net);
    if (!schedule_slowest(net)) {
        *problem = "the network has a cycle";
        network_free(net);
        return NULL;
    }
    net->time = net->previous_time = net->events[in->sink].potential - net->events[in->source].potential;
    return net;
}

void network_free(network *net) {
    if (net == NULL)
        return;
    void *parts[] = {net->activities,         net->lengths,           net->capacities,          net->events,
                     net->places,             net->reached,           net->arrivals,            net->positions,
                     net->path,               net->stack,             net->distances,           net->boundary,
                     net->links[FROM_SOURCE], net->links[FROM_SINK],  net->onward[FROM_SOURCE], net->onward[FROM_SINK]};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
    free(net);
}

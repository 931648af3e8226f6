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
    net->activities = malloc((count + 1) * sizeof(activity));
    net->lengths = copied(in->lengths, corners * sizeof(int64_t));
    net->capacities = copied(in->capacities, corners * sizeof(int64_t));
    net->first_steps = calloc(nodes + 2, sizeof(int32_t));
    net->steps = malloc((2 * count + 1) * sizeof(int32_t));
    net->targets = malloc((2 * count + 1) * sizeof(int32_t));
    net->potentials = calloc(nodes, sizeof(int64_t));
    net->marks = calloc(nodes, sizeof(int32_t));
    net->reached = malloc(nodes * sizeof(int32_t));
    net->arrivals = malloc(nodes * sizeof(int32_t));
    net->positions = malloc(nodes * sizeof(int32_t));
    net->path = malloc(nodes * sizeof(int32_t));
    net->stack = malloc(nodes * sizeof(int32_t));
    net->distances = calloc(nodes, sizeof(int64_t));
    /* A search looks at each step at most once before it goes beyond, and at most once after. */
    net->boundary_steps = malloc((4 * count + 1) * sizeof(int32_t));
    net->boundary_distances = malloc((4 * count + 1) * sizeof(int64_t));
    return net->activities && net->lengths && net->capacities && net->first_steps && net->steps && net->targets && net->potentials &&
           net->marks && net->reached && net->arrivals && net->positions && net->path && net->stack && net->distances &&
           net->boundary_steps && net->boundary_distances;
}

/* Steps along come before steps against: the depth-first search then runs through the pipeline towards the sink, which
 * halves the searches on the profiles of docs/frequency.md. */
static void link_steps(network *net) {
    int32_t *next = net->positions;
    for (int32_t i = 0; i < net->activity_count; i++) {
        net->first_steps[net->activities[i].tail + 1]++;
        net->first_steps[net->activities[i].head + 1]++;
    }
    for (int32_t node = 0; node < net->nodes; node++)
        net->first_steps[node + 1] += net->first_steps[node];
    memcpy(next, net->first_steps, (size_t)net->nodes * sizeof(int32_t));
    for (int32_t i = 0; i < net->activity_count; i++)
        net->steps[next[net->activities[i].tail]++] = 2 * i;
    for (int32_t i = 0; i < net->activity_count; i++)
        net->steps[next[net->activities[i].head]++] = 2 * i + 1;
    for (int32_t at = 0; at < 2 * net->activity_count; at++)
        net->targets[at] = step_target(net, net->steps[at]);
}

/* Longest paths at the slowest corners, in topological order (Kahn). Returns 0 on a cycle. */
static int schedule_slowest(network *net) {
    int32_t *missing = net->arrivals, *order = net->reached, done = 0, ready = 0;
    memset(missing, 0, (size_t)net->nodes * sizeof(int32_t));
    for (int32_t i = 0; i < net->activity_count; i++)
        missing[net->activities[i].head]++;
    for (int32_t node = 0; node < net->nodes; node++)
        if (missing[node] == 0)
            order[ready++] = node;
    for (; done < ready; done++) {
        int32_t node = order[done];
        for (int32_t at = net->first_steps[node]; at < net->first_steps[node + 1]; at++) {
            if (STEP_IS_BACKWARD(net->steps[at]))
                continue;
            const activity *a = &net->activities[STEP_ACTIVITY(net->steps[at])];
            int64_t finish = net->potentials[node] + a->length;
            if (finish > net->potentials[a->head])
                net->potentials[a->head] = finish;
            if (--missing[a->head] == 0)
                order[ready++] = a->head;
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
    net->source = in->source;
    net->sink = in->sink;
    for (int32_t i = 0; i < in->activities; i++) {
        activity *a = &net->activities[i];
        a->tail = in->tails[i];
        a->head = in->heads[i];
        a->fastest = in->first_points[i];
        a->slowest = in->first_points[i + 1] - 1;
        go_to_corner(net, a, a->slowest, 0);
    }
    link_steps(net);
    if (!schedule_slowest(net)) {
        *problem = "the network has a cycle";
        network_free(net);
        return NULL;
    }
    net->time = net->previous_time = net->potentials[net->sink] - net->potentials[net->source];
    return net;
}

void network_free(network *net) {
    if (net == NULL)
        return;
    void *parts[] = {net->activities, net->lengths,   net->capacities, net->first_steps,
                     net->steps,      net->targets,   net->potentials, net->marks,      net->reached,
                     net->arrivals,   net->positions, net->path,       net->stack,
                     net->distances,  net->boundary_steps, net->boundary_distances};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
    free(net);
}

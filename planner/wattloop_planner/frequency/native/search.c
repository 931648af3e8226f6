#include "network.h"

/* ---- the heap of the boundary ---- */

static void sift_up(exit_step *heap, int32_t at) {
    exit_step moved = heap[at];
    while (at > 0 && heap[(at - 1) / 2].distance > moved.distance) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = moved;
}

static void sift_down(exit_step *heap, int32_t count, int32_t at) {
    exit_step moved = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && heap[child + 1].distance < heap[child].distance)
            child++;
        if (heap[child].distance >= moved.distance)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static exit_step boundary_pop(network *net) {
    exit_step first = net->boundary[0];
    net->boundary_count--;
    if (net->boundary_count > 0) {
        net->boundary[0] = net->boundary[net->boundary_count];
        sift_down(net->boundary, net->boundary_count, 0);
    }
    return first;
}

/* Remove the steps to nodes that were reached meanwhile, and make the others a heap. */
static void boundary_order(network *net) {
    const flow_link *links = net->links[net->searched];
    int32_t count = 0;
    for (int32_t at = 0; at < net->boundary_count; at++)
        if (net->events[links[net->boundary[at].place].node].mark != net->stamp)
            net->boundary[count++] = net->boundary[at];
    net->boundary_count = count;
    for (int32_t at = count / 2 - 1; at >= 0; at--)
        sift_down(net->boundary, count, at);
}

/* ---- searches ---- */

/* Inlined by its callers for each direction. */
static inline __attribute__((always_inline)) int reach_tight(network *net, direction from) {
    const event *events = net->events;
    const flow_link *links = net->links[from];
    int32_t goal = net->ends[1 - from], node = net->ends[from], waiting = 0, leaving = 0;
    reach(net, node, node, -1, 0);
    for (;;) {
        int64_t potential = events[node].potential;
        for (int32_t at = events[node + 1].first_link - 1; at >= events[node].first_link; at--) {
            int32_t next = links[at].node;
            if (events[next].mark == net->stamp)
                continue;
            int64_t slack = link_slack(&links[at], from, potential, events[next].potential);
            if (slack == 0) {
                reach(net, next, node, links[at].step, 0);
                if (next == goal)
                    return 1;
                net->stack[waiting++] = next;
            } else if (slack < NEVER) {
                net->boundary[leaving++] = (exit_step){slack, node, at};
            }
        }
        if (waiting == 0) {
            net->boundary_count = leaving;
            return 0;
        }
        node = net->stack[--waiting];
    }
}

int search_tight(network *net, direction from) {
    net->searched = from;
    net->stamp++;
    net->reached_count = 0;
    net->boundary_count = 0;
    return from == FROM_SOURCE ? reach_tight(net, FROM_SOURCE) : reach_tight(net, FROM_SINK);
}

/* Whether the link of the last flow out of the node is tight and leads to a node that is not reached. */
static inline int leads_on(const network *net, int32_t node, direction from, onward_link familiar) {
    const event *next = &net->events[familiar.node];
    return familiar.place != NO_PLACE && next->mark != net->stamp &&
           link_slack(&net->links[from][familiar.place], from, net->events[node].potential, next->potential) == 0;
}

static inline __attribute__((always_inline)) int64_t reach_beyond(network *net, direction from) {
    const event *events = net->events;
    const flow_link *links = net->links[from];
    int32_t goal = net->ends[1 - from], waiting = 0;
    int64_t distance = 0;
    for (;;) {
        int32_t node;
        if (waiting > 0) {
            node = net->stack[--waiting];
        } else {
            if (net->boundary_count == 0)
                return NO_LENGTH;
            exit_step least = boundary_pop(net);
            distance = least.distance;
            node = links[least.place].node;
            if (events[node].mark == net->stamp)
                continue;
            reach(net, node, least.from, links[least.place].step, distance);
        }
        /* The previous flow usually leads to the other end, without examining the nodes beside the path. */
        for (onward_link familiar; leads_on(net, node, from, familiar = net->onward[from][node]); node = familiar.node) {
            net->stack[waiting++] = node;
            reach(net, familiar.node, node, links[familiar.place].step, distance);
        }
        if (node == goal)
            return distance;
        int64_t potential = events[node].potential;
        for (int32_t at = events[node + 1].first_link - 1; at >= events[node].first_link; at--) {
            int32_t next = links[at].node;
            if (events[next].mark == net->stamp)
                continue;
            int64_t slack = link_slack(&links[at], from, potential, events[next].potential);
            if (slack == 0) {
                reach(net, next, node, links[at].step, distance);
                if (next == goal)
                    return distance;
                net->stack[waiting++] = next;
            } else if (slack < NEVER) {
                net->boundary[net->boundary_count++] = (exit_step){distance + slack, node, at};
                sift_up(net->boundary, net->boundary_count - 1);
            }
        }
    }
}

int64_t search_beyond(network *net) {
    boundary_order(net);
    return net->searched == FROM_SOURCE ? reach_beyond(net, FROM_SOURCE) : reach_beyond(net, FROM_SINK);
}

#include "processes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

uint64_t processes_start_ticks(int32_t pid) {
    char path[64];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    /* It is field 22. The command's name, in parentheses, may hold anything: fields are counted from its end. */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    unsigned long long ticks = 0;
    return at != NULL && sscanf(at, " %llu", &ticks) == 1 ? ticks : 0;
}

static bool lives(const struct process *process) {
    return process->pid != 0 && processes_start_ticks(process->pid) == process->start_ticks;
}

struct process processes_self(void) {
    int32_t pid = (int32_t)getpid();
    return (struct process){.start_ticks = processes_start_ticks(pid), .memory_bytes = CONTEXT_BYTES, .pid = pid};
}

void processes_register(struct gpu *gpu, const struct process *self) {
    for (unsigned number = 0; number < MAX_PROCESSES; number++) {
        const struct process *process = &gpu->processes[number];
        if (process->pid == self->pid && process->start_ticks == self->start_ticks) {
            return;
        }
    }
    for (unsigned number = 0; number < MAX_PROCESSES; number++) {
        if (!lives(&gpu->processes[number])) {
            gpu->processes[number] = *self;
            return;
        }
    }
}

unsigned processes_prune(struct gpu *gpu) {
    unsigned count = 0;
    for (unsigned number = 0; number < MAX_PROCESSES; number++) {
        if (lives(&gpu->processes[number])) {
            count++;
        } else {
            gpu->processes[number] = (struct process){0};
        }
    }
    return count;
}

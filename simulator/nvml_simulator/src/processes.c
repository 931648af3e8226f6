#include "processes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t read_text(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    size_t length = file == NULL ? 0 : fread(text, 1, size - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    text[length] = '\0';
    return length;
}

/* Start of a process in clock ticks since boot; 0 if it does not exist or is a zombie. Start and pid
 * identify a process permanently. */
static uint64_t start_ticks(int32_t pid) {
    char path[64];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    read_text(path, text, sizeof text);
    /* Field 22. The command name in parentheses may contain anything, so count fields from its end. */
    const char *at = strrchr(text, ')');
    if (at != NULL && strncmp(at, ") Z", 3) == 0) {
        return 0;
    }
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    unsigned long long ticks = 0;
    return at != NULL && sscanf(at, " %llu", &ticks) == 1 ? ticks : 0;
}

/* Pid of a process in its innermost namespace; 0 if unknown. */
static int32_t innermost_pid(int32_t pid) {
    char path[64];
    char text[8192];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    read_text(path, text, sizeof text);
    char *line = strstr(text, "\nNSpid:");
    if (line == NULL) {
        return 0;
    }
    line[1 + strcspn(line + 1, "\n")] = '\0';
    const char *last = strrchr(line, '\t');
    return last == NULL ? 0 : atoi(last + 1);
}

uint64_t processes_namespace(void) {
    struct stat found;
    return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

/* Locks a file of its own for the rest of this process, and returns the inode: the kernel shows whose lock it is in every
 * PID namespace. Containers that start at once have processes of the same pid and start. 0 if that is impossible. */
static uint64_t own_lock(void) {
    static uint64_t lock;
    static pid_t owner;
    struct stat found;
    if (owner == getpid()) {
        return lock;
    }
    int file = memfd_create("nvml_simulator", MFD_CLOEXEC);
    int held = file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &found) == 0;
    lock = held ? found.st_ino : 0;
    owner = getpid();
    return lock;
}

/* Pid of the process that holds the lock of a file; 0 if no visible one does, -1 if that is unknown. */
static int32_t holder_of(uint64_t lock) {
    FILE *locks = fopen("/proc/locks", "re");
    int32_t found = locks == NULL ? -1 : 0;
    char line[256];
    while (found == 0 && fgets(line, sizeof line, locks) != NULL) {
        int pid = 0;
        unsigned long long inode = 0;
        if (sscanf(line, "%*s FLOCK %*s %*s %d %*x:%*x:%llu", &pid, &inode) == 2 && inode == lock) {
            found = pid;
        }
    }
    if (locks != NULL) {
        fclose(locks);
    }
    return found;
}

static bool is_of(int32_t pid, const struct process *process) {
    return pid > 0 && start_ticks(pid) == process->start_ticks && innermost_pid(pid) == process->pid;
}

/* Searches the visible processes for one of a nested namespace; returns its pid here, or 0. */
static int32_t find_within(const struct process *process) {
    int32_t holder = process->lock == 0 ? -1 : holder_of(process->lock);
    if (holder >= 0) {
        return is_of(holder, process) ? holder : 0;
    }
    DIR *folder = opendir("/proc");
    int32_t found = 0;
    for (struct dirent *entry; folder != NULL && found == 0 && (entry = readdir(folder)) != NULL;) {
        int32_t pid = atoi(entry->d_name);
        found = is_of(pid, process) ? pid : 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

enum process_state processes_state(const struct layout *layout, const struct process *process, int32_t *pid) {
    *pid = 0;
    if (process->pid == 0) {
        return PROCESS_GONE;
    }
    uint64_t own = processes_namespace();
    if (process->pid_namespace == own) {
        *pid = start_ticks(process->pid) == process->start_ticks ? process->pid : 0;
    } else {
        *pid = find_within(process);
    }
    if (*pid != 0) {
        return PROCESS_ALIVE;
    }
    return process->pid_namespace == own || layout->pid_namespace == own ? PROCESS_GONE : PROCESS_INVISIBLE;
}

static int32_t acts_for;

void processes_act_for(int32_t pid) {
    acts_for = pid;
}

struct process processes_self(void) {
    int32_t pid = acts_for != 0 ? acts_for : (int32_t)getpid();
    return (struct process){
        .start_ticks = start_ticks(pid),
        .memory_bytes = CONTEXT_BYTES,
        .pid_namespace = processes_namespace(),
        .lock = acts_for != 0 ? 0 : own_lock(),
        .pid = pid,
    };
}

static bool is_same(const struct process *one, const struct process *other) {
    return one->pid == other->pid && one->start_ticks == other->start_ticks && one->pid_namespace == other->pid_namespace;
}

void processes_register(const struct layout *layout, struct gpu *gpu, const struct process *self) {
    int32_t pid;
    for (unsigned number = 0; number < MAX_PROCESSES; number++) {
        if (is_same(&gpu->processes[number], self)) {
            return;
        }
    }
    for (unsigned number = 0; number < MAX_PROCESSES; number++) {
        if (processes_state(layout, &gpu->processes[number], &pid) == PROCESS_GONE) {
            gpu->processes[number] = *self;
            return;
        }
    }
}

unsigned processes_prune(const struct layout *layout, struct gpu *gpu) {
    int32_t pid;
    unsigned count = 0;
    for (unsigned number = 0; number < MAX_PROCESSES; number++) {
        if (processes_state(layout, &gpu->processes[number], &pid) != PROCESS_GONE) {
            count++;
        } else {
            gpu->processes[number] = (struct process){0};
        }
    }
    return count;
}

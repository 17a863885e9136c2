#include "viperblock/tests/step.h"
#include "viperblock/step.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct step_gate *gate;

/* Of this process, or of the manager: what it starts gets no environment of its own. */
static const char *gate_path(char buf[8192])
{
    char path[64];
    const char *own = getenv(STEP_ENV);
    snprintf(path, sizeof(path), "/proc/%d/environ", getppid());
    int fd = own ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, buf, 8191);
    if (fd >= 0) {
        close(fd);
    }
    buf[n > 0 ? n : 0] = '\0';
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(buf + i) + 1) {
        if (strncmp(buf + i, STEP_ENV "=", sizeof(STEP_ENV)) == 0) {
            return buf + i + sizeof(STEP_ENV);
        }
    }
    return own;
}

/* Before main(): a data process can open nothing later. */
__attribute__((constructor)) static void find_gate(void)
{
    char buf[8192];
    const char *path = gate_path(buf);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, sizeof(*gate), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                      : MAP_FAILED;
    gate = p == MAP_FAILED ? NULL : p;
    if (fd >= 0) {
        close(fd);
    }
}

/* Who comes first stops until the test switches the gate off, or kills. */
void step_at(const char *name)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int armed = STEP_ARMED;
    if (!gate || atomic_load(&gate->state) != STEP_ARMED || strcmp(gate->want, name) != 0 ||
        !atomic_compare_exchange_strong(&gate->state, &armed, STEP_REACHED)) {
        return;
    }
    while (atomic_load(&gate->state) != STEP_OFF) {
        nanosleep(&pause, NULL);
    }
}

#include "spx/progress.h"
#include "base/macro.h"
#include "base/time.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define QUIET_NS (1 * NS_PER_S)
#define EVERY_NS (100 * NS_PER_MS)
#define MIB      (UINT64_C(1) << 20)

void progress_start(struct progress *p)
{
    *p = (struct progress){.started_ns = time_mono_ns(), .is_terminal = isatty(2)};
    pthread_mutex_init(&p->lock, NULL);
}

static void show(struct progress *p, const char *phase, uint64_t done, uint64_t total,
                 bool is_bytes, uint64_t now)
{
    uint64_t ms = (now - p->started_ns) / NS_PER_MS;
    fprintf(stderr, "\r\033[K%-8s", phase);
    if (total) {
        fprintf(stderr, " %3" PRIu64 "%%", MIN(done, total) * 100 / total);
    }
    if (is_bytes) {
        fprintf(stderr, "  %" PRIu64 " MiB  %" PRIu64 " MiB/s", done / MIB,
                ms ? done / MIB * 1000 / ms : 0);
    }
    if (total && done && done < total) {
        fprintf(stderr, "  %" PRIu64 " s left", ms * (total - done) / done / 1000);
    }
    fflush(stderr);
}

void progress_set(struct progress *p, const char *phase, uint64_t done, uint64_t total,
                  bool is_bytes)
{
    uint64_t now = time_mono_ns();
    pthread_mutex_lock(&p->lock);
    if (p->is_terminal && now - p->started_ns >= QUIET_NS && now - p->shown_ns >= EVERY_NS) {
        p->shown_ns = now;
        p->is_shown = true;
        show(p, phase, done, total, is_bytes, now);
    }
    pthread_mutex_unlock(&p->lock);
}

void progress_end(struct progress *p)
{
    pthread_mutex_lock(&p->lock);
    if (p->is_shown) {
        fputs("\r\033[K", stderr);
    }
    p->is_terminal = false;
    pthread_mutex_unlock(&p->lock);
}

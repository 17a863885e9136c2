#include "base/time.h"
#include "viperblock/data.h"
#include <string.h>

void data_state_show(struct data_disk *d)
{
    /* Of a disk that is closed, what was true when it was open. */
    struct ctl_state s = d->shown;
    s.h = (struct ctl_head){.op = CTL_DISK_STATE, .disk = d->no};
    memcpy(s.id, d->id, sizeof(s.id));
    s.is_vu_connected = s.n_rings = 0;
    if (d->is_open) {
        s.size = disk_size(d->disk);
        s.is_faulted = disk_is_faulted(d->disk);
        disk_counters(d->disk, &s.counters);
        pthread_mutex_lock(&d->mu);
        s.cow = d->cow_stats;
        memcpy(s.frozen, d->cow_frozen, sizeof(s.frozen));
        pthread_mutex_unlock(&d->mu);
    }
    if (d->vu) {
        struct vu_stats v;
        vu_stats(d->vu, &v);
        s.is_vu_connected = v.is_connected;
        s.n_rings = v.n_rings;
        s.n_ring_faults = v.n_ring_faults;
        s.n_resubmitted = v.n_resubmitted;
    }
    s.n_nbd = d->nbd ? nbd_n_conns(d->nbd) : 0;
    if (d->is_open && !d->is_gathered) {
        return; /* nothing absent, nothing frozen: that would be a lie */
    }
    if (s.size > 0 && memcmp(&s, &d->shown, sizeof(s)) != 0) {
        d->shown = s;
        d->is_state_due = true;
        data_wake(d->p);
    }
}

static void on_gathered(void *ctx)
{
    struct data_disk *d = ctx;
    d->is_gathering = false;
    if (d->is_gathered_anew) {
        d->is_gathered_anew = false;
        data_state_gather(d);
        return;
    }
    d->is_gathered = true;
    data_state_show(d);
    if (d->is_asked) {
        d->is_asked = false;
        d->is_state_due = true;
        data_wake(d->p);
    }
}

/* Owner thread. */
static void on_gather(struct blk_msg *m)
{
    struct data_disk *d = CONTAINER_OF(m, struct data_disk, gather_msg);
    struct blk_layer *cow = disk_cow(d->disk);
    struct blk_cow_stats stats = {0};
    struct blk_frozen frozen[BLK_MAX_FROZEN] = {0};
    if (cow) {
        blk_cow_stats(cow, &stats);
        blk_cow_frozen(cow, frozen);
    }
    pthread_mutex_lock(&d->mu);
    d->cow_stats = stats;
    memcpy(d->cow_frozen, frozen, sizeof(frozen));
    pthread_mutex_unlock(&d->mu);
    loop_post(d->p->loop, on_gathered, d); /* before the answer to a request that closes it */
}

void data_state_ask(struct data_disk *d)
{
    d->is_asked = true;
    d->is_gathered_anew = d->is_gathering;
    data_state_gather(d);
}

void data_state_gather(struct data_disk *d)
{
    if (d->is_open && !d->is_gathering) {
        d->is_gathering = true;
        d->gather_msg.fn = on_gather;
        blk_queue_post(d->inner, &d->gather_msg);
    }
}

void data_state_on_tick(void *ctx)
{
    struct data *p = ctx;
    data_frontends(p);
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        if (p->disks[i] && p->disks[i]->is_open) {
            data_state_show(p->disks[i]);
            data_state_gather(p->disks[i]);
        }
    }
    loop_timer_set(p->tick, time_mono_ns() + DATA_TICK_NS);
}

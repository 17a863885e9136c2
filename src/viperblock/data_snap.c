#include "base/log.h"
#include "base/time.h"
#include "viperblock/data.h"
#include "viperblock/step.h"
#include <errno.h>
#include <string.h>

LOG_MODULE("data.snap");

/* A meeting of all disks of one snapshot. First each of them comes to it in its queue of requests,
 * on the main loop; then their owner threads stand still together, and the last to arrive changes
 * the epoch of all. */
struct data_snap {
    struct data_req *req;                   /* the manager's */
    unsigned n, n_come, n_left;             /* main loop */
    struct data_req *visits[CTL_MAX_DISKS]; /* in the order of the request */
    pthread_mutex_t mu;
    pthread_cond_t changed;
    unsigned n_parked; /* GUARDED_BY(mu) */
    bool is_over;      /* GUARDED_BY(mu) */
};

struct data_snap *data_snap_new(struct data_req *r)
{
    struct data_snap *s = calloc(1, sizeof(*s));
    if (!s) {
        abort();
    }
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->mu, NULL);
    pthread_cond_init(&s->changed, &a);
    pthread_condattr_destroy(&a);
    r->p->n_reqs++;
    s->req = r;
    s->n = s->n_left = r->m->snap.n;
    return s;
}

void data_snap_leave(struct data_snap *s)
{
    if (--s->n_left > 0) {
        return;
    }
    s->req->p->n_reqs--;
    data_answer(s->req);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mu);
    free(s);
}

static void refuse(struct data_snap *s, int rc, const char *name, const char *text)
{
    s->req->rc = fail(&s->req->err, rc, name, "%s", text);
}

void data_snap_come(struct data_req *r)
{
    struct data_snap *s = r->snap;
    s->visits[r->snap_idx] = r;
    if (r->rc != 0 || !r->d->is_open) {
        refuse(s, -ENODEV, "DiskClosed", "a disk of the snapshot was closed");
    }
    if (++s->n_come < s->n) {
        return;
    }
    unsigned n = s->n; /* the last visit may free s */
    struct data_req *visits[CTL_MAX_DISKS];
    memcpy(visits, s->visits, sizeof(visits));
    bool is_refused = s->req->rc != 0;
    for (unsigned i = 0; i < n; i++) {
        if (is_refused) {
            data_disk_finish(visits[i]);
        } else {
            data_disk_owner(visits[i]);
        }
    }
}

static void begin(struct data_snap *s)
{
    struct data_req *r = s->req;
    struct blk_layer *layers[CTL_MAX_DISKS];
    const char *names[CTL_MAX_DISKS];
    unsigned idx[CTL_MAX_DISKS];
    for (unsigned i = 0; i < s->n; i++) {
        layers[i] = disk_cow(s->visits[i]->d->disk);
        names[i] = r->m->snap.v[i].snap;
        if (!layers[i]) {
            refuse(s, -ENOTSUP, "NoMap", "a disk of the snapshot has no map");
            return;
        }
    }
    STEP("data.begin");
    uint64_t start = time_mono_ns();
    r->rc = blk_cow_snap_begin(layers, names, s->n, r->m->h.arg == 1, idx, &r->err);
    r->value = time_mono_ns() - start;
    STEP("data.begun");
    for (unsigned i = 0; r->rc == 0 && i < s->n; i++) {
        struct data_disk *d = s->visits[i]->d;
        atomic_fetch_and(&d->done, ~(1u << idx[i]));
        pthread_mutex_lock(&d->mu);
        memcpy(d->frozen[idx[i]], names[i], BLK_SNAP_ID);
        pthread_mutex_unlock(&d->mu);
    }
}

void data_snap_join(struct data_req *r)
{
    struct data_snap *s = r->snap;
    uint64_t until = time_mono_ns() + DATA_SNAP_NS;
    struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (long)(until % NS_PER_S)};
    pthread_mutex_lock(&s->mu);
    if (++s->n_parked == s->n && !s->is_over) {
        begin(s);
        s->is_over = true;
        pthread_cond_broadcast(&s->changed);
    }
    while (!s->is_over) {
        if (pthread_cond_timedwait(&s->changed, &s->mu, &ts) == ETIMEDOUT && !s->is_over) {
            refuse(s, -EBUSY, "DiskBusy", "a disk of the snapshot did not get to it in time");
            s->is_over = true;
            pthread_cond_broadcast(&s->changed);
        }
    }
    pthread_mutex_unlock(&s->mu);
}

/* ---- one frozen set ---- */

static int find(struct data_req *r, unsigned *ret)
{
    struct data_disk *d = r->d;
    struct blk_layer *cow = disk_cow(d->disk);
    struct blk_frozen f[BLK_MAX_FROZEN] = {0};
    if (cow) {
        blk_cow_frozen(cow, f);
    }
    for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
        if (f[i].snap[0] && strncmp(f[i].snap, r->m->h.snap, BLK_SNAP_ID) == 0) {
            *ret = i;
            return 0;
        }
    }
    return fail(&r->err, -ENOENT, "NoSuchSnapshot", "%s has no snapshot %s under way", d->id,
                r->m->h.snap);
}

int data_snap_read(struct data_req *r)
{
    struct data_disk *d = r->d;
    unsigned i = 0;
    int rc = find(r, &i);
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&d->mu); /* before the first block: its message names the snapshot */
    memcpy(d->frozen[i], r->m->h.snap, BLK_SNAP_ID);
    pthread_mutex_unlock(&d->mu);
    rc = blk_cow_snap_read(disk_cow(d->disk), i, DATA_WINDOW, &r->err);
    STEP("data.reading");
    return rc;
}

int data_snap_end(struct data_req *r)
{
    struct data_disk *d = r->d;
    unsigned i = 0;
    int rc = find(r, &i);
    if (rc != 0) {
        return rc;
    }
    STEP("data.end");
    rc = r->m->h.op == CTL_SNAP_ABORT ? blk_cow_snap_abort(disk_cow(d->disk), i, &r->err)
                                      : blk_cow_snap_end(disk_cow(d->disk), i, &r->err);
    if (rc == 0) {
        atomic_fetch_and(&d->done, ~(1u << i));
        pthread_mutex_lock(&d->mu);
        memset(d->frozen[i], 0, BLK_SNAP_ID);
        pthread_mutex_unlock(&d->mu);
    }
    STEP("data.ended");
    return rc;
}

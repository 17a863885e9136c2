#include "base/log.h"
#include "viperblock/data.h"
#include <errno.h>
#include <string.h>

LOG_MODULE("data.serve");

/* ---- serving ---- */

static bool is_connected(const struct data_disk *d)
{
    struct vu_stats s = {.is_connected = false};
    if (d->vu) {
        vu_stats(d->vu, &s);
    }
    return s.is_connected;
}

static void end_vu(struct data_disk *d)
{
    vu_free(d->vu);
    d->vu = NULL;
    if (d->vu_fd >= 0) {
        close(steal_fd(&d->vu_fd));
    }
}

static void end_nbd(struct data_disk *d)
{
    nbd_free(d->nbd);
    d->nbd = NULL;
    if (d->nbd_fd >= 0) {
        close(steal_fd(&d->nbd_fd));
    }
}

void data_frontends(struct data *p)
{
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        struct data_disk *d = p->disks[i];
        if (d && d->vu && !d->is_open && !d->now && d->has_guest && !is_connected(d)) {
            end_vu(d); /* it was cut off, and now it is gone */
            data_disk_release(d);
        } else if (d) {
            data_state_show(d);
        }
    }
}

static void on_change_here(void *ctx)
{
    data_frontends(ctx);
}

/* The device is in the middle of something, and the disk may be gone when it is over. */
static void on_change(void *ctx, bool is_there)
{
    struct data_disk *d = ctx;
    loop_post(d->p->loop, on_change_here, d->p);
}

int data_serve_vu(struct data_req *r)
{
    struct data_disk *d = r->d;
    const struct ctl_serve *s = &r->m->serve;
    if (d->vu) {
        return fail(&r->err, -EEXIST, "AlreadyServed", "%s has a vhost-user socket", d->id);
    }
    struct vu_opts o = {.loop = d->p->loop,
                        .disk = d->disk,
                        .listen_fd = r->fds[0],
                        .peer_uid = s->uid,
                        .n_queues = MIN(s->n_queues, VU_MAX_QUEUES),
                        .poll_ns = s->poll_ns,
                        .on_change = on_change,
                        .ctx = d};
    memcpy(o.serial, s->serial, VU_SERIAL);
    int rc = vu_new(&o, &d->vu, &r->err);
    if (rc == 0) {
        d->vu_fd = steal_fd(&r->fds[0]);
    }
    return rc;
}

static void on_nbd(void *ctx)
{
    data_state_show(ctx);
}

int data_serve_nbd(struct data_req *r)
{
    struct data_disk *d = r->d;
    const struct ctl_serve *s = &r->m->serve;
    if (d->nbd) {
        return fail(&r->err, -EEXIST, "AlreadyServed", "%s has an NBD socket", d->id);
    }
    struct nbd_opts o = {.loop = d->p->loop,
                         .disk = d->disk,
                         .name = d->id,
                         .listen_fd = r->fds[0],
                         .is_read_only = s->h.arg == 1 || disk_is_read_only(d->disk),
                         .peer_uid = s->uid,
                         .on_change = on_nbd,
                         .ctx = d};
    int rc = nbd_new(&o, &d->nbd, &r->err);
    if (rc == 0) {
        d->nbd_fd = steal_fd(&r->fds[0]);
    }
    return rc;
}

/* ---- no longer serving ---- */

static void on_unserved(void *ctx)
{
    struct data_req *r = ctx;
    if (r->m->h.arg == 1) {
        end_nbd(r->d);
    } else {
        end_vu(r->d);
    }
    data_disk_finish(r);
}

void data_unserve(struct data_req *r)
{
    struct data_disk *d = r->d;
    bool is_nbd = r->m->h.arg == 1;
    if (is_nbd ? !d->nbd : !d->vu) {
        r->rc = fail(&r->err, -ENOENT, "NotServed", "%s has no such socket", d->id);
        data_disk_finish(r);
    } else if (is_nbd) {
        nbd_stop(d->nbd, on_unserved, r);
    } else {
        vu_stop(d->vu, on_unserved, r);
    }
}

/* ---- closing: NBD, the guest's device, then the disk itself ---- */

enum { STEP_NBD, STEP_VU, STEP_DISK };

static void close_step(void *ctx);

static void stop_vu(struct data_req *r)
{
    struct data_disk *d = r->d;
    d->has_guest = r->m->h.op == CTL_CLOSE && is_connected(d);
    if (d->has_guest) {
        vu_cut(d->vu, close_step, r);
    } else {
        vu_stop(d->vu, close_step, r);
    }
}

/* Nothing of a front end is under way. What the disk still has with the manager ends here; from
 * then on nothing is answered to it. */
static void close_disk(struct data_req *r)
{
    struct data_disk *d = r->d;
    if (!d->has_owner) {
        data_disk_finish(r);
        return;
    }
    d->is_open = false;
    data_slots_drop(d, -EAGAIN);
    pthread_mutex_lock(&d->mu);
    d->cow = NULL;
    pthread_mutex_unlock(&d->mu);
    data_disk_owner(r);
}

static void close_step(void *ctx)
{
    struct data_req *r = ctx;
    struct data_disk *d = r->d;
    if (d->step == STEP_NBD) {
        d->step = STEP_VU;
        if (d->nbd) {
            nbd_stop(d->nbd, close_step, r);
            return;
        }
    }
    if (d->step == STEP_VU) {
        d->step = STEP_DISK;
        if (d->nbd) {
            end_nbd(d);
        }
        if (d->vu) {
            stop_vu(r);
            return;
        }
    }
    if (d->vu && !d->has_guest) {
        end_vu(d);
    }
    close_disk(r);
}

void data_close(struct data_req *r)
{
    struct data_disk *d = r->d;
    bool is_in_use = is_connected(d) || (d->nbd && nbd_n_conns(d->nbd) > 0);
    if (r->m->h.op == CTL_CLOSE && r->m->h.arg == 0 && is_in_use) {
        r->rc = fail(&r->err, -EBUSY, "VolumeInUse", "%s has a frontend connected", d->id);
        data_disk_finish(r);
        return;
    }
    if (d->is_open && (r->m->h.op == CTL_QUIT || r->m->h.arg == 1)) {
        disk_give_up(d->disk); /* who waits for space has waited long enough */
    }
    d->step = STEP_NBD;
    close_step(r);
}

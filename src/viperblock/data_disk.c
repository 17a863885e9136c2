#include "base/log.h"
#include "base/time.h"
#include "viperblock/data.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

LOG_MODULE("data.disk");

#define STACK_SIZE (1u << 20)

/* ---- the owner thread ---- */

static void on_fault_here(void *ctx)
{
    data_state_show(ctx);
}

static void on_fault(void *ctx, int errnum)
{
    struct data_disk *d = ctx;
    log_warn("data.faulted", KV_CSTR("volume", d->id), KV_CSTR("error", strerror(abs(errnum))));
    loop_post(d->p->loop, on_fault_here, d);
}

static int take_fd(struct data_req *r, unsigned flag, size_t *i)
{
    return (r->m->open.flags & flag) != 0 ? steal_fd(&r->fds[(*i)++]) : -1;
}

/* What a disk that was not opened did not take: a descriptor that stays open keeps its lock. */
static void close_files(const struct disk_opts *o)
{
    const int fds[] = {o->data_fd,  o->map_fd,  o->run_fd,
                       o->aside_fd, o->base_fd, o->base_map_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

static int open_disk(struct data_req *r)
{
    struct data_disk *d = r->d;
    const struct ctl_open *m = &r->m->open;
    size_t i = 1;
    struct disk_opts o = {.size = m->size,
                          .data_fd = steal_fd(&r->fds[0]),
                          .has_key = (m->flags & CTL_OPEN_KEY) != 0,
                          .has_base_key = (m->flags & CTL_OPEN_BASE_KEY) != 0,
                          .is_read_only = (m->flags & CTL_OPEN_READ_ONLY) != 0,
                          .is_full_waited_for = (m->flags & CTL_OPEN_WAIT_WHEN_FULL) != 0,
                          .limits = m->limits,
                          .supplier = data_supplier(d),
                          .n_queues = MIN(m->n_queues, VU_MAX_QUEUES) + NBD_MAX_CONNS,
                          .inner = d->inner,
                          .boot_id = d->p->boot_id,
                          .on_fault = on_fault,
                          .ctx = d};
    memcpy(o.id, m->id, sizeof(o.id));
    o.map_fd = take_fd(r, CTL_OPEN_MAP, &i);
    o.run_fd = take_fd(r, CTL_OPEN_RUN, &i);
    o.aside_fd = take_fd(r, CTL_OPEN_ASIDE, &i);
    o.base_fd = take_fd(r, CTL_OPEN_BASE, &i);
    o.base_map_fd = take_fd(r, CTL_OPEN_BASE_MAP, &i);
    if (o.has_key) {
        memcpy(o.key, m->key, sizeof(o.key));
    }
    if (o.has_base_key) {
        memcpy(o.base_key, m->base_key, sizeof(o.base_key));
    }
    int rc = disk_open(&o, DATA_LOCK_NS, &d->disk, &r->err);
    if (rc != 0) {
        close_files(&o);
    }
    secret_wipe(&o, sizeof(o));
    secret_wipe(r->m->open.key, sizeof(r->m->open.key));
    secret_wipe(r->m->open.base_key, sizeof(r->m->open.base_key));
    if (rc != 0) {
        d->is_ending = true;
        return rc;
    }
    pthread_mutex_lock(&d->mu);
    d->cow = disk_cow(d->disk);
    pthread_mutex_unlock(&d->mu);
    return 0;
}

static int close_disk(struct data_req *r)
{
    struct data_disk *d = r->d;
    int rc = disk_close(d->disk, &r->err);
    d->disk = NULL;
    d->is_ending = true;
    return rc;
}

static int fill(struct data_req *r)
{
    struct blk_layer *cow = disk_cow(r->d->disk);
    if (!cow) {
        return fail(&r->err, -ENOTSUP, "NoMap", "%s has no map", r->d->id);
    }
    blk_cow_fill(cow, r->m->h.arg);
    return 0;
}

static int work(struct data_req *r)
{
    switch ((enum ctl_op)r->m->h.op) {
    case CTL_OPEN: return open_disk(r);
    case CTL_CLOSE:
    case CTL_QUIT: return close_disk(r);
    case CTL_GROW: return disk_grow(r->d->disk, r->m->h.arg, &r->err);
    case CTL_FILL: return fill(r);
    case CTL_ABSENT: return disk_n_absent(r->d->disk, &r->value, &r->err);
    case CTL_SNAP_READ: return data_snap_read(r);
    case CTL_SNAP_END:
    case CTL_SNAP_ABORT: return data_snap_end(r);
    default: return fail(&r->err, -EINVAL, "BadRequest", "not a request about a disk");
    }
}

static void on_worked(void *ctx);

static void on_job(struct blk_msg *m)
{
    struct data_disk *d = CONTAINER_OF(m, struct data_disk, job_msg);
    d->job = d->now; /* written before it was posted */
}

static void *owner_thread(void *ctx)
{
    struct data_disk *d = ctx;
    (void)prctl(PR_SET_NAME, "disk", 0, 0, 0);
    while (!d->is_ending) {
        blk_queue_run(d->inner, UINT64_MAX);
        struct data_req *r = steal(&d->job);
        if (!r) {
            continue;
        }
        if (r->snap) {
            data_snap_join(r);
        } else {
            r->rc = work(r);
        }
        loop_post(d->p->loop, on_worked, r);
    }
    return NULL;
}

/* ---- life ---- */

static int start_owner(struct data_disk *d, struct err *err)
{
    const struct blk_queue_opts o = {.depth = 64, .n_reqs = 256, .n_buffers = 32};
    int rc = blk_queue_new(&o, &d->inner, err);
    if (rc != 0) {
        return rc;
    }
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, STACK_SIZE);
    rc = -pthread_create(&d->thread, &a, owner_thread, d);
    pthread_attr_destroy(&a);
    if (rc != 0) {
        blk_queue_free(d->inner);
        return fail(err, rc, "OutOfMemory", "no thread for a disk");
    }
    d->has_owner = true;
    return 0;
}

int data_disk_new(struct data *p, unsigned no, const char *id, struct err *err)
{
    struct data_disk *d = calloc(1, sizeof(*d));
    if (!d) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a disk");
    }
    d->p = p;
    d->no = no;
    memcpy(d->id, id, sizeof(d->id)); /* ends: ctl_check() */
    d->vu_fd = d->nbd_fd = -1;
    d->queue_tail = &d->queue;
    d->job_msg.fn = on_job;
    pthread_mutex_init(&d->mu, NULL);
    int rc = start_owner(d, err);
    if (rc != 0) {
        pthread_mutex_destroy(&d->mu);
        free(d);
        return rc;
    }
    p->disks[no] = d;
    return 0;
}

void data_disk_release(struct data_disk *d)
{
    struct data *p = d->p;
    if (d->has_owner || d->vu || d->nbd || d->now) {
        return;
    }
    while (d->queue) {
        struct data_req *r = d->queue;
        d->queue = r->next;
        r->rc = fail(&r->err, -ENOENT, "NoSuchDisk", "the disk was closed");
        if (r->snap) {
            data_snap_come(r); /* the others wait for it */
        } else {
            p->n_reqs--;
            data_answer(r);
        }
    }
    data_slots_drop(d, -EAGAIN);
    p->disks[d->no] = NULL;
    if (d->vu_fd >= 0) {
        close(d->vu_fd);
    }
    if (d->nbd_fd >= 0) {
        close(d->nbd_fd);
    }
    pthread_mutex_destroy(&d->mu);
    free(d);
    data_ended(p);
}

/* ---- requests, on the main loop ---- */

void data_disk_owner(struct data_req *r)
{
    blk_queue_post(r->d->inner, &r->d->job_msg);
}

/* The owner thread has done it. */
static void on_worked(void *ctx)
{
    struct data_req *r = ctx;
    struct data_disk *d = r->d;
    unsigned op = r->m->h.op;
    bool is_over = op == CTL_CLOSE || op == CTL_QUIT || (op == CTL_OPEN && r->rc != 0);
    if (is_over) {
        pthread_join(d->thread, NULL);
        blk_queue_free(d->inner);
        d->inner = NULL;
        d->has_owner = d->is_open = false;
        log_info("data.close", KV_CSTR("volume", d->id), KV_I64("rc", r->rc));
    } else if (op == CTL_OPEN) {
        d->is_open = true;
        log_info("data.open", KV_CSTR("volume", d->id), KV_U64("bytes", disk_size(d->disk)));
    } else if (op == CTL_GROW && r->rc == 0 && d->vu) {
        vu_resized(d->vu);
    }
    data_disk_finish(r);
}

static int limits(struct data_req *r)
{
    disk_set_limits(r->d->disk, &r->m->limits.limits);
    return 0;
}

static void start(struct data_req *r)
{
    struct data_disk *d = r->d;
    unsigned op = r->m->h.op;
    if (r->snap) {
        data_snap_come(r);
        return;
    }
    if (!d->is_open && op != CTL_OPEN && op != CTL_UNSERVE && op != CTL_QUIT) {
        r->rc = fail(&r->err, -ENODEV, "DiskClosed", "%s is closed", d->id);
        data_disk_finish(r);
        return;
    }
    switch ((enum ctl_op)op) {
    case CTL_SERVE_VU: r->rc = data_serve_vu(r); break;
    case CTL_SERVE_NBD: r->rc = data_serve_nbd(r); break;
    case CTL_LIMITS: r->rc = limits(r); break;
    case CTL_UNSERVE: data_unserve(r); return;
    case CTL_CLOSE:
    case CTL_QUIT: data_close(r); return;
    default: data_disk_owner(r); return;
    }
    data_disk_finish(r);
}

static void next(struct data_disk *d)
{
    while (!d->now && d->queue) {
        struct data_req *r = d->queue;
        d->queue = r->next;
        d->queue_tail = d->queue ? d->queue_tail : &d->queue;
        d->now = r;
        start(r);
    }
}

void data_disk_do(struct data_req *r)
{
    struct data_disk *d = r->d;
    r->next = NULL;
    *d->queue_tail = r;
    d->queue_tail = &r->next;
    r->p->n_reqs++;
    if (!d->is_starting) {
        d->is_starting = true;
        next(d);
        d->is_starting = false;
        data_disk_release(d);
    }
}

/* Also from inside start(), when there was nothing to wait for. */
void data_disk_finish(struct data_req *r)
{
    struct data_disk *d = r->d;
    struct data_snap *s = r->snap;
    d->now = NULL;
    r->p->n_reqs--;
    r->d = NULL;
    data_answer(r);
    if (s) {
        data_snap_leave(s);
    }
    if (d->is_open) {
        data_state_show(d);
        data_state_gather(d);
    }
    if (!d->is_starting) {
        d->is_starting = true;
        next(d);
        d->is_starting = false;
        data_disk_release(d);
    }
}

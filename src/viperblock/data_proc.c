#include "base/log.h"
#include "base/time.h"
#include "crypto/xts.h"
#include "viperblock/data.h"
#include "viperblock/data_sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

LOG_MODULE("data");

#define RING_DEPTH 128u /* kernels count rings as locked memory: 20 KiB each */

struct data_req *data_req_new(struct data *p)
{
    struct data_req *r = calloc(1, sizeof(*r));
    if (!r) {
        abort();
    }
    r->p = p;
    r->m = data_msg_new();
    return r;
}

static void refuse(struct data_req *r, int rc, const char *name, const char *text)
{
    r->rc = fail(&r->err, rc, name, "%s", text);
    data_answer(r);
}

static void open_disk(struct data_req *r)
{
    struct data *p = r->p;
    unsigned no = r->m->h.disk;
    if (p->disks[no]) {
        refuse(r, -EEXIST, "DiskNumberInUse", "this number belongs to another disk");
        return;
    }
    r->rc = data_disk_new(p, no, r->m->open.id, &r->err);
    if (r->rc != 0) {
        data_answer(r);
        return;
    }
    r->d = p->disks[no];
    data_disk_do(r);
}

static void of_disk(struct data_req *r)
{
    struct data_disk *d = r->p->disks[r->m->h.disk];
    if (!d) {
        refuse(r, -ENOENT, "NoSuchDisk", "no disk has this number");
        return;
    }
    r->d = d;
    if (r->m->h.op == CTL_CLOSE && r->m->h.arg == 1) {
        d->is_cut = true;
        data_pump(r->p);
    }
    data_disk_do(r);
}

static void give(struct data_req *r)
{
    const struct data_disk *d = r->p->disks[r->m->h.disk];
    if (!d) {
        refuse(r, -ENOENT, "NoSuchDisk", "no disk has this number");
        return;
    }
    const int have[] = {d->vu_fd, d->nbd_fd};
    for (unsigned i = 0; i < ARRAY_LEN(have); i++) {
        int fd = have[i] >= 0 ? fcntl(have[i], F_DUPFD_CLOEXEC, 0) : -1;
        if (fd >= 0) {
            r->fds[r->n_fds++] = fd;
            r->value |= 1u << i;
        }
    }
    data_answer(r);
}

/* All disks of a snapshot come together at one point: each gets a request of its own that ends
 * when the last of them has arrived. */
static void snap(struct data_req *r)
{
    struct data *p = r->p;
    const struct ctl_snap *s = &r->m->snap;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!p->disks[s->v[i].disk]) {
            refuse(r, -ENOENT, "NoSuchDisk", "a disk of the snapshot is not open");
            return;
        }
    }
    struct data_snap *group = data_snap_new(r);
    struct data_req *visits[CTL_MAX_DISKS];
    uint32_t n = s->n; /* r may be gone with the last of them */
    for (uint32_t i = 0; i < n; i++) {
        visits[i] = data_req_new(p);
        visits[i]->m->h.op = CTL_SNAP;
        visits[i]->d = p->disks[s->v[i].disk];
        visits[i]->snap = group;
        visits[i]->snap_idx = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        data_disk_do(visits[i]);
    }
}

/* ---- the end ---- */

static void on_deadline(void *ctx)
{
    const struct data *p = ctx;
    /* Somebody waits for a store that does not answer. What is not written down here is in the
     * rings' region and the maps: ending now is as safe as being killed. */
    log_warn("data.quit_late", KV_CSTR("name", p->name));
    _exit(1);
}

void data_ended(struct data *p)
{
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        if (p->disks[i]) {
            return;
        }
    }
    if (p->is_quitting) {
        if (p->quit) {
            data_answer(steal(&p->quit));
        }
        loop_stop(p->loop);
    }
}

static void quit(struct data *p, struct data_req *req)
{
    if (p->is_quitting) {
        if (req) {
            refuse(req, -EBUSY, "Quitting", "the process is about to end");
        }
        return;
    }
    p->is_quitting = true;
    p->quit = req;
    log_info("data.quit", KV_CSTR("name", p->name));
    loop_timer_set(p->quit_deadline, time_mono_ns() + DATA_QUIT_NS);
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        if (p->disks[i]) {
            struct data_req *r = data_req_new(p);
            r->m->h.op = CTL_QUIT;
            r->d = p->disks[i];
            data_disk_do(r);
        }
    }
    data_ended(p);
}

static void on_stop(void *ctx)
{
    quit(ctx, NULL);
}

/* ---- messages ---- */

static void send_states(struct data_req *r)
{
    struct data *p = r->p;
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        struct data_disk *d = p->disks[i];
        if (d && d->is_open) {
            data_state_ask(d);
        } else if (d) {
            data_state_show(d);
            d->is_state_due = true;
        }
    }
    data_answer(r);
}

void data_handle(struct data *p, const int *fds, size_t n_fds)
{
    const struct ctl_head *h = &p->in->h;
    if (h->op == CTL_FETCHED || h->op == CTL_STORED) {
        if (h->op == CTL_FETCHED) {
            data_slots_fetched(p, h);
        } else {
            data_slots_stored(p, h);
        }
        return;
    }
    struct data_req *r = data_req_new(p);
    r->conn = p->conn;
    *r->m = *p->in;
    r->n_fds = n_fds;
    memcpy(r->fds, fds, n_fds * sizeof(int));
    if (h->op == CTL_OPEN) {
        secret_wipe(p->in, sizeof(*p->in)); /* keys; r has them */
    }
    if (p->is_quitting || p->n_reqs >= DATA_MAX_REQS) {
        refuse(r, -EBUSY, p->is_quitting ? "Quitting" : "TooManyRequests",
               p->is_quitting ? "the process is about to end"
                              : "too many requests are under way");
        return;
    }
    switch ((enum ctl_op)r->m->h.op) { /* p->in may be wiped */
    case CTL_OPEN: open_disk(r); break;
    case CTL_GIVE: give(r); break;
    case CTL_SNAP: snap(r); break;
    case CTL_STATE: send_states(r); break;
    case CTL_QUIT: quit(p, r); break;
    default: of_disk(r); break;
    }
}

/* The crypto library reads its configuration and finds its code at its first use: no file can be
 * opened later. */
static int warm_up(struct err *err)
{
    uint8_t key[XTS_KEY_SIZE] = {1}, page[BLK_PAGE] = {0};
    int rc = 0;
    for (unsigned is_encrypt = 0; rc == 0 && is_encrypt < 2; is_encrypt++) {
        AUTO(xts_freep) struct xts *x = NULL;
        rc = xts_new(key, is_encrypt == 1, &x);
        rc = rc != 0 ? rc : xts_run(x, 0, BLK_PAGE, page, page, BLK_PAGE);
    }
    return rc == 0 ? 0 : fail(err, rc, "CipherFailed", "AES-256-XTS does not work here");
}

static int read_boot_id(struct data *p, struct err *err)
{
    AUTO_FD fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, p->boot_id, sizeof(p->boot_id) - 1);
    if (n <= 0) {
        return fail(err, -EIO, "ReadFailed", "the id of this boot cannot be read: %m");
    }
    p->boot_id[strcspn(p->boot_id, "\n")] = '\0';
    return 0;
}

int data_run(struct data *p, const char *name, int listen_fd, unsigned n_rings, struct err *err)
{
    *p = (struct data){.name = name, .listen_fd = listen_fd, .fd = -1, .loop = loop_new()};
    p->quit_deadline = loop_timer_new(p->loop, on_deadline, p);
    p->tick = loop_timer_new(p->loop, data_state_on_tick, p);
    data_slots_init(p);
    int rc = loop_signals(p->loop, on_stop, NULL, p, err);
    rc = rc != 0 ? rc : data_link_listen(p, err);
    rc = rc != 0 ? rc : warm_up(err);
    rc = rc != 0 ? rc : blk_queue_reserve(n_rings, RING_DEPTH, err);
    rc = rc != 0 ? rc : read_boot_id(p, err);
    rc = rc != 0 ? rc : data_sandbox(err);
    if (rc == 0) {
        log_info("data.started", KV_CSTR("name", name));
        data_state_on_tick(p);
        loop_run(p->loop);
        log_info("data.ended", KV_CSTR("name", name));
    }
    data_link_done(p);
    loop_timer_free(p->quit_deadline);
    loop_timer_free(p->tick);
    loop_free(p->loop);
    pthread_mutex_destroy(&p->ask_mu);
    return rc;
}

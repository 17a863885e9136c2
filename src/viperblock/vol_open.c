#include "base/time.h"
#include "blk/blk_base.h"
#include "blk/blk_cow.h"
#include "crypto/secret.h"
#include "model/keys.h"
#include "model/volume.h"
#include "model/volume_type.h"
#include "viperblock/gc.h"
#include "viperblock/vol_files.h"
#include "viperblock/vols_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

LOG_MODULE("viperblock.vols");

#define CALL_NS    (15 * NS_PER_S)
#define CLOSE_NS   (30 * NS_PER_S)
#define STATE_NS   (3 * NS_PER_S)
#define VU_BACKLOG 4
#define VU_MEET_NS (1200 * NS_PER_MS) /* QEMU connects again on whole seconds */
#define VU_LIVE_NS (100 * NS_PER_MS)
#define KEY_SIZE   64u
#define N_OPEN_FDS 6u
#define MAX_QUEUES 8u

/* --- opening
 * -------------------------------------------------------------------------------- */

struct blk_limits vol_limits(struct vols *vs, const struct vol *v)
{
    AUTO(arena_freep) struct arena *a = arena_new(4096);
    struct blk_limits l = {.iops = 0};
    const struct view_entry *e =
        vb_get(vs->o.vb, key_spec(a, "volume", str_c(v->account), str_c(v->id)));
    if (e) {
        const struct volume *s = e->obj;
        struct volume_speed x = volume_type_speed(s->type, s->size_gib, s->iops, s->throughput);
        l = (struct blk_limits){.iops = x.iops,
                                .burst_iops = x.burst_iops,
                                .credits = x.credits,
                                .bytes_per_s = x.bytes_per_s,
                                .burst_bytes_per_s = x.burst_bytes_per_s,
                                .byte_credits = x.byte_credits,
                                .io_size = x.io_size};
        view_unref(e);
    }
    return l;
}

static int add_key(struct vols *vs, const struct volume_meta *m, struct ctl_open *o,
                   struct err *err)
{
    AUTO_SECRET key = SECRET_INIT;
    int rc = vol_key(vs->o.vb, m, &key, err);
    if (rc != 0) {
        return rc;
    }
    memcpy(o->key, secret_str(&key).p, KEY_SIZE);
    o->flags |= CTL_OPEN_KEY;
    return 0;
}

static int open_run_map(struct vols *vs, const char *id, int *ret, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", vs->maps_dir, id) >= PATH_MAX) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s: the name is too long", id);
    }
    *ret = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return *ret >= 0 ? 0 : fail(err, -errno, "OpenFailed", "the run-time map of %s: %m", id);
}

/* The descriptors in the order of enum ctl_open_flag. */
static int gather(struct vols *vs, const struct volume_meta *m, struct ctl_open *o,
                  int fds[N_OPEN_FDS], size_t *ret_n, struct err *err)
{
    struct vb *vb = vs->o.vb;
    size_t n = 0;
    int rc = folder_open_file(vb->folder, FOLDER_VOLUME, m->id, "data", O_RDWR, &fds[n], err);
    n += rc == 0;
    rc = rc != 0 ? rc : vol_open_map(vb, m, &fds[n], err);
    n += rc == 0;
    rc = rc != 0 ? rc : open_run_map(vs, o->id, &fds[n], err);
    n += rc == 0;
    rc = rc != 0 ? rc : vol_open_aside(vb, m, &fds[n], err);
    n += rc == 0;
    o->flags |= CTL_OPEN_MAP | CTL_OPEN_RUN | CTL_OPEN_ASIDE;
    if (rc == 0 && m->base.n > 0) {
        rc =
            folder_open_file(vb->folder, FOLDER_IMAGE, m->base, "data", O_RDONLY, &fds[n], err);
        n += rc == 0;
        rc = rc != 0 ? rc
                     : folder_open_file(vb->folder, FOLDER_IMAGE, m->base, "map", O_RDONLY,
                                        &fds[n], err);
        n += rc == 0;
        o->flags |= CTL_OPEN_BASE | CTL_OPEN_BASE_MAP;
    }
    if (m->base.n > 0 || m->source_id.n > 0) {
        o->flags |= CTL_OPEN_SOURCE;
    }
    *ret_n = n;
    return rc;
}

/* What the open volume may ask for. Under 'mu'. False: the process died before we knew. */
static bool remember(struct vols *vs, struct vol *v, const struct volume_meta *m,
                     struct proc *p, uint32_t disk)
{
    if (host_find(vs, v->host)->p != p) {
        return false;
    }
    v->p = proc_ref(p);
    v->disk = disk;
    v->size = m->size;
    v->state_ns = 0;
    v->fetch_fault = FETCH_OK;
    vol_set_source(v, m);
    return true;
}

static uint32_t free_disk(struct vols *vs, const struct proc *p, struct host *h)
{
    for (uint32_t i = 0; i < CTL_MAX_DISKS; i++) {
        uint32_t d = h->next_disk++ % CTL_MAX_DISKS;
        if (!vol_of_disk(vs, p, d)) {
            return d;
        }
    }
    return CTL_MAX_DISKS;
}

static int send_open(struct vols *vs, struct vol *v, struct proc *p, union ctl_msg *m,
                     const int *fds, size_t n_fds, struct err *err)
{
    for (unsigned tries = 0;; tries++) { /* a number may belong to a disk that was cut off */
        struct err e = ERR_INIT;
        vols_lock(vs);
        uint32_t disk = free_disk(vs, p, host_find(vs, proc_name(p)));
        vols_unlock(vs);
        if (disk == CTL_MAX_DISKS) {
            return fail(err, -EAGAIN, "SlowDown", "%s has too many volumes open", v->host);
        }
        m->h.disk = disk;
        int rc = proc_call(p, m, fds, n_fds, CALL_NS, NULL, &e);
        if (rc == -EEXIST && tries < CTL_MAX_DISKS) {
            continue;
        }
        if (rc == -EPIPE) {
            return fail(err, -EAGAIN, "VolumeNotReady", "%s", e.msg);
        }
        return rc == 0 ? 0 : fail(err, rc, e.name, "%s", e.msg);
    }
}

static int open_in(struct vols *vs, struct vol *v, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct volume_meta meta;
    struct proc *p = NULL;
    int fds[N_OPEN_FDS];
    size_t n_fds = 0;
    union ctl_msg m = {.h = {.op = CTL_OPEN}};
    int rc = vol_meta_load(vs->o.vb, a, str_c(v->id), &meta, err);
    if (rc != 0) {
        return rc;
    }
    memcpy(m.open.id, v->id, sizeof(m.open.id));
    m.open.size = meta.size;
    m.open.n_queues = MIN(MAX(v->n_queues, 1u), MAX_QUEUES);
    m.open.limits = vol_limits(vs, v);
    m.open.flags = vs->o.vb->o.is_full_reported ? 0 : CTL_OPEN_WAIT_WHEN_FULL;
    rc = gather(vs, &meta, &m.open, fds, &n_fds, err);
    if (rc == 0 && meta.is_encrypted) {
        rc = add_key(vs, &meta, &m.open, err);
    }
    rc = rc != 0 ? rc : host_up(vs, v->host, 0, &p, err);
    rc = rc != 0 ? rc : vol_note_write(vs, v, err);
    if (rc == 0 && v->p) { /* a process that was found again has it open already */
        vols_lock(vs);
        vol_set_source(v, &meta);
        vols_unlock(vs);
    } else if (rc == 0) {
        vols_lock(vs);
        v->probation = p;
        vols_unlock(vs);
        rc = send_open(vs, v, p, &m, fds, n_fds, err);
        vols_lock(vs);
        if (rc == 0 && !remember(vs, v, &meta, p, m.h.disk)) {
            rc = fail(err, -EAGAIN, "VolumeNotReady", "the data process of %s ended", v->id);
        }
        if (rc != 0 && rc != -EAGAIN) {
            v->probation = NULL; /* it lives, and said no */
        }
        pthread_cond_broadcast(&vs->cond);
        vols_unlock(vs);
    }
    if (rc == 0 && meta.base.n > 0) { /* filled again, when its base shall go */
        gc_opened(vs->o.vb, meta.base);
    }
    secret_wipe(&m, sizeof(m));
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
    proc_unref(p);
    return rc;
}

static int is_usable(const struct vol *v, struct err *err)
{
    return v->is_crashed ? fail(err, -EIO, "VolumeFaulted",
                                "opening %s ended its data process twice: 'spx admin volumes "
                                "check' looks at it",
                                v->id)
                         : 0;
}

/* When its process went away meanwhile, on_gone() is about to say how. */
static void end_probation(struct vols *vs, struct vol *v, int rc)
{
    vols_lock(vs);
    if (rc == 0 && v->p == v->probation) {
        v->probation = NULL;
    }
    vols_unlock(vs);
}

static void set_host(struct vols *vs, struct vol *v, const char *host)
{
    vols_lock(vs);
    (void)snprintf(v->host, sizeof(v->host), "%s", host);
    vols_unlock(vs);
}

/* It may have a process of an older manager, which still holds the lock. */
static int settle(struct vols *vs, struct vol *v, struct err *err)
{
    struct proc *p = NULL;
    vols_lock(vs);
    bool is_known = v->host[0] == '\0' || host_find(vs, v->host)->is_known;
    vols_unlock(vs);
    int rc = is_known ? 0 : host_up(vs, v->host, 0, &p, err);
    proc_unref(p);
    return rc;
}

int vol_open(struct vols *vs, struct vol *v, const char *host, unsigned n_rings,
             struct err *err)
{
    struct proc *p = NULL;
    int rc = is_usable(v, err);
    rc = rc != 0 ? rc : settle(vs, v, err);
    if (rc != 0) {
        return rc;
    }
    bool is_there = v->host[0] != '\0' && (!host || strcmp(v->host, host) == 0);
    if (is_there && v->p && v->source_loaded) {
        return vol_is_open(vs, v)
                   ? 0
                   : fail(err, -EAGAIN, "VolumeNotReady",
                          "the data process of %s is being started again", v->id);
    }
    if (is_there) {
        return vol_restore(vs, v, err);
    }
    if (v->p) {
        rc = v->is_nbd && v->state.n_nbd > 0
                 ? fail(err, -EBUSY, "VolumeInUse", "the volume %s is exported", v->id)
                 : vol_close(vs, v, false, err);
        if (rc != 0) {
            return rc;
        }
    } else if (v->host[0] != '\0') {
        vol_note_remove(vs, v, v->host);
    }
    set_host(vs, v, host ? host : v->id); /* before: nobody ends the process that we start */
    rc = host_up(vs, v->host, n_rings, &p, err);
    proc_unref(p);
    rc = rc != 0 ? rc : open_in(vs, v, err);
    end_probation(vs, v, rc);
    if (rc != 0) {
        vol_note_remove(vs, v, v->host);
        vols_touch_host(vs, v->host);
        set_host(vs, v, "");
    }
    return rc;
}

/* --- closing
 * -------------------------------------------------------------------------------- */

static void drop_sockets(struct vols *vs, struct vol *v)
{
    vols_lock(vs);
    int fds[] = {v->vu_fd, v->nbd_fd};
    v->vu_fd = v->nbd_fd = -1;
    v->is_vu = v->is_vu_nbd = v->is_nbd = false;
    vols_unlock(vs);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

int vol_close(struct vols *vs, struct vol *v, bool is_forced, struct err *err)
{
    char host[BLK_SNAP_ID];
    memcpy(host, v->host, sizeof(host));
    int rc = settle(vs, v, err);
    if (rc != 0 || host[0] == '\0') {
        return rc;
    }
    struct ctl_state st;
    if (v->p && v->is_vu_nbd && !is_forced && vol_ask_state(vs, v, &st, NULL) == 0 &&
        st.n_nbd > 0) {
        return fail(err, -EBUSY, "VolumeInUse", "a guest has %s open", v->id);
    }
    if (v->p) {
        struct err e = ERR_INIT;
        union ctl_msg m = {.h = {.op = CTL_CLOSE, .arg = is_forced}};
        rc = vol_call(vs, v, &m, CLOSE_NS, NULL, &e);
        if (rc == -EBUSY) {
            return fail(err, rc, "VolumeInUse", "a guest has %s open", v->id);
        }
        if (rc == -EPIPE && atomic_load(&vs->is_stopping)) {
            return fail(err, -EAGAIN, "VolumeNotReady", "the block service is stopping");
        }
        if (rc != 0) { /* a dead process holds nothing; one that cannot close loses the lock */
            log_warn("volume.close_failed", KV_CSTR("volume", v->id), KV_ERR(&e));
            struct proc *p = rc != -EPIPE ? vol_proc(vs, v) : NULL;
            if (p) {
                proc_end(p);
            }
            proc_unref(p);
        }
    }
    vol_not_open(vs, v);
    drop_sockets(vs, v);
    vol_note_remove(vs, v, host);
    set_host(vs, v, "");
    vols_lock(vs);
    memset(v->uploads, 0, sizeof(v->uploads));
    v->source_loaded = false;
    vols_unlock(vs);
    if (is_forced) {
        vols_lock(vs);
        host_find(vs, host)->cut_ns = time_mono_ns();
        vols_unlock(vs);
    }
    log_info("volume.closed", KV_CSTR("volume", v->id), KV_CSTR("process", host));
    vols_touch_host(vs, host);
    return 0;
}

/* --- calls
 * ---------------------------------------------------------------------------------- */

int vol_call(struct vols *vs, struct vol *v, union ctl_msg *m, uint64_t timeout_ns,
             struct proc_answer *ret, struct err *err)
{
    vols_lock(vs);
    struct proc *p = v->p ? proc_ref(v->p) : NULL;
    m->h.disk = v->disk;
    vols_unlock(vs);
    if (!p) {
        return fail(err, -EPIPE, "ProcessGone", "the data process of %s is gone", v->id);
    }
    int rc = proc_call(p, m, NULL, 0, timeout_ns, ret, err);
    proc_unref(p);
    return rc;
}

int vol_ask_state(struct vols *vs, struct vol *v, struct ctl_state *ret, struct err *err)
{
    uint64_t asked = time_mono_ns(), end = asked + STATE_NS;
    union ctl_msg m = {.h = {.op = CTL_STATE}};
    int rc = vol_call(vs, v, &m, STATE_NS, NULL, err);
    if (rc != 0) {
        return rc;
    }
    vols_lock(vs);
    while (v->p && v->state_ns < asked && vols_wait(vs, end)) {}
    bool is_new = v->state_ns >= asked;
    *ret = v->state;
    vols_unlock(vs);
    return is_new ? 0
                  : fail(err, -EAGAIN, "VolumeNotReady",
                         "the data process of %s tells no state", v->id);
}

/* --- serving
 * -------------------------------------------------------------------------------- */

static int listen_at(const char *path, mode_t mode, int *ret, struct err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n >= sizeof(sa.sun_path)) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s is too long for a socket", path);
    }
    memcpy(sa.sun_path, path, n);
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || chmod(path, mode) != 0 ||
        listen(fd, VU_BACKLOG) != 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    *ret = steal_fd(&fd);
    return 0;
}

/* The virtio serial, as AWS's NVMe disks have it: the id without its dash. */
static void serial_of(const struct vol *v, char out[24])
{
    (void)snprintf(out, 24, "vol%.17s", v->id + 4);
}

static int send_serve(struct vols *vs, struct vol *v, bool is_tool, struct err *err)
{
    struct proc *p = vol_proc(vs, v);
    bool is_nbd = is_tool || v->is_vu_nbd;
    union ctl_msg m = {.h = {.op = is_nbd ? CTL_SERVE_NBD : CTL_SERVE_VU, .disk = v->disk}};
    m.serve.uid = is_tool ? geteuid() : v->uid;
    m.serve.n_queues = is_nbd ? 0 : v->n_queues;
    m.h.arg = is_tool && v->is_nbd_read_only;
    serial_of(v, m.serve.serial);
    const int fd = is_tool ? v->nbd_fd : v->vu_fd;
    if (!p) {
        return fail(err, -EPIPE, "ProcessGone", "the data process of %s is gone", v->id);
    }
    int rc = proc_call(p, &m, &fd, 1, CALL_NS, NULL, err);
    proc_unref(p);
    return rc;
}

/* The socket is kept over the deaths of a process: who connects meanwhile waits in its queue.
 * */
static int serve(struct vols *vs, struct vol *v, bool is_tool, struct err *err)
{
    char path[108];
    int *fd = is_tool ? &v->nbd_fd : &v->vu_fd;
    int rc = 0;
    vol_path(vs, v->host, v->id, is_tool ? "nbd" : "sock", path);
    if (*fd < 0) {
        int made = -1;
        rc = listen_at(path, is_tool ? 0600 : 0666, &made, err);
        vols_lock(vs);
        *fd = made;
        vols_unlock(vs);
    }
    return rc != 0 ? rc : send_serve(vs, v, is_tool, err);
}

int vol_serve_guest(struct vols *vs, struct vol *v, const struct vol_guest *g, char path[108],
                    struct err *err)
{
    int rc = 0;
    if (v->is_vu && (v->uid != g->uid || v->is_vu_nbd != g->is_nbd ||
                     (v->n_queues != g->n_queues && !g->is_nbd))) {
        rc = vol_unserve(vs, v, false, err);
    }
    if (rc == 0 && g->is_nbd && v->is_nbd) { /* a disk has one service of a kind */
        rc = vol_unserve(vs, v, true, err);
    }
    if (rc == 0 && !v->is_vu) {
        vols_lock(vs);
        v->uid = g->uid;
        v->n_queues = g->n_queues;
        v->is_vu_nbd = g->is_nbd;
        v->is_vu = true;
        vols_unlock(vs);
        rc = vol_note_write(vs, v, err);
        rc = rc != 0 ? rc : serve(vs, v, false, err);
        if (rc != 0) {
            vols_lock(vs);
            v->is_vu = false;
            vols_unlock(vs);
        }
    }
    vols_lock(vs);
    v->served_ns = time_mono_ns();
    vols_unlock(vs);
    vol_path(vs, v->host, v->id, "sock", path);
    return rc;
}

int vol_serve_nbd(struct vols *vs, struct vol *v, bool is_read_only, char path[108],
                  struct err *err)
{
    int rc = 0;
    if (v->is_vu_nbd) { /* the guest's own: root may connect there too */
        vol_path(vs, v->host, v->id, "sock", path);
        return 0;
    }
    if (v->is_nbd && v->is_nbd_read_only != is_read_only) {
        rc = vol_unserve(vs, v, true, err);
    }
    if (rc == 0 && !v->is_nbd) {
        vols_lock(vs);
        v->is_nbd = true;
        v->is_nbd_read_only = is_read_only;
        vols_unlock(vs);
        rc = vol_note_write(vs, v, err);
        rc = rc != 0 ? rc : serve(vs, v, true, err);
        if (rc != 0) {
            vols_lock(vs);
            v->is_nbd = false;
            vols_unlock(vs);
        }
    }
    vol_path(vs, v->host, v->id, "nbd", path);
    return rc;
}

int vol_unserve(struct vols *vs, struct vol *v, bool is_nbd, struct err *err)
{
    char path[108];
    union ctl_msg m = {.h = {.op = CTL_UNSERVE, .arg = is_nbd || v->is_vu_nbd}};
    int rc = vol_call(vs, v, &m, CALL_NS, NULL, err);
    if (rc != 0) {
        return rc;
    }
    vols_lock(vs);
    int *fd = is_nbd ? &v->nbd_fd : &v->vu_fd;
    int old = *fd;
    *fd = -1;
    if (is_nbd) {
        v->is_nbd = false;
    } else {
        v->is_vu = v->is_vu_nbd = false;
    }
    vols_unlock(vs);
    if (old >= 0) {
        close(old);
    }
    vol_path(vs, v->host, v->id, is_nbd ? "nbd" : "sock", path);
    (void)unlink(path);
    return vol_note_write(vs, v, err);
}

/* --- after a death
 * -------------------------------------------------------------------------- */

/* The frontend comes back and what was under way is done again: until then this volume is the
 * one that a second death is about. */
static void wait_for_replay(struct vols *vs, struct vol *v)
{
    vols_lock(vs);
    uint64_t end = v->p ? proc_start_ns(v->p) + VU_MEET_NS : 0;
    while (v->p && v->probation && !(v->state_ns != 0 && v->state.is_vu_connected) &&
           vols_wait(vs, end)) {}
    end = time_mono_ns() + VU_LIVE_NS;
    bool is_met = v->p && v->state_ns != 0 && v->state.is_vu_connected;
    while (is_met && v->p && vols_wait(vs, end)) {}
    vols_unlock(vs);
}

static int resume_uploads(struct vols *vs, struct vol *v)
{
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        union ctl_msg m = {.h = {.op = CTL_SNAP_READ}};
        memcpy(m.h.snap, v->uploads[i].snap, sizeof(m.h.snap));
        if (v->uploads[i].is_open && vol_call(vs, v, &m, CALL_NS, NULL, NULL) == -EPIPE) {
            return -EPIPE;
        }
    }
    return 0;
}

int vol_restore(struct vols *vs, struct vol *v, struct err *err)
{
    int rc = is_usable(v, err);
    bool was_adopted = v->p != NULL;
    rc = rc != 0 ? rc : open_in(vs, v, err);
    was_adopted = was_adopted || (rc == 0 && !v->probation);
    if (rc == 0 && !was_adopted) {
        rc = v->is_vu ? serve(vs, v, false, err) : 0;
        rc = rc != 0 || !v->is_nbd ? rc : serve(vs, v, true, err);
        vols_lock(vs);
        bool is_careful = host_find(vs, v->host)->has_crashed;
        vols_unlock(vs);
        if (rc == 0 && v->is_vu && !v->is_vu_nbd && is_careful) {
            wait_for_replay(vs, v);
        }
        rc = rc != 0 ? rc : resume_uploads(vs, v);
    }
    end_probation(vs, v, rc);
    vols_lock(vs);
    bool is_open = v->p != NULL;
    vols_unlock(vs);
    if (rc == -EPIPE || (rc == 0 && !is_open)) {
        return fail(err, -EAGAIN, "VolumeNotReady", "the data process of %s ended again",
                    v->id);
    }
    if (rc == 0) {
        log_info("volume.open_again", KV_CSTR("volume", v->id), KV_CSTR("process", v->host));
    }
    return rc;
}

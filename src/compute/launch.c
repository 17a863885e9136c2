/* Jobs of pool threads: what blocks on other services, on the file system and on new processes. */
#include "base/log.h"
#include "base/time.h"
#include "codec/json.h"
#include "compute/compute_int.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

LOG_MODULE("compute.launch");

#define RPC_TIMEOUT_NS  (UINT64_C(20) * NS_PER_S)
#define OPEN_PAUSE_US   100000u
#define LINK_TIMEOUT_NS (UINT64_C(2) * NS_PER_S)
#define LINK_PAUSE_NS   (UINT64_C(10) * NS_PER_S)
#define ADOPT_RETRY_NS  (UINT64_C(1) * NS_PER_S)
#define ADOPT_TRIES     10u
#define SOCKET_PATH_MAX 108u

struct job {
    struct compute *c;
    char id[GUEST_ID_MAX], account[16];
    struct err err;
    int r;
    /* launch */
    struct spawn_plan plan;
    char type[32], volume_id[GM_N_DISKS][GM_NAME_MAX], mac[GM_N_NICS][24],
        eni_id[GM_N_NICS][GM_NAME_MAX];
    bool has_nic[GM_N_NICS];
    int conn_fd;
    /* adopt */
    enum spawn_found found;
    /* one disk */
    char disk[GM_NAME_MAX], path[GM_N_DISKS][SOCKET_PATH_MAX];
    uint64_t size[GM_N_DISKS];
    bool is_forced;
    /* links */
    bool is_link_up;
};

static struct job *job_new(struct guest *g)
{
    struct job *j = calloc(1, sizeof(*j));
    if (!j) {
        abort();
    }
    j->c = g->c;
    memcpy(j->id, g->id, sizeof(j->id));
    memcpy(j->account, g->account, sizeof(j->account));
    j->conn_fd = -1;
    return j;
}

static bool job_submit(struct job *j, loop_fn work, loop_fn done)
{
    if (pool_submit(j->c->pool, work, j->c->o.loop, done, j) < 0) {
        free(j);
        return false;
    }
    j->c->n_jobs++;
    return true;
}

/* The job's guest, if it is still there; counts the job as done. */
static struct guest *job_end(struct job *j)
{
    j->c->n_jobs--;
    return compute_guest(j->c, j->id);
}

/* ---- other services ---- */

static int call(struct rpc_client *to, const char *method, struct buf *args,
                uint64_t timeout_ns, struct rpc_reply *reply, struct json **ret,
                struct err *err)
{
    if (!buf_ok(args)) {
        return fail(err, -ENOMEM, "InternalError", "no memory for a request");
    }
    int r = rpc_call(to, str_c(method), buf_str(args), NULL, 0, timeout_ns, reply, err);
    return r < 0 ? r : json_parse(str_n(reply->payload, reply->n), ret, err);
}

static void volume_args(struct jw *w, struct buf *args, const struct job *j, const char *volume)
{
    jw_init(w, args);
    jw_obj(w, NULL);
    jw_cstr(w, "account", j->account);
    jw_cstr(w, "volume_id", volume);
    jw_cstr(w, "instance_id", j->id);
}

/* Has the block service open the volume for this guest's user: ret is the path of its socket. */
static int open_volume(struct job *j, const char *volume, char ret[SOCKET_PATH_MAX],
                       uint64_t *ret_size)
{
    AUTO_BUF args;
    buf_init(&args, 1024);
    struct jw w;
    volume_args(&w, &args, j, volume);
    jw_u64(&w, "uid", j->plan.note.uid);
    jw_u64(&w, "n_queues", qemu_disk_queues(j->plan.qemu.n_vcpus));
    jw_cstr(&w, "transport", j->c->o.host->is_kvm ? "vhost-user" : "nbd");
    jw_obj_end(&w);
    AUTO(rpc_reply_done) struct rpc_reply reply = {0};
    AUTO(json_freep) struct json *a = NULL;
    uint64_t end_ns = time_mono_ns() + RPC_TIMEOUT_NS;
    int r = 0;
    for (;;) {
        r = call(j->c->block, "volume.open", &args, RPC_TIMEOUT_NS, &reply, &a, &j->err);
        /* What serves it was killed just now, or whoever had it before has not let go: soon. */
        bool is_passing = r == -EAGAIN || r == -EBUSY || r == -ECONNRESET;
        if (!is_passing || time_mono_ns() >= end_ns) {
            break;
        }
        err_clear(&j->err);
        (void)usleep(OPEN_PAUSE_US);
    }
    if (r < 0) {
        return err_context(&j->err, r, "volume %s", volume);
    }
    struct str path = json_get_str(a, "path");
    if (path.n < 2 || path.n >= SOCKET_PATH_MAX || path.p[0] != '/') {
        return fail(&j->err, -EPROTO, "BadAnswer", "volume %s: no socket was named", volume);
    }
    (void)snprintf(ret, SOCKET_PATH_MAX, "%.*s", STR_ARG(path));
    *ret_size = json_get_u64(a, "size", 0);
    return 0;
}

static int open_eni(struct compute *c, const char *account, const char *eni, size_t n_queues,
                    struct qemu_nic *ret, char mac[24], struct err *err)
{
    AUTO_BUF args;
    buf_init(&args, 1024);
    struct jw w;
    jw_init(&w, &args);
    jw_obj(&w, NULL);
    jw_cstr(&w, "account", account);
    jw_cstr(&w, "eni_id", eni);
    jw_u64(&w, "n_queues", n_queues);
    jw_obj_end(&w);
    AUTO(rpc_reply_done) struct rpc_reply reply = {0};
    AUTO(json_freep) struct json *j = NULL;
    int r = call(c->net, "eni.open", &args, RPC_TIMEOUT_NS, &reply, &j, err);
    if (r == 0 && (reply.n_fds < 1 || reply.n_fds > n_queues)) {
        r = fail(err, -EPROTO, "BadAnswer", "the network service gave %zu descriptors",
                 reply.n_fds);
    }
    if (r < 0) {
        return err_context(err, r, "network interface %s", eni);
    }
    (void)snprintf(mac, 24, "%.*s", STR_ARG(json_get_str(j, "mac")));
    ret->mac = mac;
    ret->mtu = json_get_u64(j, "mtu", c->o.cfg->guest_mtu);
    ret->n_queues = reply.n_fds;
    for (size_t i = 0; i < reply.n_fds; i++) {
        ret->fds[i] = steal_fd(&reply.fds[i]);
    }
    return 0;
}

/* ---- start ---- */

static void close_plan(struct qemu_launch *q)
{
    for (unsigned i = 0; i < GM_N_NICS; i++) {
        for (size_t k = 0; k < q->nic[i].n_queues; k++) {
            close(q->nic[i].fds[k]);
        }
    }
}

static void launch_work(void *ctx)
{
    struct job *j = ctx;
    struct qemu_launch *q = &j->plan.qemu;
    size_t n_queues = (size_t)MIN(q->n_vcpus, (uint64_t)QEMU_MAX_QUEUES);
    for (unsigned i = 0; i < GM_N_NICS && j->r == 0; i++) {
        if (j->has_nic[i]) {
            j->r = open_eni(j->c, j->account, j->eni_id[i], n_queues, &q->nic[i], j->mac[i],
                            &j->err);
        }
    }
    for (unsigned i = 0; i < GM_N_DISKS && j->r == 0; i++) {
        struct qemu_disk *d = &q->disk[i];
        if (j->volume_id[i][0]) {
            d->volume_id = j->volume_id[i];
            d->path = j->path[i];
            j->r = open_volume(j, j->volume_id[i], j->path[i], &j->size[i]);
        }
    }
    if (j->r == 0) {
        j->r = spawn_guest(&j->c->spawn, &j->plan, &j->conn_fd, &j->err);
    }
    close_plan(q);
}

static void launch_done(void *ctx)
{
    struct job *j = ctx;
    struct guest *g = job_end(j);
    AUTO_FD conn = j->conn_fd;
    if (g) {
        g->is_launching = false;
        if (j->r < 0) {
            log_warn("launch.failed", KV_CSTR("id", g->id), KV_ERR(&j->err));
            g->has_note = false;
            guest_set_end(g, VM_END_FAILED, j->err.msg);
        } else {
            g->note = j->plan.note;
            for (unsigned i = 0; i < GM_N_DISKS; i++) {
                guest_disk_started(g, j->volume_id[i], j->path[i], j->size[i]);
            }
            guest_connect(g, steal_fd(&conn));
            if (g->is_quit_due) {
                guest_send_now(g, GM_OP_QUIT, STR_NONE);
            }
        }
        g->is_quit_due = false;
        guest_step(g);
    }
    free(j);
}

void launch_start(struct guest *g)
{
    const struct instance *s = guest_spec(g);
    const struct host *h = g->c->o.host;
    struct job *j = job_new(g);
    struct spawn_plan *p = &j->plan;
    g->proc = VM_PROC_LAUNCHING;
    memset(&p->note, 0, sizeof(p->note));
    memcpy(p->note.id, g->id, sizeof(p->note.id));
    memcpy(p->note.account, g->account, sizeof(p->note.account));
    (void)snprintf(p->note.arch, sizeof(p->note.arch), "%.*s", STR_ARG(s->arch));
    (void)snprintf(p->note.accel, sizeof(p->note.accel), "%s", h->is_kvm ? "kvm" : "tcg");
    p->note.uid_slot = compute_free_slot(g->c);
    p->note.uid = spawn_uid(&g->c->spawn, p->note.uid_slot);
    (void)snprintf(j->type, sizeof(j->type), "%.*s", STR_ARG(s->instance_type));
    p->qemu = (struct qemu_launch){
        .id = j->id,
        .arch = p->note.arch,
        .type = j->type,
        .is_kvm = h->is_kvm,
        .is_uefi = str_eqc(s->boot_mode, "uefi"),
        .n_vcpus = s->n_vcpus,
        .memory_mib = s->memory_mib,
        .vars_fd = -1,
        .firmware = h->firmware,
    };
    if (p->qemu.is_uefi && !h->firmware) {
        j->r = fail(&j->err, -ENOENT, "NoFirmware",
                    "the image starts by UEFI, and no UEFI firmware is installed");
    } else if (strcmp(p->note.arch, h->arch) != 0) {
        j->r = fail(&j->err, -EINVAL, "BadArchitecture", "the image is for %s, this host is %s",
                    p->note.arch, h->arch);
    }
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        const struct guest_disk *d = &g->disk[i];
        if (d->id[0] && d->is_wanted && d->slot < GM_N_DISKS) {
            memcpy(j->volume_id[d->slot], d->id, GM_NAME_MAX);
            p->qemu.disk[d->slot].is_root = d->is_root;
        }
    }
    for (unsigned i = 0; i < g->n_nics; i++) {
        j->has_nic[i] = true;
        memcpy(j->eni_id[i], g->nic[i].id, GM_NAME_MAX);
    }
    g->note = p->note;
    g->has_note = true;
    if (job_submit(j, launch_work, launch_done)) {
        g->is_launching = true;
    } else {
        g->has_note = false;
        guest_set_end(g, VM_END_FAILED, "too many launches at once");
    }
}

/* ---- find again ---- */

static void adopt_work(void *ctx)
{
    struct job *j = ctx;
    j->r = spawn_adopt(&j->c->spawn, j->id, &j->found, &j->plan.note, &j->conn_fd, &j->err);
}

static void adopt_done(void *ctx)
{
    struct job *j = ctx;
    struct guest *g = job_end(j);
    AUTO_FD conn = j->conn_fd;
    if (g) {
        g->is_adopting = false;
        g->n_adopt_tries = j->r == -EAGAIN ? g->n_adopt_tries : 0;
        if (j->r < 0) {
            log_warn_rl("adopt.failed", KV_CSTR("id", g->id), KV_ERR(&j->err));
            g->is_pending_adopt = true;
            g->adopt_ns = loop_now_ns(g->c->o.loop) + ADOPT_RETRY_NS;
            /* A monitor that lives and does not answer is of no use: the next one takes over. */
            if (j->r == -EAGAIN && ++g->n_adopt_tries >= ADOPT_TRIES) {
                (void)proc_kill(&j->plan.note.monitor);
            }
        } else if (j->found == SPAWN_NOTHING) {
            guest_run_remove(&g->c->spawn.dirs, g->id);
            g->proc = VM_PROC_NONE;
        } else {
            g->note = j->plan.note;
            g->has_note = true;
            if (j->found == SPAWN_GONE) {
                guest_set_end(g, VM_END_CRASH, "QEMU and its monitor were killed");
            } else {
                g->proc = VM_PROC_LAUNCHING;
                guest_connect(g, steal_fd(&conn));
            }
        }
        guest_step(g);
    }
    free(j);
}

void launch_adopt(struct guest *g)
{
    g->is_adopting = job_submit(job_new(g), adopt_work, adopt_done);
    g->is_pending_adopt = !g->is_adopting;
    g->adopt_ns = loop_now_ns(g->c->o.loop) + ADOPT_RETRY_NS;
}

/* ---- one more disk ---- */

static struct job *disk_job(struct guest *g, const struct guest_disk *d)
{
    const struct instance *s = guest_spec(g);
    struct job *j = job_new(g);
    memcpy(j->disk, d->id, sizeof(j->disk));
    j->plan.note.uid = g->note.uid;
    j->plan.qemu.n_vcpus = s ? s->n_vcpus : 1;
    j->is_forced = d->is_forced || !d->is_named;
    return j;
}

static void disk_work(void *ctx)
{
    struct job *j = ctx;
    j->r = open_volume(j, j->disk, j->path[0], &j->size[0]);
}

static void disk_done(void *ctx)
{
    struct job *j = ctx;
    struct guest *g = job_end(j);
    if (g) {
        guest_disk_opened(g, j->disk, j->r < 0 ? NULL : j->path[0], j->size[0], &j->err);
        guest_step(g);
    }
    free(j);
}

void launch_open_disk(struct guest *g, const struct guest_disk *d)
{
    if (!job_submit(disk_job(g, d), disk_work, disk_done)) {
        struct err err = ERR_INIT;
        (void)fail(&err, -EAGAIN, "SlowDown", "too much is being done at once");
        guest_disk_opened(g, d->id, NULL, 0, &err);
    }
}

static void close_work(void *ctx)
{
    struct job *j = ctx;
    AUTO_BUF args;
    buf_init(&args, 1024);
    struct jw w;
    volume_args(&w, &args, j, j->disk);
    jw_bool(&w, "is_forced", j->is_forced);
    jw_obj_end(&w);
    AUTO(rpc_reply_done) struct rpc_reply reply = {0};
    AUTO(json_freep) struct json *a = NULL;
    j->r = call(j->c->block, "volume.close", &args, RPC_TIMEOUT_NS, &reply, &a, &j->err);
}

static void close_done(void *ctx)
{
    struct job *j = ctx;
    struct guest *g = job_end(j);
    if (g) {
        guest_disk_closed(g, j->disk, &j->err);
        guest_step(g);
    }
    free(j);
}

void launch_close_disk(struct guest *g, const struct guest_disk *d)
{
    if (!job_submit(disk_job(g, d), close_work, close_done)) {
        struct err err = ERR_INIT;
        (void)fail(&err, -EAGAIN, "SlowDown", "too much is being done at once");
        guest_disk_closed(g, d->id, &err);
    }
}

/* ---- links ---- */

static void link_work(void *ctx)
{
    struct job *j = ctx;
    AUTO_BUF args;
    buf_init(&args, 256);
    buf_fmt(&args, "{\"account\":\"%s\",\"eni_id\":\"%s\"}", j->account, j->eni_id[0]);
    AUTO(rpc_reply_done) struct rpc_reply reply = {0};
    AUTO(json_freep) struct json *a = NULL;
    j->r = call(j->c->net, "eni.state", &args, LINK_TIMEOUT_NS, &reply, &a, &j->err);
    j->is_link_up = json_get_bool(a, "is_link_up", false);
}

static void link_done(void *ctx)
{
    struct job *j = ctx;
    struct guest *g = job_end(j);
    if (g) {
        g->is_looking = false;
        if (j->r == 0) { /* a network service that is away says nothing about the link */
            g->is_link_known = true;
            g->is_link_up = j->is_link_up;
        }
    }
    free(j);
}

void launch_look_at_link(struct guest *g)
{
    g->link_ns = loop_now_ns(g->c->o.loop) + LINK_PAUSE_NS;
    if (g->n_nics == 0 || g->is_looking) {
        return;
    }
    struct job *j = job_new(g);
    memcpy(j->eni_id[0], g->nic[0].id, GM_NAME_MAX);
    g->is_looking = job_submit(j, link_work, link_done);
}

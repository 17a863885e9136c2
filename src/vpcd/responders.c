#include "vpcd/responders.h"

#include "base/file.h"
#include "base/log.h"
#include "base/omap.h"
#include "base/rand.h"
#include "base/time.h"
#include "codec/json.h"
#include "crypto/digest.h"
#include "loop/child.h"
#include "net/rpc.h"
#include "os/proc_id.h"
#include "vpcd/own_dir.h"
#include "vpcd/resp_facts.h"
#include "vpcd/resp_sockets.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

LOG_MODULE("vpcd.responders");

#define PATH_SIZE       256
#define CALL_TIMEOUT_NS (3 * NS_PER_S)
#define FACTS_MAX       (2u << 20)
#define KEY_DIGITS      64
#define MAX_FILES       16384u

struct responder {
    pid_t pid;
    int pidfd; /* -1 = none runs */
    struct rpc_client *rpc;
    char upstreams[RESP_UPSTREAMS_TEXT];
    bool is_synced;        /* it has got everything once */
    char vpc_sum[41];      /* of the facts that it has */
    struct omap *eni_sums; /* id -> char[41] */
    char key[KEY_DIGITS + 1];
    uint64_t spawned_ns;
    unsigned n_spawns;
};

struct responders {
    const struct config *cfg;
    char dir[PATH_SIZE], exe[PATH_SIZE];
    int wait_fd;
    struct omap *all; /* vpc id -> struct responder */
};

static int own_path(const struct responders *r, struct str vpc_id, const char *what,
                    char out[PATH_SIZE], struct err *err)
{
    int n = snprintf(out, PATH_SIZE, "%s/%.*s%s", r->dir, STR_ARG(vpc_id), what);
    return n < 0 || n >= PATH_SIZE
               ? fail(err, -ENAMETOOLONG, "BadConfig", "run_dir is too long")
               : 0;
}

/* The responder's program lies beside ours. */
static int find_exe(char out[PATH_SIZE], struct err *err)
{
    char self[PATH_SIZE];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0) {
        return fail(err, -errno, "OpenFailed", "/proc/self/exe: %m");
    }
    self[n] = 0;
    char *slash = strrchr(self, '/');
    int len = snprintf(out, PATH_SIZE, "%.*s/spx-vpc-responder",
                       slash ? (int)(slash - self) : 0, self);
    if (len < 0 || len >= PATH_SIZE || access(out, X_OK)) {
        return fail(err, -ENOENT, "OpenFailed", "%s is not there", out);
    }
    return 0;
}

int responders_new(const struct config *cfg, struct responders **ret, struct err *err)
{
    struct responders *r = calloc(1, sizeof(*r));
    if (!r) {
        abort();
    }
    r->cfg = cfg;
    r->all = omap_new();
    r->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    int n = snprintf(r->dir, sizeof(r->dir), "%s/vpcd", cfg->run_dir);
    int e = r->wait_fd < 0 ? fail(err, -errno, "StartFailed", "epoll: %m") : 0;
    e = !e && (n < 0 || (size_t)n >= sizeof(r->dir))
            ? fail(err, -ENAMETOOLONG, "BadConfig", "run_dir is too long")
            : e;
    e = e ? e : own_dir(r->dir, 0711, err);
    e = e ? e : find_exe(r->exe, err);
    if (e) {
        responders_free(r);
        return e;
    }
    *ret = r;
    return 0;
}

static void disconnect(struct responder *p)
{
    rpc_client_free(p->rpc);
    p->rpc = NULL;
    if (p->pidfd >= 0) {
        close(p->pidfd); /* leaves the epoll set by itself */
    }
    p->pidfd = -1;
    p->is_synced = false;
    p->vpc_sum[0] = 0;
    omap_free(p->eni_sums, free);
    p->eni_sums = omap_new();
}

static void responder_free(void *v)
{
    struct responder *p = v;
    if (p) {
        disconnect(p);
        omap_free(p->eni_sums, NULL);
        free(p);
    }
}

void responders_free(struct responders *r)
{
    if (r) {
        omap_free(r->all, responder_free);
        if (r->wait_fd >= 0) {
            close(r->wait_fd);
        }
        free(r);
    }
}

int responders_wait_fd(const struct responders *r)
{
    return r->wait_fd;
}

/* ---- the process ---- */

static bool has_ended(int pidfd, int timeout_ms)
{
    struct pollfd pf = {.fd = pidfd, .events = POLLIN};
    return poll(&pf, 1, timeout_ms) > 0;
}

static void reap(pid_t pid)
{
    (void)waitpid(pid, NULL, WNOHANG); /* ours only when this vpcd started it */
}

static int attach(struct responders *r, struct responder *p, struct str vpc_id, struct err *err)
{
    char sock[PATH_SIZE];
    int e = own_path(r, vpc_id, "/control.sock", sock, err);
    struct epoll_event ev = {.events = EPOLLIN};
    if (!e && epoll_ctl(r->wait_fd, EPOLL_CTL_ADD, p->pidfd, &ev)) {
        e = fail(err, -errno, "StartFailed", "epoll: %m");
    }
    if (e) {
        disconnect(p);
        return e;
    }
    p->rpc = rpc_client_new(sock, NULL, NULL);
    return 0;
}

/* A folder of its own, in which the process may make its socket and nothing else. */
static int make_home(struct responders *r, struct str vpc_id, char home[PATH_SIZE],
                     struct err *err)
{
    int e = own_path(r, vpc_id, "", home, err);
    e = e ? e : file_mkdirs(home, 0700, err);
    uid_t uid = (uid_t)(r->cfg->uid_base ? r->cfg->uid_base + CONFIG_UID_VPCD : 0);
    if (!e && uid && chown(home, uid, uid)) {
        e = fail(err, -errno, "StartFailed", "%s: %m", home);
    }
    return e;
}

static void close_fds(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
}

static int spawn_with(struct responders *r, struct native *n, const char *home, const int *fds,
                      size_t n_fds, pid_t *ret_pid, struct err *err)
{
    char sock[PATH_SIZE + 16];
    snprintf(sock, sizeof(sock), "%s/control.sock", home);
    const char *argv[] = {
        r->exe, "--control", sock, "--log-level", log_is_on(LOG_LEVEL_DEBUG) ? "debug" : "info",
        NULL};
    struct child_fd pass[CHILD_MAX_FDS];
    for (size_t i = 0; i < n_fds; i++) {
        pass[i] = (struct child_fd){fds[i], RESP_FD_FIRST + (int)i};
    }
    uid_t uid = (uid_t)(r->cfg->uid_base ? r->cfg->uid_base + CONFIG_UID_VPCD : 0);
    const struct child_opts o = {
        .argv = argv,
        .out_fd = 2,
        .err_fd = 2,
        .fds = pass,
        .n_fds = n_fds,
        .is_user_set = uid != 0,
        .uid = uid,
        .gid = uid,
        .has_new_session = true,
        .has_no_new_privs = true,
        .has_no_core = true,
        .netns_fd = native_empty_ns(n),
        .max_files = MAX_FILES,
    };
    return child_spawn(&o, ret_pid, err);
}

static int spawn(struct responders *r, struct responder *p, struct native *n,
                 const struct plan_vpc *v, struct err *err)
{
    char home[PATH_SIZE], pid_file[PATH_SIZE];
    int fds[RESP_FD_N];
    pid_t pid = 0;
    int e = make_home(r, v->spec->id, home, err);
    e = e ? e : own_path(r, v->spec->id, ".pid", pid_file, err);
    e = e ? e : resp_sockets_open(native_vpc_ns(n, v->spec->id), v->net + 2, fds, err);
    if (e) {
        return e;
    }
    e = spawn_with(r, n, home, fds, RESP_FD_N, &pid, err);
    close_fds(fds, RESP_FD_N);
    if (e) {
        return e;
    }
    p->pid = pid;
    p->spawned_ns = time_mono_ns();
    p->n_spawns++;
    e = proc_id_save(pid_file, pid, err);
    p->pidfd = e ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    if (p->pidfd < 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return e ? e : fail(err, -errno, "StartFailed", "pidfd: %m");
    }
    log_info("responder.started", KV_STR("vpc", v->spec->id), KV_I64("pid", pid));
    return attach(r, p, v->spec->id, err);
}

/* One that dies at once is not started in a tight circle. */
static bool may_spawn(const struct responder *p)
{
    return p->n_spawns < 3 || time_mono_ns() - p->spawned_ns > NS_PER_S;
}

static int make_sure_it_runs(struct responders *r, struct responder *p, struct native *n,
                             const struct plan_vpc *v, struct err *err)
{
    if (p->pidfd >= 0 && has_ended(p->pidfd, 0)) {
        log_warn("responder.died", KV_STR("vpc", v->spec->id), KV_I64("pid", p->pid));
        reap(p->pid);
        disconnect(p);
    }
    if (p->pidfd >= 0) {
        return 0;
    }
    char pid_file[PATH_SIZE];
    int e = own_path(r, v->spec->id, ".pid", pid_file, err);
    if (!e && p->n_spawns == 0 && !proc_id_open(pid_file, &p->pid, &p->pidfd, NULL)) {
        log_info("responder.adopted", KV_STR("vpc", v->spec->id), KV_I64("pid", p->pid));
        return attach(r, p, v->spec->id, err);
    }
    if (!e && !may_spawn(p)) {
        e = fail(err, -EAGAIN, "NotReady", "the responder died again");
    }
    return e ? e : spawn(r, p, n, v, err);
}

/* ---- its facts ---- */

/* The key outlives responder and vpcd, so that tokens do. */
static int load_key(struct responders *r, struct responder *p, struct str vpc_id,
                    struct err *err)
{
    char path[PATH_SIZE];
    int e = p->key[0] ? 0 : own_path(r, vpc_id, ".key", path, err);
    if (e || p->key[0]) {
        return e;
    }
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    if (!file_read(path, 128, &text, &n, NULL) && n == KEY_DIGITS) {
        memcpy(p->key, text, KEY_DIGITS);
        return 0;
    }
    rand_hex(p->key, KEY_DIGITS);
    e = file_write_atomic(path, str_n(p->key, KEY_DIGITS), 0600, err);
    if (e) {
        p->key[0] = 0;
    }
    return e;
}

static int tell_with(struct responder *p, const char *method, struct str payload,
                     const int *fds, size_t n_fds, struct err *err)
{
    struct rpc_reply reply;
    int e = rpc_call(p->rpc, str_c(method), payload, fds, n_fds, CALL_TIMEOUT_NS, &reply, err);
    if (!e) {
        rpc_reply_done(
            &reply); /* what it says is not looked at: it has read what guests send */
    }
    return e;
}

static int tell(struct responder *p, const char *method, struct str payload, struct err *err)
{
    return tell_with(p, method, payload, NULL, 0, err);
}

/* Name servers: sockets in the host's namespace, new ones when the host's network has changed. */
static int tell_upstreams(struct responders *r, struct responder *p, struct err *err)
{
    char now[RESP_UPSTREAMS_TEXT];
    int fds[RESP_MAX_UPSTREAMS * RESP_UPSTREAM_SOCKETS];
    size_t n = 0;
    resp_upstreams_text(r->cfg, now);
    if (p->is_synced && !strcmp(now, p->upstreams)) {
        return 0;
    }
    int e = resp_upstreams_open(r->cfg, fds, &n, err);
    if (!e) {
        e = tell_with(p, "upstreams.set", STR("{}"), fds, n, err);
        close_fds(fds, n);
    }
    memcpy(p->upstreams, e ? "" : now, e ? 1 : sizeof(now));
    return e;
}

static void sum_of(struct str s, char out[41])
{
    uint8_t d[SHA1_SIZE];
    sha1(s, d);
    digest_hex(d, SHA1_SIZE, out);
}

static int tell_eni(struct responders *r, struct responder *p, struct native *n,
                    const struct plan_vpc *v, const struct plan_eni *e, bool is_all,
                    struct err *err)
{
    AUTO_BUF b;
    buf_init(&b, FACTS_MAX);
    int ret =
        resp_facts_eni(r->cfg, v, e, native_ifindex(n, v->spec->id, e->spec->id), &b, err);
    char sum[41], *have = omap_get(p->eni_sums, e->spec->id);
    sum_of(buf_str(&b), sum);
    if (ret || (!is_all && have && !strcmp(have, sum))) {
        return ret;
    }
    ret = tell(p, "eni.set", buf_str(&b), err);
    if (!ret) {
        char *copy = strdup(sum);
        if (!copy) {
            abort();
        }
        free(omap_put(p->eni_sums, e->spec->id, copy));
    }
    return ret;
}

static int tell_gone(struct responder *p, const struct plan_vpc *v, struct err *err)
{
    int ret = 0;
    for (struct omap_node *node = omap_seek(p->eni_sums, STR("")); !ret && node;) {
        struct str id = omap_key(node);
        node = omap_next(node);
        bool is_here = false;
        for (size_t i = 0; i < v->n_enis && !is_here; i++) {
            is_here = str_eq(v->enis[i].spec->id, id);
        }
        if (!is_here) {
            char json[96];
            int len = snprintf(json, sizeof(json), "{\"id\":\"%.*s\"}",
                               STR_ARG(id)); /* well-formed: plan.c */
            ret = tell(p, "eni.del", str_n(json, (size_t)len), err);
            free(ret ? NULL : omap_remove(p->eni_sums, id));
        }
    }
    return ret;
}

static int tell_facts(struct responders *r, struct responder *p, struct native *n,
                      const struct plan_vpc *v, bool is_full, struct err *err)
{
    AUTO_BUF b;
    buf_init(&b, FACTS_MAX);
    bool is_all = !p->is_synced;
    int e = resp_facts_vpc(r->cfg, v, p->key, &b, err);
    char sum[41];
    sum_of(buf_str(&b), sum);
    if (!e && is_all) {
        e = tell(p, "sync.begin", STR("{}"), err);
    }
    e = e ? e : tell_upstreams(r, p, err);
    if (!e && (is_all || strcmp(sum, p->vpc_sum) != 0)) {
        e = tell(p, "vpc.set", buf_str(&b), err);
        memcpy(p->vpc_sum, e ? "" : sum, e ? 1 : sizeof(sum));
    }
    for (size_t i = 0; !e && i < v->n_enis; i++) {
        e = tell_eni(r, p, n, v, &v->enis[i], is_all, err);
    }
    if (!e && is_all) {
        e = tell(p, "sync.end", STR("{}"), err);
    } else if (!e) {
        e = tell_gone(p, v, err);
        e = !e && is_full ? tell(p, "ping", STR("{}"), err)
                          : e; /* one that hangs is found, and replaced */
    }
    p->is_synced = !e;
    return e;
}

int responders_apply(struct responders *r, struct native *n, const struct plan_vpc *v,
                     bool is_full, struct err *err)
{
    struct responder *p = omap_get(r->all, v->spec->id);
    if (!p) {
        p = calloc(1, sizeof(*p));
        if (!p) {
            abort();
        }
        p->pidfd = -1;
        p->eni_sums = omap_new();
        omap_put(r->all, v->spec->id, p);
    }
    struct err why = ERR_INIT;
    int e = load_key(r, p, v->spec->id, &why);
    e = e ? e : make_sure_it_runs(r, p, n, v, &why);
    e = e ? e : tell_facts(r, p, n, v, is_full, &why);
    if (e && p->pidfd >= 0 && p->rpc && (e == -ETIMEDOUT || e == -ENOTCONN) &&
        time_mono_ns() - p->spawned_ns > 5 * NS_PER_S) {
        /* It runs and does not listen: a new one is better than none. */
        log_warn("responder.hangs", KV_STR("vpc", v->spec->id), KV_I64("pid", p->pid));
        (void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
    }
    return e ? fail(err, e, why.name, "responder of %.*s: %s", STR_ARG(v->spec->id), why.msg)
             : 0;
}

static void end_process(const char *pid_file)
{
    pid_t pid = 0;
    AUTO_FD pidfd = -1;
    if (proc_id_open(pid_file, &pid, &pidfd, NULL)) {
        return;
    }
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
    if (!has_ended(pidfd, 2000)) {
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        (void)has_ended(pidfd, 2000);
    }
    reap(pid);
}

static void remove_files(const struct responders *r, struct str vpc_id)
{
    static const char *const files[] = {"/control.sock", ".pid", ".key"};
    char path[PATH_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (!own_path(r, vpc_id, files[i], path, NULL)) {
            (void)unlink(path);
        }
    }
    if (!own_path(r, vpc_id, "", path, NULL)) {
        (void)rmdir(path);
    }
}

void responders_remove(struct responders *r, struct str vpc_id)
{
    char pid_file[PATH_SIZE];
    if (!own_path(r, vpc_id, ".pid", pid_file, NULL)) {
        end_process(pid_file);
    }
    remove_files(r, vpc_id);
    responder_free(omap_remove(r->all, vpc_id));
}

int responders_teardown(const struct config *cfg, struct err *err)
{
    AUTO(responders_freep) struct responders *r = NULL;
    int e = responders_new(cfg, &r, err);
    if (e) {
        return e;
    }
    DIR *d = opendir(r->dir);
    for (struct dirent *de = d ? readdir(d) : NULL; de; de = readdir(d)) {
        struct str name = str_c(de->d_name);
        if (str_has_prefixc(name, "vpc-") &&
            (str_has_suffix(name, STR(".pid")) || str_has_suffix(name, STR(".key")))) {
            char id[64];
            snprintf(id, sizeof(id), "%.*s", (int)(name.n - 4), name.p);
            responders_remove(r, str_c(id));
        }
    }
    if (d) {
        closedir(d);
    }
    return 0;
}

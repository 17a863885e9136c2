#include "state/state.h"

#include "base/log.h"
#include "base/time.h"
#include "codec/json.h"
#include "state/dump.h"

#include <errno.h>
#include <sys/stat.h>

LOG_MODULE("state.admin");

struct admin_job {
    struct state *st;
    struct rpc_req *req;
    int fd;
    uint64_t keep;
    bool is_forced;
};

static void answer(struct admin_job *j, int r, const struct err *err, const struct buf *b)
{
    if (r < 0) {
        rpc_reply_err(j->req, err);
    } else {
        rpc_reply(j->req, buf_str(b), NULL, 0);
    }
    if (j->fd >= 0) {
        close(j->fd);
    }
    free(j);
}

static void put_count(struct buf *b, const char *name, uint64_t n, uint64_t rev)
{
    struct jw w;
    jw_init(&w, b);
    jw_obj(&w, NULL);
    jw_u64(&w, name, n);
    jw_u64(&w, "revision", rev);
    jw_obj_end(&w);
}

static void dump_job(void *ctx)
{
    struct admin_job *j = ctx;
    struct err err = ERR_INIT;
    uint64_t n = 0, rev = 0;
    AUTO_BUF b;
    buf_init(&b, 4096);
    int r = dump_write(j->st->kv, j->fd, &n, &rev, &err);
    put_count(&b, "keys", n, rev);
    answer(j, r, &err, &b);
}

static void restore_job(void *ctx)
{
    struct admin_job *j = ctx;
    struct err err = ERR_INIT;
    uint64_t n = 0;
    AUTO_BUF b;
    buf_init(&b, 4096);
    int r = dump_restore(j->st->kv, j->fd, j->is_forced, &n, &err);
    if (r == 0) {
        log_info("store.restored", KV_U64("keys", n));
    }
    put_count(&b, "keys", n, kv_revision(j->st->kv));
    answer(j, r, &err, &b);
}

static void compact_job(void *ctx)
{
    struct admin_job *j = ctx;
    struct err err = ERR_INIT;
    AUTO_BUF b;
    buf_init(&b, 4096);
    int r = kv_compact(j->st->kv, j->keep, &err);
    put_count(&b, "kept", j->keep, kv_revision(j->st->kv));
    answer(j, r, &err, &b);
}

static void reply_stats(struct state *st, struct rpc_req *req)
{
    struct kv_stats s;
    AUTO_BUF b;
    buf_init(&b, 8192);
    struct jw w;
    if (kv_stats(st->kv, &s) < 0) {
        s = (struct kv_stats){0};
    }
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_u64(&w, "revision", s.rev);
    jw_u64(&w, "compact_revision", s.compact_rev);
    jw_u64(&w, "history_events", s.n_history);
    jw_u64(&w, "history_size", s.history_size);
    jw_u64(&w, "transactions", s.n_txns);
    jw_u64(&w, "commits", s.n_commits);
    jw_u64(&w, "conflicts", s.n_conflicts);
    jw_u64(&w, "failures", s.n_failures);
    jw_u64(&w, "reopens", s.n_reopens);
    jw_u64(&w, "leases", s.n_leases);
    jw_u64(&w, "watches", s.n_watches);
    jw_u64(&w, "file_size", s.file_size);
    jw_u64(&w, "log_size", s.wal_size);
    jw_bool(&w, "is_failing", s.is_failing);
    jw_cstr(&w, "reason", s.is_failing ? s.reason : "");
    jw_obj_end(&w);
    rpc_reply(req, buf_str(&b), NULL, 0);
}

static int start(struct state *st, struct rpc_req *req, struct str payload, loop_fn fn,
                 const int *fds, size_t n_fds, bool needs_fd, struct err *err)
{
    struct json *json = NULL;
    if (payload.n && json_parse(payload, &json, err) < 0) {
        return -EINVAL;
    }
    struct admin_job *j = calloc(1, sizeof(*j));
    if (!j) {
        json_free(json);
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a job");
    }
    *j = (struct admin_job){.st = st,
                            .req = req,
                            .fd = -1,
                            .keep = json_get_u64(json, "keep", 0),
                            .is_forced = json_get_bool(json, "is_forced", false)};
    json_free(json);
    int r = 0;
    if (needs_fd && n_fds != 1) {
        r = fail(err, -EINVAL, "NoDescriptor", "exactly one descriptor of a file is needed");
    } else if (needs_fd) {
        j->fd = dup(fds[0]);
        r = j->fd < 0 ? fail(err, -errno, "NoDescriptor", "%m") : 0;
    }
    if (r == 0 && pool_submit(st->slow, fn, NULL, NULL, j) < 0) {
        r = fail(err, -EBUSY, "SlowDown", "other jobs of this kind are waiting");
    }
    if (r < 0) {
        if (j->fd >= 0) {
            close(j->fd);
        }
        free(j);
    }
    return r;
}

bool admin_handle(struct state *st, struct rpc_req *req, struct str method, struct str payload,
                  const int *fds, size_t n_fds)
{
    static const struct {
        const char *method;
        loop_fn fn; /* NULL: answered at once */
        bool needs_fd;
    } methods[] = {
        {"stats", NULL, false},
        {"compact", compact_job, false},
        {"dump", dump_job, true},
        {"restore", restore_job, true},
    };
    size_t i = 0;
    while (i < ARRAY_LEN(methods) && !str_eqc(method, methods[i].method)) {
        i++;
    }
    if (i == ARRAY_LEN(methods)) {
        return false;
    }
    struct err err = ERR_INIT;
    uid_t uid = rpc_req_peer(req)->uid;
    int r = 0;
    if (uid != 0 && uid != geteuid()) {
        r = fail(&err, -EPERM, "AccessDenied", "only root may do that");
    } else if (!methods[i].fn) {
        reply_stats(st, req);
    } else {
        r = start(st, req, payload, methods[i].fn, fds, n_fds, methods[i].needs_fd, &err);
    }
    if (r < 0) {
        rpc_reply_err(req, &err);
    }
    return true;
}

#include "predastore/admin.h"

#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "codec/hex.h"
#include "codec/json.h"
#include "loop/pool.h"
#include "model/config.h"
#include "net/service_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

LOG_MODULE("predastore.admin");

#define ARENA_MAX   (16u << 20)
#define MAX_BUCKETS 1000

struct admin {
    struct admin_opts o;
    struct service_jobs jobs;
    struct rpc_server *server;
};

static struct admin *admin_of(const struct service_job *j)
{
    return j->ctx;
}

/* ---- buckets ---- */

static const char *versioning_text(enum ostore_versioning v)
{
    return v == OSTORE_ENABLED ? "Enabled" : v == OSTORE_SUSPENDED ? "Suspended" : "";
}

static int bucket_list(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct obucket_list l = {0};
    struct str account = json_get_str(rq, "account");
    uint64_t max = json_get_u64(rq, "max", MAX_BUCKETS);
    int r = ostore_bucket_list(admin_of(j)->o.s3->store, account.n ? account : STR_NONE,
                               json_get_str(rq, "prefix"), json_get_str(rq, "after"),
                               (size_t)MIN(max, (uint64_t)MAX_BUCKETS), j->a, &l, err);
    if (r < 0) {
        return r;
    }
    jw_arr(w, "buckets");
    for (size_t i = 0; i < l.n; i++) {
        const struct obucket *b = l.v[i];
        jw_obj(w, NULL);
        jw_str(w, "name", b->name);
        jw_str(w, "account", b->account);
        jw_str(w, "region", b->region);
        jw_u64(w, "created_ns", b->create_ns);
        jw_cstr(w, "versioning", versioning_text(b->versioning));
        jw_u64(w, "objects", b->n_objects);
        jw_u64(w, "bytes", b->n_bytes);
        jw_obj_end(w);
        obucket_unref(b);
    }
    jw_arr_end(w);
    jw_bool(w, "is_truncated", l.is_truncated);
    return 0;
}

/* ---- the store ---- */

static int storage_stats(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct ostore_stats s = {0};
    struct front_stats f = {0};
    ostore_stats(admin_of(j)->o.s3->store, &s);
    front_stats(admin_of(j)->o.front, &f);
    const struct {
        const char *name;
        uint64_t v;
    } rows[] = {
        {"buckets", s.n_buckets},
        {"objects", s.n_objects},
        {"versions", s.n_versions},
        {"uploads", s.n_uploads},
        {"bytes", s.n_bytes},
        {"puts", s.n_put},
        {"gets", s.n_get},
        {"deletes", s.n_delete},
        {"lists", s.n_list},
        {"syncs", s.n_syncs},
        {"commits", s.n_commits},
        {"log_bytes", s.log_bytes},
        {"log_dead_bytes", s.log_dead_bytes},
        {"log_segments", s.n_segments},
        {"file_bytes", s.file_bytes},
        {"next_lsn", s.next_lsn},
        {"requests", f.n_requests},
        {"errors_4xx", f.n_errors_4xx},
        {"errors_5xx", f.n_errors_5xx},
        {"bytes_in", f.bytes_in},
        {"bytes_out", f.bytes_out},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        jw_u64(w, rows[i].name, rows[i].v);
    }
    if (admin_of(j)->o.lifecycle) {
        struct lifecycle_stats l = {0};
        lifecycle_stats(admin_of(j)->o.lifecycle, &l);
        jw_u64(w, "lifecycle_expired", l.n_expired);
        jw_u64(w, "lifecycle_uploads_aborted", l.n_uploads);
    }
    jw_bool(w, "is_readonly", s.is_readonly);
    jw_bool(w, "is_locked", s.is_locked);
    jw_cstr(w, "why", s.why);
    return 0;
}

static const char *state_text(enum drive_state s)
{
    static const char *const text[] = {"ok", "healing", "missing", "faulted"};
    return (size_t)s < ARRAY_LEN(text) ? text[s] : "unknown";
}

static int storage_drives(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct drives *d = ostore_drives(admin_of(j)->o.s3->store);
    jw_arr(w, "drives");
    for (unsigned i = 0; i < drives_n(d); i++) {
        struct drive_facts f = {0};
        char id[33];
        drives_facts(d, i, &f);
        hex_encode_to(f.id, sizeof(f.id), id);
        jw_obj(w, NULL);
        jw_u64(w, "drive", i + 1);
        jw_cstr(w, "path", f.path);
        jw_cstr(w, "state", state_text(f.state));
        jw_cstr(w, "id", f.state == DRIVE_MISSING ? "" : id);
        jw_u64(w, "total_bytes", f.total);
        jw_u64(w, "available_bytes", f.avail);
        jw_u64(w, "read_ns", f.read_ns);
        jw_cstr(w, "why", f.why);
        jw_obj_end(w);
    }
    jw_arr_end(w);
    jw_u64(w, "rs_data", admin_of(j)->o.s3->cfg->predastore.rs_data);
    jw_u64(w, "rs_parity", admin_of(j)->o.s3->cfg->predastore.rs_parity);
    return 0;
}

static void add_problem(struct jw *w, const char *severity, const char *what, const char *hint)
{
    jw_obj(w, NULL);
    jw_cstr(w, "severity", severity);
    jw_cstr(w, "what", what);
    jw_cstr(w, "hint", hint);
    jw_obj_end(w);
}

static unsigned check_drives(struct service_job *j, struct jw *w)
{
    struct drives *d = ostore_drives(admin_of(j)->o.s3->store);
    unsigned n = 0;
    for (unsigned i = 0; i < drives_n(d); i++) {
        struct drive_facts f = {0};
        char text[400];
        drives_facts(d, i, &f);
        if (f.state == DRIVE_OK) {
            continue;
        }
        snprintf(text, sizeof(text), "drive %u (%s) is %s%s%s", i + 1, f.path,
                 state_text(f.state), f.why[0] ? ": " : "", f.why);
        if (f.state == DRIVE_HEALING) {
            add_problem(w, "info", text, "it is being filled; nothing is to be done");
        } else {
            n++;
            add_problem(w, "error", text,
                        "put an empty folder in its place, then 'spx admin storage drives "
                        "replace'");
        }
    }
    return n;
}

/* What is wrong, worst first, and what to do about it. */
static int storage_check(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct ostore *store = admin_of(j)->o.s3->store;
    struct ostore_stats s = {0};
    struct ostore_scrub scrub = {0};
    unsigned n = 0;
    ostore_stats(store, &s);
    ostore_scrub_status(store, &scrub);
    jw_arr(w, "problems");
    if (s.is_readonly) {
        n++;
        add_problem(w, "error", s.why[0] ? s.why : "the store is read-only",
                    "bring the missing drive back; else see 'spx admin storage accept-loss'");
    }
    if (s.is_locked) {
        n++;
        add_problem(w, "error", "the store is locked: sealed objects cannot be read",
                    "unlock the node");
    }
    n += check_drives(j, w);
    enum drives_space space = drives_space(ostore_drives(store));
    if (space != SPACE_OK) {
        n++;
        add_problem(w, space == SPACE_FULL ? "error" : "warning",
                    space == SPACE_FULL ? "a drive is full: nothing is written"
                                        : "a drive is nearly full: new objects are refused",
                    "delete objects or add space; writing goes on by itself");
    }
    if (scrub.n_lost) {
        char text[300];
        n++;
        snprintf(text, sizeof(text),
                 "the last scrub found %llu objects that cannot be read; one: %s",
                 (unsigned long long)scrub.n_lost, scrub.last_lost);
        add_problem(w, "error", text, "delete or upload them again");
    }
    jw_arr_end(w);
    jw_cstr(w, "status", n ? "degraded" : "ok");
    return 0;
}

static int storage_scrub(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct ostore *store = admin_of(j)->o.s3->store;
    struct str action = json_get_str(rq, "action");
    struct ostore_scrub s = {0};
    if (str_eqc(action, "start")) {
        int r = ostore_scrub_start(store, json_get_bool(rq, "repair", true), err);
        if (r < 0) {
            return r;
        }
    } else if (action.n && !str_eqc(action, "status")) {
        return fail(err, -EINVAL, "BadArgument", "action is \"start\" or \"status\"");
    }
    ostore_scrub_status(store, &s);
    jw_bool(w, "is_running", s.is_running);
    jw_u64(w, "started_ns", s.started_ns);
    jw_u64(w, "ended_ns", s.ended_ns);
    jw_u64(w, "objects", s.n_objects);
    jw_u64(w, "bytes", s.n_bytes);
    jw_u64(w, "bad", s.n_bad);
    jw_u64(w, "repaired", s.n_repaired);
    jw_u64(w, "lost", s.n_lost);
    jw_u64(w, "orphans", s.n_orphans);
    jw_cstr(w, "last_lost", s.last_lost);
    return 0;
}

static int storage_replace(struct service_job *j, struct json *rq, struct jw *w,
                           struct err *err)
{
    struct ostore *store = admin_of(j)->o.s3->store;
    uint64_t drive = json_get_u64(rq, "drive", 0);
    if (drive == 0 || drive > drives_n(ostore_drives(store))) {
        return fail(err, -EINVAL, "BadArgument", "drive is 1 to %u",
                    drives_n(ostore_drives(store)));
    }
    int r = ostore_drive_replace(store, (unsigned)drive - 1, err);
    if (r == 0) {
        log_info("drive.replaced", KV_U64("drive", drive));
    }
    return r;
}

/* The index of a running store is in use: the next start makes it anew. */
static int storage_rebuild_index(struct service_job *j, struct json *rq, struct jw *w,
                                 struct err *err)
{
    const char *path = admin_of(j)->o.rebuild_path;
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fsync(fd) < 0) {
        return fail(err, -errno, "WriteFailed", "%s: %m", path);
    }
    jw_bool(w, "needs_restart", true);
    return 0;
}

static int storage_loss(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct ostore_loss l = {0};
    int r = ostore_loss(admin_of(j)->o.s3->store, j->a, &l, err);
    if (r < 0) {
        return r;
    }
    jw_arr(w, "what");
    for (size_t i = 0; i < l.n_what; i++) {
        jw_str(w, NULL, l.what[i]);
    }
    jw_arr_end(w);
    jw_u64(w, "objects", l.n_objects);
    jw_arr(w, "names");
    for (size_t i = 0; i < l.n_names; i++) {
        jw_str(w, NULL, l.names[i]);
    }
    jw_arr_end(w);
    return 0;
}

/* The next start does it: then nobody reads what goes. */
static int storage_accept_loss(struct service_job *j, struct json *rq, struct jw *w,
                               struct err *err)
{
    struct str by = json_get_str(rq, "by");
    for (size_t i = 0; i < by.n; i++) {
        if ((unsigned char)by.p[i] < ' ') {
            return fail(err, -EINVAL, "BadArgument", "by is one line");
        }
    }
    if (!by.n || by.n > PREDASTORE_WHO_MAX) {
        return fail(err, -EINVAL, "BadArgument", "by is 1 to %d bytes", PREDASTORE_WHO_MAX);
    }
    int r = file_write_atomic(admin_of(j)->o.accept_path, by, 0600, err);
    if (r == 0) {
        log_warn("loss.to_be_accepted", KV_STR("by", by));
        jw_bool(w, "needs_restart", true);
    }
    return r;
}

static int storage_compact(struct service_job *j, struct json *rq, struct jw *w,
                           struct err *err)
{
    uint64_t freed = 0;
    int r = ostore_compact(admin_of(j)->o.s3->store, &freed, err);
    jw_u64(w, "freed", freed);
    return r;
}

static int storage_unlock(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    int r = ostore_unlock(admin_of(j)->o.s3->store, err);
    if (r == 0 && admin_of(j)->o.on_unlock) {
        admin_of(j)->o.on_unlock(admin_of(j)->o.ctx);
    }
    return r;
}

/* ---- requests ---- */

static const struct service_method methods[] = {
    {"bucket.list", bucket_list},
    {"storage.stats", storage_stats},
    {"storage.drives", storage_drives},
    {"storage.check", storage_check},
    {"storage.scrub", storage_scrub},
    {"storage.replace", storage_replace},
    {"storage.rebuild_index", storage_rebuild_index},
    {"storage.loss", storage_loss},
    {"storage.accept_loss", storage_accept_loss},
    {"storage.compact", storage_compact},
    {"storage.unlock", storage_unlock},
};

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct admin *ad = ctx;
    service_jobs_request(&ad->jobs, req, method, payload, fds, n_fds);
}

int admin_start(const struct admin_opts *o, struct admin **ret, struct err *err)
{
    static const struct rpc_server_ops ops = {.on_request = on_request};
    struct admin *ad = calloc(1, sizeof(*ad));
    if (!ad) {
        abort();
    }
    ad->o = *o;
    ad->jobs = (struct service_jobs){.svc = ad->o.svc,
                                     .pool = ad->o.s3->pool,
                                     .name = "predastore",
                                     .refusal = "only root may ask the object store this",
                                     .arena_max = ARENA_MAX,
                                     .methods = methods,
                                     .n_methods = ARRAY_LEN(methods),
                                     .ctx = ad};
    int r = rpc_server_new(o->svc->loop, o->socket_path, 0666, &ops, ad, &ad->server, err);
    if (r < 0) {
        free(ad);
        return r;
    }
    *ret = ad;
    return 0;
}

void admin_stop(struct admin *ad)
{
    if (ad) {
        rpc_server_free(ad->server);
        free(ad);
    }
}

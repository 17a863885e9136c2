#include "base/time.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/volume.h"
#include "snap/snap.h"
#include "viperblock/store.h"
#include "viperblock/vol_files.h"
#include "viperblock/vols.h"
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdio.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.check");

#define ANSWER_MAX (RPC_MAX_SIZE - 4096u)
#define CHUNK      (1u << 20)
#define PAGE       4096u
#define MAX_LISTED 1000u

/* --- volume.list
 * ---------------------------------------------------------------------------- */

static void latency(struct jw *w, const char *name, const struct disk_counters *c,
                    enum blk_op op)
{
    jw_arr(w, name);
    for (size_t i = 0; i < DISK_N_LATENCY; i++) {
        jw_u64(w, NULL, c->latency[op][i]);
    }
    jw_arr_end(w);
}

static void counters(struct jw *w, const struct ctl_state *st)
{
    const struct disk_counters *c = &st->counters;
    uint64_t errors = 0;
    for (size_t i = 0; i < BLK_OP_N; i++) {
        errors += c->errors[i];
    }
    jw_u64(w, "dirty", st->cow.n_dirty_blocks * BLK_BLOCK);
    jw_u64(w, "reads", c->n_ops[BLK_READ]);
    jw_u64(w, "writes", c->n_ops[BLK_WRITE]);
    jw_u64(w, "flushes", c->n_ops[BLK_FLUSH]);
    jw_u64(w, "discards", c->n_ops[BLK_DISCARD] + c->n_ops[BLK_ZEROES]);
    jw_u64(w, "errors", errors);
    jw_u64(w, "read_bytes", c->bytes[BLK_READ]);
    jw_u64(w, "write_bytes", c->bytes[BLK_WRITE]);
    jw_u64(w, "in_flight", c->in_flight);
    latency(w, "read_latency", c, BLK_READ);
    latency(w, "write_latency", c, BLK_WRITE);
    latency(w, "flush_latency", c, BLK_FLUSH);
    jw_arr(w, "snapshots");
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        if (st->frozen[i].snap[0] != '\0') {
            jw_obj(w, NULL);
            jw_cstr(w, "id", st->frozen[i].snap);
            jw_u64(w, "total", st->frozen[i].n_blocks);
            jw_u64(w, "left", st->frozen[i].n_left);
            jw_obj_end(w);
        }
    }
    jw_arr_end(w);
}

static uint64_t allocated(struct vb *vb, struct str id)
{
    AUTO_FD fd = -1;
    struct stat st;
    return folder_open_file(vb->folder, FOLDER_VOLUME, id, "data", O_RDONLY, &fd, NULL) == 0 &&
                   fstat(fd, &st) == 0
               ? (uint64_t)st.st_blocks * 512
               : 0;
}

static void list_one(struct vb *vb, struct jw *w, const struct volume *v,
                     const struct volume_status *st)
{
    static const struct vol closed = {.host = ""};
    struct vol *known = malloc(sizeof(*known));
    if (!known) {
        abort();
    }
    bool is_known = vols_peek(vb->vols, v->id, known);
    const struct vol *x = is_known ? known : &closed;
    jw_obj(w, NULL);
    jw_str(w, "id", v->id);
    jw_str(w, "account", v->account);
    jw_str(w, "instance_id", v->instance_id.n > 0 ? v->instance_id : STR(""));
    jw_u64(w, "size_gib", v->size_gib);
    jw_str(w, "state", st && st->state.n > 0 ? st->state : STR("creating"));
    jw_str(w, "health", st && st->health.n > 0 ? st->health : STR("insufficient-data"));
    jw_str(w, "fault", st && st->fault.n > 0 ? st->fault : STR(""));
    jw_bool(w, "is_open", x->p != NULL);
    jw_bool(w, "is_connected", vol_is_connected(x));
    jw_u64(w, "allocated", allocated(vb, v->id));
    jw_u64(w, "absent",
           x->state_ns != 0 ? x->state.cow.n_absent_pages * PAGE
           : st             ? st->absent
                            : 0);
    counters(w, &x->state);
    jw_obj_end(w);
    free(known);
}

void call_volume_list(struct vb_call *c)
{
    AUTO(arena_freep) struct arena *a = arena_new(64u << 20);
    AUTO_BUF out;
    struct jw w;
    struct vb *vb = c->vb;
    struct str account = json_get_str(c->args, "account");
    VEC(const struct view_entry *) found = {.v = NULL};
    buf_init(&out, ANSWER_MAX);
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view),
                        key_spec_prefix(a, "volume", account.n > 0 ? account : STR_NONE))
    {
        const struct view_entry *e = omap_value(n);
        if (e->obj) {
            vec_push(&found, view_ref(e));
        }
    }
    view_unlock(vb->view);
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_arr(&w, "volumes");
    for (size_t i = 0; i < found.n; i++) {
        const struct volume *v = found.v[i]->obj;
        const struct view_entry *s = vb_get(vb, key_status(a, "volume", v->account, v->id));
        if (str_is_empty(v->node) || str_eqc(v->node, vb->o.node)) {
            list_one(vb, &w, v, s ? s->obj : NULL);
        }
        if (s) {
            view_unref(s);
        }
        view_unref(found.v[i]);
    }
    vec_free(&found);
    jw_arr_end(&w);
    jw_obj_end(&w);
    if (buf_ok(&out)) {
        call_reply(c, buf_str(&out), NULL, 0);
    } else {
        struct err err = ERR_INIT;
        fail(&err, -E2BIG, "TooLarge", "there are too many volumes: ask for one account");
        call_fail(c, &err);
    }
}

/* --- volume.check
 * --------------------------------------------------------------------------- */

struct check {
    struct vb *vb;
    struct vb_call *c;
    struct jw w;
    struct str only; /* volume, "" = all */
    struct str account;
    bool is_deep;
    uint64_t n_volumes, n_snapshots, n_repaired, n_problems;
};

static void problem(struct check *k, struct str id, const char *what, const char *text)
{
    if (k->n_problems++ >= MAX_LISTED) {
        return;
    }
    jw_obj(&k->w, NULL);
    jw_str(&k->w, "id", id);
    jw_cstr(&k->w, "what", what);
    jw_cstr(&k->w, "text", text);
    jw_obj_end(&k->w);
    log_warn("check.problem", KV_STR("id", id), KV_CSTR("what", what), KV_CSTR("text", text));
}

/* Every byte that is allocated can be read. */
static int read_all(struct check *k, struct str id, uint64_t size, struct err *err)
{
    AUTO_FD fd = -1;
    AUTO_FREE char *buf = malloc(CHUNK);
    int rc = folder_open_file(k->vb->folder, FOLDER_VOLUME, id, "data", O_RDONLY, &fd, err);
    if (!buf) {
        abort();
    }
    for (uint64_t off = 0; rc == 0 && off < size && !call_is_cancelled(k->c);) {
        off_t data = lseek(fd, (off_t)off, SEEK_DATA);
        if (data < 0) {
            break;
        }
        ssize_t n = pread(fd, buf, CHUNK, data);
        if (n < 0) {
            return fail(err, -EIO, "ReadFailed", "byte %lld cannot be read: %m",
                        (long long)data);
        }
        off = n == 0 ? size : (uint64_t)data + (uint64_t)n;
    }
    return rc;
}

/* A fault is taken back when everything is there. */
static void repair(struct check *k, struct vol *v, struct str id)
{
    struct err err = ERR_INIT;
    if (vol_reopen(k->vb->vols, v, &err) == 0) {
        AUTO(arena_freep) struct arena *a = arena_new(4096);
        k->n_repaired++;
        vb_touch(k->vb, key_spec(a, "volume", str_c(v->account), id));
    } else {
        problem(k, id, "reopen-failed", err.msg);
    }
}

static int check_map(struct check *k, const struct volume_meta *m, struct err *err)
{
    AUTO_FD map = -1;
    struct stat st;
    int rc = vol_open_map(k->vb, m, &map, err);
    if (rc == 0 && (fstat(map, &st) != 0 || st.st_size == 0)) {
        rc = fail(err, -EIO, "VolumeDamaged", "the map of the volume is empty");
    }
    return rc;
}

static void check_volume(void *ctx, struct str id)
{
    struct check *k = ctx;
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct volume_meta m;
    struct err err = ERR_INIT;
    AUTO_FD data = -1;
    struct stat st;
    if (k->only.n > 0 && !str_eq(k->only, id)) {
        return;
    }
    k->n_volumes++;
    struct vol *v = vol_take(k->vb->vols, STR(""), id);
    int rc = vol_meta_load(k->vb, a, id, &m, &err);
    rc = rc != 0 ? rc
                 : folder_open_file(k->vb->folder, FOLDER_VOLUME, id, "data", O_RDONLY, &data,
                                    &err);
    if (rc == 0 && (fstat(data, &st) != 0 || (uint64_t)st.st_size < m.size)) {
        rc = fail(&err, -EIO, "VolumeDamaged", "the volume's file is too short");
    }
    rc = rc != 0 ? rc : check_map(k, &m, &err);
    if (rc == 0 && m.base.n > 0 && !folder_has(k->vb->folder, FOLDER_IMAGE, m.base)) {
        rc = fail(&err, -EIO, "VolumeDamaged", "the base %.*s that it reads through is gone",
                  STR_ARG(m.base));
    }
    bool is_faulted = v->is_crashed || (v->state_ns != 0 && v->state.is_faulted != 0);
    if (rc == 0 && (k->is_deep || is_faulted)) {
        rc = read_all(k, id, m.size, &err);
    }
    if (rc != 0) {
        problem(k, id, rc == -ENOENT ? "lost" : "damaged", err.msg);
    } else if (is_faulted) {
        repair(k, v, id);
    }
    vol_give(k->vb->vols, v);
}

static int on_damage(void *ctx, struct str id, uint64_t block, int rc)
{
    struct check *k = ctx;
    char text[80];
    (void)snprintf(text, sizeof(text), "block %llu is %s", (unsigned long long)block,
                   rc == -ENOENT ? "missing" : "damaged");
    problem(k, id, rc == -ENOENT ? "block-missing" : "block-damaged", text);
    return k->n_problems >= MAX_LISTED || call_is_cancelled(k->c) ? -ECANCELED : 0;
}

static void check_account(struct check *k, struct snap_store *store, struct str account)
{
    struct snap_usage u;
    struct err err = ERR_INIT;
    char text[160];
    if (k->account.n > 0 && !str_eq(k->account, account)) {
        return;
    }
    if (snap_check(store, account, k->is_deep, &u, &err) != 0) {
        problem(k, account, "snapshots-unreadable", err.msg);
        return;
    }
    k->n_snapshots += u.n_manifests;
    (void)snprintf(text, sizeof(text), "%llu blocks are missing, %llu are damaged",
                   (unsigned long long)u.n_missing, (unsigned long long)u.n_damaged);
    if (u.n_missing + u.n_damaged > 0) {
        problem(k, account, u.n_missing > 0 ? "blocks-missing" : "blocks-damaged", text);
        int rc = k->is_deep ? snap_find_damage(store, account, on_damage, k, &err) : 0;
        if (rc != 0 && rc != -ECANCELED) {
            problem(k, account, "snapshots-unreadable", err.msg);
        }
    }
}

static void check_snapshots(struct check *k)
{
    AUTO(arena_freep) struct arena *a = arena_new(8u << 20);
    struct snap_store *store = NULL;
    struct str *accounts = NULL;
    struct err err = ERR_INIT;
    size_t n = 0;
    int rc = store_get(k->vb, &store, &err);
    rc = rc != 0 ? rc : snap_accounts(store, a, &accounts, &n, &err);
    if (rc != 0) {
        problem(k, STR("store"), "store-away", err.msg);
    }
    for (size_t i = 0; rc == 0 && i < n && !call_is_cancelled(k->c); i++) {
        check_account(k, store, accounts[i]);
    }
}

void call_volume_check(struct vb_call *c)
{
    AUTO_BUF out;
    struct err err = ERR_INIT;
    struct check k = {.vb = c->vb,
                      .c = c,
                      .only = json_get_str(c->args, "volume_id"),
                      .account = json_get_str(c->args, "account"),
                      .is_deep = json_get_bool(c->args, "is_deep", false)};
    buf_init(&out, ANSWER_MAX);
    jw_init(&k.w, &out);
    jw_obj(&k.w, NULL);
    jw_arr(&k.w, "problems");
    if (k.only.n > 0 && !folder_has(c->vb->folder, FOLDER_VOLUME, k.only)) {
        fail(&err, -ENOENT, "InvalidVolume.NotFound", "The volume '%.*s' does not exist.",
             (int)MIN(k.only.n, (size_t)40), k.only.p);
        call_fail(c, &err);
        return;
    }
    if (folder_each(c->vb->folder, FOLDER_VOLUME, check_volume, &k, &err) != 0) {
        call_fail(c, &err);
        return;
    }
    if (k.only.n == 0 && c->vb->o.s3_socket) {
        check_snapshots(&k);
    }
    jw_arr_end(&k.w);
    jw_u64(&k.w, "volumes", k.n_volumes);
    jw_u64(&k.w, "snapshots", k.n_snapshots);
    jw_u64(&k.w, "repaired", k.n_repaired);
    jw_obj_end(&k.w);
    call_reply(c, buf_str(&out), NULL, 0);
}

/* --- volume.orphans
 * ------------------------------------------------------------------------- */

struct orphans {
    struct vb *vb;
    struct jw *w;
    enum folder_kind kind;
};

static void orphan(void *ctx, struct str id)
{
    struct orphans *o = ctx;
    bool is_volume = o->kind == FOLDER_VOLUME;
    AUTO_FD fd = -1;
    AUTO_FD mark = -1;
    struct stat st = {.st_blocks = 0};
    if (vb_is_in_store(o->vb, is_volume ? "spec/volume/" : "spec/image/", id) ||
        (!is_volume && folder_open_file(o->vb->folder, o->kind, id, IMAGE_REMOVED, O_RDONLY,
                                        &mark, NULL) == 0)) {
        return;
    }
    if (folder_open_file(o->vb->folder, o->kind, id, "data", O_RDONLY, &fd, NULL) == 0) {
        (void)!fstat(fd, &st);
    }
    jw_obj(o->w, NULL);
    jw_str(o->w, "id", id);
    jw_u64(o->w, "bytes", (uint64_t)st.st_blocks * 512);
    jw_obj_end(o->w);
}

static int orphan_snapshots(struct vb *vb, struct jw *w, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct snap_store *store = NULL;
    struct str *accounts = NULL, *ids = NULL;
    size_t n = 0, n_ids = 0;
    int rc = vb->o.s3_socket ? store_get(vb, &store, err) : 0;
    rc = rc != 0 || !store ? rc : snap_accounts(store, a, &accounts, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = snap_list(store, accounts[i], false, a, &ids, &n_ids, err);
        for (size_t k = 0; rc == 0 && k < n_ids; k++) {
            if (!vb_get_exists(vb, key_spec(a, "snapshot", accounts[i], ids[k]))) {
                jw_obj(w, NULL);
                jw_str(w, "account", accounts[i]);
                jw_str(w, "id", ids[k]);
                jw_obj_end(w);
            }
        }
    }
    return rc;
}

static void process_orphans(struct vb *vb, struct jw *w)
{
    struct vol *v = NULL;
    size_t n = vols_list(vb->vols, &v);
    for (size_t i = 0; i < n; i++) {
        if (v[i].host[0] != '\0' && !vb_is_in_store(vb, "spec/volume/", str_c(v[i].id))) {
            jw_cstr(w, NULL, v[i].host);
        }
    }
    free(v);
}

void call_volume_orphans(struct vb_call *c)
{
    AUTO_BUF out;
    struct err err = ERR_INIT;
    struct jw w;
    struct orphans o = {.vb = c->vb, .w = &w, .kind = FOLDER_VOLUME};
    buf_init(&out, ANSWER_MAX);
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_arr(&w, "volumes");
    int rc = folder_each(c->vb->folder, FOLDER_VOLUME, orphan, &o, &err);
    jw_arr_end(&w);
    jw_arr(&w, "images");
    o.kind = FOLDER_IMAGE;
    rc = rc != 0 ? rc : folder_each(c->vb->folder, FOLDER_IMAGE, orphan, &o, &err);
    jw_arr_end(&w);
    jw_arr(&w, "snapshots");
    rc = rc != 0 ? rc : orphan_snapshots(c->vb, &w, &err);
    jw_arr_end(&w);
    jw_arr(&w, "processes");
    process_orphans(c->vb, &w);
    jw_arr_end(&w);
    jw_obj_end(&w);
    if (rc != 0) {
        call_fail(c, &err);
    } else {
        call_reply(c, buf_str(&out), NULL, 0);
    }
}

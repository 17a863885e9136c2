#include "base/time.h"
#include "codec/base64.h"
#include "crypto/digest.h"
#include "model/keys.h"
#include "snap/snap.h"
#include "viperblock/snapshot.h"
#include "viperblock/store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.rpc");

#define MAX_BLOCKS 10000u /* of one answer: ListSnapshotBlocks' largest page */
#define LIST_MAX   (1u << 20)
#define SUM_TEXT   64u

static void *buffer(void)
{
    static _Thread_local alignas(4096) char buf[SNAP_BLOCK];
    return buf;
}

static void answer(struct vb_call *c, int rc, struct buf *out, const int *fd,
                   const struct err *err)
{
    if (rc == 0 && !buf_ok(out)) {
        struct err e = ERR_INIT;
        fail(&e, -E2BIG, "TooLarge", "the answer is too large");
        call_fail(c, &e);
    } else if (rc != 0) {
        call_fail(c, err);
    } else {
        call_reply(c, buf_str(out), fd, fd ? 1 : 0);
    }
}

struct ask {
    struct snap_store *store;
    struct str account, id, other_account, other_id;
    uint64_t from, max, block;
};

static int read_ask(struct vb_call *c, struct ask *q, bool may_be_empty, struct err *err)
{
    const struct json *j = c->args;
    *q = (struct ask){.account = json_get_str(j, "account"),
                      .id = json_get_str(j, "snapshot_id"),
                      .other_account = json_get_str(j, "other_account"),
                      .other_id = json_get_str(j, "other_id"),
                      .from = json_get_u64(j, "from", 0),
                      .max = json_get_u64(j, "max", MAX_BLOCKS),
                      .block = json_get_u64(j, "block", 0)};
    q->max = MIN(MAX(q->max, UINT64_C(1)), (uint64_t)MAX_BLOCKS);
    bool is_empty = may_be_empty && q->id.n == 0;
    if (!is_empty && (q->account.n != ACCOUNT_ID_LEN || !id_is_wellformed(q->id, "snap"))) {
        return fail(err, -EINVAL, "BadArgument", "account and snapshot_id are needed");
    }
    return store_get(c->vb, &q->store, err);
}

/* --- block.list, block.changed
 * -------------------------------------------------------------- */

void call_block_list(struct vb_call *c)
{
    AUTO_BUF out;
    struct err err = ERR_INIT;
    struct ask q;
    struct snap_info info;
    struct jw w;
    buf_init(&out, LIST_MAX);
    jw_init(&w, &out);
    int rc = read_ask(c, &q, false, &err);
    rc = rc != 0 ? rc : snap_stat(q.store, q.account, q.id, &info, &err);
    if (rc == 0) {
        jw_obj(&w, NULL);
        jw_u64(&w, "size", info.size);
        jw_arr(&w, "blocks");
    }
    uint64_t next = q.from;
    for (uint64_t i = 0; rc == 0 && next != UINT64_MAX; i++) {
        rc = snap_next(q.store, q.account, q.id, STR(""), STR(""), next, &next, &err);
        if (rc != 0 || next == UINT64_MAX || i == q.max) {
            break;
        }
        jw_u64(&w, NULL, next++);
    }
    if (rc == 0) {
        jw_arr_end(&w);
        if (next != UINT64_MAX) {
            jw_u64(&w, "next", next);
        }
        jw_obj_end(&w);
    }
    answer(c, rc, &out, NULL, &err);
}

/* Past the end of a snapshot, and in one that is none, nothing is there. */
static int has_block(const struct ask *q, struct str account, struct str id, uint64_t size,
                     uint64_t block, bool *ret, struct err *err)
{
    uint8_t name[1][SNAP_NAME];
    static const uint8_t none[SNAP_NAME];
    *ret = false;
    if (id.n == 0 || block * SNAP_BLOCK >= size) {
        return 0;
    }
    int rc = snap_names(q->store, account, id, block, 1, name, err);
    *ret = rc == 0 && memcmp(name[0], none, SNAP_NAME) != 0;
    return rc;
}

static int changed(const struct ask *q, uint64_t size_a, uint64_t size_b, struct jw *w,
                   struct err *err)
{
    uint64_t next = q->from;
    int rc = 0;
    jw_arr(w, "blocks");
    for (uint64_t i = 0; rc == 0; i++) {
        bool has_a = false, has_b = false;
        rc = q->id.n > 0 ? snap_next(q->store, q->account, q->id, q->other_account, q->other_id,
                                     next, &next, err)
                         : snap_next(q->store, q->other_account, q->other_id, STR(""), STR(""),
                                     next, &next, err);
        if (rc != 0 || next == UINT64_MAX || i == q->max) {
            break;
        }
        rc = has_block(q, q->account, q->id, size_a, next, &has_a, err);
        rc = rc != 0 ? rc
                     : has_block(q, q->other_account, q->other_id, size_b, next, &has_b, err);
        jw_arr(w, NULL);
        jw_u64(w, NULL, next);
        jw_bool(w, NULL, has_a);
        jw_bool(w, NULL, has_b);
        jw_arr_end(w);
        next++;
    }
    jw_arr_end(w);
    if (rc == 0 && next != UINT64_MAX) {
        jw_u64(w, "next", next);
    }
    return rc;
}

void call_block_changed(struct vb_call *c)
{
    AUTO_BUF out;
    struct err err = ERR_INIT;
    struct ask q;
    struct snap_info a = {.size = 0}, b;
    struct jw w;
    buf_init(&out, LIST_MAX);
    jw_init(&w, &out);
    int rc = read_ask(c, &q, true, &err);
    if (rc == 0 && q.id.n > 0) {
        rc = snap_stat(q.store, q.account, q.id, &a, &err);
    }
    rc = rc != 0 ? rc : snap_stat(q.store, q.other_account, q.other_id, &b, &err);
    if (rc == 0) {
        jw_obj(&w, NULL);
        jw_u64(&w, "size", b.size);
        rc = changed(&q, a.size, b.size, &w, &err);
        jw_obj_end(&w);
    }
    answer(c, rc, &out, NULL, &err);
}

/* --- block.get, block.put
 * ------------------------------------------------------------------- */

static void sum_text(const void *data, char out[SUM_TEXT])
{
    AUTO_BUF b;
    uint8_t sum[SHA256_SIZE];
    sha256(str_n(data, SNAP_BLOCK), sum);
    buf_init(&b, SUM_TEXT);
    base64_encode(str_n((const char *)sum, sizeof(sum)), &b);
    (void)snprintf(out, SUM_TEXT, "%.*s", STR_ARG(buf_str(&b)));
}

static int to_memory(const void *data, int *ret, struct err *err)
{
    AUTO_FD fd = memfd_create("block", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, SNAP_BLOCK) != (ssize_t)SNAP_BLOCK) {
        return fail(err, -ENOMEM, "OutOfMemory", "memory for a block: %m");
    }
    *ret = steal_fd(&fd);
    return 0;
}

void call_block_get(struct vb_call *c)
{
    AUTO_BUF out;
    AUTO_FD fd = -1;
    struct err err = ERR_INIT;
    struct ask q;
    struct jw w;
    char sum[SUM_TEXT] = "";
    buf_init(&out, 4096);
    int rc = read_ask(c, &q, false, &err);
    rc = rc != 0 ? rc : snap_get(q.store, q.account, q.id, q.block, buffer(), &err);
    if (rc == 1) {
        rc = fail(&err, -ENOENT, "NoSuchBlock", "the snapshot has no block %llu",
                  (unsigned long long)q.block);
    }
    if (rc == 0) {
        sum_text(buffer(), sum);
        rc = to_memory(buffer(), &fd, &err);
    }
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "checksum", sum);
    jw_obj_end(&w);
    answer(c, rc, &out, &fd, &err);
}

/* The snapshot is one that is being written, by its own account. */
static int check_writable(struct vb_call *c, const struct ask *q, uint64_t *ret_size,
                          struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    const struct view_entry *e = vb_get(c->vb, key_spec(a, "snapshot", q->account, q->id));
    const struct view_entry *st = vb_get(c->vb, key_status(a, "snapshot", q->account, q->id));
    const struct snapshot *s = e ? e->obj : NULL;
    const struct snapshot_status *x = st ? st->obj : NULL;
    int rc = 0;
    if (!s || !str_eqc(s->source, "ebs") || str_eqc(s->want, "deleted")) {
        rc = fail(err, -ENOENT, "NoSuchSnapshot", "the snapshot %.*s cannot be written",
                  STR_ARG(q->id));
    } else if (x && !str_eqc(x->state, "pending")) {
        rc = fail(err, -EPERM, "IncorrectState", "the snapshot %.*s is %.*s", STR_ARG(q->id),
                  STR_ARG(x->state));
    } else if (!x || s->is_complete_wanted) {
        rc = s->is_complete_wanted
                 ? fail(err, -EPERM, "IncorrectState", "the snapshot is being completed")
                 : fail(err, -EAGAIN, "NotReady", "the snapshot is being begun");
    }
    *ret_size = rc == 0 ? (s->size > 0 ? s->size : s->size_gib << 30) : 0;
    if (e) {
        view_unref(e);
    }
    if (st) {
        view_unref(st);
    }
    return rc;
}

static int put_block(struct vb_call *c, struct err *err)
{
    struct ask q;
    uint64_t size = 0;
    char sum[SUM_TEXT];
    uint8_t digest[SHA256_SIZE];
    struct str want = json_get_str(c->args, "checksum");
    int rc = read_ask(c, &q, false, err);
    rc = rc != 0 ? rc : check_writable(c, &q, &size, err);
    if (rc == 0 && q.block >= (size + SNAP_BLOCK - 1) / SNAP_BLOCK) {
        rc = fail(err, -EINVAL, "BadBlock", "the snapshot has no block %llu",
                  (unsigned long long)q.block);
    }
    if (rc != 0) {
        return rc;
    }
    if (pread(c->fd, buffer(), SNAP_BLOCK, 0) != (ssize_t)SNAP_BLOCK) {
        return fail(err, -EINVAL, "BadArgument", "a block has %u bytes", SNAP_BLOCK);
    }
    sum_text(buffer(), sum);
    if (want.n > 0 && !str_eqc(want, sum)) {
        return fail(err, -EBADMSG, "ChecksumMismatch", "the checksum is not that of the block");
    }
    sha256(str_n(buffer(), SNAP_BLOCK), digest);
    rc = snap_put(q.store, q.id, q.block, buffer(), NULL, err);
    return rc != 0 ? rc : ebs_note(c->vb, q.id, q.block, digest, err);
}

void call_block_put(struct vb_call *c)
{
    AUTO_BUF out;
    struct err err = ERR_INIT;
    buf_init(&out, 64);
    buf_addc(&out, "{}");
    answer(c, put_block(c, &err), &out, NULL, &err);
}

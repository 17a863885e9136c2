#include "base/time.h"
#include "model/keys.h"
#include "viperblock/snapshot.h"
#include "viperblock/store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdio.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.snapshot");

#define TELL_NS  (2 * NS_PER_S)
#define RETRY_US 200000u
#define RETRY_N  10u
#define GIB      (UINT64_C(1) << 30)

static bool is_stopping(const struct snap_job *j)
{
    return atomic_load(&j->vb->is_stopping);
}

/* A store that is away is not asked without pause. */
static void pause_a_while(const struct snap_job *j)
{
    for (unsigned i = 0; i < RETRY_N && !is_stopping(j); i++) {
        usleep(RETRY_US);
    }
}

/* The record as it is now: it may be unwanted meanwhile. */
static bool is_wanted(struct snap_job *j)
{
    AUTO(arena_freep) struct arena *a = arena_new(4096);
    const struct view_entry *e =
        vb_get(j->vb, key_spec(a, "snapshot", j->spec->account, j->spec->id));
    bool is = e && !str_eqc(((const struct snapshot *)e->obj)->want, "deleted");
    if (e) {
        view_unref(e);
    }
    return is && !is_stopping(j);
}

struct told {
    struct snap_job *j;
    uint64_t at_ns, progress;
};

static bool tell(void *ctx, uint64_t done, uint64_t total)
{
    struct told *t = ctx;
    uint64_t now = time_mono_ns(), progress = total == 0 ? 99 : done * 100 / total;
    if (progress != t->progress && now > t->at_ns + TELL_NS) {
        t->at_ns = now;
        t->progress = progress;
        (void)!snap_job_pending(t->j, 0, progress);
        return is_wanted(t->j);
    }
    return !is_stopping(t->j);
}

static void fill_info(const struct snap_job *j, struct snap_info *info, uint64_t size)
{
    *info = (struct snap_info){.size = size, .is_encrypted = j->spec->is_encrypted};
    (void)snprintf(info->id, sizeof(info->id), "%.*s", STR_ARG(j->spec->id));
    (void)snprintf(info->account, sizeof(info->account), "%.*s", STR_ARG(j->spec->account));
}

static void over(struct snap_job *j, int rc, const struct err *err)
{
    if (rc == 0 || is_stopping(j)) {
        return;
    }
    bool is_for_good = rc == -ENOENT || rc == -EBADMSG || rc == -EINVAL || rc == -EEXIST;
    log_warn("snapshot.copy_failed", KV_STR("snapshot", j->spec->id), KV_ERR(err));
    if (is_for_good) {
        (void)!snap_job_failed(j, err->msg);
    } else if (rc != -ECANCELED) {
        pause_a_while(j);
    }
}

/* --- of another snapshot
 * -------------------------------------------------------------------- */

static struct str from_account(const struct snapshot *s)
{
    return s->from_account.n > 0 ? s->from_account : s->account;
}

static void copy_work(struct snap_job *j)
{
    struct err err = ERR_INIT;
    struct snap_store *store = NULL;
    struct snap_info from, to;
    struct told t = {.j = j};
    const struct snapshot *s = j->spec;
    int rc = store_get(j->vb, &store, &err);
    rc = rc != 0 ? rc : snap_stat(store, from_account(s), s->from_id, &from, &err);
    if (rc == 0) {
        fill_info(j, &to, from.size);
        rc = snap_copy(store, from_account(s), s->from_id, &to, tell, &t, &err);
    }
    over(j, rc, &err);
}

int snapshot_copy_step(struct snap_job *j, struct snap_store *store)
{
    (void)store;
    const struct snapshot *s = j->spec;
    if (snap_has_failed(j->vb, j->a, from_account(s), s->from_id)) {
        return snap_job_failed(j, "the snapshot that it is a copy of failed");
    }
    int rc = j->status && j->status->start_ns != 0 ? 0 : snap_job_pending(j, time_wall_ns(), 0);
    if (rc != 0) {
        return rc;
    }
    if (!snap_is_completed(j->vb, j->a, from_account(s), s->from_id) &&
        !snap_is_deleted(j->vb, j->a, from_account(s), s->from_id)) {
        return 0; /* touched when it is; of a deleted one the store knows what is left */
    }
    long_start(j, copy_work);
    return 0;
}

/* --- of an image that was imported
 * ---------------------------------------------------------- */

static bool is_zero(const char *p, size_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static int put_block(struct snap_job *j, struct snap_store *store, const char *buf,
                     uint64_t block, struct err *err)
{
    int rc = -EAGAIN;
    while (rc == -EAGAIN && is_wanted(j)) {
        err_clear(err);
        rc = snap_put(store, j->spec->id, block, buf, NULL, err);
        if (rc == -EAGAIN) {
            pause_a_while(j);
        }
    }
    return rc;
}

/* Blocks that are holes of the file are not looked at. */
static int put_file(struct snap_job *j, struct snap_store *store, int fd, uint64_t size,
                    struct err *err)
{
    static _Thread_local alignas(4096) char buf[SNAP_BLOCK];
    struct told t = {.j = j};
    int rc = 0;
    for (uint64_t off = 0; rc == 0 && off < size;) {
        off_t data = lseek(fd, (off_t)off, SEEK_DATA);
        if (data < 0 && errno == ENXIO) {
            break;
        }
        uint64_t block = (data < 0 ? off : (uint64_t)data) / SNAP_BLOCK;
        off = (block + 1) * SNAP_BLOCK;
        if (block * SNAP_BLOCK >= size) {
            break;
        }
        size_t want = (size_t)MIN((uint64_t)SNAP_BLOCK, size - block * SNAP_BLOCK);
        memset(buf + want, 0, SNAP_BLOCK - want);
        ssize_t n = pread(fd, buf, want, (off_t)(block * SNAP_BLOCK));
        if (n != (ssize_t)want) {
            return fail(err, -EBADMSG, "ReadFailed", "the image's file cannot be read: %m");
        }
        rc = is_zero(buf, SNAP_BLOCK) ? 0 : put_block(j, store, buf, block, err);
        if (rc == 0 && !tell(&t, off, size)) {
            rc = -ECANCELED;
        }
    }
    return rc;
}

static void image_work(struct snap_job *j)
{
    struct err err = ERR_INIT;
    struct snap_store *store = NULL;
    struct snap_info info;
    AUTO_FD fd = -1;
    struct stat st;
    const struct snapshot *s = j->spec;
    int rc = store_get(j->vb, &store, &err);
    rc = rc != 0 ? rc
                 : folder_open_file(j->vb->folder, FOLDER_IMAGE, s->image_id, "data", O_RDONLY,
                                    &fd, &err);
    if (rc == 0 && fstat(fd, &st) != 0) {
        rc = fail(&err, -EIO, "ReadFailed", "the image's file: %m");
    }
    if (rc == 0) {
        fill_info(j, &info, s->size > 0 ? s->size : (uint64_t)st.st_size);
        rc = snap_begin(store, &info, &err);
    }
    rc = rc != 0 ? rc : put_file(j, store, fd, info.size, &err);
    rc = rc != 0 ? rc : snap_commit(store, s->id, NULL, &err);
    over(j, rc, &err);
}

int snapshot_image_step(struct snap_job *j, struct snap_store *store)
{
    (void)store;
    const struct snapshot *s = j->spec;
    if (!folder_has(j->vb->folder, FOLDER_IMAGE, s->image_id)) {
        return snap_job_failed(j, "the image's file is gone");
    }
    int rc = j->status && j->status->start_ns != 0
                 ? 0
                 : snap_job_pending(j, s->create_ns != 0 ? s->create_ns : time_wall_ns(), 0);
    if (rc == 0) {
        long_start(j, image_work);
    }
    return rc;
}

#include "base/file.h"
#include "base/time.h"
#include "codec/base64.h"
#include "crypto/digest.h"
#include "model/keys.h"
#include "viperblock/snapshot.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.snapshot");

/* What was written to a snapshot of StartSnapshot, one entry for each PutSnapshotBlock: the
 * names of encrypted blocks tell nothing, and CompleteSnapshot asks for a checksum of the plain
 * ones. */
struct ebs_entry {
    uint64_t block;
    uint8_t sha256[SHA256_SIZE];
};
#define NS_PER_MIN (60 * NS_PER_S)
#define GIB        (UINT64_C(1) << 30)
#define MAX_NOTES  (UINT64_C(64) << 20) /* bytes of one file: 1.6 million puts */

static int path_of(const struct vb *vb, struct str id, char out[PATH_MAX], struct err *err)
{
    int n = snprintf(out, PATH_MAX, "%s/ebs/%.*s", vb->o.data_dir, STR_ARG(id));
    return n > 0 && n < PATH_MAX ? 0
                                 : fail(err, -ENAMETOOLONG, "OpenFailed",
                                        "%.*s: the name is too long", STR_ARG(id));
}

int ebs_note(struct vb *vb, struct str id, uint64_t block, const uint8_t sha[32],
             struct err *err)
{
    char path[PATH_MAX], dir[PATH_MAX];
    struct ebs_entry e = {.block = block};
    memcpy(e.sha256, sha, sizeof(e.sha256));
    int rc = path_of(vb, id, path, err);
    rc = rc != 0 ? rc : path_of(vb, STR(""), dir, err);
    rc = rc != 0 ? rc : file_mkdirs(dir, 0700, err);
    if (rc != 0) {
        return rc;
    }
    AUTO_FD fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        return fail(err, -EIO, "OpenFailed", "%s: %m", path);
    }
    if ((uint64_t)st.st_size >= MAX_NOTES) {
        return fail(err, -E2BIG, "ServiceQuotaExceeded", "too many blocks were written");
    }
    if (write(fd, &e, sizeof(e)) != (ssize_t)sizeof(e) || fdatasync(fd) != 0) {
        return fail(err, -EIO, "WriteFailed", "%s: %m", path);
    }
    return 0;
}

void ebs_forget(struct vb *vb, struct str id)
{
    char path[PATH_MAX];
    if (id.n > 0 && path_of(vb, id, path, NULL) == 0) {
        (void)unlink(path);
    }
}

/* By block; of one block the newest last. */
static int by_block(const void *x, const void *y)
{
    const struct ebs_entry *const *a = x, *const *b = y;
    if ((*a)->block != (*b)->block) {
        return (*a)->block < (*b)->block ? -1 : 1;
    }
    return *a < *b ? -1 : *a > *b;
}

static void sum_up(const struct ebs_entry *e, size_t n, uint64_t *ret_n, uint8_t ret[32])
{
    const struct ebs_entry **v = calloc(n + 1, sizeof(const struct ebs_entry *));
    struct digest *d = digest_new(DIGEST_SHA256);
    if (!v) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        v[i] = &e[i];
    }
    qsort(v, n, sizeof(const struct ebs_entry *), by_block);
    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 == n || v[i + 1]->block != v[i]->block) {
            digest_add(d, str_n((const char *)v[i]->sha256, SHA256_SIZE));
            (*ret_n)++;
        }
    }
    digest_end(d, ret);
    digest_free(d);
    free(v);
}

/* What CompleteSnapshot says must be what was written; 1 = it is not. */
static int check(struct snap_job *j, const char **ret_why, struct err *err)
{
    AUTO_FREE char *text = NULL;
    AUTO_BUF sum;
    char path[PATH_MAX];
    uint8_t digest[SHA256_SIZE];
    size_t size = 0;
    uint64_t n = 0;
    buf_init(&sum, 256);
    int rc = path_of(j->vb, j->spec->id, path, err);
    rc = rc != 0 ? rc
                 : file_read(path, MAX_NOTES + sizeof(struct ebs_entry), &text, &size, NULL);
    if (rc != 0 && rc != -ENOENT) {
        return fail(err, rc, "ReadFailed", "%s: %m", path);
    }
    sum_up((const struct ebs_entry *)(const void *)text, size / sizeof(struct ebs_entry), &n,
           digest);
    if (n != j->spec->changed_blocks) {
        *ret_why = "the number of changed blocks is not that of the blocks written";
        return 1;
    }
    base64_encode(str_n((const char *)digest, sizeof(digest)), &sum);
    if (j->spec->checksum.n > 0 && !str_eq(j->spec->checksum, buf_str(&sum))) {
        *ret_why = "the checksum is not that of the blocks written";
        return 1;
    }
    return 0;
}

static int give_up(struct snap_job *j, struct snap_store *store, const char *why)
{
    if (snap_abort(store, j->spec->id, NULL) != 0) {
        return -EAGAIN;
    }
    ebs_forget(j->vb, j->spec->id);
    return snap_job_failed(j, why);
}

static int begin(struct snap_job *j, struct snap_store *store, struct err *err)
{
    const struct snapshot *s = j->spec;
    struct snap_info info = {.size = s->size > 0 ? s->size : s->size_gib * GIB,
                             .is_encrypted = s->is_encrypted};
    (void)snprintf(info.id, sizeof(info.id), "%.*s", STR_ARG(s->id));
    (void)snprintf(info.account, sizeof(info.account), "%.*s", STR_ARG(s->account));
    (void)snprintf(info.parent, sizeof(info.parent), "%.*s", STR_ARG(s->from_id));
    return snap_begin(store, &info, err);
}

int snapshot_ebs_step(struct snap_job *j, struct snap_store *store)
{
    struct err err = ERR_INIT;
    const struct snapshot *s = j->spec;
    const char *why = NULL;
    if (!(j->status && j->status->start_ns != 0)) {
        int rc = begin(j, store, &err);
        if (rc == -ENOENT || rc == -EINVAL || rc == -EEXIST) {
            return snap_job_failed(j, err.msg);
        }
        return rc != 0 ? -EAGAIN : snap_job_pending(j, time_wall_ns(), 0);
    }
    if (s->is_complete_wanted) {
        int rc = check(j, &why, &err);
        rc = rc != 0 ? rc : snap_commit(store, s->id, NULL, &err);
        if (rc == 1) {
            return give_up(j, store, why);
        }
        if (rc != 0 && rc != -ENOENT) {
            log_warn_rl("snapshot.complete_failed", KV_STR("snapshot", s->id), KV_ERR(&err));
            return -EAGAIN;
        }
        vb_touch(j->vb, key_spec(j->a, "snapshot", s->account, s->id));
        return 0;
    }
    uint64_t since = MAX(MAX(s->last_put_ns, s->create_ns), j->status->start_ns);
    if (s->timeout_min != 0 && time_wall_ns() > since + s->timeout_min * NS_PER_MIN) {
        return give_up(j, store, "no block was written for longer than the timeout");
    }
    return 0;
}

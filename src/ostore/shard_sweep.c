#include "ostore/shard_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* How long a drive may take to forget a name before it is left alone with it. */
#define UNLINK_NS (NS_PER_S / 2)

struct unlinks;
struct unlink_job {
    struct shard_job job;
    struct unlinks *group;
    struct drives *drives;
    struct fault_fs *fs;
    unsigned drive;
    uint8_t first;
    char name[SHARD_NAME_SIZE];
};

/* Counted: by its jobs and by whoever waits for them. */
struct unlinks {
    atomic_uint refs;
    struct shard_waiter *waiter;
    unsigned n_left; /* under waiter->lock */
};

static void unlinks_unref(struct unlinks *u)
{
    if (atomic_fetch_sub(&u->refs, 1) == 1) {
        shard_waiter_unref(u->waiter);
        free(u);
    }
}

static void unlink_run(struct shard_job *sj)
{
    struct unlink_job *j = CONTAINER_OF(sj, struct unlink_job, job);
    struct unlinks *u = j->group;
    int dir = drives_data_dir(j->drives, j->drive, j->first);
    if (dir >= 0 && fault_unlink(j->fs, dir, j->name) < 0) {
        /* Not there; or an orphan for the sweep. */
    }
    pthread_mutex_lock(&u->waiter->lock);
    u->n_left--;
    pthread_cond_signal(&u->waiter->cond);
    pthread_mutex_unlock(&u->waiter->lock);
    unlinks_unref(u);
    free(j);
}

static void unlink_post(struct shards *s, struct unlinks *u, const struct orec_body *body,
                        unsigned shard, bool is_tmp)
{
    struct unlink_job *j = calloc(1, sizeof(*j));
    if (!j) {
        abort();
    }
    *j = (struct unlink_job){.job.run = unlink_run,
                             .group = u,
                             .drives = s->drives,
                             .fs = s->fs,
                             .drive = body->drive[shard],
                             .first = body->id[0]};
    shard_name(body->id, shard, is_tmp, j->name);
    atomic_fetch_add(&u->refs, 1);
    pthread_mutex_lock(&u->waiter->lock);
    u->n_left++;
    pthread_mutex_unlock(&u->waiter->lock);
    shard_post(s, j->drive, SHARD_UNLINKS, &j->job);
}

void shard_unlink(struct shards *s, const struct orec_body *body, uint32_t mask, bool is_tmp)
{
    struct unlinks *u = calloc(1, sizeof(*u));
    if (!u) {
        abort();
    }
    atomic_init(&u->refs, 1);
    u->waiter = shard_waiter_new();
    for (unsigned i = 0; i < RS_UNITS_MAX; i++) {
        bool is_there = body->drive[i] < drives_n(s->drives) &&
                        drives_writable(s->drives) >> body->drive[i] & 1;
        if (mask >> i & 1 && is_there) {
            unlink_post(s, u, body, i, is_tmp);
        }
    }
    uint64_t until = time_mono_ns() + UNLINK_NS;
    pthread_mutex_lock(&u->waiter->lock);
    while (u->n_left > 0 && time_mono_ns() < until) {
        shard_waiter_wait(u->waiter, until);
    }
    pthread_mutex_unlock(&u->waiter->lock);
    unlinks_unref(u);
}

void shard_remove(struct shards *s, const struct orec_body *body)
{
    unsigned n = (unsigned)body->k + body->m;
    shard_unlink(s, body, n >= RS_UNITS_MAX ? (1u << RS_UNITS_MAX) - 1 : (1u << n) - 1, false);
}

struct sweep {
    struct shards *s;
    bool (*is_known)(void *ctx, const uint8_t id[OREC_ID_SIZE], unsigned shard, unsigned drive);
    void *ctx;
    unsigned drive;
    uint64_t now_ns, min_age_ns, n;
};

/* First whether it is being written, then whether it is known: in this order, because a writer
 * goes only after its body is known (see shard_writer_free()). */
static bool is_orphan(const struct sweep *sw, int dir, const char *name, bool is_tmp,
                      const uint8_t *id, unsigned shard)
{
    struct stat st;
    if (shard_is_being_written(sw->s, id)) {
        return false;
    }
    if (!is_tmp && sw->is_known(sw->ctx, id, shard, sw->drive)) {
        return false;
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode)) {
        return false;
    }
    uint64_t ns = (uint64_t)st.st_ctim.tv_sec * NS_PER_S + (uint64_t)st.st_ctim.tv_nsec;
    return ns + sw->min_age_ns <= sw->now_ns;
}

static int sweep_dir(struct sweep *sw, int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd); /* takes fd */
    if (!d) {
        int code = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    int rc = 0;
    errno = 0;
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        uint8_t id[OREC_ID_SIZE];
        unsigned shard = 0;
        bool is_tmp = false;
        if (!shard_name_parse(e->d_name, id, &shard, &is_tmp)) {
            continue; /* not ours to remove */
        }
        if (is_orphan(sw, dir, e->d_name, is_tmp, id, shard) &&
            fault_unlink(sw->s->fs, dir, e->d_name) == 0) {
            sw->n++;
        }
        errno = 0;
    }
    rc = -errno;
    closedir(d);
    return rc;
}

/* drives_data_dir() would make it. */
static bool has_folder(struct shards *s, unsigned drive, unsigned first)
{
    char name[4];
    (void)snprintf(name, sizeof(name), "%02x", first & 0xff);
    int data = drives_dir(s->drives, drive, DRIVE_DATA);
    return data >= 0 && faccessat(data, name, F_OK, 0) == 0;
}

int shard_sweep(struct shards *s,
                bool (*is_known)(void *ctx, const uint8_t id[OREC_ID_SIZE], unsigned shard,
                                 unsigned drive),
                void *ctx, uint64_t min_age_ns, uint64_t *ret_n, struct err *err)
{
    struct sweep sw = {.s = s,
                       .is_known = is_known,
                       .ctx = ctx,
                       .now_ns = time_wall_ns(),
                       .min_age_ns = min_age_ns};
    for (unsigned drive = 0; drive < drives_n(s->drives); drive++) {
        sw.drive = drive;
        for (unsigned first = 0; first < 256; first++) {
            if (!(drives_writable(s->drives) >> drive & 1)) {
                break;
            }
            if (!has_folder(s, drive, first)) {
                continue;
            }
            int dir = drives_data_dir(s->drives, drive, (uint8_t)first);
            int rc = dir < 0 ? dir : sweep_dir(&sw, dir);
            if (rc < 0) {
                *ret_n = sw.n;
                return fail(err, rc, "SweepFailed", "%s cannot be swept",
                            drives_path(s->drives, drive));
            }
        }
    }
    *ret_n = sw.n;
    return 0;
}

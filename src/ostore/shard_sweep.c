#include "ostore/shard_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void shard_unlink(struct shards *s, const uint8_t id[OREC_ID_SIZE], unsigned shard,
                  unsigned drive)
{
    if (drive >= drives_n(s->drives) || !(drives_writable(s->drives) >> drive & 1)) {
        return;
    }
    char name[SHARD_NAME_SIZE];
    shard_name(id, shard, false, name);
    int dir = drives_data_dir(s->drives, drive, id[0]);
    if (dir < 0 || fault_unlink(s->fs, dir, name) < 0) {
        return; /* not there; or an orphan for the sweep */
    }
}

void shard_remove(struct shards *s, const struct orec_body *body)
{
    for (unsigned i = 0; i < (unsigned)body->k + body->m && i < RS_UNITS_MAX; i++) {
        shard_unlink(s, body->id, i, body->drive[i]);
    }
}

struct sweep {
    struct shards *s;
    bool (*is_known)(void *ctx, const uint8_t id[OREC_ID_SIZE]);
    void *ctx;
    uint64_t now_ns, min_age_ns, n;
};

/* First whether it is being written, then whether it is known: in this order, because a writer
 * goes only after its body is known (see shard_writer_free()). */
static bool is_orphan(const struct sweep *sw, int dir, const char *name, bool is_tmp,
                      const uint8_t *id)
{
    struct stat st;
    if (shard_is_being_written(sw->s, id)) {
        return false;
    }
    if (!is_tmp && sw->is_known(sw->ctx, id)) {
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
        if (is_orphan(sw, dir, e->d_name, is_tmp, id) &&
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

int shard_sweep(struct shards *s, bool (*is_known)(void *ctx, const uint8_t id[OREC_ID_SIZE]),
                void *ctx, uint64_t min_age_ns, uint64_t *ret_n, struct err *err)
{
    struct sweep sw = {.s = s,
                       .is_known = is_known,
                       .ctx = ctx,
                       .now_ns = time_wall_ns(),
                       .min_age_ns = min_age_ns};
    for (unsigned drive = 0; drive < drives_n(s->drives); drive++) {
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

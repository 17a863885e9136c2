#include "ostore/shard_int.h"

#include "base/bytes.h"
#include "crypto/crc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

static uint32_t crc_of(const void *p, size_t n)
{
    return (uint32_t)crc_add(CRC_32C, 0, str_n(p, n));
}

struct shard_fetch *shard_fetch_new(struct shards *s, struct shard_waiter *w,
                                    const struct orec_body *body, unsigned shard,
                                    struct shard_file *file, uint64_t off, size_t n)
{
    struct shard_fetch *f = calloc(1, sizeof(*f));
    if (!f) {
        abort();
    }
    f->waiter = shard_waiter_ref(w);
    f->drives = s->drives;
    f->fs = s->fs;
    f->drive = body->drive[shard];
    f->shard = shard;
    f->want = shard_head_of(s, body, shard);
    f->stored_size = body->stored_size;
    f->file = shard_file_ref(file);
    f->off = off;
    f->n = n;
    return f;
}

static void fetch_free(struct shard_fetch *f)
{
    shard_waiter_unref(f->waiter);
    shard_file_unref(f->file);
    free(f->table);
    free(f->p);
    free(f);
}

static int open_file(struct shard_fetch *f)
{
    char name[SHARD_NAME_SIZE];
    shard_name(f->want.id, f->shard, false, name);
    int dir = drives_data_dir(f->drives, f->drive, f->want.id[0]);
    int fd = dir < 0 ? dir : fault_open(f->fs, dir, name, O_RDONLY, 0);
    if (fd < 0) {
        return fd;
    }
    f->file = shard_file_new(fd);
    return 0;
}

/* The table of the CRCs of all units, checked by the footer, which is checked by what the
 * record of the body says. */
static int read_table(struct shard_fetch *f)
{
    struct layout l;
    uint8_t foot_bytes[SHARD_FOOT_SIZE];
    struct shard_foot foot;
    if (layout_init(&l, f->stored_size, f->want.k, f->want.m, f->want.unit, NULL) < 0) {
        return -EBADMSG;
    }
    uint64_t data_size = layout_shard_size(&l, f->shard);
    uint32_t n_units = (uint32_t)((data_size + l.unit - 1) / l.unit);
    uint64_t at = SHARD_HEAD_SIZE + data_size;
    size_t size = 4 * (size_t)n_units;
    AUTO_FREE uint8_t *bytes = malloc(size + SHARD_FOOT_SIZE + 1);
    if (!bytes) {
        return -ENOMEM;
    }
    /* One byte more than there should be: a file that goes on is none of ours. */
    ssize_t n = fault_pread(f->fs, f->file->fd, bytes, size + SHARD_FOOT_SIZE + 1, at);
    if (n < 0) {
        return (int)n;
    }
    if ((size_t)n != size + SHARD_FOOT_SIZE) {
        return -EBADMSG;
    }
    memcpy(foot_bytes, bytes + size, SHARD_FOOT_SIZE);
    int r = shard_foot_decode(foot_bytes, &foot);
    if (r < 0) {
        return r;
    }
    if (!shard_head_eq(&foot.head, &f->want) || foot.stored_size != f->stored_size ||
        foot.table_crc != crc_of(bytes, size)) {
        return -EBADMSG;
    }
    uint32_t *table = malloc(size ? size : 1);
    if (!table) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n_units; i++) {
        table[i] = get_u32(bytes + 4 * (size_t)i);
    }
    f->table = table;
    return 0;
}

static int read_head(struct shard_fetch *f)
{
    uint8_t bytes[SHARD_HEAD_SIZE];
    struct shard_head h;
    ssize_t n = fault_pread(f->fs, f->file->fd, bytes, sizeof(bytes), 0);
    if (n < 0) {
        return (int)n;
    }
    int r = (size_t)n != sizeof(bytes) ? -EBADMSG : shard_head_decode(bytes, &h);
    return r < 0 ? r : shard_head_eq(&h, &f->want) ? 0 : -EBADMSG;
}

static void perform(struct shard_fetch *f)
{
    f->rc = f->file ? 0 : open_file(f);
    if (f->rc < 0) {
        return;
    }
    f->meta_rc = f->is_head_wanted ? read_head(f) : 0;
    if (f->is_table_wanted && !f->table && f->meta_rc == 0) {
        f->meta_rc = read_table(f);
    }
    if (f->n == 0) {
        return;
    }
    /* Not before: a drive that hangs may have many in line. */
    f->p = malloc(f->n);
    if (!f->p) {
        f->rc = -ENOMEM;
        return;
    }
    ssize_t n = fault_pread(f->fs, f->file->fd, f->p, f->n, SHARD_HEAD_SIZE + f->off);
    f->rc = n < 0 ? (int)n : (size_t)n != f->n ? -EBADMSG : 0;
    if (f->rc == 0 && f->is_unit_checked && f->table) {
        f->is_verified = crc_of(f->p, f->n) == f->table[f->off / f->want.unit];
        f->rc = f->is_verified ? 0 : -EBADMSG;
    }
}

static void run(struct shard_job *j)
{
    struct shard_fetch *f = CONTAINER_OF(j, struct shard_fetch, job);
    struct shard_waiter *w = shard_waiter_ref(f->waiter);
    pthread_mutex_lock(&w->lock);
    bool is_abandoned = f->is_abandoned;
    pthread_mutex_unlock(&w->lock);
    if (!is_abandoned) {
        perform(f);
        f->took_ns = time_mono_ns() - f->job.posted_ns; /* what a reader feels */
    }
    pthread_mutex_lock(&w->lock);
    f->is_done = true;
    is_abandoned = f->is_abandoned;
    if (!is_abandoned) {
        pthread_cond_signal(&w->cond);
    }
    pthread_mutex_unlock(&w->lock);
    if (is_abandoned) {
        fetch_free(f);
    }
    shard_waiter_unref(w);
}

void shard_fetch_post(struct shards *s, struct shard_fetch *f)
{
    f->job.run = run;
    shard_post(s, f->drive, SHARD_READS, &f->job);
}

void shard_fetch_drop(struct shard_fetch *f)
{
    if (!f) {
        return;
    }
    pthread_mutex_lock(&f->waiter->lock);
    bool is_done = f->is_done;
    f->is_abandoned = true;
    pthread_mutex_unlock(&f->waiter->lock);
    if (is_done) {
        fetch_free(f);
    }
}

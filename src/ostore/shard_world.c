#include "ostore/shard_world.h"

#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

/* The drive that a descriptor is on: folders are named "d<n>". */
static int drive_of(int fd)
{
    char link[32], path[256];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0) {
        return -1;
    }
    path[n] = 0;
    const char *at = strstr(path, "/d0");
    return at ? (at[3] - '0') * 10 + (at[4] - '0') : -1;
}

static int64_t door_call(struct fault_fs *fs, const struct fault_call *c)
{
    struct door *d = (struct door *)(void *)fs;
    uint32_t slow = atomic_load(&d->slow), broken = atomic_load(&d->broken);
    if ((slow | broken) && atomic_load(&d->ops) & FAULT_BIT(c->op)) {
        int drive = drive_of(c->fd);
        uint32_t bit = drive >= 0 ? 1u << drive : 0;
        atomic_fetch_add(&d->n_calls, (bit & (slow | broken)) != 0);
        if (slow & bit) {
            if (c->op == FAULT_PREAD && c->flags) {
                return -EAGAIN;
            }
            unsigned ms = atomic_load(&d->slow_ms);
            /* In steps, so that a test that lets the drive go on need not wait. */
            for (unsigned i = 0; i < ms && atomic_load(&d->slow) & bit; i += 5) {
                (void)nanosleep(&(struct timespec){0, 5 * 1000000L}, NULL);
            }
        }
        if (broken & bit) {
            unsigned left = atomic_load(&d->n_to_pass);
            while (left > 0 && !atomic_compare_exchange_weak(&d->n_to_pass, &left, left - 1)) {}
            if (left == 0) {
                return atomic_load(&d->code);
            }
        }
    }
    return fault_direct(c);
}

static void on_bad(void *ctx, const struct orec_body *body, uint32_t shards)
{
    struct world *w = ctx;
    atomic_fetch_or(&w->bad, shards);
    struct heal *h = atomic_load(&w->heal);
    if (h) {
        heal_note_bad(h, body, shards);
    }
}

void world_up(struct world *w, struct fault_fs *fs)
{
    struct err err = ERR_INIT;
    const struct drives_opts o = {
        .fs = fs, .paths = w->paths, .n = w->n, .stall_ns = w->stall_ns};
    if (drives_open(&o, &w->drives, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    const struct shards_opts so = {.drives = w->drives,
                                   .stall_ns = w->stall_ns,
                                   .slow_ns = w->slow_ns,
                                   .on_bad = on_bad,
                                   .ctx = w};
    assert_int_equal(shards_open(&so, &w->shards, NULL), 0);
}

void world_down(struct world *w)
{
    shards_close(w->shards);
    drives_close(w->drives);
    w->shards = NULL;
    w->drives = NULL;
}

void world_hurry(struct world *w, struct fault_fs *fs)
{
    w->slow_ns = 0;
    world_down(w);
    world_up(w, fs);
}

static struct world *make(unsigned n, uint64_t stall_ns)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->n = n;
    w->stall_ns = stall_ns;
    w->slow_ns = 10 * NS_PER_S;
    (void)snprintf(w->top, sizeof(w->top), "/tmp/body-shard-XXXXXX");
    assert_non_null(mkdtemp(w->top));
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(w->path[i], sizeof(w->path[i]), "%.50s/d0%02u", w->top, i);
        w->paths[i] = w->path[i];
        assert_int_equal(mkdir(w->path[i], 0700), 0);
    }
    w->arena = arena_new(16 << 20);
    w->door.fs.call = door_call;
    return w;
}

struct world *world_new(unsigned n, struct fault_fs *fs, uint64_t stall_ns)
{
    struct world *w = make(n, stall_ns);
    world_up(w, fs);
    return w;
}

struct world *world_new_door(unsigned n, uint64_t stall_ns)
{
    struct world *w = make(n, stall_ns);
    world_up(w, &w->door.fs);
    return w;
}

void world_free(struct world *w)
{
    world_down(w);
    arena_free(w->arena);
    (void)nftw(w->top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(w);
}

void world_fill(uint8_t *p, size_t n, uint64_t seed)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (uint8_t)x;
    }
}

void world_put(struct world *w, unsigned k, unsigned m, uint32_t unit, size_t n, uint64_t seed,
               size_t step, struct orec_body *ret, struct body_codec *c)
{
    AUTO(shard_writer_freep) struct shard_writer *sw = NULL;
    struct err err = ERR_INIT;
    AUTO_FREE uint8_t *p = malloc(n + 1);
    assert_non_null(p);
    world_fill(p, n, seed);
    assert_int_equal(body_codec_new(c, NULL, w->arena, ret, NULL), 0);
    const struct shard_code code = {.k = k, .m = m, .unit = unit};
    if (shard_writer_new(w->shards, &code, c, ret, &sw, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    for (size_t at = 0; at < n;) {
        size_t part = step ? MIN(step, n - at) : n;
        if (shard_writer_add(sw, p + at, part, &err) < 0) {
            fail_msg("%s", err.msg);
        }
        at += part;
    }
    if (shard_writer_finish(sw, ret, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(ret->stored_size, body_stored_size(n));
}

int world_read(struct world *w, const struct orec_body *b, struct body_codec *c,
               const uint8_t *want, size_t size, size_t off, size_t n)
{
    AUTO(shard_reader_freep) struct shard_reader *r = NULL;
    struct err err = ERR_INIT;
    AUTO_FREE uint8_t *p = malloc(n + 1);
    assert_non_null(p);
    int rc = shard_reader_open(w->shards, b, c, &r, &err);
    if (rc < 0) {
        return rc;
    }
    memset(p, 0xa5, n + 1);
    ssize_t got = shard_read(r, size, off, p, n, false, &err);
    if (got < 0) {
        assert_int_equal(err.code, got);
        return (int)got;
    }
    size_t expected = off >= size ? 0 : MIN(n, size - off);
    assert_int_equal(got, expected);
    assert_int_equal(memcmp(p, want + off, expected), 0);
    assert_int_equal(p[n], 0xa5);
    return 0;
}

char *world_shard_path(struct world *w, const struct orec_body *b, unsigned shard,
                       char buf[192])
{
    char name[SHARD_NAME_SIZE];
    shard_name(b->id, shard, false, name);
    (void)snprintf(buf, 192, "%s/data/%02x/%s", w->path[b->drive[shard]], b->id[0], name);
    return buf;
}

off_t world_file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : -1;
}

void world_flip(const char *path, off_t off, unsigned bit)
{
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t c = 0;
    assert_true(fd >= 0 && pread(fd, &c, 1, off) == 1);
    c = (uint8_t)(c ^ (1u << bit));
    assert_int_equal(pwrite(fd, &c, 1, off), 1);
}

static unsigned n_found;

static int count_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    n_found += flag == FTW_F;
    return 0;
}

unsigned world_n_files(struct world *w)
{
    n_found = 0;
    for (unsigned i = 0; i < w->n; i++) {
        char data[128];
        (void)snprintf(data, sizeof(data), "%s/data", w->path[i]);
        (void)nftw(data, count_one, 16, FTW_PHYS);
    }
    return n_found;
}

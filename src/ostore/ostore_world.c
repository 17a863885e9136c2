#include "ostore/ostore_world.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void world_paths(struct world *w, const char *dir, unsigned k, unsigned m)
{
    for (unsigned i = 0; i < k + m; i++) {
        (void)snprintf(w->paths[i], sizeof(w->paths[i]), "%.100s/d%u", dir, i);
        w->drives[i] = w->paths[i];
    }
    w->o = (struct ostore_opts){.drives = w->drives,
                                .n_drives = k + m,
                                .k = k,
                                .m = m,
                                .near_full_pct = 99,
                                .full_pct = 100,
                                .min_part_size = 1};
    w->a = arena_new((size_t)512 << 20);
}

void world_init(struct world *w, unsigned k, unsigned m)
{
    memset(w, 0, sizeof(*w));
    tmpdir_init(&w->dir, "ostore");
    world_paths(w, w->dir.path, k, m);
    for (unsigned i = 0; i < k + m; i++) {
        assert_int_equal(mkdir(w->paths[i], 0700), 0);
    }
}

void world_open(struct world *w)
{
    err_clear(&w->err);
    if (ostore_open(&w->o, &w->s, &w->err) < 0) {
        fail_msg("open: %s %s", w->err.name, w->err.msg);
    }
}

void world_close(struct world *w)
{
    arena_reset(w->a);
    ostore_close(w->s);
    w->s = NULL;
}

void world_again(struct world *w, bool is_index_discarded)
{
    world_close(w);
    w->o.is_index_discarded = is_index_discarded;
    world_open(w);
    w->o.is_index_discarded = false;
}

void world_done(struct world *w)
{
    arena_free(w->a);
    ostore_close(w->s);
    tmpdir_done(&w->dir);
}

const struct obucket *world_bucket(struct world *w, const char *name)
{
    const struct obucket *b = NULL;
    if (ostore_bucket(w->s, str_c(name), &b, NULL) < 0) {
        if (ostore_bucket_create(w->s, str_c(name), STR("111122223333"), STR("eu-west-1"),
                                 &w->err) < 0) {
            fail_msg("bucket: %s %s", w->err.name, w->err.msg);
        }
        assert_int_equal(ostore_bucket(w->s, str_c(name), &b, NULL), 0);
    }
    return b;
}

struct str world_bytes(struct world *w, size_t size, uint32_t seed)
{
    char *p = arena_xalloc(w->a, size + 1);
    uint32_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        p[i] = (char)x;
    }
    return str_n(p, size);
}

struct finish {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_done;
    int rc;
    struct err err;
};

static void finished(void *ctx, int rc, const struct err *err)
{
    struct finish *f = ctx;
    pthread_mutex_lock(&f->lock);
    f->rc = rc;
    f->err = *err;
    f->is_done = true;
    pthread_cond_signal(&f->cond);
    pthread_mutex_unlock(&f->lock);
}

int world_finish(struct world *w, struct oput *p)
{
    struct finish f = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    oput_finish(p, finished, &f);
    pthread_mutex_lock(&f.lock);
    while (!f.is_done) {
        pthread_cond_wait(&f.cond, &f.lock);
    }
    pthread_mutex_unlock(&f.lock);
    w->err = f.err;
    return f.rc;
}

struct oput *world_body(struct world *w, struct str body)
{
    struct oput *p = NULL;
    struct oput_opts o = {.size = (int64_t)body.n};
    err_clear(&w->err);
    int rc = oput_new(w->s, &o, &p, &w->err);
    if (rc == 0) {
        rc = oput_add_wait(p, body, &w->err);
    }
    if (rc < 0) {
        oput_free(p);
        return NULL;
    }
    if (world_finish(w, p) < 0) {
        oput_free(p);
        return NULL;
    }
    return p;
}

int world_put(struct world *w, const struct obucket *b, struct str key, struct str body,
              struct ochange *io)
{
    struct ochange one = {.cond = OCHANGE_IF_NONE};
    struct ochange *c = io ? io : &one;
    c->kind = OCHANGE_PUT;
    c->bucket = b;
    c->rec.key = key;
    if (!c->rec.etag.p) {
        c->rec.etag = STR("00112233445566778899aabbccddeeff");
    }
    c->body = world_body(w, body);
    if (!c->body) {
        return w->err.code;
    }
    int rc = ochange_wait(w->s, c);
    w->err = c->err;
    if (rc < 0) {
        oput_free(c->body);
    }
    return rc;
}

int world_delete(struct world *w, const struct obucket *b, struct str key,
                 const uint8_t *version, struct ochange *io)
{
    struct ochange one = {.cond = OCHANGE_IF_NONE};
    struct ochange *c = io ? io : &one;
    c->kind = OCHANGE_DELETE;
    c->bucket = b;
    c->rec.key = key;
    c->is_version = version != NULL;
    if (version) {
        memcpy(c->rec.version, version, OREC_ID_SIZE);
    }
    int rc = ochange_wait(w->s, c);
    w->err = c->err;
    return rc;
}

int world_read(struct world *w, const struct obucket *b, struct str key, const uint8_t *version,
               struct str *ret, struct oversion *ret_version)
{
    struct oversion v;
    struct oread *r = NULL;
    err_clear(&w->err);
    int rc = ostore_get(w->s, b, key, version, 0, w->a, &v, &w->err);
    if (rc == 0 && ret_version) {
        *ret_version = v;
    }
    if (rc < 0 || v.rec.kind == OREC_MARKER) {
        *ret = STR_NONE;
        return rc;
    }
    rc = oread_open(w->s, &v, 0, &r, &w->err);
    if (rc < 0) {
        return rc;
    }
    char *p = arena_xalloc(w->a, v.rec.size + 1);
    ssize_t n = oread_at(r, 0, p, v.rec.size, 0, &w->err);
    oread_close(r);
    *ret = str_n(p, v.rec.size);
    return n < 0 ? (int)n : (uint64_t)n == v.rec.size ? 0 : -EIO;
}

void world_assert_body(struct world *w, const struct obucket *b, struct str key,
                       const uint8_t *version, struct str want)
{
    struct str got;
    assert_ok(w, world_read(w, b, key, version, &got, NULL));
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
}

static int n_files;
static int count_file(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    n_files += kind == FTW_F && strstr(path, "/data/") != NULL;
    return 0;
}

int world_files(const struct world *w)
{
    n_files = 0;
    assert_int_equal(nftw(w->dir.path, count_file, 16, FTW_PHYS), 0);
    return n_files;
}

void world_wait_for_files(const struct world *w, int n)
{
    for (int i = 0; world_files(w) != n; i++) {
        if (i > 100) {
            fail_msg("%d files of bodies, want %d", world_files(w), n);
        }
        (void)usleep(50000);
    }
}

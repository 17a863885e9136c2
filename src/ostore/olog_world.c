#include "ostore/olog_world.h"

#include "base/bytes.h"
#include "base/test.h"
#include "base/time.h"
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

void world_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void world_path(const struct world *w, unsigned drive, const char *rest, char out[256])
{
    (void)snprintf(out, 256, "%s/d%u%s", w->root, drive, rest);
}

struct world *world_new(unsigned n, unsigned copies, bool has_sim)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->n = n;
    w->copies = copies;
    w->segment_size = 65536;
    /* Memory if there is some: thousands of small folders are made and removed. */
    bool has_shm = access("/dev/shm", W_OK) == 0;
    (void)snprintf(w->base, sizeof(w->base), "%s/olog-test-XXXXXX",
                   has_shm ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(w->base));
    (void)snprintf(w->root, sizeof(w->root), "%s/0", w->base);
    assert_int_equal(mkdir(w->root, 0700), 0);
    for (unsigned i = 0; i < n; i++) {
        char path[256];
        world_path(w, i, "", path);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    if (has_sim) {
        w->sim = fault_sim_new(w->root, &w->err);
        assert_non_null(w->sim);
    }
    return w;
}

void world_close(struct world *w)
{
    olog_close(w->l);
    w->l = NULL;
    drives_close(w->d);
    w->d = NULL;
}

void world_free(struct world *w)
{
    world_close(w);
    fault_sim_free(w->sim);
    vec_free(&w->recs);
    vec_free(&w->seen);
    world_remove(w->base);
    free(w);
}

/* --- records whose content follows from their serial --- */

static void fill(uint8_t *p, size_t n, uint64_t serial)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(serial * 31 + i * 7 + (i >> 8));
    }
}

static int on_record(void *ctx, const struct olog_rec *r, struct err *err)
{
    struct world *w = ctx;
    assert_int_equal(r->kind, OREC_BUCKET_GONE);
    assert_int_equal(r->head.n, 24);
    struct world_rec rec = {
        .lsn = r->lsn, .serial = get_u64(r->head.p), .group = get_u64(r->head.p + 8)};
    assert_int_equal(get_u64(r->head.p + 16), r->body.n);
    uint8_t want[4096];
    assert_true(r->body.n <= sizeof(want));
    fill(want, r->body.n, rec.serial);
    assert_memory_equal(want, r->body.p, r->body.n);
    vec_push(&w->seen, rec);
    return 0;
}

int world_open(struct world *w, uint64_t from_lsn)
{
    char paths[DRIVES_MAX][256];
    const char *list[DRIVES_MAX];
    for (unsigned i = 0; i < w->n; i++) {
        world_path(w, i, "", paths[i]);
        list[i] = paths[i];
    }
    err_clear(&w->err);
    w->seen.n = 0;
    const struct drives_opts d = {.fs = w->sim ? fault_sim_fs(w->sim) : w->fs,
                                  .paths = list,
                                  .n = w->n,
                                  .stall_ns = w->stall_ns};
    int rc = drives_open(&d, &w->d, &w->err);
    if (rc < 0) {
        return rc;
    }
    const struct olog_opts o = {
        .drives = w->d, .n_copies = w->copies, .segment_size = w->segment_size};
    rc = olog_open(&o, from_lsn, on_record, w, &w->l, &w->err);
    if (rc < 0) {
        drives_close(w->d);
        w->d = NULL;
    }
    return rc;
}

static void promise(struct world *w)
{
    uint64_t synced = olog_synced_lsn(w->l);
    for (size_t i = 0; i < w->recs.n; i++) {
        if (w->recs.v[i].lsn <= synced && w->recs.v[i].fate == FATE_TRIED) {
            w->recs.v[i].fate = FATE_ACKED;
        }
    }
}

static int write_records(struct world *w, unsigned n, size_t size, bool is_group,
                         bool is_synced)
{
    struct olog_new v[64];
    uint8_t heads[64][24], bodies[64][4096];
    struct iovec iov[64][2];
    assert_true(n <= 64 && size <= 4096);
    memset(v, 0, sizeof(v));
    uint64_t group = is_group ? w->serial + 1 : 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t serial = ++w->serial;
        put_u64(heads[i], serial);
        put_u64(heads[i] + 8, group);
        put_u64(heads[i] + 16, size);
        fill(bodies[i], size, serial);
        iov[i][0] = (struct iovec){bodies[i], size / 3};
        iov[i][1] = (struct iovec){bodies[i] + size / 3, size - size / 3};
        v[i] = (struct olog_new){.kind = OREC_BUCKET_GONE,
                                 .time_ns = serial,
                                 .head = str_n((char *)heads[i], 24),
                                 .body = iov[i],
                                 .n_body = 2};
        v[i].flags = !is_group ? 0 : i + 1 == n ? OLOG_GROUP | OLOG_GROUP_END : OLOG_GROUP;
    }
    int rc = is_synced ? olog_commit(w->l, v, n, &w->err) : olog_append(w->l, v, n, &w->err);
    for (unsigned i = 0; i < n; i++) {
        if (v[i].ret_lsn) {
            uint64_t serial = w->serial - n + 1 + i;
            vec_push(&w->recs, (struct world_rec){v[i].ret_lsn, serial, group,
                                                  rc < 0 ? FATE_FAILED : FATE_TRIED});
        }
    }
    return rc;
}

int world_append(struct world *w, unsigned n, size_t size, bool is_group)
{
    return write_records(w, n, size, is_group, false);
}

int world_commit(struct world *w, unsigned n, size_t size, bool is_group)
{
    int rc = write_records(w, n, size, is_group, true);
    if (rc == 0) {
        promise(w);
    }
    return rc;
}

int world_sync(struct world *w)
{
    int rc = olog_sync(w->l, &w->err);
    if (rc == 0) {
        promise(w);
    }
    return rc;
}

static const struct world_rec *find_seen(const struct world *w, uint64_t serial)
{
    for (size_t i = 0; i < w->seen.n; i++) {
        if (w->seen.v[i].serial == serial) {
            return &w->seen.v[i];
        }
    }
    return NULL;
}

static const char *wrong(const char *what, const struct world_rec *r)
{
    static char text[160];
    (void)snprintf(text, sizeof(text), "%s: serial %llu, lsn %llu, group %llu", what,
                   (unsigned long long)r->serial, (unsigned long long)r->lsn,
                   (unsigned long long)r->group);
    return text;
}

const char *world_check(struct world *w)
{
    for (size_t i = 1; i < w->seen.n; i++) {
        if (w->seen.v[i].lsn <= w->seen.v[i - 1].lsn) {
            return wrong("out of order", &w->seen.v[i]);
        }
    }
    for (size_t i = 0; i < w->recs.n; i++) {
        const struct world_rec *r = &w->recs.v[i], *s = find_seen(w, r->serial);
        if (r->fate == FATE_ACKED && !s) {
            return wrong("an acknowledged record is lost", r);
        }
        if (r->fate == FATE_GONE && s) {
            return wrong("a record that was gone is back", r);
        }
        if (s && s->lsn != r->lsn) {
            return wrong("another lsn", s);
        }
        for (size_t k = 0; k < i; k++) {
            if (w->recs.v[k].lsn == r->lsn) {
                return wrong("an lsn is used twice", r);
            }
        }
        if (!r->group) {
            continue;
        }
        const struct world_rec *first = find_seen(w, r->group);
        if (!first != !s) {
            return wrong("half a group", r);
        }
    }
    for (size_t i = 0; i < w->seen.n; i++) {
        bool is_known = false;
        for (size_t k = 0; k < w->recs.n; k++) {
            is_known = is_known || w->recs.v[k].serial == w->seen.v[i].serial;
        }
        if (!is_known) {
            return wrong("nobody wrote it", &w->seen.v[i]);
        }
    }
    for (size_t i = 0; i < w->recs.n; i++) {
        if (w->recs.v[i].fate < FATE_ACKED && !find_seen(w, w->recs.v[i].serial)) {
            w->recs.v[i].fate = FATE_GONE;
        }
    }
    return NULL;
}

void world_cut(struct world *w, const struct fault_cut *cut, uint32_t lost)
{
    char dest[128];
    (void)snprintf(dest, sizeof(dest), "%s/%u", w->base, ++w->n_cuts);
    assert_int_equal(fault_sim_cut(w->sim, cut, dest, &w->err), 0);
    world_close(w);
    fault_sim_free(w->sim);
    world_remove(w->root);
    (void)snprintf(w->root, sizeof(w->root), "%s", dest);
    for (unsigned i = 0; i < w->n; i++) {
        char path[256];
        world_path(w, i, "", path);
        if (lost & 1u << i) {
            world_remove(path);
            assert_int_equal(mkdir(path, 0700), 0);
        }
    }
    w->sim = fault_sim_new(w->root, &w->err);
    assert_non_null(w->sim);
}

bool world_segment(const struct world *w, unsigned drive, bool is_newest, char out[256])
{
    char log[256], best[64] = "";
    world_path(w, drive, "/log", log);
    DIR *d = opendir(log);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (strncmp(e->d_name, "seg-", 4) == 0 &&
            (!best[0] || (strcmp(e->d_name, best) > 0) == is_newest)) {
            (void)snprintf(best, sizeof(best), "%.60s", e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    (void)snprintf(out, 256, "%.180s/%s", log, best);
    return best[0] != 0;
}

void world_need(int rc, const struct world *w)
{
    if (rc < 0) {
        fail_msg("%d %s: %s", rc, w->err.name ? w->err.name : "", w->err.msg);
    }
}

size_t world_fill_segments(struct world *w, size_t want)
{
    struct olog_segment *v = NULL;
    size_t n = 0;
    while (n < want) {
        world_need(world_append(w, 4, 3000, true), w);
        world_need(world_sync(w), w);
        free(v);
        assert_int_equal(olog_segments(w->l, &v, &n), 0);
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || v[i].segment > v[i - 1].segment);
        assert_int_equal(v[i].last_lsn == 0, i + 1 == n);
    }
    free(v);
    return n;
}

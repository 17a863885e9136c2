#include "ostore/ostore_world.h"

#include "base/buf.h"
#include "base/fault_sim.h"
#include "crypto/crc.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

/* A list of changes one after the other; the power goes at each sync, or one call fails for want of
 * space. What is there afterwards must be what was there after some number of changes: at least
 * those that were answered, at most one more. */

struct crash {
    struct world w;
    struct fault_sim *sim;
    char live[96], index[96], old_index[96], cut[96];
    const struct obucket *b, *v; /* of the plain bucket, of the one with versions */
    uint8_t upload[16], version[16];
    uint64_t part_lsn[2];
    uint64_t now;
};

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static char copy_to[128];
static size_t copy_skip;

static int copy_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    char to[512];
    (void)snprintf(to, sizeof(to), "%s%s", copy_to, path + copy_skip);
    if (kind == FTW_D) {
        return mkdir(to, 0700) < 0 && errno != EEXIST;
    }
    AUTO_FD in = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_FD out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char buf[65536];
    for (ssize_t n; (n = read(in, buf, sizeof(buf))) > 0;) {
        if (write(out, buf, (size_t)n) != n) {
            return -1;
        }
    }
    return in < 0 || out < 0;
}

static void copy_tree(const char *from, const char *to)
{
    (void)snprintf(copy_to, sizeof(copy_to), "%s", to);
    copy_skip = strlen(from);
    remove_tree(to);
    assert_int_equal(nftw(from, copy_one, 16, FTW_PHYS), 0);
}

static uint64_t test_now(void *ctx)
{
    struct crash *c = ctx;
    return UINT64_C(1790000000) * NS_PER_S +
           __atomic_add_fetch(&c->now, NS_PER_S, __ATOMIC_RELAXED);
}

/* --- what there is, as text --- */

static void print_version(struct world *w, const struct obucket *b, const struct oversion *v,
                          struct buf *out)
{
    struct str got = STR_NONE;
    const struct orec *r = &v->rec;
    if (r->kind != OREC_MARKER && world_read(w, b, r->key, r->version, &got, NULL) < 0) {
        fail_msg("\"%.*s\" cannot be read: %s", STR_ARG(r->key), w->err.msg);
    }
    buf_fmt(out, " %.*s%s%s size %llu crc %llx tags %zu\n", STR_ARG(r->key),
            v->is_latest ? " latest" : "", r->kind == OREC_MARKER ? " marker" : "",
            (unsigned long long)r->size, (unsigned long long)crc_add(CRC_32C, 0, got),
            r->tags.n);
}

static void print_uploads(struct world *w, const struct obucket *b, struct buf *out)
{
    struct olist_query q = {.kind = OLIST_UPLOADS, .max = 1000};
    struct olist_page page;
    assert_int_equal(ostore_list(w->s, b, &q, w->a, &page, &w->err), 0);
    for (size_t i = 0; i < page.n; i++) {
        struct opart_page parts;
        assert_int_equal(ostore_parts(w->s, b, page.v[i].upload.key, page.v[i].upload.upload, 0,
                                      1000, w->a, &parts, &w->err),
                         0);
        buf_fmt(out, " upload of %.*s:", STR_ARG(page.v[i].upload.key));
        for (size_t j = 0; j < parts.n; j++) {
            buf_fmt(out, " %u/%llu", parts.v[j].number, (unsigned long long)parts.v[j].size);
        }
        buf_addc(out, "\n");
    }
}

/* In the world's arena. */
static const char *print_all(struct world *w)
{
    AUTO_BUF out;
    buf_init(&out, 1 << 20);
    struct obucket_list l;
    assert_int_equal(
        ostore_bucket_list(w->s, STR_NONE, STR_NONE, STR_NONE, 100, w->a, &l, &w->err), 0);
    for (size_t i = 0; i < l.n; i++) {
        struct olist_query q = {.kind = OLIST_VERSIONS, .max = 1000};
        struct olist_page page;
        buf_fmt(&out, "%.*s versioning %d objects %llu bytes %llu\n", STR_ARG(l.v[i]->name),
                (int)l.v[i]->versioning, (unsigned long long)l.v[i]->n_objects,
                (unsigned long long)l.v[i]->n_bytes);
        assert_int_equal(ostore_list(w->s, l.v[i], &q, w->a, &page, &w->err), 0);
        for (size_t j = 0; j < page.n; j++) {
            print_version(w, l.v[i], &page.v[j].version, &out);
        }
        print_uploads(w, l.v[i], &out);
        obucket_unref(l.v[i]);
    }
    return arena_cstr(w->a, buf_str(&out));
}

/* --- the changes --- */

static int put_in(struct crash *c, const struct obucket *b, const char *key, size_t size,
                  uint32_t seed, struct ochange *io)
{
    return world_put(&c->w, b, str_c(key), world_bytes(&c->w, size, seed), io);
}

static int plain_put(struct crash *c)
{
    return put_in(c, c->b, "small", 3000, 1, NULL);
}
static int large_put(struct crash *c)
{
    return put_in(c, c->b, "large", 50000, 2, NULL);
}
static int overwrite_small(struct crash *c)
{
    return put_in(c, c->b, "small", 40000, 3, NULL);
}
static int overwrite_large(struct crash *c)
{
    return put_in(c, c->b, "large", 10, 4, NULL);
}
static int tag(struct crash *c)
{
    struct orec_pair pair = {STR("a"), STR("b")};
    struct ochange ch = {.kind = OCHANGE_TAGS, .bucket = c->b, .cond = OCHANGE_IF_NONE};
    ch.rec.key = STR("large");
    ch.rec.tags = (struct orec_pairs){&pair, 1};
    return ochange_wait(c->w.s, &ch);
}
static int upload(struct crash *c)
{
    struct ochange ch = {.kind = OCHANGE_UPLOAD, .bucket = c->b, .cond = OCHANGE_IF_NONE};
    ch.rec.key = STR("multi");
    int rc = ochange_wait(c->w.s, &ch);
    memcpy(c->upload, ch.rec.upload, 16);
    return rc;
}
static int part(struct crash *c, uint32_t number, size_t size)
{
    struct ochange ch = {.kind = OCHANGE_PART, .bucket = c->b, .cond = OCHANGE_IF_NONE};
    ch.rec.key = STR("multi");
    ch.rec.part_number = number;
    memcpy(ch.rec.upload, c->upload, 16);
    ch.body = world_body(&c->w, world_bytes(&c->w, size, number));
    if (!ch.body) {
        return c->w.err.code;
    }
    int rc = ochange_wait(c->w.s, &ch);
    if (rc < 0) {
        oput_free(ch.body);
    }
    c->part_lsn[number - 1] = ch.lsn;
    return rc;
}
static int part_1(struct crash *c)
{
    return part(c, 1, 30000);
}
static int part_2(struct crash *c)
{
    return part(c, 2, 500);
}
static int part_2_again(struct crash *c)
{
    return part(c, 2, 700);
}
static int complete(struct crash *c)
{
    struct orec_part parts[2] = {{.number = 1, .lsn = c->part_lsn[0]},
                                 {.number = 2, .lsn = c->part_lsn[1]}};
    struct ochange ch = {.kind = OCHANGE_COMPLETE, .bucket = c->b, .cond = OCHANGE_IF_NONE};
    ch.rec.key = STR("multi");
    ch.rec.etag = STR("00-2");
    ch.rec.parts = parts;
    ch.rec.n_parts = 2;
    memcpy(ch.rec.upload, c->upload, 16);
    return ochange_wait(c->w.s, &ch);
}
static int abort_upload(struct crash *c)
{
    struct ochange ch = {.kind = OCHANGE_ABORT, .bucket = c->b, .cond = OCHANGE_IF_NONE};
    ch.rec.key = STR("multi");
    memcpy(ch.rec.upload, c->upload, 16);
    return ochange_wait(c->w.s, &ch);
}
static int rename_multi(struct crash *c)
{
    struct ochange ch = {.kind = OCHANGE_RENAME,
                         .bucket = c->b,
                         .cond = OCHANGE_IF_NONE,
                         .target_cond = OCHANGE_IF_NONE};
    ch.rec.key = STR("multi");
    ch.rec.new_key = STR("small");
    return ochange_wait(c->w.s, &ch);
}
static int delete_large(struct crash *c)
{
    return world_delete(&c->w, c->b, STR("large"), NULL, NULL);
}
static int delete_small(struct crash *c)
{
    return world_delete(&c->w, c->b, STR("small"), NULL, NULL);
}
static int versions_on(struct crash *c)
{
    return ostore_bucket_configure(c->w.s, STR("versions"), 0, OCONF_VERSIONING, str_n("\1", 1),
                                   &c->w.err);
}
static int put_v0(struct crash *c)
{
    return put_in(c, c->v, "key", 100, 10, NULL);
}
static int put_v1(struct crash *c)
{
    struct ochange ch = {.cond = OCHANGE_IF_NONE};
    int rc = put_in(c, c->v, "key", 20000, 11, &ch);
    memcpy(c->version, ch.version, 16);
    return rc;
}
static int mark_key(struct crash *c)
{
    return world_delete(&c->w, c->v, STR("key"), NULL, NULL);
}
static int delete_v1(struct crash *c)
{
    return world_delete(&c->w, c->v, STR("key"), c->version, NULL);
}
static int make_bucket(struct crash *c)
{
    return ostore_bucket_create(c->w.s, STR("other"), STR("111122223333"), STR("eu-west-1"),
                                &c->w.err);
}
static int remove_bucket(struct crash *c)
{
    return ostore_bucket_delete(c->w.s, STR("other"), 0, &c->w.err);
}
static int compact(struct crash *c)
{
    uint64_t freed = 0;
    return ostore_compact(c->w.s, &freed, &c->w.err);
}

static const struct step {
    const char *name;
    int (*run)(struct crash *c);
} steps[] = {
    {"put", plain_put},
    {"put of a large one", large_put},
    {"overwrite by a large one", overwrite_small},
    {"overwrite by a small one", overwrite_large},
    {"tags", tag},
    {"compaction", compact},
    {"upload", upload},
    {"part 1", part_1},
    {"part 2", part_2},
    {"part 2 again", part_2_again},
    {"complete", complete},
    {"rename over another", rename_multi},
    {"delete", delete_large},
    {"another upload", upload},
    {"its part", part_1},
    {"abort", abort_upload},
    {"first version", put_v0},
    {"versions on", versions_on},
    {"another version", put_v1},
    {"marker", mark_key},
    {"delete of a version", delete_v1},
    {"compaction", compact},
    {"delete of parts", delete_small},
    {"bucket made", make_bucket},
    {"bucket gone", remove_bucket},
    {"compaction", compact},
};

/* --- the run --- */

static void begin(struct crash *c)
{
    memset(c, 0, sizeof(*c));
    struct world *w = &c->w;
    world_init(w, 1, 1);
    (void)snprintf(c->live, sizeof(c->live), "%s/live", w->dir.path);
    (void)snprintf(c->index, sizeof(c->index), "%s/index", w->dir.path);
    (void)snprintf(c->old_index, sizeof(c->old_index), "%s/old-index", w->dir.path);
    (void)snprintf(c->cut, sizeof(c->cut), "%s/cut", w->dir.path);
    assert_int_equal(mkdir(c->live, 0700), 0);
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(w->paths[i], sizeof(w->paths[i]), "%s/d%u", c->live, i);
        assert_int_equal(mkdir(w->paths[i], 0700), 0);
    }
    w->o.index_path = c->index;
    w->o.inline_max = 8192;
    w->o.segment_size = 128 << 10;
    w->o.now_ns = test_now;
    w->o.now_ctx = c;
    world_open(w);
    obucket_unref(world_bucket(w, "plain"));
    obucket_unref(world_bucket(w, "versions"));
    world_close(w);
    copy_tree(c->index, c->old_index);
    c->sim = fault_sim_new(c->live, &w->err);
    assert_non_null(c->sim);
    w->o.fs = fault_sim_fs(c->sim);
    world_open(w);
    c->b = world_bucket(w, "plain");
    c->v = world_bucket(w, "versions");
}

static void end(struct crash *c)
{
    obucket_unref(c->b);
    obucket_unref(c->v);
    arena_reset(c->w.a);
    ostore_close(c->w.s);
    c->w.s = NULL;
    assert_int_equal(fault_sim_n_resyncs(c->sim), 0);
}

static void done(struct crash *c)
{
    fault_sim_free(c->sim);
    world_done(&c->w);
}

static char *prints[ARRAY_LEN(steps) + 1];

/* What should be there after each step. */
static void reference(void)
{
    struct crash c;
    begin(&c);
    prints[0] = strdup(print_all(&c.w));
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        if (steps[i].run(&c) < 0) {
            fail_msg("%s: %s", steps[i].name, c.w.err.msg);
        }
        prints[i + 1] = strdup(print_all(&c.w));
    }
    end(&c);
    done(&c);
}

static void forget(void)
{
    for (size_t i = 0; i < ARRAY_LEN(prints); i++) {
        free(prints[i]);
        prints[i] = NULL;
    }
}

static void check_cut(struct crash *c, const struct fault_cut *cut, bool has_index,
                      size_t n_acked, uint64_t at)
{
    struct world w = {.o = c->w.o, .a = arena_new((size_t)64 << 20)};
    char index[112];
    remove_tree(c->cut);
    if (fault_sim_cut(c->sim, cut, c->cut, &w.err) < 0) {
        fail_msg("cut: %s", w.err.msg);
    }
    (void)snprintf(index, sizeof(index), "%s/index", c->w.dir.path);
    if (has_index) {
        copy_tree(c->old_index, index);
    } else {
        remove_tree(index);
    }
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(w.paths[i], sizeof(w.paths[i]), "%s/d%u", c->cut, i);
        w.drives[i] = w.paths[i];
    }
    struct fault_sim *sim = fault_sim_new(c->cut, &w.err); /* its syncs cost nothing */
    assert_non_null(sim);
    w.o.drives = w.drives;
    w.o.fs = fault_sim_fs(sim);
    world_open(&w);
    struct ostore_stats st;
    ostore_stats(w.s, &st);
    if (st.is_readonly) {
        fail_msg("sync %llu, cut %d: read-only: %s", (unsigned long long)at, (int)cut->kind,
                 st.why);
    }
    const char *got = print_all(&w);
    bool is_good = false;
    for (size_t i = n_acked; i <= n_acked + 1 && i <= ARRAY_LEN(steps); i++) {
        is_good |= strcmp(got, prints[i]) == 0;
    }
    if (!is_good) {
        fail_msg("sync %llu, cut %d, index %d, after \"%s\":\n%swant\n%s",
                 (unsigned long long)at, (int)cut->kind, has_index,
                 n_acked ? steps[n_acked - 1].name : "nothing", got, prints[n_acked]);
    }
    /* And it goes on. */
    const struct obucket *b = world_bucket(&w, "plain");
    assert_int_equal(world_put(&w, b, STR("after"), world_bytes(&w, 20000, 5), NULL), 0);
    obucket_unref(b);
    arena_free(w.a);
    ostore_close(w.s);
    fault_sim_free(sim);
}

static void power_cut_at_every_sync(void **state)
{
    reference();
    for (uint64_t at = 1;; at++) {
        struct crash c;
        size_t n = 0;
        begin(&c);
        struct fault_plan plan = {.at = at,
                                  .code = -EIO,
                                  .ops = FAULT_SYNCS,
                                  .is_dead = true,
                                  .effect = at % 2 ? FAULT_NOTHING_DONE : FAULT_ALL_DONE};
        fault_sim_plan(c.sim, &plan);
        while (n < ARRAY_LEN(steps) && steps[n].run(&c) >= 0) {
            n++;
        }
        bool has_failed = fault_sim_has_failed(c.sim);
        end(&c);
        if (has_failed) {
            static const enum fault_cut_kind kinds[] = {FAULT_CUT_SYNCED, FAULT_CUT_ALL,
                                                        FAULT_CUT_DATA};
            const struct fault_cut cuts[] = {{.kind = kinds[at % ARRAY_LEN(kinds)]},
                                             {.kind = FAULT_CUT_RANDOM, .seed = at}};
            for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
                check_cut(&c, &cuts[i], (at + i) % 2, n, at);
            }
        } else {
            print_message("%llu syncs\n", (unsigned long long)at - 1);
        }
        done(&c);
        if (!has_failed) {
            break;
        }
    }
    forget();
}

/* One call meets a full disk. Whatever is answered is true, also after a restart; then it goes
 * on. */
static void full_disk_at_every_call(void **state)
{
    for (uint64_t at = 1;; at += 1 + at / 24) {
        struct crash c;
        begin(&c);
        if (getenv("SPX_TEST_SEED")) {
            print_message("call %llu\n", (unsigned long long)at);
        }
        struct fault_plan plan = {.at = at,
                                  .code = -ENOSPC,
                                  .ops = FAULT_BIT(FAULT_PWRITE) | FAULT_BIT(FAULT_ALLOCATE) |
                                         FAULT_BIT(FAULT_OPEN) | FAULT_BIT(FAULT_RENAME),
                                  .effect = at % 2 ? FAULT_NOTHING_DONE : FAULT_HALF_DONE};
        fault_sim_plan(c.sim, &plan);
        bool is_refused = false;
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
            int rc = steps[i].run(&c);
            /* Later steps may need what was refused. */
            if (rc < 0 && !is_refused && rc != -ENOSPC && rc != -EAGAIN) {
                fail_msg("call %llu, %s: %d %s", (unsigned long long)at, steps[i].name, rc,
                         c.w.err.msg);
            }
            is_refused |= rc < 0;
        }
        bool has_failed = fault_sim_has_failed(c.sim);
        for (int i = 0; i < 60 && put_in(&c, c.b, "after", 20000, 5, NULL) < 0; i++) {
            (void)usleep(100000); /* fullness is looked at once a second */
            assert_true(i < 50);
        }
        char *live = strdup(print_all(&c.w));
        end(&c);
        for (int turn = 0; turn < 2; turn++) {
            c.w.o.is_index_discarded = turn;
            world_open(&c.w);
            assert_string_equal(print_all(&c.w), live);
            world_close(&c.w);
        }
        free(live);
        done(&c);
        if (!has_failed) {
            print_message("%llu calls\n", (unsigned long long)at);
            break;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* a part of a test's name: only that one */
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_cut_at_every_sync),
        cmocka_unit_test(full_disk_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

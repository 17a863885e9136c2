#include "ostore/ostore_model.h"

#include "base/num.h"
#include <errno.h>
#include <stdio.h>

/* Random changes of a store and of its model; they must stay the same, also after restarts with the
 * index, without it, and compaction. A failure prints the seed: SPX_TEST_SEED=n runs that one and
 * compares after each step; with SPX_TEST_RUNS=m it runs m from there on. */

#define N_STEPS 700

static const struct str keys[] = {{"a", 1},     {"a/", 2},       {"a/b", 3},  {"a/b/c", 5},
                                  {"a//b", 4},  {"a\0", 2},      {"a\0b", 3}, {"a\0\xff", 3},
                                  {"a\0\1", 3}, {"a\1", 2},      {"b", 1},    {"b/1", 3},
                                  {"b/2", 3},   {"\xff\xff", 2}, {"\0", 1},   {"z/z/z", 5}};

struct run {
    struct world w;
    struct mbucket b[3];
    uint32_t rnd, seed, step;
    uint64_t now;
    bool is_careful; /* compares after each step: to find the one that went wrong */
};

static uint64_t test_now(void *ctx)
{
    struct run *r = ctx;
    return __atomic_add_fetch(&r->now, 1000000007, __ATOMIC_RELAXED);
}

static uint32_t rnd(struct run *r, uint32_t n)
{
    return model_rand(&r->rnd, n);
}

static struct str any_key(struct run *r)
{
    return keys[rnd(r, ARRAY_LEN(keys))];
}

static uint32_t any_size(struct run *r)
{
    static const uint32_t sizes[] = {0, 1, 100, 4096, 8191, 8192, 8193, 16368, 20000, 40000};
    return sizes[rnd(r, ARRAY_LEN(sizes))];
}

static struct ochange change(enum ochange_kind kind, const struct obucket *b, struct str key)
{
    struct ochange c = {
        .kind = kind, .bucket = b, .cond = OCHANGE_IF_NONE, .target_cond = OCHANGE_IF_NONE};
    c.rec.key = key;
    return c;
}

static void need(struct run *r, const struct ochange *c, int want, const char *what)
{
    if (c->rc != want) {
        fail_msg("seed %u step %u: %s: %d %s %s, want %d (if \"%.*s\" size %ld time %lu)",
                 r->seed, r->step, what, c->rc, c->err.name ? c->err.name : "", c->err.msg,
                 want, STR_ARG(c->cond.match), (long)c->cond.size,
                 (unsigned long)c->cond.mtime_s);
    }
}

/* A condition of some kind, and what it has to give for this version (NULL: none). */
static int any_cond(struct run *r, const struct mversion *m, bool is_delete,
                    struct ochange_if *ret, char etag[33])
{
    bool is_object = m && !m->is_marker;
    *ret = OCHANGE_IF_NONE;
    /* A delete of nothing is fine; of a marker, when nothing is said that no marker has. */
    int none = !is_delete ? -ENOENT : m ? -EEXIST : 0;
    bool is_right = rnd(r, 2);
    switch (rnd(r, 12)) {
    case 0: ret->match = STR("*"); return is_object || is_delete ? 0 : none;
    case 1:
        ret->match = str_c(model_etag(is_object && is_right ? m->seed : 7, etag));
        return !is_object ? none : is_right ? 0 : -EEXIST;
    case 2:
        if (is_delete) {
            return 0;
        }
        ret->none_match = STR("*");
        return is_object ? -EEXIST : 0;
    case 3:
        ret->size = is_object && is_right ? (int64_t)m->size : 77777;
        return !is_object ? none : is_right ? 0 : -EEXIST;
    case 4:
        ret->mtime_s = is_object && is_right ? m->time_ns / NS_PER_S : 5;
        return !is_object ? none : is_right ? 0 : -EEXIST;
    default: return 0;
    }
}

static bool has_cond(const struct ochange_if *c)
{
    return c->match.p || c->none_match.p || c->size >= 0 || c->mtime_s;
}

static void do_put(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    struct str key = any_key(r);
    struct mkey *k = mbucket_key(b, key, true);
    char etag[33], cond_etag[33], tag[12];
    struct mversion m = {.seed = 100 + rnd(r, 1u << 30), .size = any_size(r), .tag = rnd(r, 3)};
    struct ochange c = change(OCHANGE_PUT, ob, key);
    int want = any_cond(r, mkey_latest(k), false, &c.cond, cond_etag);
    (void)snprintf(tag, sizeof(tag), "%u", m.tag);
    struct orec_pair pair = {STR("tag"), str_c(tag)};
    c.rec.etag = str_c(model_etag(m.seed, etag));
    c.rec.tags = (struct orec_pairs){&pair, m.tag ? 1 : 0};
    c.rec.meta = (struct orec_pairs){&pair, 1};
    (void)world_put(&r->w, ob, key, world_bytes(&r->w, m.size, m.seed), &c);
    need(r, &c, want, "put");
    if (want == 0) {
        memcpy(m.id, c.version, 16);
        m.lsn = c.lsn;
        m.time_ns = c.time_ns;
        mkey_push(k, m);
    }
}

static void do_delete(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    struct str key = any_key(r);
    struct mkey *k = mbucket_key(b, key, true);
    char etag[33];
    struct ochange c = change(OCHANGE_DELETE, ob, key);
    struct mversion *cur = mkey_latest(k);
    int want = any_cond(r, cur, true, &c.cond, etag);
    (void)world_delete(&r->w, ob, key, NULL, &c);
    need(r, &c, want, "delete");
    if (want < 0 || (!cur && (b->versioning == OSTORE_UNVERSIONED || has_cond(&c.cond)))) {
        return;
    }
    assert_int_equal(c.is_marker, b->versioning != OSTORE_UNVERSIONED);
    if (b->versioning == OSTORE_UNVERSIONED) {
        mkey_remove(k, 0);
        return;
    }
    struct mversion m = {.is_marker = true, .lsn = c.lsn, .time_ns = c.time_ns};
    memcpy(m.id, c.version, 16);
    mkey_push(k, m);
}

static void do_delete_version(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    struct str key = any_key(r);
    struct mkey *k = mbucket_key(b, key, true);
    uint8_t id[16] = {9, 9};
    size_t i = k->v.n;
    char etag[33];
    struct ochange c = change(OCHANGE_DELETE, ob, key);
    int want = 0;
    if (k->v.n > 0 && rnd(r, 8)) {
        i = rnd(r, (uint32_t)k->v.n);
        memcpy(id, k->v.v[i].id, 16);
        want = any_cond(r, &k->v.v[i], true, &c.cond, etag);
    }
    (void)world_delete(&r->w, ob, key, id, &c);
    need(r, &c, want, "delete of a version");
    if (want == 0 && i < k->v.n) {
        assert_int_equal(c.is_marker, k->v.v[i].is_marker);
        mkey_remove(k, i);
    }
}

static void do_tags(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    struct str key = any_key(r);
    struct mkey *k = mbucket_key(b, key, true);
    struct mversion *m = mkey_latest(k);
    struct ochange c = change(OCHANGE_TAGS, ob, key);
    char tag[12];
    uint32_t v = rnd(r, 100);
    (void)snprintf(tag, sizeof(tag), "%u", v);
    struct orec_pair pair = {STR("tag"), str_c(tag)};
    c.rec.tags = (struct orec_pairs){&pair, v ? 1 : 0};
    if (k->v.n > 0 && rnd(r, 2)) {
        m = &k->v.v[rnd(r, (uint32_t)k->v.n)];
        c.is_version = true;
        memcpy(c.rec.version, m->id, 16);
    }
    (void)ochange_wait(r->w.s, &c);
    need(r, &c, !m ? -ENOENT : !m->is_marker ? 0 : c.is_version ? -EPERM : -ENOENT, "tags");
    if (c.rc == 0) {
        m->tag = v;
    }
}

static void do_rename(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    struct str from = any_key(r), to = any_key(r);
    struct ochange c = change(OCHANGE_RENAME, ob, from);
    char etag[33], etag2[33];
    mbucket_key(b, from, true);
    mbucket_key(b, to, true);
    struct mkey *kf = mbucket_key(b, from, true), *kt = mbucket_key(b, to, true);
    c.rec.new_key = to;
    int want = -EINVAL;
    if (b->versioning == OSTORE_UNVERSIONED && !str_eq(from, to)) {
        want = any_cond(r, mkey_latest(kf), false, &c.cond, etag);
        int want2 = any_cond(r, mkey_latest(kt), false, &c.target_cond, etag2);
        want = !mkey_latest(kf) ? -ENOENT : want < 0 ? want : want2;
    }
    (void)ochange_wait(r->w.s, &c);
    need(r, &c, want, "rename");
    if (want < 0) {
        return;
    }
    struct mversion m = kf->v.v[0];
    m.lsn = c.lsn;
    vec_remove(&kf->v, 0);
    mkey_push(kt, m);
}

static void do_upload(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    if (b->uploads.n >= 12) {
        return;
    }
    struct mupload u = {.key = any_key(r), .tag = 1 + rnd(r, 9)};
    char tag[12];
    struct ochange c = change(OCHANGE_UPLOAD, ob, u.key);
    (void)snprintf(tag, sizeof(tag), "%u", u.tag);
    struct orec_pair pair = {STR("tag"), str_c(tag)};
    c.rec.tags = (struct orec_pairs){&pair, 1};
    (void)ochange_wait(r->w.s, &c);
    need(r, &c, 0, "upload");
    memcpy(u.id, c.rec.upload, 16);
    vec_push(&b->uploads, u);
}

static void do_part(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    if (b->uploads.n == 0) {
        return;
    }
    struct mupload *u = &b->uploads.v[rnd(r, (uint32_t)b->uploads.n)];
    struct mpart p = {
        .number = 1 + rnd(r, 6), .seed = 1 + rnd(r, 1u << 30), .size = any_size(r)};
    struct ochange c = change(OCHANGE_PART, ob, u->key);
    char etag[33];
    memcpy(c.rec.upload, u->id, 16);
    c.rec.part_number = p.number;
    c.rec.etag = str_c(model_etag(p.seed, etag));
    c.body = world_body(&r->w, world_bytes(&r->w, p.size, p.seed));
    assert_non_null(c.body);
    (void)ochange_wait(r->w.s, &c);
    need(r, &c, 0, "part");
    p.lsn = c.lsn;
    size_t i = 0;
    while (i < u->parts.n && u->parts.v[i].number < p.number) {
        i++;
    }
    if (i < u->parts.n && u->parts.v[i].number == p.number) {
        u->parts.v[i] = p;
        return;
    }
    vec_push(&u->parts, p);
    memmove(&u->parts.v[i + 1], &u->parts.v[i], (u->parts.n - 1 - i) * sizeof(p));
    u->parts.v[i] = p;
}

static void drop_upload(struct mbucket *b, size_t i)
{
    vec_free(&b->uploads.v[i].parts);
    vec_remove(&b->uploads, i);
}

static void do_complete(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    if (b->uploads.n == 0) {
        return;
    }
    size_t ui = rnd(r, (uint32_t)b->uploads.n);
    struct mupload *u = &b->uploads.v[ui];
    struct mkey *k = mbucket_key(b, u->key, true);
    struct mversion m = {.seed = 100 + rnd(r, 1u << 30), .tag = u->tag};
    struct orec_part parts[8];
    size_t n = 0;
    bool is_wrong = rnd(r, 6) == 0;
    char etag[33], etag2[33];
    for (size_t i = 0; i < u->parts.n; i++) {
        if (rnd(r, 4) == 0) {
            continue; /* a part that is not chosen */
        }
        parts[n++] = (struct orec_part){.number = u->parts.v[i].number,
                                        .lsn = u->parts.v[i].lsn + (is_wrong && i == 0)};
        m.size += u->parts.v[i].size;
        vec_push(&m.parts, u->parts.v[i]);
    }
    is_wrong = n == 0 || (is_wrong && parts[0].number == u->parts.v[0].number);
    struct ochange c = change(OCHANGE_COMPLETE, ob, u->key);
    int want = any_cond(r, mkey_latest(k), false, &c.cond, etag2);
    want = want < 0 ? want : is_wrong ? -EINVAL : 0;
    memcpy(c.rec.upload, u->id, 16);
    c.rec.parts = parts;
    c.rec.n_parts = n;
    c.rec.etag = str_c(model_etag(m.seed, etag));
    (void)ochange_wait(r->w.s, &c);
    need(r, &c, want, "complete");
    if (want < 0) {
        vec_free(&m.parts);
        return;
    }
    assert_false(c.is_repeated);
    memcpy(m.id, c.version, 16);
    memcpy(m.upload, u->id, 16);
    m.lsn = c.lsn;
    m.time_ns = c.time_ns;
    /* Asked again, the answer is the same. */
    struct ochange again = change(OCHANGE_COMPLETE, ob, u->key);
    memcpy(again.rec.upload, u->id, 16);
    again.rec.parts = parts;
    again.rec.n_parts = n;
    (void)ochange_wait(r->w.s, &again);
    need(r, &again, 0, "complete again");
    assert_true(again.is_repeated);
    assert_memory_equal(again.version, m.id, 16);
    assert_int_equal(again.time_ns, m.time_ns);
    assert_str(again.rec.etag, etag);
    mkey_push(k, m);
    drop_upload(b, ui);
}

static void do_abort(struct run *r, struct mbucket *b, const struct obucket *ob)
{
    if (b->uploads.n == 0 || rnd(r, 3)) {
        return;
    }
    size_t ui = rnd(r, (uint32_t)b->uploads.n);
    struct ochange c = change(OCHANGE_ABORT, ob, b->uploads.v[ui].key);
    memcpy(c.rec.upload, b->uploads.v[ui].id, 16);
    (void)ochange_wait(r->w.s, &c);
    need(r, &c, 0, "abort");
    (void)ochange_wait(r->w.s, &c);
    need(r, &c, -ENOENT, "abort again");
    drop_upload(b, ui);
}

static void do_versioning(struct run *r, struct mbucket *b)
{
    if (b == &r->b[0] || rnd(r, 10)) {
        return;
    }
    b->versioning = rnd(r, 2) ? OSTORE_ENABLED : OSTORE_SUSPENDED;
    char v = (char)b->versioning;
    assert_int_equal(ostore_bucket_configure(r->w.s, str_c(b->name), 0, OCONF_VERSIONING,
                                             str_n(&v, 1), NULL),
                     0);
}

static void step(struct run *r)
{
    struct mbucket *b = &r->b[rnd(r, 3)];
    const struct obucket *ob = world_bucket(&r->w, b->name);
    uint64_t freed;
    uint32_t what = rnd(r, 34);
    if (r->is_careful) {
        print_message("step %u: %u in %s\n", r->step, what, b->name);
    }
    switch (what) {
    case 0 ... 8: do_put(r, b, ob); break;
    case 9 ... 11: do_delete(r, b, ob); break;
    case 12 ... 14: do_delete_version(r, b, ob); break;
    case 15 ... 16: do_tags(r, b, ob); break;
    case 17 ... 18: do_rename(r, b, ob); break;
    case 19 ... 20: do_upload(r, b, ob); break;
    case 21 ... 26: do_part(r, b, ob); break;
    case 27 ... 28: do_complete(r, b, ob); break;
    case 29: do_abort(r, b, ob); break;
    case 30: do_versioning(r, b); break;
    case 31:
        if (ostore_compact(r->w.s, &freed, &r->w.err) < 0) {
            fail_msg("seed %u step %u: compact: %s", r->seed, r->step, r->w.err.msg);
        }
        break;
    case 32: model_compare(&r->w, b, r->rnd); break;
    default:
        if (rnd(r, 3) == 0) {
            obucket_unref(ob);
            world_again(&r->w, rnd(r, 2));
            ob = world_bucket(&r->w, b->name);
        }
        break;
    }
    obucket_unref(ob);
    arena_reset(r->w.a);
}

static void random_run(uint32_t seed, bool is_careful)
{
    static const char *const names[] = {"plain", "versions", "late"};
    struct run r = {.seed = seed,
                    .rnd = seed * 2654435761u | 1,
                    .now = UINT64_C(1790000000) * NS_PER_S,
                    .is_careful = is_careful};
    world_init(&r.w, 1, 1);
    r.w.o.inline_max = 8192;
    r.w.o.segment_size = 256 << 10;
    r.w.o.now_ns = test_now;
    r.w.o.now_ctx = &r;
    world_open(&r.w);
    print_message("seed %u\n", seed);
    for (size_t i = 0; i < ARRAY_LEN(r.b); i++) {
        (void)snprintf(r.b[i].name, sizeof(r.b[i].name), "%s", names[i]);
        obucket_unref(world_bucket(&r.w, names[i]));
    }
    char v = OSTORE_ENABLED;
    r.b[1].versioning = OSTORE_ENABLED;
    assert_int_equal(ostore_bucket_configure(r.w.s, STR("versions"), 0, OCONF_VERSIONING,
                                             str_n(&v, 1), NULL),
                     0);
    for (r.step = 0; r.step < N_STEPS; r.step++) {
        step(&r);
        for (size_t i = 0; is_careful && i < ARRAY_LEN(r.b); i++) {
            model_compare(&r.w, &r.b[i], seed);
        }
    }
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < ARRAY_LEN(r.b); i++) {
            model_compare(&r.w, &r.b[i], seed);
        }
        uint64_t freed;
        assert_int_equal(ostore_compact(r.w.s, &freed, NULL), 0);
        world_again(&r.w, turn == 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(r.b); i++) {
        mbucket_free(&r.b[i]);
    }
    world_done(&r.w);
}

static void model_and_store_are_equal(void **state)
{
    const char *text = getenv("SPX_TEST_SEED"), *runs = getenv("SPX_TEST_RUNS");
    uint64_t seed = 1, n = 6;
    if (text && num_u64(str_c(text), UINT32_MAX, &seed) == 0) {
        n = 1;
    }
    if (runs && num_u64(str_c(runs), 100000, &n) < 0) {
        fail_msg("SPX_TEST_RUNS is no number");
    }
    for (uint64_t i = 0; i < n; i++) {
        random_run((uint32_t)(seed + i), text && !runs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(model_and_store_are_equal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

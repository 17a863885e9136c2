/* The lifecycle worker over a real store, with a clock of the test. */
#include "predastore/lifecycle.h"

#include "base/test.h"
#include "base/time.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#define DAY  (UINT64_C(86400) * NS_PER_S)
#define NOON (UINT64_C(1767268800) * NS_PER_S) /* 2026-01-01T12:00:00Z */

struct world {
    struct tmpdir dir;
    char drive[64];
    struct ostore *store;
    struct lifecycle *worker;
    struct arena *arena;
    uint64_t now;
    /* What happens when the worker, on this thread, asks for the time that often from now. */
    pthread_t thread;
    unsigned n_asks;
    void (*then)(struct world *w);
};

static uint64_t clock_of(void *ctx)
{
    struct world *w = ctx;
    if (w->then && pthread_equal(w->thread, pthread_self()) && --w->n_asks == 0) {
        void (*then)(struct world *) = w->then;
        w->then = NULL;
        then(w);
    }
    return w->now;
}

static struct lifecycle *start_worker(struct world *w)
{
    return lifecycle_start(&(struct lifecycle_opts){.store = w->store,
                                                    .now_ns = clock_of,
                                                    .now_ctx = w,
                                                    .every_ns = UINT64_MAX,
                                                    .is_eager = true});
}

static void open_store(struct world *w)
{
    const char *drives[] = {w->drive};
    const struct ostore_opts o = {.drives = drives,
                                  .n_drives = 1,
                                  .k = 1,
                                  .now_ns = clock_of,
                                  .now_ctx = w,
                                  .is_sync_off = true};
    struct err e = ERR_INIT;
    if (ostore_open(&o, &w->store, &e) < 0) {
        fail_msg("%s: %s", e.name, e.msg);
    }
    w->worker = start_worker(w);
}

static void close_store(struct world *w)
{
    lifecycle_stop(w->worker);
    ostore_close(w->store);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    char path[PATH_MAX];
    assert_non_null(w);
    tmpdir_init(&w->dir, "lifecycle");
    const char *drive = tmpdir_path(&w->dir, "d1", path);
    assert_true(strlen(drive) < sizeof(w->drive));
    memcpy(w->drive, drive, strlen(drive) + 1);
    assert_int_equal(mkdir(drive, 0700), 0);
    w->now = NOON;
    w->thread = pthread_self();
    w->arena = arena_new(64u << 20);
    open_store(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    close_store(w);
    arena_free(w->arena);
    tmpdir_done(&w->dir);
    free(w);
    return 0;
}

/* ---- what the tests do ---- */

static const struct obucket *bucket(struct world *w, const char *name)
{
    const struct obucket *b = NULL;
    struct err e = ERR_INIT;
    if (ostore_bucket(w->store, str_c(name), &b, &e) < 0) {
        fail_msg("%s: %s", e.name, e.msg);
    }
    return b;
}

static void make_bucket(struct world *w, const char *name, bool is_versioned, const char *rules)
{
    const char on = OSTORE_ENABLED;
    struct err e = ERR_INIT;
    AUTO_BUF xml;
    buf_init(&xml, 64u << 10);
    buf_fmt(&xml, "<LifecycleConfiguration>%s</LifecycleConfiguration>", rules);
    if (ostore_bucket_create(w->store, str_c(name), STR("123456789012"), STR("us-east-1"), &e) <
            0 ||
        (is_versioned && ostore_bucket_configure(w->store, str_c(name), 0, OCONF_VERSIONING,
                                                 str_n(&on, 1), &e) < 0) ||
        ostore_bucket_configure(w->store, str_c(name), 0, OCONF_LIFECYCLE, buf_str(&xml), &e) <
            0) {
        fail_msg("%s: %s", e.name, e.msg);
    }
}

static void change(struct world *w, struct ochange *c)
{
    if (ochange_wait(w->store, c) < 0) {
        fail_msg("%s: %s", c->err.name, c->err.msg);
    }
}

static void on_stored(void *ctx, int rc, const struct err *err)
{
    *(int *)ctx = rc;
}

static void put(struct world *w, const char *name, const char *key, size_t size,
                const char *tag)
{
    static const char bytes[8192];
    const struct oput_opts o = {.size = (int64_t)size};
    const struct obucket *b = bucket(w, name);
    struct orec_pair pair = {STR("tag"), str_c(tag)};
    struct oput *p = NULL;
    struct err e = ERR_INIT;
    assert_true(size <= sizeof(bytes));
    if (oput_new(w->store, &o, &p, &e) < 0 || oput_add_wait(p, str_n(bytes, size), &e) < 0) {
        fail_msg("%s: %s", e.name, e.msg);
    }
    int rc = -1; /* small bodies: done before it returns */
    oput_finish(p, on_stored, &rc);
    assert_int_equal(rc, 0);
    struct ochange c = {.kind = OCHANGE_PUT,
                        .bucket = b,
                        .cond = OCHANGE_IF_NONE,
                        .target_cond = OCHANGE_IF_NONE,
                        .body = p};
    c.rec.key = str_c(key);
    c.rec.etag = STR("d41d8cd98f00b204e9800998ecf8427e");
    c.rec.account = b->account;
    c.rec.tags = tag ? (struct orec_pairs){&pair, 1} : (struct orec_pairs){0};
    change(w, &c);
    obucket_unref(b);
}

static void begin_or_delete(struct world *w, enum ochange_kind kind, const char *name,
                            const char *key)
{
    const struct obucket *b = bucket(w, name);
    struct ochange c = {
        .kind = kind, .bucket = b, .cond = OCHANGE_IF_NONE, .target_cond = OCHANGE_IF_NONE};
    c.rec.key = str_c(key);
    c.rec.account = b->account;
    change(w, &c);
    obucket_unref(b);
}

/* What a list shows, as text: "key" of versions, "key!" of delete markers. */
static struct str listed(struct world *w, const char *name, enum olist_kind kind)
{
    const struct obucket *b = bucket(w, name);
    const struct olist_query q = {.kind = kind, .after = STR_NONE, .max = 1000};
    struct olist_page page = {0};
    struct err e = ERR_INIT;
    AUTO_BUF text;
    buf_init(&text, 1u << 20);
    if (ostore_list(w->store, b, &q, w->arena, &page, &e) < 0) {
        fail_msg("%s: %s", e.name, e.msg);
    }
    for (size_t i = 0; i < page.n; i++) {
        const struct olist_entry *x = &page.v[i];
        bool is_upload = kind == OLIST_UPLOADS;
        buf_addc(&text, i ? " " : "");
        buf_add(&text, is_upload ? x->upload.key : x->version.rec.key);
        buf_addc(&text, !is_upload && x->version.rec.kind == OREC_MARKER ? "!" : "");
    }
    obucket_unref(b);
    return arena_str_dup(w->arena, buf_str(&text));
}

#define assert_listed(w, name, kind, want) assert_str(listed((w), (name), (kind)), (want))

static void later(struct world *w, uint64_t ns)
{
    w->now += ns;
    lifecycle_turn(w->worker);
}

#define RULE(id, rest) "<Rule><ID>" id "</ID><Status>Enabled</Status>" rest "</Rule>"
#define PREFIX(p)      "<Filter><Prefix>" p "</Prefix></Filter>"
#define DAYS(n)        "<Expiration><Days>" n "</Days></Expiration>"

/* ---- tests ---- */

static void test_objects_expire_at_the_midnight_after_their_days(void **state)
{
    struct world *w = *state;
    make_bucket(w, "b", false, RULE("r", PREFIX("old/") DAYS("1")));
    put(w, "b", "old/a", 1, NULL);
    put(w, "b", "new/a", 1, NULL);
    put(w, "b", "old/b", 1, NULL);
    later(w, 0);
    assert_listed(w, "b", OLIST_OBJECTS, "new/a old/a old/b");
    later(w, DAY); /* a day old, but it is noon */
    assert_listed(w, "b", OLIST_OBJECTS, "new/a old/a old/b");
    later(w, DAY / 2 + NS_PER_S);
    assert_listed(w, "b", OLIST_OBJECTS, "new/a");
    struct lifecycle_stats st;
    lifecycle_stats(w->worker, &st);
    assert_int_equal(st.n_expired, 2);
    assert_int_equal(st.n_failed, 0);
}

static void test_by_date_tag_and_size(void **state)
{
    struct world *w = *state;
    make_bucket(
        w, "b", false,
        RULE("date", PREFIX("d/") "<Expiration><Date>2026-01-05T00:00:00Z</Date></Expiration>")
            RULE("tag",
                 "<Filter><Tag><Key>tag</Key><Value>yes</Value></Tag></Filter>" DAYS("1"))
                RULE("size",
                     "<Filter><And><Prefix>s/</Prefix><ObjectSizeGreaterThan>100</"
                     "ObjectSizeGreaterThan>"
                     "<ObjectSizeLessThan>1000</ObjectSizeLessThan></And></Filter>" DAYS("1")));
    put(w, "b", "d/1", 1, NULL);
    put(w, "b", "s/exactly", 100, NULL);
    put(w, "b", "s/fits", 101, NULL);
    put(w, "b", "s/large", 1000, NULL);
    put(w, "b", "t/no", 1, "no");
    put(w, "b", "t/yes", 1, "yes");
    later(w, 2 * DAY);
    assert_listed(w, "b", OLIST_OBJECTS, "d/1 s/exactly s/large t/no");
    later(w, 2 * DAY);
    assert_listed(w, "b", OLIST_OBJECTS, "s/exactly s/large t/no");
}

static void test_versions(void **state)
{
    struct world *w = *state;
    make_bucket(w, "b", true,
                RULE("r",
                     PREFIX("") DAYS(
                         "1") "<NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays>"
                              "</NoncurrentVersionExpiration>")
                    RULE("m", PREFIX("") "<Expiration><ExpiredObjectDeleteMarker>true"
                                         "</ExpiredObjectDeleteMarker></Expiration>"));
    put(w, "b", "k", 1, NULL);
    put(w, "b", "k", 2, NULL);
    later(w, 2 * DAY); /* the current one gets a marker over it */
    assert_listed(w, "b", OLIST_VERSIONS, "k! k k");
    later(w, 2 * DAY); /* the older one has been noncurrent for its days, the newer not yet */
    assert_listed(w, "b", OLIST_VERSIONS, "k! k");
    later(w, 2 * DAY); /* now this too */
    later(w, DAY);     /* and then nothing is under the marker */
    assert_listed(w, "b", OLIST_VERSIONS, "");
}

static void test_newest_noncurrent_versions_are_kept(void **state)
{
    struct world *w = *state;
    make_bucket(
        w, "b", true,
        RULE("r", PREFIX("") "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>"
                             "<NewerNoncurrentVersions>2</NewerNoncurrentVersions>"
                             "</NoncurrentVersionExpiration>"));
    for (size_t i = 0; i < 6; i++) {
        put(w, "b", "k", i, NULL);
    }
    put(w, "b", "l", 1, NULL);
    later(w, 3 * DAY);
    assert_listed(w, "b", OLIST_VERSIONS, "k k k l"); /* the current one and two more */
}

static void test_markers_with_versions_under_them_stay(void **state)
{
    struct world *w = *state;
    make_bucket(w, "b", true,
                RULE("m", PREFIX("") "<Expiration><ExpiredObjectDeleteMarker>true"
                                     "</ExpiredObjectDeleteMarker></Expiration>"));
    put(w, "b", "full", 1, NULL);
    begin_or_delete(w, OCHANGE_DELETE, "b", "full");
    begin_or_delete(w, OCHANGE_DELETE, "b", "hollow");
    begin_or_delete(w, OCHANGE_DELETE, "b", "last");
    later(w, 2 * DAY);
    assert_listed(w, "b", OLIST_VERSIONS, "full! full");
}

static void test_stale_uploads(void **state)
{
    struct world *w = *state;
    make_bucket(w, "b", false,
                RULE("a",
                     PREFIX("x/") "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2"
                                  "</DaysAfterInitiation></AbortIncompleteMultipartUpload>"));
    begin_or_delete(w, OCHANGE_UPLOAD, "b", "x/1");
    begin_or_delete(w, OCHANGE_UPLOAD, "b", "y/1");
    later(w, 2 * DAY);
    begin_or_delete(w, OCHANGE_UPLOAD, "b", "x/2");
    assert_listed(w, "b", OLIST_UPLOADS, "x/1 x/2 y/1");
    later(w, DAY);
    assert_listed(w, "b", OLIST_UPLOADS, "x/2 y/1");
}

static void test_disabled_rules_and_buckets_without_rules(void **state)
{
    struct world *w = *state;
    make_bucket(w, "b", false,
                "<Rule><ID>r</ID><Status>Disabled</Status>" PREFIX("") DAYS("1") "</Rule>");
    put(w, "b", "k", 1, NULL);
    later(w, 9 * DAY);
    assert_listed(w, "b", OLIST_OBJECTS, "k");
}

static void test_more_than_a_page_and_a_restart(void **state)
{
    struct world *w = *state;
    struct lifecycle_stats st;
    make_bucket(w, "b", true,
                RULE("r", PREFIX("") "<NoncurrentVersionExpiration><NoncurrentDays>1"
                                     "</NoncurrentDays></NoncurrentVersionExpiration>"));
    for (unsigned i = 0; i < 700;
         i++) { /* 1,400 versions: a key lies on both sides of a page */
        struct str key = arena_fmt(w->arena, "k%04u", i);
        put(w, "b", key.p, 1, NULL);
        put(w, "b", key.p, 2, NULL);
        if (i == 499) {
            put(w, "b", key.p, 3, NULL);
        }
    }
    w->now += 3 * DAY;
    close_store(w);
    open_store(w);
    later(w, 0);
    lifecycle_stats(w->worker, &st);
    assert_int_equal(st.n_versions, 701);
    assert_int_equal(st.n_failed, 0);
    later(w, 60 * NS_PER_S); /* the same day: not walked again */
    lifecycle_stats(w->worker, &st);
    assert_int_equal(st.n_walks, 1);
    later(w, DAY);
    lifecycle_stats(w->worker, &st);
    assert_int_equal(st.n_walks, 2);
    assert_int_equal(st.n_versions, 701);
}

static void overwrite(struct world *w)
{
    put(w, "b", "k", 2, NULL);
}

/* The worker has the old object in its list when a new one takes its place. */
static void test_what_came_meanwhile_is_not_deleted(void **state)
{
    struct world *w = *state;
    struct lifecycle_stats st;
    make_bucket(w, "b", false, RULE("r", PREFIX("") DAYS("1")));
    put(w, "b", "k", 1, NULL);
    put(w, "b", "l", 1, NULL);
    w->now += 5 * DAY;
    w->n_asks = 2; /* once for the day of the turn, then for each object */
    w->then = overwrite;
    lifecycle_turn(w->worker);
    assert_null(w->then);
    assert_listed(w, "b", OLIST_OBJECTS, "k");
    lifecycle_stats(w->worker, &st);
    assert_int_equal(st.n_failed, 0);
    assert_int_equal(st.n_expired, 1);
}

static void test_new_rules_are_looked_at_at_once(void **state)
{
    struct world *w = *state;
    struct err e = ERR_INIT;
    make_bucket(w, "b", false, RULE("r", PREFIX("x") DAYS("1")));
    put(w, "b", "k", 1, NULL);
    later(w, 5 * DAY);
    assert_listed(w, "b", OLIST_OBJECTS, "k");
    assert_int_equal(
        ostore_bucket_configure(w->store, STR("b"), 0, OCONF_LIFECYCLE,
                                STR("<LifecycleConfiguration>" RULE(
                                    "r", PREFIX("k") DAYS("1")) "</LifecycleConfiguration>"),
                                &e),
        0);
    later(w, 1);
    assert_listed(w, "b", OLIST_OBJECTS, "");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_objects_expire_at_the_midnight_after_their_days),
        CASE(test_by_date_tag_and_size),
        CASE(test_versions),
        CASE(test_newest_noncurrent_versions_are_kept),
        CASE(test_markers_with_versions_under_them_stay),
        CASE(test_stale_uploads),
        CASE(test_disabled_rules_and_buckets_without_rules),
        CASE(test_more_than_a_page_and_a_restart),
        CASE(test_what_came_meanwhile_is_not_deleted),
        CASE(test_new_rules_are_looked_at_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

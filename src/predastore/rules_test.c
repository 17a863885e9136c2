/* Rules of buckets, kept parsed: over a real store. */
#include "predastore/rules.h"

#include "base/test.h"
#include "testkit/tmpdir.h"

#include <stdio.h>
#include <sys/stat.h>

struct world {
    struct tmpdir dir;
    struct ostore *store;
    struct rules *rules;
    struct arena *a;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    char path[PATH_MAX];
    assert_non_null(w);
    tmpdir_init(&w->dir, "rules");
    const char *drives[] = {tmpdir_path(&w->dir, "d1", path)};
    assert_int_equal(mkdir(drives[0], 0700), 0);
    const struct ostore_opts o = {.drives = drives, .n_drives = 1, .k = 1, .is_sync_off = true};
    assert_int_equal(ostore_open(&o, &w->store, NULL), 0);
    w->rules = rules_new();
    w->a = arena_new(1u << 20);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    arena_free(w->a);
    rules_free(w->rules);
    ostore_close(w->store);
    tmpdir_done(&w->dir);
    free(w);
    return 0;
}

static const struct obucket *bucket(struct world *w, const char *name)
{
    const struct obucket *b = NULL;
    if (ostore_bucket(w->store, str_c(name), &b, NULL) < 0) {
        assert_int_equal(ostore_bucket_create(w->store, str_c(name), STR("123456789012"),
                                              STR("us-east-1"), NULL),
                         0);
        assert_int_equal(ostore_bucket(w->store, str_c(name), &b, NULL), 0);
    }
    return b;
}

static void configure(struct world *w, const char *name, enum obucket_conf which,
                      struct str xml)
{
    obucket_unref(bucket(w, name));
    assert_int_equal(ostore_bucket_configure(w->store, str_c(name), 0, which, xml, NULL), 0);
}

#define LIFE(prefix)                                                                        \
    STR("<LifecycleConfiguration><Rule><ID>x</ID><Filter><Prefix>" prefix                   \
        "</Prefix></Filter><Status>Enabled</Status><Expiration><Days>3</Days></Expiration>" \
        "</Rule></LifecycleConfiguration>")
#define CORS                                                                              \
    STR("<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*" \
        "</AllowedOrigin></CORSRule></CORSConfiguration>")

static const struct s3_life *life(struct world *w, const char *name)
{
    const struct s3_life *l = NULL;
    const struct obucket *b = bucket(w, name);
    assert_int_equal(rules_life(w->rules, b, w->a, &l, NULL), 1);
    obucket_unref(b);
    return l;
}

static uint64_t n_parsed(struct world *w)
{
    struct rules_stats st;
    rules_stats(w->rules, &st);
    return st.n_parsed;
}

static void a_configuration_is_parsed_once(void **state)
{
    struct world *w = *state;
    configure(w, "b", OCONF_LIFECYCLE, LIFE("a/"));
    configure(w, "b", OCONF_CORS, CORS);
    const struct s3_life *first = life(w, "b");
    for (int i = 0; i < 100; i++) {
        assert_ptr_equal(life(w, "b"), first);
    }
    assert_int_equal(n_parsed(w), 1);
    const struct s3_cors *cors = NULL;
    const struct obucket *b = bucket(w, "b");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rules_cors(w->rules, b, w->a, &cors, NULL), 1);
        assert_int_equal(cors->n_rules, 1);
    }
    obucket_unref(b);
    assert_int_equal(n_parsed(w), 2);
}

/* Who asked before the change keeps what it saw; who asks after it sees the new one, also when
 * the bucket is another one of that name. */
static void a_change_is_seen_at_once(void **state)
{
    struct world *w = *state;
    configure(w, "b", OCONF_LIFECYCLE, LIFE("a/"));
    const struct s3_life *first = life(w, "b");
    configure(w, "b", OCONF_LIFECYCLE, LIFE("b/"));
    assert_str(life(w, "b")->rules[0].filter.prefix, "b/");
    assert_str(first->rules[0].filter.prefix, "a/");
    configure(w, "b", OCONF_CORS, CORS); /* something else changed */
    uint64_t n = n_parsed(w);
    (void)life(w, "b");
    assert_int_equal(n_parsed(w), n);
    assert_int_equal(ostore_bucket_delete(w->store, STR("b"), 0, NULL), 0);
    configure(w, "b", OCONF_LIFECYCLE, LIFE("c/"));
    assert_str(life(w, "b")->rules[0].filter.prefix, "c/");
    assert_int_equal(
        ostore_bucket_configure(w->store, STR("b"), 0, OCONF_LIFECYCLE, STR_NONE, NULL), 0);
    const struct obucket *b = bucket(w, "b");
    const struct s3_life *l = NULL;
    assert_int_equal(rules_life(w->rules, b, w->a, &l, NULL), 0);
    obucket_unref(b);
}

static void only_so_many_are_kept(void **state)
{
    struct world *w = *state;
    struct rules_stats st;
    char name[16];
    for (int i = 0; i < RULES_MAX + 50; i++) {
        snprintf(name, sizeof(name), "b-%d", i);
        configure(w, name, OCONF_LIFECYCLE, LIFE("a/"));
        (void)life(w, name);
        (void)life(w, "b-0"); /* is used all the time, and stays */
    }
    rules_stats(w->rules, &st);
    assert_int_equal(st.n, RULES_MAX);
    assert_in_range(st.bytes, RULES_MAX * 100, RULES_BYTES);
    assert_int_equal(st.n_parsed, RULES_MAX + 50);
    (void)life(w, "b-1");
    assert_int_equal(n_parsed(w), RULES_MAX + 51);
}

static void bytes_that_cannot_be_read_are_an_error(void **state)
{
    struct world *w = *state;
    const struct s3_life *l = NULL;
    configure(w, "b", OCONF_LIFECYCLE, STR("<LifecycleConf"));
    const struct obucket *b = bucket(w, "b");
    for (int i = 0; i < 2; i++) {
        struct err e = ERR_INIT;
        assert_true(rules_life(w->rules, b, w->a, &l, &e) < 0);
        assert_string_equal(e.name, "InternalError");
    }
    obucket_unref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_configuration_is_parsed_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_change_is_seen_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(only_so_many_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_that_cannot_be_read_are_an_error, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

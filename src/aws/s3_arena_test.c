/* Arenas of every size, from nothing up: each part says that it has no room, none crashes, and none
 * takes what it could not read for something else. */
#include "aws/s3_cors.h"
#include "aws/s3_form.h"
#include "aws/s3_lifecycle.h"

#include "aws/s3_test_req.h"

enum { STEP = 16, MAX_SIZE = 24 << 10 };

typedef int (*part_fn)(struct s3_test *t, struct arena *a, struct err *err);

static int head(struct s3_test *t, struct arena *a, struct err *err)
{
    struct sigv4_opts o = s3_test_opts(t);
    struct s3_extra extra = {.n = 0};
    int rc = s3_auth_head(a, &o, &t->rq, &t->auth, &extra, err);
    assert_int_equal(str_is_set(t->auth.who.account), rc == 0);
    return rc;
}

static int form(struct s3_test *t, struct arena *a, struct err *err)
{
    static const char body[] =
        "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na/${filename}\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"x-amz-meta-a\"\r\n\r\n1\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"file\"; "
        "filename=\"f\"\r\n\r\nx\r\n--b--";
    AUTO(s3_form_freep) struct s3_form *f = NULL;
    struct str in = str_c(body), run;
    struct s3_form_upload up;
    int rc = s3_form_new(STR("multipart/form-data; boundary=b"), &f, err);
    while (rc == 0 && in.n) {
        rc = s3_form_next(f, &in, &run, err);
    }
    assert_int_equal(rc, 0);
    rc = s3_form_check(a, f, STR("b1"), T_2013_NS, &up, NULL, err);
    if (rc == 0) {
        assert_str(up.key, "a/f");
        assert_int_equal(up.n_headers, 1);
        (void)s3_form_redirect(a, &up, STR("b1"), STR("e")); /* absent when there is no room */
    }
    return rc;
}

static int tags(struct s3_test *t, struct arena *a, struct err *err)
{
    struct s3_tags got;
    int rc = s3_tags_parse(a, STR("a%20b=c&d=%C3%A9"), &got, err);
    assert_true(rc < 0 || got.n == 2);
    return rc;
}

static int source(struct s3_test *t, struct arena *a, struct err *err)
{
    struct s3_copy_source src;
    struct s3_extra extra = {.n = 0};
    int rc = s3_copy_source_parse(a, STR("/films/a%20b?versionId=null"), &src, &extra, err);
    if (rc == 0) {
        assert_str(src.key, "a b");
    }
    return rc;
}

static int meta(struct s3_test *t, struct arena *a, struct err *err)
{
    const struct http_header h[] = {{STR("x-amz-meta-a"), STR("=?UTF-8?B?w6k=?=")},
                                    {STR("x-amz-meta-b"), STR("1")},
                                    {STR("x-amz-meta-A"), STR("2")}};
    struct s3_meta m;
    int rc = s3_meta_parse(a, h, ARRAY_LEN(h), &m, NULL, err);
    if (rc == 0) {
        assert_int_equal(m.n, 2);
        (void)s3_meta_header_value(a, m.v[0].value);
    }
    return rc;
}

static int cors(struct s3_test *t, struct arena *a, struct err *err)
{
    struct str get = STR("GET"), star = STR("*");
    const struct s3_cors_entry entry = {.methods = {.v = &get, .n = 1},
                                        .origins = {.v = &star, .n = 1},
                                        .headers = {.v = &star, .n = 1},
                                        .max_age_s = {5, true}};
    const struct s3_cors c = {&entry, 1};
    const struct http_header *h = NULL;
    size_t n = 0;
    int rc = s3_cors_preflight(a, &c, STR("o"), get, STR("x-a, x-b"), &h, &n, NULL, err);
    assert_int_equal(n > 0, rc == 0);
    return rc;
}

static int life(struct s3_test *t, struct arena *a, struct err *err)
{
    struct s3_life_rule r = {
        .status = STR("Enabled"), .prefix = STR(""), .has_expiration = true, .days = {1, true}};
    struct s3_life l = {&r, 1};
    const struct s3_life_object o = {.key = STR("k"), .is_current = true};
    int rc = s3_life_check(a, &l, err);
    if (rc == 0) {
        (void)s3_life_header(a, &l, &o);
    }
    return rc;
}

static void try_all_sizes(struct s3_test *t, part_fn fn)
{
    int rc = -1;
    bool was_good = false;
    for (size_t size = 0; size <= MAX_SIZE; size += STEP) {
        AUTO(arena_freep) struct arena *a = arena_new(size);
        struct err err = ERR_INIT;
        rc = fn(t, a, &err);
        assert_int_equal(rc == 0, err.code == 0);
        assert_true(rc == 0 || !was_good); /* more room never does harm */
        was_good = was_good || rc == 0;
    }
    assert_int_equal(rc, 0);
}

static void test_every_size(void **state)
{
    static const part_fn parts[] = {form, tags, source, meta, cors, life};
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        try_all_sizes(t, parts[i]);
    }
}

static void test_heads_of_every_size(void **state)
{
    struct s3_test *t = *state;
    s3_test_req(t, "PUT /b/a%20b\nHost: h\nx-amz-date: 20130524T000000Z\n"
                   "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\n"
                   "x-amz-decoded-content-length: 5\nx-amz-trailer: x-amz-checksum-crc32\n"
                   "Date: Fri, 24 May 2013 00:00:00 GMT\n");
    s3_test_sign(t, KEY_ID,
                 "host;x-amz-content-sha256;x-amz-date;"
                 "x-amz-decoded-content-length;x-amz-trailer");
    try_all_sizes(t, head);
    /* a presigned one, with a header in its query */
    struct sigv4_auth auth = {.is_presigned = true,
                              .date = STR("20130524"),
                              .region = STR("us-east-1"),
                              .service = STR("s3"),
                              .signed_headers = STR("host"),
                              .amz_date = STR("20130524T000000Z")};
    s3_test_req(t, "GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY_ID
                   "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&"
                   "X-Amz-Expires=60&X-Amz-SignedHeaders=host&x-amz-meta-a=b%20c\nHost: h\n");
    struct str sig =
        sigv4_sign(t->a, &t->rq, STR(SECRET), &auth, SIGV4_S3, STR("UNSIGNED-PAYLOAD"));
    t->rq.query =
        arena_fmt(t->a, "%.*s&X-Amz-Signature=%.*s", STR_ARG(t->rq.query), STR_ARG(sig));
    try_all_sizes(t, head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_size, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_heads_of_every_size, s3_test_setup,
                                        s3_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

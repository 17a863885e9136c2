/* Forms and policies of strangers. Input: the first line is the Content-Type, the rest the body.
 * Invariants: cut anywhere, the same fields, file and end come out; fields stay within their limit;
 *             a form that is somebody's carries a signature; a policy that allows the fields does
 *             not allow one more that it does not know. */
#include "aws/s3_form.h"

#include "aws/s3_name.h"
#include "base/time.h"
#include "codec/base64.h"
#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_NS (UINT64_C(1451347200) * NS_PER_S)

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    *ret = (struct aws_key){.who = {.account = STR("123456789012")},
                            .secret = STR("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                            .session_token = STR_NONE,
                            .is_active = true};
    return str_eqc(access_key, "AKIAIOSFODNN7EXAMPLE") ? 0 : -ENOENT;
}

struct outcome {
    struct s3_form *form;
    struct buf file;
    int rc;
    const char *name;
};

static void run(struct str type, struct str body, size_t step, struct outcome *o)
{
    struct err err = ERR_INIT;
    *o = (struct outcome){.rc = 0};
    buf_init(&o->file, 1u << 20);
    o->rc = s3_form_new(type, &o->form, &err);
    while (o->rc == 0 && body.n) {
        struct str in = {body.p, MIN(step, body.n)}, payload;
        body = str_skip(body, in.n);
        while (o->rc == 0 && in.n) {
            enum s3_form_state before = s3_form_state(o->form);
            size_t n = in.n;
            o->rc = s3_form_next(o->form, &in, &payload, &err);
            assert(o->rc < 0 || in.n < n || payload.n > 0);
            assert(payload.n == 0 || before != S3_FORM_FIELDS);
            if (o->rc == 0) {
                buf_add(&o->file, payload);
            }
        }
    }
    o->rc = o->rc < 0 ? o->rc : s3_form_end(o->form, &err);
    assert((o->rc < 0) == (err.code < 0));
    o->name = err.name ? err.name : "";
}

static void check_policy(struct arena *a, const struct s3_form *f)
{
    AUTO_BUF json;
    struct s3_form_field *v = arena_array(a, s3_form_n_fields(f) + 1, sizeof(*v));
    struct s3_form_upload up = {.success_status = 0};
    size_t n = s3_form_n_fields(f);
    buf_init(&json, 1u << 20);
    if (!v || base64_decode_lax(s3_form_get(f, "policy"), &json) < 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        v[i] = (struct s3_form_field){s3_form_name(f, i), s3_form_value(f, i)};
    }
    struct s3_form_policy_in in = {.json = buf_str(&json),
                                   .bucket = STR("b1"),
                                   .fields = v,
                                   .n_fields = n,
                                   .now_ns = NOW_NS};
    struct err err = ERR_INIT;
    int rc = s3_form_policy(&in, &up, &err);
    assert((rc < 0) == (err.code < 0));
    if (rc < 0 || n == S3_FORM_N_FIELDS_MAX) {
        return;
    }
    v[n] = (struct s3_form_field){STR("x-amz-meta-nobody-names-this"), STR("1")};
    in.n_fields++;
    rc = s3_form_policy(&in, &up, NULL);
    bool is_named =
        str_find_str(in.json, STR("nobody")) >= 0 || str_find_str(in.json, STR("\\u")) >= 0;
    assert(rc < 0 || is_named);
    in.n_fields--;
    in.now_ns = UINT64_MAX;
    rc = s3_form_policy(&in, &up, NULL);
    assert(rc < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    static struct sigv4_cache *cache;
    struct str all = {(const char *)data, size};
    struct str type = str_cut(all, '\n'), body = str_skip(all, type.n + 1);
    static const size_t steps[] = {1u << 20, 1, 5, 777};
    struct outcome o[ARRAY_LEN(steps)];
    if (size > 200000) {
        return 0;
    }
    if (!a) {
        a = arena_new(16u << 20);
        cache = sigv4_cache_new(4);
    }
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        run(type, body, steps[i], &o[i]);
        assert(o[i].rc == o[0].rc && strcmp(o[i].name, o[0].name) == 0);
        assert(o[i].rc < 0 || str_eq(buf_str(&o[i].file), buf_str(&o[0].file)));
    }
    if (o[0].rc == 0) {
        const struct s3_form *f = o[0].form;
        size_t n = 0;
        for (size_t i = 0; i < s3_form_n_fields(f); i++) {
            n += s3_form_name(f, i).n + s3_form_value(f, i).n;
            assert(str_eq(s3_form_value(f, i), s3_form_value(o[1].form, i)));
        }
        assert(n <= S3_FORM_FIELDS_MAX);
        const struct sigv4_opts opts = {.find = find_key,
                                        .cache = cache,
                                        .region = STR("us-east-1"),
                                        .service = STR("s3"),
                                        .flags = S3_FORM_OLD_SIGNATURE};
        struct s3_auth auth;
        struct s3_form_upload up;
        struct err err = ERR_INIT;
        int rc = s3_form_auth(a, &opts, f, NOW_NS, &auth, NULL, &err);
        assert((rc < 0) == (err.code < 0));
        assert(rc < 0 || auth.is_anonymous == !str_is_set(s3_form_get(f, "policy")));
        struct err check_err = ERR_INIT;
        rc = s3_form_check(a, f, STR("b1"), NOW_NS, &up, NULL, &check_err);
        assert((rc < 0) == (check_err.code < 0));
        if (rc == 0) {
            assert(up.key.n > 0 && up.key.n <= S3_KEY_MAX);
            for (size_t i = 0; i < up.n_headers; i++) {
                assert(s3_is_token(up.headers[i].name));
                assert(str_find(up.headers[i].value, '\n', 0) < 0);
            }
        }
        check_policy(a, f);
        arena_reset(a);
    }
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        s3_form_free(o[i].form);
        buf_done(&o[i].file);
    }
    return 0;
}

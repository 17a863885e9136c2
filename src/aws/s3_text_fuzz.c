/* Short texts of strangers: ranges, entity tags, conditions, tags, copy sources, metadata, names.
 * The whole input is each of them in turn.
 * Invariants: ranges lie within the object; what was accepted obeys its limits and survives being
 *             written and read again. */
#include "aws/s3_cond.h"
#include "aws/s3_cors.h"
#include "aws/s3_name.h"
#include "aws/s3_range.h"
#include "aws/s3_sum.h"

#include "codec/uri.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ranges(struct arena *a, struct str in)
{
    static const uint64_t sizes[] = {0, 1, 100, UINT64_C(5) << 40};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct s3_range r;
        struct err err = ERR_INIT, copy_err = ERR_INIT;
        char text[S3_CONTENT_RANGE_SIZE];
        int rc = s3_range_parse(a, in, sizes[i], &r, NULL, &err);
        assert((rc < 0) == (err.code < 0));
        if (rc == 0) {
            assert(r.first <= sizes[i] && r.size <= sizes[i] - r.first);
            assert(!r.is_partial || r.size > 0);
            assert(strlen(s3_content_range(&r, sizes[i], text)) < sizeof(text));
        }
        struct s3_range c;
        rc = s3_copy_range_parse(in, sizes[i], &c, &copy_err);
        if (rc == 0) { /* what is a good range to copy is the same range to read */
            assert(c.is_partial && r.is_partial && c.first == r.first && c.size == r.size);
        }
    }
    unsigned n = 0;
    int rc = s3_part_number(in, STR_NONE, &n, NULL);
    assert(rc < 0 || (n >= 1 && n <= S3_PART_MAX));
}

static void conditions(struct str in)
{
    const struct http_header h[] = {{STR("If-Match"), in},
                                    {STR("If-Modified-Since"), in},
                                    {STR("x-amz-if-match-size"), in},
                                    {STR("x-amz-copy-source-if-none-match"), in}};
    struct s3_cond c;
    struct s3_cond_write w;
    struct err err = ERR_INIT;
    s3_cond_parse(h, ARRAY_LEN(h), &c);
    int rc = s3_cond_read(&c, STR("abc"), 1, 2, NULL, &err);
    assert((rc < 0) == !s3_etag_in(in, STR("abc")));
    s3_cond_parse_copy(h, ARRAY_LEN(h), &c);
    rc = s3_cond_copy(&c, STR("abc"), 1, 2, NULL, NULL);
    assert((rc < 0) == s3_etag_in(in, STR("abc")));
    const struct s3_cond_now now = {.exists = true, .etag = STR("abc"), .size = 3};
    if (s3_cond_write_parse(h, 1, &w, NULL) == 0) {
        rc = s3_cond_write_check(&w, &now, NULL, NULL);
        assert((rc == 0) == s3_etag_in(in, STR("abc")));
    }
    if (s3_cond_delete_parse(h + 2, 1, &w, NULL) == 0) {
        assert(w.match_size.is_set && w.match_size.v >= 0);
    }
}

static void tags(struct arena *a, struct str in)
{
    struct s3_tags t, back;
    AUTO_BUF out;
    buf_init(&out, 1u << 20);
    if (s3_tags_parse(a, in, &t, NULL) < 0) {
        return;
    }
    assert(t.n <= S3_TAGS_MAX);
    for (size_t i = 0; i < t.n; i++) {
        assert(t.v[i].key.n > 0 && str_utf8_len(t.v[i].key) <= S3_TAG_KEY_MAX);
        assert(str_utf8_len(t.v[i].value) <= S3_TAG_VALUE_MAX);
        buf_addc(&out, i ? "&" : "");
        uri_encode(t.v[i].key, URI_PLAIN, &out);
        buf_addc(&out, "=");
        uri_encode(t.v[i].value, URI_PLAIN, &out);
    }
    int rc = s3_tags_parse(a, buf_str(&out), &back, NULL);
    assert(rc == 0 && back.n == t.n);
    for (size_t i = 0; i < t.n; i++) {
        assert(str_eq(back.v[i].key, t.v[i].key) && str_eq(back.v[i].value, t.v[i].value));
    }
}

static void sources(struct arena *a, struct str in)
{
    struct s3_copy_source src;
    if (s3_copy_source_parse(a, in, &src, NULL, NULL) == 0) {
        assert(s3_bucket_name_ok(src.bucket) && s3_key_check(src.key, NULL) == 0);
        assert(str_find(src.bucket, '/', 0) < 0);
    }
    AUTO_BUF out;
    struct str back;
    buf_init(&out, 1u << 20);
    s3_url_encode(in, &out);
    int rc = uri_decode(a, buf_str(&out), URI_PLUS_IS_SPACE, &back);
    assert(rc == 0 && str_eq(back, in)); /* as boto3 reads it */
}

static void metadata(struct arena *a, struct str in)
{
    const struct http_header h = {STR("x-amz-meta-a"), in};
    struct s3_meta m, back;
    for (size_t i = 0; i < in.n; i++) {
        if ((unsigned char)in.p[i] < 0x20 || in.p[i] == 0x7f) {
            return; /* no header has such a value */
        }
    }
    if (s3_meta_parse(a, &h, 1, &m, NULL, NULL) < 0) {
        return;
    }
    const struct http_header again = {STR("x-amz-meta-a"),
                                      s3_meta_header_value(a, m.v[0].value)};
    assert(m.n == 1 && m.v[0].value.n <= S3_META_MAX && str_is_set(again.value));
    bool is_utf8 = str_utf8_len(m.v[0].value) != SIZE_MAX;
    for (size_t i = 0; is_utf8 && i < again.value.n; i++) {
        assert((unsigned char)again.value.p[i] < 0x7f);
    }
    /* A value that holds something like a word, kept as it was sent, is not one when it comes
     * again; the rest is the same. */
    if (s3_meta_parse(a, &again, 1, &back, NULL, NULL) == 0 &&
        str_find_str(m.v[0].value, STR("=?")) < 0) {
        assert(str_eq(back.v[0].value, m.v[0].value));
    }
}

static void rest(struct arena *a, struct str in)
{
    uint8_t id[16];
    char text[S3_VERSION_ID_SIZE];
    if (s3_version_id_parse(in, id, NULL, NULL) == 0) {
        assert(str_eqc(in, s3_version_id_text(id, text)));
    }
    if (s3_bucket_name_check(in, NULL, NULL) == 0) {
        assert(s3_bucket_name_ok(in) && in.n >= 3 && in.n <= 63);
    }
    for (int i = S3_SUM_CRC32; i < S3_SUM_ALG_N; i++) {
        struct s3_sum_value v;
        char sum[S3_SUM_TEXT_SIZE];
        if (s3_sum_value_parse((enum s3_sum_alg)i, in, &v) == 0) {
            assert(str_eqc(in, s3_sum_text(&v, 0, sum)));
        }
    }
    struct str star = STR("*"), get = STR("GET");
    const struct s3_cors_entry entry = {.origins = {.v = &in, .n = 1},
                                        .methods = {.v = &get, .n = 1},
                                        .headers = {.v = &star, .n = 1}};
    const struct s3_cors c = {&entry, 1};
    const struct http_header *h = NULL;
    size_t n = 0;
    int rc = s3_cors_preflight(a, &c, in, get, in, &h, &n, NULL, NULL);
    assert(rc < 0 || n > 0);
    if (s3_cors_check(&c, NULL) == 0 && in.n && str_find(in, '*', 0) < 0) {
        rc = s3_cors_simple(a, &c, in, get, &h, &n, NULL);
        assert(rc == 0 && n > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    struct str in = {(const char *)data, size};
    if (size > 16384) {
        return 0;
    }
    if (!a) {
        a = arena_new(16u << 20);
    }
    ranges(a, in);
    conditions(in);
    tags(a, in);
    sources(a, in);
    metadata(a, in);
    rest(a, in);
    arena_reset(a);
    return 0;
}

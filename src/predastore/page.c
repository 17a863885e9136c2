#include "predastore/page.h"

#include "codec/base64.h"
#include "codec/uri.h"
#include "crypto/digest.h"

#include <errno.h>

#define TOKEN_VERSION  1
#define TOKEN_SUM_SIZE 8u
#define TOKEN_MAX      (2 * REST_MAX_KEY)

void page_name(struct s3_call *c, const char *name, struct str value)
{
    rest_extra_add(&c->t.extra, "ArgumentName", str_c(name));
    rest_extra_add(&c->t.extra, "ArgumentValue", value);
}

int page_bad(struct s3_call *c, const char *name, struct str value, const char *msg,
             struct err *err)
{
    page_name(c, name, value);
    return fail(err, -EINVAL, "InvalidArgument", "%s", msg);
}

int page_size(struct s3_call *c, const char *name, struct opt_i64 given, size_t most,
              size_t *ret, struct err *err)
{
    if (given.is_set && (given.v < 0 || given.v > INT32_MAX)) {
        struct str msg = arena_fmt(
            c->arena, "Argument %s must be an integer between 0 and 2147483647", name);
        struct str value = arena_fmt(c->arena, "%lld", (long long)given.v);
        return page_bad(c, name, value, msg.p ? msg.p : "", err);
    }
    *ret = given.is_set && (uint64_t)given.v < most ? (size_t)given.v : most;
    return 0;
}

int page_enc_begin(struct s3_call *c, struct str type, struct page_enc *ret, struct err *err)
{
    *ret = (struct page_enc){.arena = c->arena, .is_url = str_eqc(type, "url")};
    if (str_is_set(type) && !ret->is_url) {
        return page_bad(c, "encoding-type", type,
                        "Invalid Encoding Method specified in Request", err);
    }
    return 0;
}

struct str page_enc_text(const struct page_enc *e, struct str s)
{
    if (!e->is_url || s.n == 0) {
        return s;
    }
    size_t n_other = 0;
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        bool is_plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                        (ch >= '0' && ch <= '9') || strchr("-_.~/", ch);
        n_other += !is_plain || ch == '\0';
    }
    if (n_other == 0) {
        return s;
    }
    AUTO_BUF b;
    buf_init(&b, 3 * s.n + 1);
    uri_encode(s, URI_KEEP_SLASH, &b);
    return arena_str_dup(e->arena, buf_str(&b));
}

static void token_sum(uint64_t scope, struct str after, uint8_t out[SHA256_SIZE])
{
    AUTO(digest_freep) struct digest *d = digest_new(DIGEST_SHA256);
    digest_add(d, STR("page token"));
    digest_add(d, str_n((const char *)&scope, sizeof(scope)));
    digest_add(d, after);
    digest_end(d, out);
}

struct str page_token(struct arena *a, uint64_t scope, struct str after)
{
    uint8_t sum[SHA256_SIZE];
    AUTO_BUF raw;
    AUTO_BUF text;
    buf_init(&raw, TOKEN_MAX);
    buf_init(&text, 2 * TOKEN_MAX);
    token_sum(scope, after, sum);
    buf_add_char(&raw, TOKEN_VERSION);
    buf_add(&raw, str_n((const char *)sum, TOKEN_SUM_SIZE));
    buf_add(&raw, after);
    base64_encode(buf_str(&raw), &text);
    /* Clients put it into queries without encoding it: only letters that mean nothing there. */
    while (text.n > 0 && text.p[text.n - 1] == '=') {
        text.n--;
    }
    for (size_t i = 0; i < text.n; i++) {
        text.p[i] = text.p[i] == '+' ? '-' : text.p[i] == '/' ? '_' : text.p[i];
    }
    return arena_str_dup(a, buf_str(&text));
}

int page_token_parse(struct arena *a, uint64_t scope, struct str token, struct str *ret_after)
{
    uint8_t sum[SHA256_SIZE];
    AUTO_BUF text;
    AUTO_BUF raw;
    if (token.n > 2 * TOKEN_MAX) {
        return -EINVAL;
    }
    buf_init(&text, 2 * TOKEN_MAX + 4);
    buf_init(&raw, 2 * TOKEN_MAX);
    for (size_t i = 0; i < token.n; i++) {
        char ch = token.p[i];
        bool is_good = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                       (ch >= '0' && ch <= '9') || ch == '-' || ch == '_';
        if (!is_good) {
            return -EINVAL;
        }
        buf_add_char(&text, (char)(ch == '-' ? '+' : ch == '_' ? '/' : ch));
    }
    while (text.n % 4 != 0) {
        buf_add_char(&text, '=');
    }
    if (base64_decode(buf_str(&text), &raw) < 0 || raw.n < 1 + TOKEN_SUM_SIZE ||
        raw.p[0] != TOKEN_VERSION) {
        return -EINVAL;
    }
    struct str after = str_skip(buf_str(&raw), 1 + TOKEN_SUM_SIZE);
    token_sum(scope, after, sum);
    if (memcmp(sum, raw.p + 1, TOKEN_SUM_SIZE) != 0) {
        return -EINVAL;
    }
    *ret_after = arena_str_dup(a, after);
    return str_is_set(*ret_after) ? 0 : -EINVAL;
}

int page_token_take(struct s3_call *c, uint64_t scope, struct str token, struct str *ret_after,
                    struct err *err)
{
    if (page_token_parse(c->arena, scope, token, ret_after) < 0) {
        return page_bad(c, "continuation-token", token,
                        "The continuation token provided is incorrect", err);
    }
    return 0;
}

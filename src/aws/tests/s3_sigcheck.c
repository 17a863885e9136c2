/* s3_sigcheck.c — S3's pure parts as a filter, for s3_client_test.py: one request a line,
 * "METHOD PATH QUERY BODY NOW_S NAME VALUE ..." with each field in hex ("-" = absent). Answers
 * "<code> <who> <size> <md5> <algorithm> <checksum>", code "ok" when everything about it was
 * good: the head, the coding of the body, the checksums; for forms also the policy.
 * Not a test of its own. */
#include "aws/s3_chunked.h"
#include "aws/s3_form.h"
#include "aws/s3_sum.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/hex.h"
#include <errno.h>
#include <stdio.h>

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    if (!str_eqc(access_key, "AKIDEXAMPLE") && !str_eqc(access_key, "ASIAEXAMPLE")) {
        return -ENOENT;
    }
    *ret =
        (struct aws_key){.who = {.account = STR("123456789012")},
                         .secret = STR("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
                         .session_token = access_key.p[1] == 'S' ? STR("token/+=") : STR_NONE,
                         .is_active = true};
    return 0;
}

static struct str unhex(struct arena *a, struct str s)
{
    char *p = arena_xalloc(a, s.n / 2 + 1);
    if (str_eqc(s, "-")) {
        return STR_NONE;
    }
    if (s.n % 2 || hex_decode(s, p, s.n / 2) < 0) {
        abort();
    }
    return str_n(p, s.n / 2);
}

static int take_body(const struct s3_auth *auth, struct str body, struct s3_sum *sum,
                     struct err *err)
{
    struct s3_chunked c = {.sha = NULL};
    struct str run, name, value;
    if (!s3_payload_is_chunked(auth->payload)) {
        s3_sum_add(sum, body);
        return 0;
    }
    int rc = s3_chunked_init(&c, auth, err);
    while (rc == 0 && body.n) {
        rc = s3_chunked_next(&c, &body, &run, err);
        s3_sum_add(sum, rc == 0 ? run : STR(""));
    }
    rc = rc < 0 ? rc : s3_chunked_end(&c, err);
    for (size_t i = 0; rc == 0 && s3_chunked_trailer(&c, i, &name, &value); i++) {
        rc = s3_sum_trailer(sum, name, value, err);
    }
    s3_chunked_done(&c);
    return rc;
}

static int take_form(struct arena *a, const struct sigv4_opts *o, const struct aws_http *rq,
                     struct s3_auth *auth, struct s3_sum *sum, struct err *err)
{
    AUTO(s3_form_freep) struct s3_form *f = NULL;
    struct str body = rq->body, run;
    struct s3_form_upload up = {.success_status = 0};
    const struct s3_sum_want none = {.keep = S3_SUM_CRC64NVME};
    bool is_checked = false;
    int rc = s3_form_new(aws_http_header(rq, "Content-Type"), &f, err);
    s3_sum_begin(sum, &none, false);
    while (rc == 0 && body.n) {
        rc = s3_form_next(f, &body, &run, err);
        if (rc == 0 && s3_form_state(f) != S3_FORM_FIELDS && !is_checked) {
            is_checked = true;
            rc = s3_form_auth(a, o, f, rq->now_ns, auth, NULL, err);
            rc = rc < 0
                     ? rc
                     : s3_form_check(a, f, str_skip(rq->path, 1), rq->now_ns, &up, NULL, err);
        }
        s3_sum_add(sum, rc == 0 ? run : STR(""));
    }
    rc = rc < 0 ? rc : s3_form_end(f, err);
    return rc < 0 ? rc : s3_form_size_check(a, &up, sum->size, true, NULL, err);
}

static void answer(struct arena *a, const struct sigv4_opts *o, const struct aws_http *rq,
                   struct s3_sum *sum)
{
    struct s3_auth auth = {.access_key = STR_NONE};
    struct s3_sum_want want;
    struct s3_sum_result r = {.size = 0};
    struct err err = ERR_INIT;
    char etag[S3_ETAG_SIZE] = "-", text[S3_SUM_TEXT_SIZE] = "-";
    int rc;
    if (str_eqc(rq->method, "FORM")) {
        rc = take_form(a, o, rq, &auth, sum, &err);
    } else {
        rc = s3_auth_head(a, o, rq, &auth, NULL, &err);
        rc = rc < 0 ? rc : s3_sum_want_parse(&auth, 0, S3_SUM_CRC64NVME, &want, NULL, &err);
        if (rc == 0) {
            s3_sum_begin(sum, &want, false);
            rc = take_body(&auth, rq->body, sum, &err);
        }
    }
    rc = rc < 0 ? rc : s3_sum_end(sum, &r, NULL, NULL, &err);
    if (rc == 0) {
        s3_etag(r.md5, etag);
        s3_sum_text(&r.sum, 0, text);
    }
    printf("%s %s %llu %s %s %s\n", rc == 0 ? "ok" : err.name,
           auth.who.account.p ? auth.who.account.p : "-", (unsigned long long)r.size, etag,
           rc == 0 ? s3_sum_name(r.sum.alg) : "-", text);
    fflush(stdout);
    s3_auth_done(&auth);
}

int main(void)
{
    AUTO_FREE char *line = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(64u << 20);
    struct sigv4_opts o = {.find = find_key,
                           .cache = sigv4_cache_new(4),
                           .region = STR("us-east-1"),
                           .service = STR("s3")};
    struct s3_sum sum = {.size = 0};
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct str rest = str_trim(str_n(line, (size_t)n)), f[96];
        struct http_header headers[48];
        size_t n_f = 0;
        while (n_f < ARRAY_LEN(f) && str_is_set(rest) && str_next(&rest, ' ', &f[n_f])) {
            f[n_f] = unhex(a, f[n_f]);
            n_f++;
        }
        struct aws_http rq = {.method = f[0],
                              .path = f[1],
                              .query = f[2],
                              .body = f[3].p ? f[3] : STR(""),
                              .headers = headers};
        if (n_f < 5 || num_u64(f[4], UINT32_MAX, &rq.now_ns) < 0) {
            return 1;
        }
        rq.now_ns *= NS_PER_S;
        for (size_t i = 5; i + 1 < n_f; i += 2) {
            headers[rq.n_headers++] = (struct http_header){f[i], str_trim(f[i + 1])};
        }
        answer(a, &o, &rq, &sum);
        arena_reset(a);
    }
    s3_sum_done(&sum);
    sigv4_cache_free(o.cache);
    return 0;
}

/* sigcheck.c — the verifier as a filter, for signature_test.py: one request a line, "METHOD
 * PATH QUERY BODY NOW_S NAME VALUE NAME VALUE ..." with each field in hex ("-" = absent);
 * answers "ok" or the error's name. Key AKIDEXAMPLE, region us-east-1, any service.
 * Not a test of its own. */
#include "aws/sigv4.h"
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
        (struct aws_key){.secret = STR("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
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

int main(void)
{
    AUTO_FREE char *line = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(64u << 20);
    struct sigv4_opts o = {
        .find = find_key, .cache = sigv4_cache_new(4), .region = STR("us-east-1")};
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct str rest = str_trim(str_n(line, (size_t)n)), f[64];
        struct http_header headers[32];
        struct sigv4_auth auth;
        struct aws_key key;
        struct err err = ERR_INIT;
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
        puts(sigv4_verify(a, &o, &rq, &auth, &key, &err) == 0 ? "ok" : err.name);
        fflush(stdout);
        arena_reset(a);
    }
    sigv4_cache_free(o.cache);
    return 0;
}

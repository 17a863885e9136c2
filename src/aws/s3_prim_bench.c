/* s3_prim_bench.c — what the pure parts of S3 cost: the head of a PUT, aws-chunked, checksums.
 * Use: aws_s3_prim_bench [--json] */
#include "aws/s3_chunked.h"
#include "aws/s3_sum.h"

#include "base/time.h"
#include <errno.h>
#include <stdio.h>

#define NOW_NS (UINT64_C(1369353600) * NS_PER_S)
static const struct str secret = {"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", 40};
static bool is_json;

static void row(const char *name, double value, const char *unit, double target)
{
    bool is_ok = strcmp(unit, "us") == 0 ? value <= target : value >= target;
    if (is_json) {
        printf("{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s\",\"target\":%.3f,\"ok\":%s}\n",
               name, value, unit, target, target > 0 ? is_ok ? "true" : "false" : "null");
    } else {
        printf("%-44s %10.3f %-5s %s\n", name, value, unit,
               target > 0 ? is_ok ? "ok" : "MISSED" : "");
    }
}

/* The best of several rounds: the machine has other work. 'fn' does its work 'n' times. */
static double best_us(void (*fn)(void *ctx, size_t n), void *ctx, size_t n)
{
    double best = 1e30;
    for (int round = 0; round < 9; round++) {
        uint64_t t0 = time_mono_ns();
        fn(ctx, n);
        double us = (double)(time_mono_ns() - t0) / 1e3 / (double)n;
        best = us < best ? us : best;
    }
    return best;
}

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    *ret = (struct aws_key){.who = {.account = STR("123456789012")},
                            .secret = secret,
                            .session_token = STR_NONE,
                            .is_active = true};
    return 0;
}

/* ---- the head of a PUT, as boto3 sends it ---- */

struct head {
    struct arena *a;
    struct sigv4_opts o;
    struct aws_http rq;
    struct http_header h[16];
    struct s3_auth auth;
};

static void head_init(struct head *d, bool is_presigned)
{
    static const struct http_header common[] = {
        {STR("Host"), STR("s3.local:8443")},
        {STR("User-Agent"), STR("Boto3/1.43.11 md/Botocore#1.43.11 ua/2.1 os/linux#6.1")},
        {STR("Accept-Encoding"), STR("identity")},
        {STR("Content-Length"), STR("4096")},
        {STR("Content-Type"), STR("application/octet-stream")},
        {STR("Expect"), STR("100-continue")},
        {STR("amz-sdk-invocation-id"), STR("3a3ee2b4-6d0c-4f0e-9a74-0d7a5f2c7f3b")},
        {STR("amz-sdk-request"), STR("attempt=1")},
        {STR("x-amz-content-sha256"), STR("UNSIGNED-PAYLOAD")},
        {STR("x-amz-date"), STR("20130524T000000Z")},
        {STR("x-amz-sdk-checksum-algorithm"), STR("CRC32")},
        {STR("x-amz-checksum-crc32"), STR("NhCmhg==")},
    };
    struct sigv4_auth auth = {.is_presigned = is_presigned,
                              .access_key = STR("AKIAIOSFODNN7EXAMPLE"),
                              .date = STR("20130524"),
                              .region = STR("us-east-1"),
                              .service = STR("s3"),
                              .amz_date = STR("20130524T000000Z"),
                              .signed_headers =
                                  is_presigned ? STR("host")
                                               : STR("content-type;host;x-amz-checksum-crc32;"
                                                     "x-amz-content-sha256;x-amz-date;"
                                                     "x-amz-sdk-checksum-algorithm")};
    memset(d, 0, sizeof(*d));
    d->a = arena_new(1u << 20);
    d->o = (struct sigv4_opts){.find = find_key,
                               .cache = sigv4_cache_new(64),
                               .region = STR("us-east-1"),
                               .service = STR("s3")};
    size_t n = is_presigned ? 8 : ARRAY_LEN(common);
    memcpy(d->h, common, n * sizeof(common[0]));
    d->rq = (struct aws_http){.method = STR("PUT"),
                              .path = STR("/films/2026/11/30/object-0000000017.bin"),
                              .query = STR_NONE,
                              .headers = d->h,
                              .n_headers = n,
                              .now_ns = NOW_NS};
    if (is_presigned) {
        d->rq.query = STR("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
                          "AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&"
                          "X-Amz-Date=20130524T000000Z&X-Amz-Expires=3600&"
                          "X-Amz-SignedHeaders=host");
        struct arena *keep = arena_new(1u << 16);
        struct str sig =
            sigv4_sign(keep, &d->rq, secret, &auth, SIGV4_S3, STR("UNSIGNED-PAYLOAD"));
        d->rq.query =
            arena_fmt(keep, "%.*s&X-Amz-Signature=%.*s", STR_ARG(d->rq.query), STR_ARG(sig));
    } else {
        struct arena *keep = arena_new(1u << 16);
        d->h[n] = (struct http_header){
            STR("Authorization"),
            sigv4_sign(keep, &d->rq, secret, &auth, SIGV4_S3, STR("UNSIGNED-PAYLOAD"))};
        d->rq.n_headers++;
    }
}

static void run_head(void *ctx, size_t n)
{
    struct head *d = ctx;
    for (size_t i = 0; i < n; i++) {
        struct err err = ERR_INIT;
        if (s3_auth_head(d->a, &d->o, &d->rq, &d->auth, NULL, &err) < 0) {
            fprintf(stderr, "%s: %s\n", err.name, err.msg);
            abort();
        }
        s3_auth_done(&d->auth);
        arena_reset(d->a);
    }
}

static void run_want(void *ctx, size_t n)
{
    struct head *d = ctx;
    struct s3_sum_want want;
    for (size_t i = 0; i < n; i++) {
        if (s3_sum_want_parse(&d->auth, 0, S3_SUM_CRC64NVME, &want, NULL, NULL) < 0) {
            abort();
        }
    }
}

/* ---- bodies ---- */

struct body {
    struct s3_auth auth;
    struct str coded, plain;
    struct s3_sum sum;
    struct s3_sum_want want;
    bool without_md5;
    size_t step;
};

static void run_chunked(void *ctx, size_t n)
{
    struct body *b = ctx;
    for (size_t i = 0; i < n; i++) {
        struct s3_chunked c;
        struct str rest = b->coded, run;
        int rc = s3_chunked_init(&c, &b->auth, NULL);
        while (rc == 0 && rest.n) {
            struct str in = {rest.p, MIN(b->step, rest.n)};
            rest = str_skip(rest, in.n);
            while (rc == 0 && in.n) {
                rc = s3_chunked_next(&c, &in, &run, NULL);
            }
        }
        rc = rc < 0 ? rc : s3_chunked_end(&c, NULL);
        s3_chunked_done(&c);
        if (rc < 0) {
            abort();
        }
    }
}

static void run_sum(void *ctx, size_t n)
{
    struct body *b = ctx;
    struct s3_sum_result r;
    for (size_t i = 0; i < n; i++) {
        struct str rest = b->plain;
        s3_sum_begin(&b->sum, &b->want, b->without_md5);
        while (rest.n) {
            s3_sum_add(&b->sum, str_n(rest.p, MIN(b->step, rest.n)));
            rest = str_skip(rest, b->step);
        }
        if (s3_sum_end(&b->sum, &r, NULL, NULL, NULL) < 0) {
            abort();
        }
    }
}

static void bench_chunked(char *data)
{
    enum { SIZE = 1 << 20, CHUNK = 65536 };
    AUTO_BUF coded;
    struct body b = {.step = 65536};
    buf_init(&coded, 4 << 20);
    for (size_t at = 0; at < SIZE; at += CHUNK) {
        buf_fmt(&coded, "%x\r\n", (unsigned)CHUNK);
        buf_add(&coded, str_n(data + at, CHUNK));
        buf_addc(&coded, "\r\n");
    }
    buf_addc(&coded, "0\r\n\r\n");
    b.auth = (struct s3_auth){.payload = S3_PAYLOAD_UNSIGNED_TRAILER, .decoded_length = SIZE};
    b.coded = buf_str(&coded);
    row("aws-chunked, unsigned, chunks of 64 KiB", SIZE / best_us(run_chunked, &b, 50) / 1e3,
        "GB/s", 10);
    /* Signed: the chain is made by the decoder's own arithmetic, with hmac and sha256. */
    buf_clear(&coded);
    b.auth = (struct s3_auth){.payload = S3_PAYLOAD_SIGNED,
                              .decoded_length = SIZE,
                              .scope = STR("20130524/us-east-1/s3/aws4_request"),
                              .amz_date = STR("20130524T000000Z")};
    memset(b.auth.seed_signature, '0', 64);
    char prev[65], hash_hex[65];
    uint8_t hash[SHA256_SIZE], mac[SHA256_SIZE];
    memcpy(prev, b.auth.seed_signature, 65);
    for (size_t at = 0; at <= SIZE; at += CHUNK) {
        AUTO_BUF text;
        struct str chunk = {data + at, at < SIZE ? CHUNK : 0};
        buf_init(&text, 4096);
        sha256(chunk, hash);
        digest_hex(hash, sizeof(hash), hash_hex);
        buf_fmt(&text,
                "AWS4-HMAC-SHA256-PAYLOAD\n20130524T000000Z\n20130524/us-east-1/s3/"
                "aws4_request\n%s\n"
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n%s",
                prev, hash_hex);
        hmac_sha256(str_n((const char *)b.auth.signing_key, 32), buf_str(&text), mac);
        digest_hex(mac, sizeof(mac), prev);
        buf_fmt(&coded, "%zx;chunk-signature=%s\r\n", chunk.n, prev);
        buf_add(&coded, chunk);
        buf_addc(&coded, "\r\n");
    }
    b.coded = buf_str(&coded);
    row("aws-chunked, signed, chunks of 64 KiB", SIZE / best_us(run_chunked, &b, 20) / 1e3,
        "GB/s", 0);
}

static void bench_sums(char *data)
{
    static const struct {
        const char *name;
        size_t size;
        enum s3_sum_alg alg;
        bool without_md5, has_sha256;
        size_t n;
    } cases[] = {
        {"sums of 4 KiB: MD5 and CRC64NVME", 4096, S3_SUM_CRC64NVME, false, false, 5000},
        {"sums of 4 KiB: CRC64NVME alone", 4096, S3_SUM_CRC64NVME, true, false, 20000},
        {"sums of 4 KiB: MD5, CRC32 and SHA-256", 4096, S3_SUM_CRC32, false, true, 5000},
        {"sums of 1 MiB: MD5 and CRC64NVME", 1 << 20, S3_SUM_CRC64NVME, false, false, 20},
        {"sums of 1 MiB: MD5 alone", 1 << 20, S3_SUM_NONE, false, false, 20},
        {"sums of 1 MiB: CRC64NVME alone", 1 << 20, S3_SUM_CRC64NVME, true, false, 50},
        {"sums of 1 MiB: CRC32C alone", 1 << 20, S3_SUM_CRC32C, true, false, 50},
        {"sums of 1 MiB: SHA-256 alone", 1 << 20, S3_SUM_SHA256, true, false, 20},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct body b = {.plain = {data, cases[i].size},
                         .want = {.keep = cases[i].alg, .has_sha256 = cases[i].has_sha256},
                         .without_md5 = cases[i].without_md5,
                         .step = 65536};
        if (cases[i].has_sha256) {
            sha256(b.plain, b.want.sha256);
        }
        row(cases[i].name, best_us(run_sum, &b, cases[i].n), "us", 0);
        s3_sum_done(&b.sum);
    }
}

int main(int argc, char **argv)
{
    is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    struct head header, query;
    char *data = malloc(2u << 20);
    if (!data) {
        return 1;
    }
    for (size_t i = 0; i < 2u << 20; i++) {
        data[i] = (char)(i * 2654435761u >> 13);
    }
    head_init(&header, false);
    head_init(&query, true);
    row("authentication of a PUT, header form", best_us(run_head, &header, 5000), "us", 5);
    row("authentication of a PUT, presigned", best_us(run_head, &query, 5000), "us", 8);
    if (s3_auth_head(header.a, &header.o, &header.rq, &header.auth, NULL, NULL) < 0) {
        return 1;
    }
    row("checksums that a head names", best_us(run_want, &header, 50000), "us", 1);
    bench_chunked(data);
    bench_sums(data);
    free(data);
    return 0;
}

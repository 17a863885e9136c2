/* aws-chunked bodies of strangers. Input: the first line is "<kind> <length> <trailer>", the rest
 * is the body.
 * Invariants: cut anywhere, the same payload and the same end come out; what ends well has the
 *             promised length and every promised trailer; an error is final; memory is bounded
 *             by the struct. */
#include "aws/s3_chunked.h"

#include "base/buf.h"
#include "base/num.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    int rc;
    const char *name;
    struct buf out;
    char trailer[S3_CHUNK_TRAILER_MAX];
};

static void run(const struct s3_auth *auth, struct str body, size_t step, struct outcome *o)
{
    struct s3_chunked c;
    struct err err = ERR_INIT;
    *o = (struct outcome){.rc = 0};
    buf_init(&o->out, 1u << 20);
    o->rc = s3_chunked_init(&c, auth, &err);
    if (o->rc < 0) { /* the names of the trailers are too long */
        o->name = err.name;
        s3_chunked_done(&c);
        return;
    }
    while (o->rc == 0 && body.n) {
        struct str in = {body.p, MIN(step, body.n)}, payload;
        body = str_skip(body, in.n);
        while (o->rc == 0 && in.n) {
            size_t before = in.n;
            o->rc = s3_chunked_next(&c, &in, &payload, &err);
            assert(o->rc < 0 || in.n < before);
            if (o->rc == 0) {
                buf_add(&o->out, payload);
            }
        }
    }
    o->rc = o->rc < 0 ? o->rc : s3_chunked_end(&c, &err);
    assert((o->rc < 0) == (err.code < 0));
    o->name = err.name ? err.name : "";
    struct str name, value;
    if (o->rc == 0) {
        assert(o->out.n == auth->decoded_length && s3_chunked_is_done(&c));
        assert(auth->trailers.n == 0 || s3_chunked_trailer(&c, 0, &name, &value));
        assert(!s3_chunked_trailer(&c, auth->trailers.n, &name, &value));
    } else {
        struct err again = ERR_INIT;
        struct str in = STR("0\r\n\r\n");
        int rc = s3_chunked_end(&c, &again);
        assert(rc == o->rc);
        rc = s3_chunked_next(&c, &in, &value, &again);
        assert(rc < 0);
    }
    s3_chunked_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = {(const char *)data, size};
    struct str line = str_cut(all, '\n'), body = str_skip(all, line.n + 1);
    struct str kind = str_cut(line, ' '), rest = str_skip(line, kind.n + 1);
    struct str length = str_cut(rest, ' '), trailer = str_skip(rest, length.n + 1);
    struct s3_auth auth = {.scope = STR("20130524/us-east-1/s3/aws4_request"),
                           .amz_date = STR("20130524T000000Z")};
    if (size > 200000 || num_u64(length, 1u << 20, &auth.decoded_length) < 0) {
        return 0;
    }
    auth.payload = str_eqc(kind, "signed")    ? S3_PAYLOAD_SIGNED
                   : str_eqc(kind, "trailer") ? S3_PAYLOAD_SIGNED_TRAILER
                                              : S3_PAYLOAD_UNSIGNED_TRAILER;
    sigv4_signing_key(STR("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), STR("20130524"),
                      STR("us-east-1"), STR("s3"), auth.signing_key);
    memcpy(auth.seed_signature,
           auth.payload == S3_PAYLOAD_SIGNED
               ? "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
               : "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
           65);
    if (trailer.n && auth.payload != S3_PAYLOAD_SIGNED) {
        auth.trailers = (struct aws_str_list){.v = &trailer, .n = 1, .is_set = true};
    }
    static const size_t steps[] = {1u << 20, 1, 7, 4096};
    struct outcome o[ARRAY_LEN(steps)];
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        run(&auth, body, steps[i], &o[i]);
        assert(o[i].rc == o[0].rc && strcmp(o[i].name, o[0].name) == 0);
        assert(o[i].rc < 0 || str_eq(buf_str(&o[i].out), buf_str(&o[0].out)));
    }
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        buf_done(&o[i].out);
    }
    return 0;
}

#include "aws/s3_chunked.h"

#include "codec/hex.h"
#include "crypto/secret.h"
#include <errno.h>

enum { AT_SIZE, AT_DATA, AT_DATA_END, AT_LAST_END, AT_TRAILER, AT_END };
enum { MAX_AFTER = 4 /* line ends that some clients write after the end */ };

static const char empty_sha256[] =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

static bool is_signed(const struct s3_chunked *c)
{
    return c->kind != S3_PAYLOAD_UNSIGNED_TRAILER;
}
static bool has_trailer(const struct s3_chunked *c)
{
    return c->kind != S3_PAYLOAD_SIGNED;
}

/* An error is final: it is said again by every later call. */
static int set_fail(struct s3_chunked *c, int code, const char *name, const char *msg)
{
    c->fail_code = code;
    c->fail_name = name;
    c->fail_msg = msg;
    return code;
}
static int say_fail(const struct s3_chunked *c, struct err *err)
{
    return fail(err, c->fail_code, c->fail_name, "%s", c->fail_msg);
}
static int torn(struct s3_chunked *c)
{
    return set_fail(c, -EINVAL, "IncompleteBody", "The request body terminated unexpectedly");
}
static int forged(struct s3_chunked *c)
{
    return set_fail(c, -EACCES, "SignatureDoesNotMatch",
                    "The request signature we calculated does not match the signature you "
                    "provided. Check your key and signing method.");
}
static int bad_trailer(struct s3_chunked *c)
{
    return set_fail(c, -EINVAL, "MalformedTrailerError",
                    "The request contained trailing data that was not well-formed or did not "
                    "conform to our published schema.");
}

int s3_chunked_init(struct s3_chunked *c, const struct s3_auth *auth, struct err *err)
{
    memset(c, 0, sizeof(*c));
    c->kind = auth->payload;
    c->expected = auth->decoded_length;
    for (size_t i = 0; i < auth->trailers.n; i++) {
        struct str name = auth->trailers.v[i];
        if (name.n + 1 > sizeof(c->announced) - c->n_announced) {
            return fail(err, -E2BIG, "InvalidRequest",
                        "The value specified in the x-amz-trailer header is not supported");
        }
        memcpy(c->announced + c->n_announced, name.p, name.n);
        c->n_announced += name.n;
        c->announced[c->n_announced++] = '\n';
    }
    if (!is_signed(c)) {
        return 0;
    }
    if (auth->scope.n >= sizeof(c->scope) || auth->amz_date.n >= sizeof(c->date) ||
        auth->scope.n == 0 || auth->amz_date.n == 0) {
        return fail(err, -EINVAL, "InvalidRequest", "The credential scope is too long");
    }
    memcpy(c->scope, auth->scope.p, auth->scope.n);
    memcpy(c->date, auth->amz_date.p, auth->amz_date.n);
    memcpy(c->key, auth->signing_key, sizeof(c->key));
    memcpy(c->prev_sig, auth->seed_signature, sizeof(c->prev_sig));
    c->sha = digest_new(DIGEST_SHA256);
    return 0;
}

void s3_chunked_done(struct s3_chunked *c)
{
    digest_free(c->sha);
    c->sha = NULL;
    secret_wipe(c->key, sizeof(c->key));
}

/* ---- signatures ---- */

/* The MAC over "<kind>\n<date>\n<scope>\n<signature before>\n[<hash of nothing>\n]<hash>" as
 * hex. */
static void sign(const struct s3_chunked *c, const char *kind, bool has_empty,
                 const uint8_t hash[SHA256_SIZE], char out[65])
{
    char hex[2 * SHA256_SIZE + 1];
    uint8_t mac[SHA256_SIZE];
    const struct str nl = STR("\n");
    digest_hex(hash, SHA256_SIZE, hex);
    const struct str parts[] = {str_c(kind),
                                nl,
                                str_c(c->date),
                                nl,
                                str_c(c->scope),
                                nl,
                                str_c(c->prev_sig),
                                nl,
                                has_empty ? str_c(empty_sha256) : STR(""),
                                has_empty ? nl : STR(""),
                                str_c(hex)};
    hmac_sha256_parts(str_n((const char *)c->key, sizeof(c->key)), parts, ARRAY_LEN(parts),
                      mac);
    digest_hex(mac, sizeof(mac), out);
}

/* All bytes of the chunk are hashed: does its signature hold? It becomes the link to the next. */
static int check_chunk(struct s3_chunked *c)
{
    uint8_t hash[SHA256_SIZE];
    char want[65];
    digest_end(c->sha, hash);
    sign(c, "AWS4-HMAC-SHA256-PAYLOAD", true, hash, want);
    if (!str_eq_consttime(str_c(want), str_c(c->chunk_sig))) {
        return forged(c);
    }
    memcpy(c->prev_sig, want, sizeof(want));
    return 0;
}

static int check_trailer(struct s3_chunked *c)
{
    uint8_t hash[SHA256_SIZE];
    char want[65];
    sha256(str_n(c->trailers, c->n_trailers), hash);
    sign(c, "AWS4-HMAC-SHA256-TRAILER", false, hash, want);
    return str_eq_consttime(str_c(want), str_c(c->trailer_sig)) ? 0 : forged(c);
}

/* ---- lines ---- */

/* "<hex>" or "<hex>;chunk-signature=<64 digits>" */
static int size_line(struct s3_chunked *c, struct str line)
{
    uint64_t size = 0;
    struct str digits = str_cut(line, ';'), ext = str_skip(line, digits.n);
    static const struct str key = {";chunk-signature=", 17};
    if (digits.n == 0 || digits.n > 16) {
        return torn(c);
    }
    for (size_t i = 0; i < digits.n; i++) {
        int d = hex_digit(digits.p[i]);
        if (d < 0 || size >> 60) {
            return torn(c);
        }
        size = size << 4 | (uint64_t)d;
    }
    if (is_signed(c)) {
        if (!str_has_prefix(ext, key) || ext.n != key.n + 64) {
            return forged(c);
        }
        memcpy(c->chunk_sig, ext.p + key.n, 64);
    } else if (ext.n) {
        return torn(c);
    }
    if (size == 0) {
        int rc = is_signed(c) ? check_chunk(c) : 0;
        c->state = has_trailer(c) ? AT_TRAILER : AT_LAST_END;
        return rc == 0 && c->total != c->expected ? torn(c) : rc;
    }
    if (c->was_short) {
        return set_fail(c, -EINVAL, "InvalidChunkSizeError",
                        "Only the last chunk is allowed to have a size less than 8192 bytes");
    }
    if (size > S3_CHUNK_MAX || size > c->expected - c->total) {
        return torn(c);
    }
    c->was_short = size < S3_CHUNK_MIN;
    c->total += size;
    c->left = size;
    c->state = AT_DATA;
    return 0;
}

/* Is the line of that name in a list of lines "name\n" or "name:value\n"? */
static bool has_line(const char *list, size_t n, struct str name, char end)
{
    struct str rest = {list, n}, line;
    while (rest.n && str_next(&rest, '\n', &line)) {
        struct str have = end == ':' ? str_cut(line, ':') : line;
        if (str_eq(have, name)) {
            return true;
        }
    }
    return false;
}

static int trailer_line(struct s3_chunked *c, struct str line)
{
    char name_buf[128];
    struct str name = str_cut(line, ':'), value = str_trim(str_skip(line, name.n + 1));
    if (line.n == 0) {
        /* Some clients put an empty line between the trailers and their signature. */
        if (!is_signed(c) || c->has_trailer_sig) {
            c->state = AT_END;
        }
        return 0;
    }
    if (name.n == line.n || name.n == 0 || name.n >= sizeof(name_buf) || c->has_trailer_sig) {
        return bad_trailer(c);
    }
    for (size_t i = 0; i < name.n; i++) {
        char ch = name.p[i];
        name_buf[i] = ch >= 'A' && ch <= 'Z' ? (char)(ch + 32) : ch;
    }
    name = str_n(name_buf, name.n);
    for (size_t i = 0; i < value.n; i++) {
        if ((unsigned char)value.p[i] < 0x20 || value.p[i] == 0x7f) {
            return bad_trailer(c);
        }
    }
    if (is_signed(c) && str_eqc(name, "x-amz-trailer-signature")) {
        if (value.n != 64) {
            return forged(c);
        }
        memcpy(c->trailer_sig, value.p, 64);
        c->has_trailer_sig = true;
        return check_trailer(c);
    }
    if (!has_line(c->announced, c->n_announced, name, '\n') ||
        has_line(c->trailers, c->n_trailers, name, ':') ||
        name.n + value.n + 2 > sizeof(c->trailers) - c->n_trailers) {
        return bad_trailer(c);
    }
    char *p = c->trailers + c->n_trailers;
    memcpy(p, name.p, name.n);
    p[name.n] = ':';
    memcpy(p + name.n + 1, value.p, value.n);
    p[name.n + 1 + value.n] = '\n';
    c->n_trailers += name.n + value.n + 2;
    return 0;
}

static int one_line(struct s3_chunked *c, struct str line)
{
    switch (c->state) {
    case AT_SIZE: return size_line(c, line);
    case AT_DATA_END: c->state = AT_SIZE; return line.n == 0 ? 0 : torn(c);
    case AT_LAST_END: c->state = AT_END; return line.n == 0 ? 0 : torn(c);
    default: return trailer_line(c, line);
    }
}

/* Collects bytes up to a line end. CR LF ends all lines; trailers may end in LF alone, as some
 * clients sign them so. */
static int take_line(struct s3_chunked *c, struct str *in)
{
    size_t max = c->state == AT_DATA_END || c->state == AT_LAST_END ? 2 : sizeof(c->line);
    const char *nl = memchr(in->p, '\n', in->n);
    size_t n = nl ? (size_t)(nl - in->p) + 1 : in->n;
    if (n > max - c->n_line) {
        return c->state == AT_TRAILER ? bad_trailer(c) : torn(c);
    }
    memcpy(c->line + c->n_line, in->p, n);
    c->n_line += n;
    *in = str_skip(*in, n);
    if (!nl) {
        return 0;
    }
    struct str line = {c->line, c->n_line - 1};
    c->n_line = 0;
    if (line.n && line.p[line.n - 1] == '\r') {
        line.n--;
    } else if (c->state != AT_TRAILER) {
        return torn(c);
    }
    return one_line(c, line);
}

static int step(struct s3_chunked *c, struct str *in, struct str *ret_run)
{
    if (c->state == AT_END) {
        for (; in->n; *in = str_skip(*in, 1)) {
            if ((in->p[0] != '\r' && in->p[0] != '\n') || ++c->n_after > MAX_AFTER) {
                return torn(c);
            }
        }
        return 0;
    }
    if (c->state != AT_DATA) {
        return take_line(c, in);
    }
    struct str run = {in->p, (size_t)MIN((uint64_t)in->n, c->left)};
    *in = str_skip(*in, run.n);
    c->left -= run.n;
    if (c->sha) {
        digest_add(c->sha, run);
    }
    if (c->left == 0) {
        c->state = AT_DATA_END;
        if (c->sha && check_chunk(c) < 0) {
            return c->fail_code; /* the run is not given out */
        }
    }
    *ret_run = run;
    return 0;
}

int s3_chunked_next(struct s3_chunked *c, struct str *in, struct str *ret_run, struct err *err)
{
    *ret_run = STR("");
    while (c->fail_code == 0 && in->n && ret_run->n == 0) {
        if (step(c, in, ret_run) < 0) {
            break;
        }
    }
    return c->fail_code ? say_fail(c, err) : 0;
}

bool s3_chunked_is_done(const struct s3_chunked *c)
{
    return c->state == AT_END && c->fail_code == 0;
}

int s3_chunked_end(struct s3_chunked *c, struct err *err)
{
    struct str rest = {c->announced, c->n_announced}, name;
    if (c->fail_code) {
        return say_fail(c, err);
    }
    /* The empty line after the trailers is left out by some clients: what counts is there. */
    bool is_whole = c->state == AT_END || (c->state == AT_TRAILER && c->n_line == 0 &&
                                           (is_signed(c) ? c->has_trailer_sig : true));
    if (!is_whole) {
        (void)torn(c);
        return say_fail(c, err);
    }
    while (rest.n && str_next(&rest, '\n', &name)) {
        if (name.n && !has_line(c->trailers, c->n_trailers, name, ':')) {
            (void)(c->state == AT_END ? bad_trailer(c) : torn(c));
            return say_fail(c, err);
        }
    }
    c->state = AT_END;
    return 0;
}

bool s3_chunked_trailer(const struct s3_chunked *c, size_t idx, struct str *ret_name,
                        struct str *ret_value)
{
    struct str rest = {c->trailers, c->n_trailers}, line;
    while (rest.n && str_next(&rest, '\n', &line)) {
        if (idx-- == 0) {
            *ret_name = str_cut(line, ':');
            *ret_value = str_skip(line, ret_name->n + 1);
            return true;
        }
    }
    return false;
}

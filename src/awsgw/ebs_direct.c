#include "awsgw/ebs_direct.h"

#include "codec/base64.h"
#include "crypto/digest.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#define RPC_TIMEOUT_NS (10 * NS_PER_S)
/* While the block service does not answer only so many wait for it: the other threads of the pool
 * are for other requests. */
#define PROBES_MAX     2u
#define AWAY_NS        (5 * NS_PER_S)
#define MAC_SIZE       20u

struct token { /* as it is in base64: 36 bytes, numbers big-endian */
    uint8_t end_s[8], block[8], mac[MAC_SIZE];
};

static void put_be(uint8_t p[8], uint64_t v)
{
    for (unsigned i = 0; i < 8; i++) {
        p[i] = (uint8_t)(v >> (56 - 8 * i));
    }
}

static uint64_t get_be(const uint8_t p[8])
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

static void mac(const struct aws_call *call, const struct ebs_token_of *of, struct token *t)
{
    uint8_t full[SHA256_SIZE];
    const struct str nul = STR("\0");
    const struct str parts[] = {STR("ebs\0"), str_c(of->what),
                                nul,          call->account,
                                nul,          of->snapshot,
                                nul,          of->other.p ? of->other : STR(""),
                                nul,          str_n((const char *)t, 16)};
    hmac_sha256_parts(call->page_key, parts, ARRAY_LEN(parts), full);
    memcpy(t->mac, full, MAC_SIZE);
}

struct str ebs_token_make(const struct aws_call *call, const struct ebs_token_of *of,
                          uint64_t life_ns)
{
    struct token t;
    AUTO_BUF b;
    buf_init(&b, 64);
    put_be(t.end_s, (call->now_ns + life_ns) / NS_PER_S);
    put_be(t.block, of->block);
    mac(call, of, &t);
    base64_encode(str_n((const char *)&t, sizeof(t)), &b);
    return arena_str_dup(call->arena, buf_str(&b));
}

static bool read_token(const struct aws_call *call, const struct ebs_token_of *of,
                       struct str token, struct token *t)
{
    struct token want;
    AUTO_BUF b;
    buf_init(&b, 64);
    if (token.n != BASE64_LEN(sizeof(*t)) || base64_decode(token, &b) < 0 ||
        b.n != sizeof(*t)) {
        return false;
    }
    memcpy(t, b.p, sizeof(*t));
    want = *t;
    mac(call, of, &want);
    return str_eq_consttime(str_n((const char *)t->mac, MAC_SIZE),
                            str_n((const char *)want.mac, MAC_SIZE)) &&
           call->now_ns / NS_PER_S < get_be(t->end_s);
}

bool ebs_token_check(const struct aws_call *call, const struct ebs_token_of *of,
                     struct str token)
{
    struct token t;
    return read_token(call, of, token, &t) && get_be(t.block) == of->block;
}

bool ebs_page_check(const struct aws_call *call, struct ebs_token_of *of, struct str token)
{
    struct token t;
    if (!read_token(call, of, token, &t)) {
        return false;
    }
    of->block = get_be(t.block);
    return true;
}

/* ---- errors ---- */

int ebs_invalid(struct err *err, const char *reason, const char *fmt, ...)
{
    char msg[ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    fail(err, -EINVAL, "ValidationException", "%s", msg);
    return err_hint(err, reason);
}

static int not_found(struct str id, struct err *err)
{
    fail(err, -ENOENT, "ResourceNotFoundException", "The snapshot '%.*s' does not exist.",
         STR_ARG(id));
    return err_hint(err, "SNAPSHOT_NOT_FOUND");
}

const struct view_entry *ebs_find(struct aws_call *call, struct str id, struct err *err)
{
    struct err e = ERR_INIT;
    const struct view_entry *s = snap_find(call, id, &e);
    if (!s && strcmp(e.name, "InvalidSnapshot.NotFound") == 0) {
        not_found(id, err);
    } else if (!s) {
        ebs_invalid(err, "INVALID_SNAPSHOT_ID", "%s", e.msg);
    }
    return s;
}

const struct view_entry *ebs_find_readable(struct aws_call *call, struct str id,
                                           struct err *err)
{
    const struct view_entry *e = ebs_find(call, id, err);
    struct snap s = {.entry = e};
    if (e) {
        s = snap_join(call, e);
    }
    if (e && !str_eqc(s.state, "completed")) {
        ebs_invalid(err, "INVALID_SNAPSHOT_ID", "The snapshot '%.*s' is in the '%.*s' state.",
                    STR_ARG(id), STR_ARG(s.state));
        e = NULL;
    }
    return e;
}

/* ---- the block service ---- */

static int refused(const struct err *e, struct err *err)
{
    static const struct {
        const char *from, *reason, *text;
    } rows[] = {
        {"NoSuchBlock", "INVALID_BLOCK", "The snapshot has no such block."},
        {"BadBlock", "INVALID_BLOCK", "The block is past the end of the snapshot."},
        {"ChecksumMismatch", "INVALID_PARAMETER_VALUE",
         "The checksum is not that of the block."},
        {"IncorrectState", "INVALID_SNAPSHOT_ID", "The snapshot is not in the pending state."},
    };
    for (size_t i = 0; e->name && i < ARRAY_LEN(rows); i++) {
        if (strcmp(e->name, rows[i].from) == 0) {
            return ebs_invalid(err, rows[i].reason, "%s", rows[i].text);
        }
    }
    if (e->name && strcmp(e->name, "NoSuchSnapshot") == 0) {
        fail(err, -ENOENT, "ResourceNotFoundException", "The snapshot does not exist.");
        return err_hint(err, "SNAPSHOT_NOT_FOUND");
    }
    if (e->name && strcmp(e->name, "ServiceQuotaExceeded") == 0) {
        fail(err, -E2BIG, "ServiceQuotaExceededException", "Too many blocks were written.");
        return err_hint(err, "DEPENDENCY_SERVICE_QUOTA_EXCEEDED");
    }
    /* Another try is the client's: here it would begin the whole request again. */
    bool is_outage = e->code == -EAGAIN || e->code == -ENOTCONN || e->code == -ETIMEDOUT ||
                     e->code == -ECONNRESET || e->code == -ECANCELED || e->code == -EACCES;
    return fail(err, is_outage ? -EBUSY : -EIO, is_outage ? "Unavailable" : "InternalError",
                "%s: %s", e->name ? e->name : "", e->msg);
}

int ebs_ask(struct aws_call *call, const char *method, struct str args, const int *fd,
            struct rpc_reply *ret, struct err *err)
{
    static atomic_uint n_asking;
    static _Atomic uint64_t away_ns; /* when it last did not answer; 0 = never */
    struct err e = ERR_INIT;
    uint64_t away = atomic_load(&away_ns);
    bool is_away = away && time_mono_ns() - away < AWAY_NS;
    if (atomic_fetch_add(&n_asking, 1) >= PROBES_MAX && is_away) {
        atomic_fetch_sub(&n_asking, 1);
        return fail(err, -EBUSY, "Unavailable", "the block service does not answer");
    }
    int r = rpc_call(gw_of(call)->viperblock, str_c(method), args, fd, fd ? 1 : 0,
                     RPC_TIMEOUT_NS, ret, &e);
    atomic_fetch_sub(&n_asking, 1);
    bool is_silent = r == -ENOTCONN || r == -ETIMEDOUT;
    if (is_silent || away) {
        atomic_store(&away_ns, is_silent ? time_mono_ns() : 0);
    }
    return r < 0 ? refused(&e, err) : 0;
}

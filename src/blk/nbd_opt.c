#include "base/log.h"
#include "blk/nbd_int.h"
#include <errno.h>
#include <string.h>

#define OPT_HEAD 16u /* magic, option, length */

static const char *const ctx_names[NBD_CTX_N] = {"base:allocation", "spx:dirty"};

/* ---- writing ---- */

static void put(struct buf *out, uint64_t v, unsigned n)
{
    for (unsigned i = n; i > 0; i--) {
        buf_add_char(out, (char)(uint8_t)(v >> (8 * (i - 1))));
    }
}

static void reply(struct buf *out, uint32_t opt, uint32_t type, struct str data)
{
    put(out, NBD_REP_MAGIC, 8);
    put(out, opt, 4);
    put(out, type, 4);
    put(out, data.n, 4);
    buf_add(out, data);
}

static void refuse(struct buf *out, uint32_t opt, uint32_t type, const char *text)
{
    reply(out, opt, type, str_c(text));
}

/* ---- reading the data of an option: 'bad' sticks ---- */

struct reader {
    const uint8_t *p;
    size_t n;
    bool is_bad;
};

static uint64_t get(struct reader *r, unsigned n)
{
    uint64_t v = 0;
    if (r->is_bad || r->n < n) {
        r->is_bad = true;
        return 0;
    }
    for (unsigned i = 0; i < n; i++) {
        v = v << 8 | r->p[i];
    }
    r->p += n;
    r->n -= n;
    return v;
}

static struct str get_text(struct reader *r)
{
    uint64_t n = get(r, 4);
    if (r->is_bad || n > r->n || n > NBD_MAX_NAME) {
        r->is_bad = true;
        return STR("");
    }
    struct str s = str_n((const char *)r->p, (size_t)n);
    r->p += n;
    r->n -= (size_t)n;
    return s;
}

static bool is_ours(const struct nbd_hs *h, struct str name)
{
    return str_is_empty(name) || str_eqc(name, h->x->name);
}

/* ---- options ---- */

unsigned nbd_tx_flags(const struct nbd_export *x, bool is_structured)
{
    unsigned f = NBD_HAS_FLAGS | NBD_SEND_FLUSH | NBD_CAN_MULTI_CONN;
    f |= x->is_read_only ? NBD_READ_ONLY : NBD_SEND_FUA | NBD_SEND_TRIM | NBD_SEND_WRITE_ZEROES;
    return f | (is_structured ? NBD_SEND_DF : 0);
}

static void export_name(struct nbd_hs *h, struct str name, struct buf *out)
{
    if (!is_ours(h, name)) { /* this option has no way to say so */
        h->is_over = true;
        return;
    }
    put(out, h->x->size, 8);
    put(out, nbd_tx_flags(h->x, h->is_structured), 2);
    for (unsigned i = 0; !h->no_zeroes && i < 124; i++) {
        buf_add_char(out, 0);
    }
    h->is_serving = true;
}

static void list(const struct nbd_hs *h, struct reader *r, struct buf *out)
{
    if (r->n > 0) {
        refuse(out, NBD_OPT_LIST, NBD_ERR_INVALID, "LIST has no data");
        return;
    }
    AUTO_BUF b;
    buf_init(&b, 256);
    put(&b, strlen(h->x->name), 4);
    buf_addc(&b, h->x->name);
    reply(out, NBD_OPT_LIST, NBD_REP_SERVER, buf_str(&b));
    reply(out, NBD_OPT_LIST, NBD_REP_ACK, STR(""));
}

static void info_export(const struct nbd_hs *h, uint32_t opt, struct buf *out)
{
    AUTO_BUF b;
    buf_init(&b, 64);
    put(&b, NBD_INFO_EXPORT, 2);
    put(&b, h->x->size, 8);
    put(&b, nbd_tx_flags(h->x, h->is_structured), 2);
    reply(out, opt, NBD_REP_INFO, buf_str(&b));
}

static void info_block_size(uint32_t opt, struct buf *out)
{
    AUTO_BUF b;
    buf_init(&b, 64);
    put(&b, NBD_INFO_BLOCK_SIZE, 2);
    put(&b, BLK_SECTOR, 4);
    put(&b, BLK_PAGE, 4);
    put(&b, NBD_MAX_PAYLOAD, 4);
    reply(out, opt, NBD_REP_INFO, buf_str(&b));
}

static void info_name(const struct nbd_hs *h, uint32_t opt, struct buf *out)
{
    AUTO_BUF b;
    buf_init(&b, 256);
    put(&b, NBD_INFO_NAME, 2);
    buf_addc(&b, h->x->name);
    reply(out, opt, NBD_REP_INFO, buf_str(&b));
}

static void info_or_go(struct nbd_hs *h, uint32_t opt, struct reader *r, struct buf *out)
{
    struct str name = get_text(r);
    uint64_t n = get(r, 2);
    bool wants_name = false;
    for (uint64_t i = 0; i < n && !r->is_bad; i++) {
        wants_name |= get(r, 2) == NBD_INFO_NAME && !r->is_bad;
    }
    if (r->is_bad || r->n > 0) {
        refuse(out, opt, NBD_ERR_INVALID, "not as long as it says");
        return;
    }
    if (!is_ours(h, name)) {
        refuse(out, opt, NBD_ERR_UNKNOWN, "no such export");
        return;
    }
    info_export(h, opt, out);
    info_block_size(opt, out); /* also unasked: requests must keep to it */
    if (wants_name) {
        info_name(h, opt, out);
    }
    reply(out, opt, NBD_REP_ACK, STR(""));
    h->is_serving = opt == NBD_OPT_GO;
}

static void put_context(uint32_t opt, unsigned i, struct buf *out)
{
    AUTO_BUF b;
    buf_init(&b, 64);
    put(&b, opt == NBD_OPT_SET_META_CONTEXT ? i + 1 : 0, 4);
    buf_addc(&b, ctx_names[i]);
    reply(out, opt, NBD_REP_META_CONTEXT, buf_str(&b));
}

/* Which contexts a query names; "base:" alone is a question about the whole namespace, which only
 * LIST answers. */
static unsigned match_context(const struct nbd_hs *h, struct str q, bool is_list)
{
    unsigned got = 0;
    for (unsigned i = 0; i < NBD_CTX_N; i++) {
        struct str name = str_c(ctx_names[i]);
        size_t n_space = (size_t)(str_find(name, ':', 0) + 1);
        bool is_it = str_eq(q, name) || (is_list && str_eq(q, str_n(name.p, n_space)));
        if (is_it && (i != NBD_CTX_DIRTY || h->x->has_dirty)) {
            got |= 1u << i;
        }
    }
    return got;
}

static void meta_context(struct nbd_hs *h, uint32_t opt, struct reader *r, struct buf *out)
{
    bool is_list = opt == NBD_OPT_LIST_META_CONTEXT;
    h->ctx = is_list ? h->ctx : 0; /* a SET that fails leaves nothing chosen */
    if (!h->is_structured) {
        refuse(out, opt, NBD_ERR_INVALID, "structured replies come first");
        return;
    }
    struct str name = get_text(r);
    uint64_t n = get(r, 4);
    unsigned got = 0;
    if (is_list && n == 0) {
        got = match_context(h, str_c(ctx_names[NBD_CTX_ALLOCATION]), true) |
              match_context(h, str_c(ctx_names[NBD_CTX_DIRTY]), true);
    }
    for (uint64_t i = 0; i < n && !r->is_bad; i++) {
        struct str q = get_text(r);
        got |= r->is_bad ? 0 : match_context(h, q, is_list);
    }
    if (r->is_bad || r->n > 0) {
        refuse(out, opt, NBD_ERR_INVALID, "not as long as it says");
        return;
    }
    if (!is_ours(h, name)) {
        refuse(out, opt, NBD_ERR_UNKNOWN, "no such export");
        return;
    }
    for (unsigned i = 0; i < NBD_CTX_N; i++) {
        if (got & (1u << i)) {
            put_context(opt, i, out);
        }
    }
    h->ctx = is_list ? h->ctx : got;
    reply(out, opt, NBD_REP_ACK, STR(""));
}

static void structured(struct nbd_hs *h, const struct reader *r, struct buf *out)
{
    if (r->n > 0) {
        refuse(out, NBD_OPT_STRUCTURED_REPLY, NBD_ERR_INVALID, "this option has no data");
        return;
    }
    h->is_structured = true;
    reply(out, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ACK, STR(""));
}

static void option(struct nbd_hs *h, uint32_t opt, struct reader r, struct buf *out)
{
    switch (opt) {
    case NBD_OPT_EXPORT_NAME: export_name(h, str_n((const char *)r.p, r.n), out); break;
    case NBD_OPT_ABORT:
        reply(out, opt, NBD_REP_ACK, STR(""));
        h->is_over = true;
        break;
    case NBD_OPT_LIST: list(h, &r, out); break;
    case NBD_OPT_STARTTLS:
        refuse(out, opt, r.n > 0 ? NBD_ERR_INVALID : NBD_ERR_POLICY, "the socket is local");
        break;
    case NBD_OPT_INFO:
    case NBD_OPT_GO: info_or_go(h, opt, &r, out); break;
    case NBD_OPT_STRUCTURED_REPLY: structured(h, &r, out); break;
    case NBD_OPT_LIST_META_CONTEXT:
    case NBD_OPT_SET_META_CONTEXT: meta_context(h, opt, &r, out); break;
    default: refuse(out, opt, NBD_ERR_UNSUP, "not known here"); break;
    }
}

/* ---- the handshake ---- */

void nbd_hs_begin(struct nbd_hs *h, const struct nbd_export *x, struct buf *out)
{
    *h = (struct nbd_hs){.x = x};
    put(out, NBD_INIT_MAGIC, 8);
    put(out, NBD_OPT_MAGIC, 8);
    put(out, NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES, 2);
}

static ssize_t client_flags(struct nbd_hs *h, struct reader r)
{
    uint64_t f = get(&r, 4);
    if (r.is_bad) {
        return 0;
    }
    /* Without FIXED_NEWSTYLE a client cannot be told that an option is not known. */
    if ((f & ~(uint64_t)(NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES)) != 0 ||
        (f & NBD_FIXED_NEWSTYLE) == 0) {
        return -EPROTO;
    }
    h->has_flags = true;
    h->no_zeroes = (f & NBD_NO_ZEROES) != 0;
    return 4;
}

/* An option that is too long to be meant: answered at its head, read past. */
static ssize_t too_long(struct nbd_hs *h, uint32_t opt, uint32_t len, struct buf *out)
{
    if (opt == NBD_OPT_EXPORT_NAME || len > NBD_MAX_SKIP) {
        return -EPROTO;
    }
    refuse(out, opt, NBD_ERR_TOO_BIG, "too long");
    h->skip = len;
    return OPT_HEAD;
}

ssize_t nbd_hs_step(struct nbd_hs *h, const uint8_t *in, size_t n, struct buf *out)
{
    if (h->skip > 0) {
        uint32_t take = (uint32_t)MIN(n, h->skip);
        h->skip -= take;
        return (ssize_t)take;
    }
    struct reader r = {.p = in, .n = n};
    if (!h->has_flags) {
        return client_flags(h, r);
    }
    uint64_t magic = get(&r, 8);
    uint32_t opt = (uint32_t)get(&r, 4), len = (uint32_t)get(&r, 4);
    if (n >= 8 && magic != NBD_OPT_MAGIC) {
        return -EPROTO;
    }
    if (r.is_bad) {
        return 0;
    }
    if (len > NBD_MAX_OPT) {
        return ++h->n_opts > NBD_MAX_OPTS ? -EPROTO : too_long(h, opt, len, out);
    }
    if (r.n < len) {
        return 0;
    }
    if (++h->n_opts > NBD_MAX_OPTS) {
        return -EPROTO;
    }
    option(h, opt, (struct reader){.p = r.p, .n = len}, out);
    return (ssize_t)(OPT_HEAD + len);
}

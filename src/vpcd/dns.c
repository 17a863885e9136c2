#include "vpcd/dns.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HEADER 12u
enum {
    F_QR = 0x8000,
    F_OPCODE = 0x7800,
    F_AA = 0x0400,
    F_TC = 0x0200,
    F_RD = 0x0100,
    F_RA = 0x0080,
    F_CD = 0x0010
};

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* Reads an uncompressed name at *off (a question has nothing to point back to). */
static int read_name(const uint8_t *p, size_t n, size_t *off, char *name)
{
    size_t i = *off, k = 0;
    for (;;) {
        if (i >= n) {
            return -EINVAL;
        }
        unsigned len = p[i++];
        if (len == 0) {
            break;
        }
        if (len > 63 || len > n - i || k + len + 1 > DNS_NAME_MAX - 1) {
            return -EINVAL;
        }
        if (k) {
            name[k++] = '.';
        }
        for (unsigned j = 0; j < len; j++) {
            unsigned char c = p[i + j];
            bool is_plain =
                (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
            name[k++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : is_plain ? c : '?');
        }
        i += len;
    }
    name[k] = 0;
    *off = i;
    return 0;
}

/* Steps over a name that may end in a pointer. */
static int skip_name(const uint8_t *p, size_t n, size_t *off)
{
    size_t i = *off;
    while (i < n) {
        unsigned len = p[i];
        if ((len & 0xc0) == 0xc0) {
            *off = i + 2;
            return i + 2 <= n ? 0 : -EINVAL;
        }
        if (len > 63) {
            return -EINVAL;
        }
        i += 1 + len;
        if (len == 0) {
            *off = i;
            return 0;
        }
    }
    return -EINVAL;
}

struct rr {
    uint16_t type, class_;
    uint32_t ttl;
    size_t start, end;
};

static int read_rr(const uint8_t *p, size_t n, size_t *off, struct rr *ret)
{
    ret->start = *off;
    if (skip_name(p, n, off) || n - *off < 10) {
        return -EINVAL;
    }
    const uint8_t *h = p + *off;
    ret->type = get16(h);
    ret->class_ = get16(h + 2);
    ret->ttl = (uint32_t)get16(h + 4) << 16 | get16(h + 6);
    size_t len = get16(h + 8);
    if (len > n - *off - 10) {
        return -EINVAL;
    }
    *off += 10 + len;
    ret->end = *off;
    return 0;
}

int dns_parse_query(struct str msg, struct dns_query *q)
{
    const uint8_t *p = (const uint8_t *)msg.p;
    memset(q, 0, sizeof(*q));
    q->udp_size = DNS_UDP_MIN;
    if (msg.n < HEADER || msg.n > DNS_MSG_MAX || (get16(p + 2) & F_QR)) {
        return -EINVAL;
    }
    unsigned flags = get16(p + 2);
    q->id = get16(p);
    q->is_recursion_desired = (flags & F_RD) != 0;
    q->is_checking_disabled = (flags & F_CD) != 0;
    if (flags & F_OPCODE) {
        return DNS_NOTIMP;
    }
    if (get16(p + 4) != 1 || get16(p + 6) != 0 || get16(p + 8) != 0 || get16(p + 10) > 4) {
        return DNS_FORMERR;
    }
    size_t off = HEADER;
    if (read_name(p, msg.n, &off, q->name) || msg.n - off < 4) {
        return DNS_FORMERR;
    }
    q->type = get16(p + off);
    q->class_ = get16(p + off + 2);
    off += 4;
    q->question_end = off;
    for (unsigned i = get16(p + 10); i > 0; i--) {
        struct rr rr = {0};
        if (read_rr(p, msg.n, &off, &rr)) {
            return DNS_FORMERR;
        }
        if (rr.type == DNS_OPT) {
            if (q->has_edns) {
                return DNS_FORMERR;
            }
            q->has_edns = true;
            q->udp_size = MAX(rr.class_, DNS_UDP_MIN);
            q->is_dnssec_ok = (rr.ttl & 0x8000) != 0;
        }
    }
    return 0;
}

/* Header and question into 'out'; counts of records are zero. */
static size_t begin(struct str msg, const struct dns_query *q, unsigned flags, uint8_t *out,
                    size_t size)
{
    size_t n = MAX(q->question_end, HEADER);
    if (n > size || n > msg.n) {
        return 0;
    }
    memcpy(out, msg.p, n);
    put16(out + 2, F_QR | F_RA | (q->is_recursion_desired ? F_RD : 0u) |
                       (q->is_checking_disabled ? F_CD : 0u) | flags);
    put16(out + 4, q->question_end ? 1 : 0);
    memset(out + 6, 0, 6);
    return n;
}

static size_t add_opt(uint8_t *out, size_t n, size_t size, unsigned udp_size, bool is_dnssec_ok)
{
    if (n == 0 || size - n < 11) {
        return 0;
    }
    uint8_t *p = out + n;
    memset(p, 0, 11);
    put16(p + 1, DNS_OPT);
    put16(p + 3, udp_size);
    put16(p + 7, is_dnssec_ok ? 0x8000 : 0);
    put16(out + 10, get16(out + 10) + 1u);
    return n + 11;
}

size_t dns_make_error(struct str msg, const struct dns_query *q, int rcode, uint8_t *out,
                      size_t size)
{
    size_t n = begin(msg, q, (unsigned)rcode, out, size);
    return n && q->has_edns ? add_opt(out, n, size, DNS_UDP_MAX, q->is_dnssec_ok) : n;
}

/* ---- our own zones ---- */

static bool read_octets(struct str s, char sep, uint32_t *ret, size_t *ret_used)
{
    uint32_t ip = 0;
    size_t i = 0;
    for (int part = 0; part < 4; part++) {
        unsigned v = 0, digits = 0;
        while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9' && digits < 3) {
            v = v * 10 + (unsigned)(s.p[i++] - '0');
            digits++;
        }
        if (!digits || v > 255 || (part < 3 && (i >= s.n || s.p[i++] != sep))) {
            return false;
        }
        ip = ip << 8 | v;
    }
    *ret = ip;
    *ret_used = i;
    return true;
}

static bool is_in_pools(const struct fact_vpc *v, uint32_t ip)
{
    for (size_t i = 0; i < v->pools.n; i++) {
        struct str first = str_cut(v->pools.v[i], '-'),
                   last = str_skip(v->pools.v[i], first.n + 1);
        uint32_t a = 0, b = 0;
        if (!ip4_parse(first, &a) && !ip4_parse(last, &b) && ip >= a && ip <= b) {
            return true;
        }
    }
    return false;
}

static bool is_in_vpc(const struct fact_vpc *v, uint32_t ip)
{
    uint32_t net = 0;
    unsigned len = 0;
    return !cidr4_parse(v->cidr, &net, &len) && (len == 0 || (ip ^ net) >> (32 - len) == 0);
}

enum zone_result { ZONE_NOT_OURS, ZONE_NXDOMAIN, ZONE_NODATA, ZONE_A, ZONE_PTR };

/* "ip-10-0-0-5.<domain>", "ec2-198-51-100-5.<domain>". */
static enum zone_result find_name(const struct facts *f, struct str name, uint32_t *ret_ip)
{
    const struct fact_vpc *v = facts_vpc(f);
    if (str_eq(name, v->domain)) {
        return ZONE_NODATA;
    }
    if (!str_has_suffix(name, v->domain) || name.p[name.n - v->domain.n - 1] != '.') {
        return ZONE_NOT_OURS;
    }
    struct str host = str_n(name.p, name.n - v->domain.n - 1);
    bool is_public = str_has_prefixc(host, "ec2-");
    struct str digits = str_skip(host, is_public ? 4 : 3);
    size_t used = 0;
    if ((!is_public && !str_has_prefixc(host, "ip-")) ||
        !read_octets(digits, '-', ret_ip, &used) || used != digits.n) {
        return ZONE_NXDOMAIN;
    }
    if (!is_public) {
        const struct fact_eni *e = facts_eni_by_ip(f, *ret_ip);
        return e ? ZONE_A : ZONE_NXDOMAIN;
    }
    /* Inside the VPC a public name leads to the private address, as in AWS; of another VPC's
     * instance the public address is all there is to know. */
    const struct fact_eni *e = facts_eni_by_public_ip(f, *ret_ip);
    if (e) {
        return ip4_parse(e->ip, ret_ip) ? ZONE_NXDOMAIN : ZONE_A;
    }
    return is_in_pools(v, *ret_ip) ? ZONE_A : ZONE_NXDOMAIN;
}

/* "5.0.0.10.in-addr.arpa" */
static enum zone_result find_reverse(const struct facts *f, struct str name,
                                     struct str *ret_host)
{
    const struct fact_vpc *v = facts_vpc(f);
    uint32_t r = 0;
    size_t used = 0;
    if (!str_has_suffix(name, STR(".in-addr.arpa")) || !read_octets(name, '.', &r, &used) ||
        used + STR(".in-addr.arpa").n != name.n) {
        return ZONE_NOT_OURS;
    }
    uint32_t ip = r >> 24 | (r >> 8 & 0xff00) | (r << 8 & 0xff0000) | r << 24;
    const struct fact_eni *e = facts_eni_by_ip(f, ip);
    if (e && e->private_dns.n) {
        *ret_host = e->private_dns;
        return ZONE_PTR;
    }
    e = facts_eni_by_public_ip(f, ip);
    if (e && e->public_dns.n) {
        *ret_host = e->public_dns;
        return ZONE_PTR;
    }
    return is_in_vpc(v, ip) || is_in_pools(v, ip) ? ZONE_NXDOMAIN : ZONE_NOT_OURS;
}

#define TTL_OURS 60u

static size_t add_record(uint8_t *out, size_t n, size_t size, unsigned type,
                         const uint8_t *data, size_t len)
{
    if (n == 0 || size - n < 12 + len) {
        return 0;
    }
    uint8_t *p = out + n;
    put16(p, 0xc000 | HEADER); /* the name of the question */
    put16(p + 2, type);
    put16(p + 4, 1);
    put16(p + 6, 0);
    put16(p + 8, TTL_OURS);
    put16(p + 10, (unsigned)len);
    memcpy(p + 12, data, len);
    return n + 12 + len;
}

/* "a.b" -> 1 'a' 1 'b' 0. Returns the size, 0 when it is no name. */
static size_t write_name(struct str name, uint8_t *out, size_t size)
{
    size_t n = 0;
    struct str rest = name, label;
    while (str_next(&rest, '.', &label)) {
        if (label.n == 0 || label.n > 63 || n + label.n + 2 > size) {
            return 0;
        }
        out[n++] = (uint8_t)label.n;
        memcpy(out + n, label.p, label.n);
        n += label.n;
    }
    out[n++] = 0;
    return n;
}

/* The SOA that a negative answer carries, so that resolvers may cache it (RFC 2308). */
static size_t add_soa(uint8_t *out, size_t n, size_t size, struct str domain)
{
    uint8_t zone[DNS_NAME_MAX];
    size_t zone_n = write_name(domain, zone, sizeof(zone));
    if (n == 0 || zone_n == 0 || size - n < 2 * zone_n + 64) {
        return n;
    }
    uint8_t *p = out + n;
    memcpy(p, zone, zone_n);
    p += zone_n;
    uint8_t *fixed = p;
    put16(p, DNS_SOA);
    put16(p + 2, 1);
    put16(p + 4, 0);
    put16(p + 6, TTL_OURS);
    p += 10;
    uint8_t *data = p;
    memcpy(p, "\003dns", 4);
    memcpy(p + 4, zone, zone_n);
    p += 4 + zone_n;
    put16(p, 0xc000 | (unsigned)(data - out)); /* the mailbox: the same name */
    p += 2;
    static const uint16_t numbers[5] = {1, 3600, 600, 3600, TTL_OURS};
    for (int i = 0; i < 5; i++) {
        put16(p, 0);
        put16(p + 2, numbers[i]);
        p += 4;
    }
    put16(fixed + 8, (unsigned)(p - data));
    put16(out + 8, 1);
    return (size_t)(p - out);
}

size_t dns_answer_local(struct str msg, const struct dns_query *q, const struct facts *f,
                        uint8_t *out, size_t size)
{
    const struct fact_vpc *v = facts_vpc(f);
    uint32_t ip = 0;
    struct str host = STR_NONE, name = str_c(q->name);
    enum zone_result z = q->class_ == 1 ? find_name(f, name, &ip) : ZONE_NOT_OURS;
    if (z == ZONE_NOT_OURS && q->class_ == 1) {
        z = find_reverse(f, name, &host);
    }
    if (z == ZONE_NOT_OURS) {
        return 0;
    }
    size_t n = begin(msg, q, F_AA | (z == ZONE_NXDOMAIN ? DNS_NXDOMAIN : 0u), out, size);
    bool is_wanted = q->type == (z == ZONE_A ? DNS_A : DNS_PTR) || q->type == DNS_ANY;
    size_t empty = n;
    if (z == ZONE_A && is_wanted) {
        uint8_t a[4] = {(uint8_t)(ip >> 24), (uint8_t)(ip >> 16), (uint8_t)(ip >> 8),
                        (uint8_t)ip};
        n = add_record(out, n, size, DNS_A, a, 4);
    } else if (z == ZONE_PTR && is_wanted) {
        uint8_t b[DNS_NAME_MAX];
        size_t len = write_name(host, b, sizeof(b));
        n = len ? add_record(out, n, size, DNS_PTR, b, len) : 0;
    }
    if (n > empty) {
        put16(out + 6, 1);
    } else if (n) {
        n = add_soa(out, n, size, v->domain);
    }
    return n && q->has_edns ? add_opt(out, n, size, DNS_UDP_MAX, q->is_dnssec_ok) : n;
}

/* ---- forwarding ---- */

size_t dns_make_upstream(struct str msg, const struct dns_query *q, uint16_t id, uint8_t *out,
                         size_t size)
{
    size_t n = begin(msg, q, 0, out, size);
    if (!n) {
        return 0;
    }
    put16(out, id);
    put16(out + 2, F_RD | (q->is_checking_disabled ? F_CD : 0u));
    return add_opt(out, n, size, DNS_UPSTREAM_MAX, q->is_dnssec_ok);
}

static bool same_question(const uint8_t *a, const uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t x = a[i], y = b[i];
        x = x >= 'A' && x <= 'Z' ? (uint8_t)(x + 32) : x;
        y = y >= 'A' && y <= 'Z' ? (uint8_t)(y + 32) : y;
        if (x != y) {
            return false;
        }
    }
    return true;
}

bool dns_is_answer_to(struct str answer, struct str question)
{
    const uint8_t *a = (const uint8_t *)answer.p, *b = (const uint8_t *)question.p;
    size_t end = HEADER;
    if (answer.n < HEADER || question.n < HEADER || get16(a) != get16(b) ||
        !(get16(a + 2) & F_QR) || (get16(a + 2) & F_OPCODE) || get16(a + 4) != 1 ||
        skip_name(b, question.n, &end)) {
        return false;
    }
    end += 4;
    return answer.n >= end && question.n >= end &&
           same_question(a + HEADER, b + HEADER, end - HEADER);
}

bool dns_is_truncated(struct str answer)
{
    return answer.n >= HEADER && (get16((const uint8_t *)answer.p + 2) & F_TC) != 0;
}

/* Walks all records; finds the OPT of the last section. -EINVAL when the message does not hold
 * together. */
static int find_opt(const uint8_t *p, size_t n, size_t question_end, struct rr *ret_opt,
                    size_t *ret_end)
{
    size_t off = question_end;
    unsigned before = get16(p + 6) + (unsigned)get16(p + 8), all = before + get16(p + 10);
    for (unsigned i = 0; i < all; i++) {
        struct rr rr = {0};
        if (read_rr(p, n, &off, &rr)) {
            return -EINVAL;
        }
        if (i >= before && rr.type == DNS_OPT) {
            *ret_opt = rr;
        }
    }
    *ret_end = off;
    return 0;
}

size_t dns_make_relayed(struct str answer, const struct dns_query *q, size_t limit,
                        uint8_t *out)
{
    const uint8_t *p = (const uint8_t *)answer.p;
    struct rr opt = {0};
    size_t end = 0, question_end = HEADER;
    if (answer.n < HEADER || skip_name(p, answer.n, &question_end) ||
        answer.n - question_end < 4) {
        return 0;
    }
    question_end += 4;
    if (find_opt(p, answer.n, question_end, &opt, &end)) {
        return 0;
    }
    memcpy(out, p, end);
    put16(out, q->id);
    if (!q->has_edns && opt.end && opt.end == end) { /* always the last one, in practice */
        end = opt.start;
        put16(out + 10, get16(out + 10) - 1u);
    }
    if (end <= limit) {
        return end;
    }
    if (question_end + 11 > limit) {
        return 0;
    }
    put16(out + 2, get16(out + 2) | F_TC);
    memset(out + 6, 0, 6);
    return q->has_edns ? add_opt(out, question_end, limit, DNS_UDP_MAX, q->is_dnssec_ok)
                       : question_end;
}

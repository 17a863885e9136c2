#include "vpcd/dhcp.h"

#include <arpa/inet.h>
#include <string.h>

enum { OP_REQUEST = 1, OP_REPLY = 2 };
enum { DISCOVER = 1, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM };
enum {
    OPT_PAD = 0,
    OPT_MASK = 1,
    OPT_ROUTER = 3,
    OPT_DNS = 6,
    OPT_HOST = 12,
    OPT_DOMAIN = 15,
    OPT_MTU = 26,
    OPT_IP = 50,
    OPT_LEASE = 51,
    OPT_OVERLOAD = 52,
    OPT_TYPE = 53,
    OPT_SERVER = 54,
    OPT_T1 = 58,
    OPT_T2 = 59,
    OPT_CLIENT_ID = 61,
    OPT_END = 255,
};

#define MAGIC       0x63825363u
#define FLAG_BCAST  0x8000u
#define MIN_BOOTP   300u /* old clients drop shorter answers (RFC 1542 §2.1) */
#define OFF_FILE    108u
#define OFF_SNAME   44u
#define OFF_OPTIONS 240u

struct request {
    uint8_t type;
    uint16_t flags;
    uint32_t ciaddr;
    uint32_t ip, server; /* options 50 and 54; 0 = not there */
    struct str client_id;
};

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(uint8_t *p, uint32_t v)
{
    v = htonl(v);
    memcpy(p, &v, 4);
}

static void take_option(struct request *q, uint8_t code, struct str v, uint8_t *overload)
{
    const uint8_t *p = (const uint8_t *)v.p;
    switch (code) {
    case OPT_TYPE: q->type = v.n == 1 ? p[0] : 0; break;
    case OPT_IP: q->ip = v.n == 4 ? get32(p) : 0; break;
    case OPT_SERVER: q->server = v.n == 4 ? get32(p) : 0; break;
    case OPT_CLIENT_ID: q->client_id = v; break;
    case OPT_OVERLOAD: *overload = v.n == 1 ? p[0] : 0; break;
    default: break;
    }
}

/* One field of options. False: it does not end where it says. */
static bool parse_options(struct request *q, struct str s, uint8_t *overload)
{
    for (size_t i = 0; i < s.n;) {
        uint8_t code = (uint8_t)s.p[i++];
        if (code == OPT_END) {
            return true;
        }
        if (code == OPT_PAD) {
            continue;
        }
        if (i >= s.n || (uint8_t)s.p[i] > s.n - i - 1) {
            return false;
        }
        size_t len = (uint8_t)s.p[i++];
        take_option(q, code, str_n(s.p + i, len), overload);
        i += len;
    }
    return true; /* a missing end mark is common */
}

static bool parse(struct str packet, const uint8_t mac[6], struct request *q)
{
    const uint8_t *p = (const uint8_t *)packet.p;
    /* Ethernet only; a relay (giaddr) cannot be on a link that has one guest. */
    if (packet.n < OFF_OPTIONS || p[0] != OP_REQUEST || p[1] != 1 || p[2] != 6 ||
        get32(p + 24) != 0 || get32(p + 236) != MAGIC || memcmp(p + 28, mac, 6) != 0) {
        return false;
    }
    q->flags = (uint16_t)(p[10] << 8 | p[11]);
    q->ciaddr = get32(p + 12);
    uint8_t overload = 0, ignored = 0;
    if (!parse_options(q, str_skip(packet, OFF_OPTIONS), &overload)) {
        return false;
    }
    if ((overload & 1) && !parse_options(q, str_n(packet.p + OFF_FILE, 128), &ignored)) {
        return false;
    }
    return !(overload & 2) || parse_options(q, str_n(packet.p + OFF_SNAME, 64), &ignored);
}

/* The type of the answer, 0 = none (RFC 2131 §4.3). */
static uint8_t decide(const struct request *q, const struct dhcp_lease *l)
{
    switch (q->type) {
    case DISCOVER: return OFFER;
    case INFORM: return q->ciaddr == l->ip ? ACK : 0;
    case REQUEST: break;
    default: return 0; /* DECLINE, RELEASE: the address stays the interface's */
    }
    if (q->server) { /* SELECTING */
        if (q->server != l->gateway) {
            return 0;
        }
        return q->ip == l->ip ? ACK : NAK;
    }
    if (q->ip) { /* INIT-REBOOT */
        return q->ip == l->ip ? ACK : NAK;
    }
    return q->ciaddr == l->ip ? ACK : NAK; /* RENEWING, REBINDING */
}

static void add(struct dhcp_reply *out, uint8_t code, const void *p, size_t n)
{
    if (n > 255 || out->n + 2 + n + 1 > sizeof(out->p)) {
        return; /* names are checked when they are made; never past the buffer */
    }
    out->p[out->n++] = code;
    out->p[out->n++] = (uint8_t)n;
    memcpy(out->p + out->n, p, n);
    out->n += n;
}

static void add32(struct dhcp_reply *out, uint8_t code, uint32_t v)
{
    uint8_t b[4];
    put32(b, v);
    add(out, code, b, 4);
}

static void add_config(struct dhcp_reply *out, const struct dhcp_lease *l, bool has_times)
{
    if (has_times) {
        add32(out, OPT_LEASE, l->lease_s);
        add32(out, OPT_T1, l->lease_s / 2);
        add32(out, OPT_T2, l->lease_s / 8 * 7);
    }
    add32(out, OPT_MASK, l->prefix_len ? ~UINT32_C(0) << (32 - l->prefix_len) : 0);
    add32(out, OPT_ROUTER, l->gateway);
    add32(out, OPT_DNS, l->dns);
    if (l->host_name.n) {
        add(out, OPT_HOST, l->host_name.p, l->host_name.n);
    }
    if (l->domain.n) {
        add(out, OPT_DOMAIN, l->domain.p, l->domain.n);
    }
    uint8_t mtu[2] = {(uint8_t)(l->mtu >> 8), (uint8_t)l->mtu};
    add(out, OPT_MTU, mtu, 2);
}

enum dhcp_verdict dhcp_answer(struct str packet, const struct dhcp_lease *l,
                              struct dhcp_reply *out)
{
    struct request q = {0};
    if (!parse(packet, l->mac, &q)) {
        return DHCP_IGNORE;
    }
    uint8_t type = decide(&q, l);
    if (!type) {
        return DHCP_IGNORE;
    }
    memset(out, 0, sizeof(*out));
    const uint8_t *in = (const uint8_t *)packet.p;
    out->p[0] = OP_REPLY;
    out->p[1] = 1;
    out->p[2] = 6;
    memcpy(out->p + 4, in + 4, 4);   /* xid */
    memcpy(out->p + 10, in + 10, 2); /* flags */
    memcpy(out->p + 28, in + 28, 16);
    put32(out->p + 236, MAGIC);
    if (type != NAK) {
        put32(out->p + 12, q.type == INFORM || q.type == REQUEST ? q.ciaddr : 0);
        put32(out->p + 16, q.type == INFORM ? 0 : l->ip);
    }
    out->n = OFF_OPTIONS;
    add(out, OPT_TYPE, &type, 1);
    add32(out, OPT_SERVER, l->gateway);
    if (type != NAK) {
        add_config(out, l, q.type != INFORM);
    }
    if (q.client_id.n) {
        add(out, OPT_CLIENT_ID, q.client_id.p, q.client_id.n); /* RFC 6842 */
    }
    out->p[out->n++] = OPT_END;
    out->n = MAX(out->n, MIN_BOOTP);
    if (type == NAK) {
        out->to = UINT32_MAX;
    } else if (q.ciaddr) {
        out->to = q.ciaddr;
    } else {
        out->to = q.flags & FLAG_BCAST ? UINT32_MAX
                                       : l->ip; /* the neighbour entry is permanent: no ARP */
    }
    return DHCP_SEND;
}

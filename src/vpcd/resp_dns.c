/* DNS over its sockets: our own names at once, the rest forwarded. */
#include "vpcd/resp_int.h"

#include "base/buf.h"
#include "base/rand.h"
#include "base/time.h"
#include "vpcd/dns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

LOG_MODULE("resp.dns");

#define PENDING_MAX      1024u
#define PENDING_PER_PEER 48u
#define TRY_NS           (1500 * NS_PER_MS)
#define TRIES_MAX        4u
#define CONNS_MAX        128u
#define CONNS_PER_PEER   8u
#define CONN_IDLE_NS     (10 * NS_PER_S)
#define TCP_QUERY_MAX    2048u
#define BATCH_MAX        64
#define TICK_NS          (250 * NS_PER_MS)

struct tcp_conn {
    struct resp_dns *d;
    int fd;
    struct loop_fd *h;
    uint32_t peer;
    uint64_t deadline_ns;
    bool is_waiting; /* a question is on its way: the next one is read after its answer */
    uint32_t serial; /* answers to a connection that is gone must not reach its successor */
    size_t in_n, out_off;
    uint8_t in[2 + TCP_QUERY_MAX];
    struct buf out;
};

/* A question that was forwarded. */
struct pending {
    bool is_used;
    struct dns_query q;
    uint8_t sent[DNS_UDP_MIN];
    size_t sent_n;
    unsigned n_tries, socket;
    uint64_t deadline_ns;
    uint32_t peer;
    int fd; /* UDP socket that the question came by; -1 = TCP */
    struct sockaddr_in from;
    size_t conn;
    uint32_t conn_serial;
};

struct udp_side {
    struct resp_dns *d;
    int fd;
    struct loop_fd *h;
};

struct resp_dns {
    struct resp *r;
    struct pending pending[PENDING_MAX];
    size_t n_pending;
    struct tcp_conn *conns[CONNS_MAX];
    uint32_t serial;
    struct loop_timer *tick;
    bool is_armed;
    struct udp_side udp[2], tcp[2], up[RESP_MAX_UPSTREAMS * RESP_UPSTREAM_SOCKETS];
    uint8_t scratch[DNS_MSG_MAX + 1], scratch2[DNS_MSG_MAX + 1];
};

static void arm(struct resp_dns *d)
{
    if (d->is_armed) {
        return; /* a timer that is always moved back never rings */
    }
    d->is_armed = true;
    loop_timer_set(d->tick, loop_now_ns(d->r->loop) + TICK_NS);
}

/* ---- TCP connections ---- */

static void conn_close(struct resp_dns *d, size_t i)
{
    struct tcp_conn *c = d->conns[i];
    d->conns[i] = NULL;
    loop_fd_del(c->h);
    close(c->fd);
    buf_done(&c->out);
    free(c);
}

static size_t conn_index(const struct tcp_conn *c)
{
    for (size_t i = 0; i < CONNS_MAX; i++) {
        if (c->d->conns[i] == c) {
            return i;
        }
    }
    abort();
}

/* False: the connection is gone. */
static bool conn_flush(struct tcp_conn *c)
{
    while (c->out_off < c->out.n) {
        ssize_t n = send(c->fd, c->out.p + c->out_off, c->out.n - c->out_off,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            break;
        }
        if (n <= 0) {
            conn_close(c->d, conn_index(c));
            return false;
        }
        c->out_off += (size_t)n;
    }
    if (c->out_off == c->out.n) {
        buf_clear(&c->out);
        c->out_off = 0;
    }
    bool wants_write = c->out.n > 0, wants_read = !c->is_waiting && !wants_write;
    loop_fd_mod(c->h, (wants_write ? EPOLLOUT : 0u) | (wants_read ? EPOLLIN : 0u));
    return true;
}

/* ---- answers ---- */

static void reply(struct resp_dns *d, const struct pending *p, const uint8_t *msg, size_t n)
{
    if (p->fd >= 0) {
        (void)sendto(p->fd, msg, n, MSG_DONTWAIT | MSG_NOSIGNAL,
                     (const struct sockaddr *)&p->from, sizeof(p->from));
        return;
    }
    struct tcp_conn *c = d->conns[p->conn];
    if (!c || c->serial != p->conn_serial) {
        return;
    }
    c->is_waiting = false;
    c->deadline_ns = loop_now_ns(d->r->loop) + CONN_IDLE_NS;
    const char head[2] = {(char)(n >> 8), (char)n};
    buf_add(&c->out, str_n(head, 2));
    buf_add(&c->out, str_n((const char *)msg, n));
}

static void drop(struct resp_dns *d, struct pending *p)
{
    p->is_used = false;
    d->n_pending--;
}

static size_t limit_of(const struct pending *p)
{
    return p->fd < 0 ? DNS_MSG_MAX : MIN(p->q.udp_size, DNS_UDP_MAX);
}

static void reply_error(struct resp_dns *d, const struct pending *p, struct str msg, int rcode)
{
    size_t n = dns_make_error(msg, &p->q, rcode, d->scratch2, limit_of(p));
    if (n) {
        reply(d, p, d->scratch2, n);
    }
}

/* After reply(): a TCP connection goes on with what it has, now that nothing points into it. */
static void resume(struct resp_dns *d, const struct pending *p);

static void fail_pending(struct resp_dns *d, struct pending *p)
{
    struct pending copy = *p;
    drop(d, p);
    uint8_t head[DNS_UDP_MIN];
    memcpy(head, copy.sent, copy.sent_n);
    head[0] = (uint8_t)(copy.q.id >> 8);
    head[1] = (uint8_t)copy.q.id;
    reply_error(d, &copy, str_n((const char *)head, copy.sent_n), DNS_SERVFAIL);
    resume(d, &copy);
}

/* ---- forwarding ---- */

static void send_try(struct resp_dns *d, struct pending *p)
{
    /* Each try goes to the next upstream, by a socket chosen at random. */
    size_t n_servers = d->r->n_upstreams / RESP_UPSTREAM_SOCKETS;
    p->deadline_ns = loop_now_ns(d->r->loop) + TRY_NS;
    if (n_servers == 0) {
        p->n_tries++;
        return; /* they went while it waited */
    }
    size_t server = p->n_tries % n_servers;
    p->socket = (unsigned)(server * RESP_UPSTREAM_SOCKETS + rand_u64() % RESP_UPSTREAM_SOCKETS);
    p->n_tries++;
    (void)send(d->r->upstreams[p->socket], p->sent, p->sent_n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void forward(struct resp_dns *d, const struct pending *want, struct str msg)
{
    size_t n_peer = 0;
    struct pending *p = NULL;
    for (size_t i = 0; i < PENDING_MAX; i++) {
        if (!d->pending[i].is_used) {
            p = p ? p : &d->pending[i];
        } else if (d->pending[i].peer == want->peer) {
            n_peer++;
        }
    }
    if (!p || n_peer >= PENDING_PER_PEER || d->r->n_upstreams < RESP_UPSTREAM_SOCKETS) {
        log_warn_rl("dns.not_forwarded", KV_U64("waiting", d->n_pending),
                    KV_U64("upstreams", d->r->n_upstreams));
        reply_error(d, want, msg, d->r->n_upstreams ? DNS_SERVFAIL : DNS_REFUSED);
        return;
    }
    *p = *want;
    uint16_t id = (uint16_t)rand_u64();
    p->sent_n = dns_make_upstream(msg, &p->q, id, p->sent, sizeof(p->sent));
    if (!p->sent_n) {
        reply_error(d, want, msg, DNS_FORMERR);
        return;
    }
    p->is_used = true;
    d->n_pending++;
    send_try(d, p);
    arm(d);
    if (p->fd < 0 && d->conns[p->conn]) {
        d->conns[p->conn]->is_waiting = true;
    }
}

static void take_query(struct resp_dns *d, struct pending *from, struct str msg)
{
    const struct fact_vpc *v = facts_vpc(d->r->facts);
    int rcode = dns_parse_query(msg, &from->q);
    if (rcode < 0 || !v) {
        if (from->fd < 0) {
            from->q = (struct dns_query){0};
        }
        return;
    }
    if (rcode > 0 || !v->is_dns_support) {
        reply_error(d, from, msg, rcode ? rcode : DNS_REFUSED);
        return;
    }
    size_t n = dns_answer_local(msg, &from->q, d->r->facts, d->scratch2, limit_of(from));
    if (n) {
        reply(d, from, d->scratch2, n);
        return;
    }
    if (!from->q.is_recursion_desired) {
        reply_error(d, from, msg, DNS_REFUSED);
        return;
    }
    forward(d, from, msg);
}

static void on_upstream(void *ctx, uint32_t ready)
{
    struct udp_side *s = ctx;
    struct resp_dns *d = s->d;
    unsigned socket = (unsigned)(s - d->up);
    for (int i = 0; i < BATCH_MAX; i++) {
        ssize_t n = recv(s->fd, d->scratch, sizeof(d->scratch), MSG_DONTWAIT);
        if (n < 0) {
            return; /* ECONNREFUSED too: the next try goes elsewhere */
        }
        struct str answer = str_n((const char *)d->scratch, (size_t)n);
        struct pending *p = NULL;
        for (size_t k = 0; k < PENDING_MAX && !p; k++) {
            struct pending *x = &d->pending[k];
            bool is_it = x->is_used && x->socket == socket &&
                         dns_is_answer_to(answer, str_n((const char *)x->sent, x->sent_n));
            p = is_it ? x : NULL;
        }
        if (!p) {
            continue;
        }
        size_t size = p->fd < 0 && dns_is_truncated(answer)
                          ? 0
                          : dns_make_relayed(answer, &p->q, limit_of(p), d->scratch2);
        if (!size) {
            fail_pending(d, p);
            continue;
        }
        struct pending copy = *p;
        drop(d, p);
        reply(d, &copy, d->scratch2, size);
        resume(d, &copy);
    }
}

static void on_tick(void *ctx)
{
    struct resp_dns *d = ctx;
    uint64_t now = loop_now_ns(d->r->loop);
    bool has_conns = false;
    d->is_armed = false;
    for (size_t i = 0; i < PENDING_MAX && d->n_pending; i++) {
        struct pending *p = &d->pending[i];
        if (!p->is_used || now < p->deadline_ns) {
            continue;
        }
        if (p->n_tries >= TRIES_MAX) {
            fail_pending(d, p);
        } else {
            send_try(d, p);
        }
    }
    for (size_t i = 0; i < CONNS_MAX; i++) {
        if (d->conns[i] && now >= d->conns[i]->deadline_ns) {
            conn_close(d, i);
        }
        has_conns = has_conns || d->conns[i];
    }
    if (d->n_pending || has_conns) {
        arm(d);
    }
}

/* ---- guests ---- */

static void on_udp(void *ctx, uint32_t ready)
{
    struct udp_side *s = ctx;
    struct resp_dns *d = s->d;
    for (int i = 0; i < BATCH_MAX; i++) {
        uint32_t ifindex = 0;
        struct pending from = {.fd = s->fd};
        ssize_t n = resp_recv(s->fd, d->scratch, TCP_QUERY_MAX, &from.from, &ifindex);
        if (n == -EMSGSIZE) {
            continue;
        }
        if (n < 0) {
            return;
        }
        from.peer = from.from.sin_addr.s_addr;
        take_query(d, &from, str_n((const char *)d->scratch, (size_t)n));
    }
}

/* Takes complete questions off the connection's buffer, one at a time. */
static bool conn_run(struct tcp_conn *c)
{
    struct resp_dns *d = c->d;
    while (!c->is_waiting && c->out.n == 0 && c->in_n >= 2) {
        size_t len = (size_t)c->in[0] << 8 | c->in[1];
        if (len > TCP_QUERY_MAX || len == 0) {
            conn_close(d, conn_index(c));
            return false;
        }
        if (c->in_n < 2 + len) {
            break;
        }
        struct pending from = {
            .fd = -1, .peer = c->peer, .conn = conn_index(c), .conn_serial = c->serial};
        memcpy(d->scratch, c->in + 2, len);
        c->in_n -= 2 + len;
        memmove(c->in, c->in + 2 + len, c->in_n);
        take_query(d, &from, str_n((const char *)d->scratch, len));
        if (!conn_flush(c)) {
            return false;
        }
    }
    return true;
}

static void resume(struct resp_dns *d, const struct pending *p)
{
    struct tcp_conn *c = p->fd < 0 ? d->conns[p->conn] : NULL;
    if (c && c->serial == p->conn_serial && conn_flush(c)) {
        (void)conn_run(c);
    }
}

static void on_conn(void *ctx, uint32_t ready)
{
    struct tcp_conn *c = ctx;
    struct resp_dns *d = c->d;
    if ((ready & EPOLLOUT) && !conn_flush(c)) {
        return;
    }
    if (!(ready & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        (void)conn_run(c);
        return;
    }
    if (c->in_n < sizeof(c->in)) {
        ssize_t n = recv(c->fd, c->in + c->in_n, sizeof(c->in) - c->in_n, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            conn_close(d, conn_index(c));
            return;
        }
        c->in_n += n > 0 ? (size_t)n : 0;
    } else if (ready & (EPOLLHUP | EPOLLERR)) {
        conn_close(d, conn_index(c));
        return;
    }
    (void)conn_run(c);
}

static void add_conn(struct resp_dns *d, int fd, uint32_t peer)
{
    size_t slot = CONNS_MAX, n_peer = 0;
    for (size_t i = 0; i < CONNS_MAX; i++) {
        if (!d->conns[i]) {
            slot = i;
        } else if (d->conns[i]->peer == peer) {
            n_peer++;
        }
    }
    struct tcp_conn *c =
        slot < CONNS_MAX && n_peer < CONNS_PER_PEER ? calloc(1, sizeof(*c)) : NULL;
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct tcp_conn){.d = d, .fd = fd, .peer = peer, .serial = ++d->serial};
    c->deadline_ns = loop_now_ns(d->r->loop) + CONN_IDLE_NS;
    buf_init(&c->out, 2 * (DNS_MSG_MAX + 2));
    if (loop_fd_add(d->r->loop, fd, EPOLLIN, on_conn, c, &c->h)) {
        close(fd);
        free(c);
        return;
    }
    d->conns[slot] = c;
    arm(d);
}

static void on_accept(void *ctx, uint32_t ready)
{
    struct udp_side *s = ctx;
    for (int i = 0; i < BATCH_MAX; i++) {
        struct sockaddr_in sa = {0};
        socklen_t len = sizeof(sa);
        int fd = accept4(s->fd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        add_conn(s->d, fd, sa.sin_addr.s_addr);
    }
}

static int watch(struct resp_dns *d, struct udp_side *s, int fd, loop_fd_fn fn)
{
    *s = (struct udp_side){.d = d, .fd = fd};
    return loop_fd_add(d->r->loop, fd, EPOLLIN, fn, s, &s->h);
}

int resp_dns_set_upstreams(struct resp *r, const int *fds, size_t n, struct err *err)
{
    struct resp_dns *d = r->dns;
    int e = n > ARRAY_LEN(r->upstreams) || n % RESP_UPSTREAM_SOCKETS ? -EINVAL : 0;
    for (size_t i = 0; !e && i < r->n_upstreams; i++) {
        loop_fd_del(d->up[i].h);
        close(r->upstreams[i]);
    }
    /* Questions on their way are asked again when their time is over. */
    r->n_upstreams = e ? r->n_upstreams : 0;
    for (size_t i = 0; i < n; i++) {
        e = e ? e : watch(d, &d->up[i], fds[i], on_upstream);
        if (e) {
            close(fds[i]);
        } else {
            r->upstreams[r->n_upstreams++] = fds[i];
        }
    }
    r->n_upstreams -= r->n_upstreams % RESP_UPSTREAM_SOCKETS;
    return e ? fail(err, e, "BadUsage", "%zu sockets of name servers", n) : 0;
}

int resp_dns_start(struct resp *r, struct err *err)
{
    struct resp_dns *d = calloc(1, sizeof(*d)); /* lives as long as the process */
    if (!d) {
        return fail(err, -ENOMEM, "StartFailed", "no memory for DNS");
    }
    r->dns = d;
    d->r = r;
    d->tick = loop_timer_new(r->loop, on_tick, d);
    int e = watch(d, &d->udp[0], r->fds[RESP_FD_DNS_UDP_A], on_udp);
    e = e ? e : watch(d, &d->udp[1], r->fds[RESP_FD_DNS_UDP_B], on_udp);
    e = e ? e : watch(d, &d->tcp[0], r->fds[RESP_FD_DNS_TCP_A], on_accept);
    e = e ? e : watch(d, &d->tcp[1], r->fds[RESP_FD_DNS_TCP_B], on_accept);
    return e ? fail(err, e, "StartFailed", "watch the DNS sockets") : 0;
}

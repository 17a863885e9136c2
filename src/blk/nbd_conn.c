#include "base/log.h"
#include "base/time.h"
#include "blk/nbd_int.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define IN_SIZE    (64u << 10) /* more than an option that is looked at */
#define HEAD_MAX   (16u << 10) /* of an answer */
#define READS_MAX  16          /* in one turn, before the disk has its turn */
#define PAGE_ALIGN 4096u

/* ---- the end ---- */

static void die(struct nbd_conn *c)
{
    c->is_closing = c->is_dead = true;
}

static void on_stop(struct blk_msg *m)
{
    die(CONTAINER_OF(m, struct nbd_conn, stop_msg));
}

static bool has_output(const struct nbd_conn *c)
{
    return c->out.n > 0 || c->ready;
}

/* ---- waiting for the socket: one poll of each kind in the ring ---- */

static void on_in(struct blk_io *io, int res)
{
    CONTAINER_OF(io, struct nbd_conn, in_io)->is_in_armed = false;
}

static void on_out(struct blk_io *io, int res)
{
    CONTAINER_OF(io, struct nbd_conn, out_io)->is_out_armed = false;
}

/* Without an sqe the ring is full of this connection's own requests: their ends make turns. */
static void arm(struct nbd_conn *c, bool *is_armed, struct blk_io *io, unsigned events)
{
    struct io_uring_sqe *sqe = *is_armed ? NULL : blk_queue_sqe(c->q);
    if (sqe) {
        io_uring_prep_poll_add(sqe, c->fd, events);
        io_uring_sqe_set_data(sqe, io);
        *is_armed = true;
    }
}

/* ---- answers ---- */

static void unlink_job(struct nbd_conn *c, struct nbd_job *j)
{
    struct nbd_job **p = &c->jobs;
    while (*p && *p != j) {
        p = &(*p)->next;
    }
    if (*p) {
        *p = j->next;
    }
}

static void drop(struct nbd_conn *c, struct nbd_job *j)
{
    c->n_jobs--;
    c->n_bytes -= j->data ? j->r.len : 0;
    nbd_job_free(j);
}

void nbd_job_done(struct nbd_job *j)
{
    struct nbd_conn *c = j->c;
    unlink_job(c, j);
    if (!has_output(c)) {
        c->moved_ns = time_mono_ns(); /* from now on the peer owes us that it reads */
    }
    nbd_reply(j, &c->hs);
    j->next = NULL;
    *c->ready_tail = j;
    c->ready_tail = &j->next;
}

static ssize_t send_some(struct nbd_conn *c, struct iovec *iov, size_t n)
{
    struct msghdr h = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t sent = -1;
    do {
        sent = sendmsg(c->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno == EAGAIN) {
        arm(c, &c->is_out_armed, &c->out_io, POLLOUT);
        return 0;
    }
    if (sent <= 0) {
        die(c);
        return 0;
    }
    c->moved_ns = time_mono_ns();
    return sent;
}

/* True when all of the job is on its way. */
static bool send_job(struct nbd_conn *c, struct nbd_job *j)
{
    ssize_t n = send_some(c, j->out + j->iov_idx, j->n_iov - j->iov_idx);
    while (n > 0) {
        struct iovec *v = &j->out[j->iov_idx];
        size_t take = MIN((size_t)n, v->iov_len);
        v->iov_base = (char *)v->iov_base + take;
        v->iov_len -= take;
        n -= (ssize_t)take;
        j->iov_idx += v->iov_len == 0;
    }
    return j->iov_idx == j->n_iov;
}

static void flush_output(struct nbd_conn *c)
{
    while (c->out.n > 0 && !c->is_dead && !c->is_out_armed) {
        struct iovec v = {.iov_base = c->out.p, .iov_len = c->out.n};
        buf_drop(&c->out, (size_t)send_some(c, &v, 1));
    }
    while (c->ready && !c->is_dead && !c->is_out_armed) {
        struct nbd_job *j = c->ready;
        if (send_job(c, j)) {
            c->ready = j->next;
            c->ready_tail = c->ready ? c->ready_tail : &c->ready;
            drop(c, j);
        }
    }
    while (c->ready && c->is_dead) {
        struct nbd_job *j = c->ready;
        c->ready = j->next;
        c->ready_tail = c->ready ? c->ready_tail : &c->ready;
        drop(c, j);
    }
    if (c->is_dead) {
        buf_clear(&c->out);
    }
}

/* ---- requests ---- */

static void on_spare(void *ctx)
{
    struct nbd_conn *c = ctx;
    c->is_waiting = false;
    for (struct nbd_job *j = c->jobs, *next = NULL; j; j = next) {
        next = j->next;
        if (!nbd_job_go(j)) {
            nbd_conn_wait(c);
            return;
        }
    }
}

void nbd_conn_wait(struct nbd_conn *c)
{
    if (!c->is_waiting) {
        c->is_waiting = true;
        blk_queue_wait(c->q, on_spare, c);
    }
}

static void go(struct nbd_conn *c, struct nbd_job *j)
{
    j->next = c->jobs;
    c->jobs = j;
    j->start_ns = time_mono_ns();
    bool is_flush = j->r.type == NBD_CMD_FLUSH;
    j->wants_flush = is_flush || (j->r.type == NBD_CMD_TRIM && (j->r.flags & NBD_FUA) != 0);
    if (j->error == 0 && j->r.type == NBD_CMD_BLOCK_STATUS) {
        nbd_status(j, c->disk, &c->hs);
    }
    if (j->error != 0 || j->r.type == NBD_CMD_BLOCK_STATUS || (j->r.len == 0 && !is_flush)) {
        nbd_job_done(j);
        return;
    }
    disk_count_start(c->disk, 8 + c->idx);
    if (!nbd_job_go(j)) {
        nbd_conn_wait(c);
    }
}

/* False: there is no room for it now. */
static bool begin(struct nbd_conn *c, const struct nbd_request *r)
{
    if (r->type == NBD_CMD_DISC) {
        c->is_closing = true;
        return true;
    }
    uint32_t error = nbd_request_check(r, &c->x, &c->hs);
    bool has_data =
        error == 0 && r->len > 0 && (r->type == NBD_CMD_READ || r->type == NBD_CMD_WRITE);
    if (c->n_jobs == NBD_IN_FLIGHT || (has_data && c->n_bytes + r->len > NBD_BUDGET)) {
        return false;
    }
    struct nbd_job *j = calloc(1, sizeof(*j));
    if (!j) {
        die(c);
        return true;
    }
    *j = (struct nbd_job){
        .c = c, .r = *r, .error = error, .error_off = UINT64_MAX, .next_off = r->off};
    buf_init(&j->head, HEAD_MAX);
    c->n_jobs++;
    if (has_data) {
        size_t size = ((size_t)r->len + PAGE_ALIGN - 1) / PAGE_ALIGN * PAGE_ALIGN;
        j->data = aligned_alloc(PAGE_ALIGN, size);
        j->error = j->data ? 0 : NBD_ENOMEM;
        c->n_bytes += j->data ? r->len : 0;
    }
    if (r->type == NBD_CMD_WRITE && j->data) {
        c->current = j; /* goes when its payload is there */
        return true;
    }
    c->skip = r->type == NBD_CMD_WRITE ? r->len : 0;
    go(c, j);
    return true;
}

/* What is in c->in, from 'used' on; returns how many bytes of it were used. */
static size_t transmission(struct nbd_conn *c, const uint8_t *p, size_t n)
{
    if (c->skip > 0) {
        size_t take = MIN(n, c->skip);
        c->skip -= (uint32_t)take;
        return take;
    }
    if (c->current) {
        struct nbd_job *j = c->current;
        size_t take = MIN(n, j->r.len - j->n_got);
        memcpy(j->data + j->n_got, p, take);
        j->n_got += (uint32_t)take;
        return take;
    }
    if (n < NBD_REQUEST_SIZE) {
        return 0;
    }
    if (nbd_request_parse(p, &c->pending) != 0) {
        die(c);
        return 0;
    }
    c->has_pending = true;
    return NBD_REQUEST_SIZE;
}

static void advance(struct nbd_conn *c)
{
    if (c->current && c->current->n_got == c->current->r.len) {
        go(c, steal(&c->current));
    }
    if (c->has_pending && begin(c, &c->pending)) {
        c->has_pending = false;
    }
}

static bool can_take(const struct nbd_conn *c)
{
    return !c->is_closing && !c->has_pending && (c->hs.is_serving || c->out.n == 0);
}

static size_t handshake(struct nbd_conn *c, const uint8_t *p, size_t n)
{
    ssize_t used = nbd_hs_step(&c->hs, p, n, &c->out);
    if (used < 0 || !buf_ok(&c->out)) {
        die(c);
        return 0;
    }
    if (c->hs.is_over) {
        c->is_closing = true;
    }
    c->moved_ns = time_mono_ns();
    return (size_t)used;
}

static void parse(struct nbd_conn *c)
{
    size_t used = 0;
    advance(c);
    while (can_take(c)) {
        size_t n = c->hs.is_serving ? transmission(c, c->in + used, c->in_n - used)
                                    : handshake(c, c->in + used, c->in_n - used);
        if (n == 0) {
            break;
        }
        used += n;
        advance(c);
        if (!c->hs.is_serving) {
            flush_output(c);
        }
    }
    memmove(c->in, c->in + used, c->in_n - used);
    c->in_n -= used;
}

/* A payload goes to its place without a detour. */
static ssize_t receive(struct nbd_conn *c)
{
    struct nbd_job *j = c->current;
    bool is_direct = j && c->in_n == 0;
    void *to = is_direct ? j->data + j->n_got : c->in + c->in_n;
    size_t room = is_direct ? j->r.len - j->n_got : IN_SIZE - c->in_n;
    ssize_t n = -1;
    do {
        n = recv(c->fd, to, room, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        return 0;
    }
    if (n <= 0) {
        die(c);
        return 0;
    }
    c->moved_ns = time_mono_ns();
    if (is_direct) {
        j->n_got += (uint32_t)n;
    } else {
        c->in_n += (size_t)n;
    }
    return n;
}

static void take_input(struct nbd_conn *c)
{
    parse(c);
    for (int i = 0; i < READS_MAX && can_take(c) && !c->is_in_armed; i++) {
        if (receive(c) == 0) {
            break;
        }
        parse(c);
    }
    /* Also after many: the poll comes back at once, behind what the disk has done. */
    if (can_take(c)) {
        arm(c, &c->is_in_armed, &c->in_io, POLLIN);
    }
}

/* ---- the thread ---- */

/* When the peer has had enough time; UINT64_MAX: it owes us nothing. */
static uint64_t deadline(const struct nbd_conn *c)
{
    if (!c->hs.is_serving) {
        return c->start_ns + NBD_HELLO_NS;
    }
    bool owes = has_output(c) || (!c->is_closing && !c->has_pending &&
                                  (c->in_n > 0 || c->current || c->skip > 0));
    return owes ? c->moved_ns + c->stall_ns : UINT64_MAX;
}

static bool is_over(struct nbd_conn *c)
{
    if (!c->is_closing || (has_output(c) && !c->is_dead)) {
        return false;
    }
    if (c->current) { /* its payload will not come */
        drop(c, steal(&c->current));
    }
    if (c->n_jobs > 0) {
        return false;
    }
    if (c->is_in_armed || c->is_out_armed) {
        shutdown(c->fd, SHUT_RDWR); /* the polls come back */
    }
    return !c->is_in_armed && !c->is_out_armed;
}

static void turn(struct nbd_conn *c)
{
    flush_output(c);
    take_input(c);
    flush_output(c);
    if (is_over(c)) {
        return;
    }
    uint64_t until = deadline(c), now = time_mono_ns();
    if (until <= now && !c->is_dead) {
        die(c);
    } else {
        blk_queue_run(c->q, until == UINT64_MAX || c->is_dead ? UINT64_MAX : until - now);
    }
}

void *nbd_conn_thread(void *ctx)
{
    struct nbd_conn *c = ctx;
    (void)prctl(PR_SET_NAME, "nbd", 0, 0, 0);
    c->in_io.fn = on_in;
    c->out_io.fn = on_out;
    c->ready_tail = &c->ready;
    c->start_ns = c->moved_ns = time_mono_ns();
    buf_init(&c->out, IN_SIZE);
    nbd_hs_begin(&c->hs, &c->x, &c->out);
    while (!is_over(c)) {
        turn(c);
    }
    buf_done(&c->out);
    nbd_conn_ended(c);
    return NULL;
}

int nbd_conn_new(struct nbd_conn **ret, struct err *err)
{
    struct nbd_conn *c = calloc(1, sizeof(*c));
    uint8_t *in = malloc(IN_SIZE);
    /* A request has at most NBD_PIECES at the disk; the layers have requests of their own. */
    const struct blk_queue_opts o = {
        .depth = 256, .n_reqs = NBD_IN_FLIGHT * NBD_PIECES, .n_buffers = 16};
    int rc = c && in ? 0 : fail(err, -ENOMEM, "OutOfMemory", "no memory for a connection");
    rc = rc != 0 ? rc : blk_queue_new(&o, &c->q, err);
    if (rc != 0) {
        free(c);
        free(in);
        return rc;
    }
    c->in = in;
    c->stop_msg.fn = on_stop;
    *ret = c;
    return 0;
}

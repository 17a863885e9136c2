#include "blk/ctl.h"
#include "blk/vu.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_PROBLEM 4095 /* of Linux: errno as a system call may return it */

/* Members of an array that a reader takes as text: ends inside, is printable. */
static bool is_text(const char *p, size_t size)
{
    const char *end = memchr(p, 0, size);
    for (const char *c = p; end && c < end; c++) {
        if (*c < 0x20 || *c > 0x7e) {
            return false;
        }
    }
    return end != NULL;
}

/* Ids of volumes and snapshots: they become names of files and keys. */
static bool is_id(const char id[BLK_SNAP_ID], bool may_be_empty)
{
    const char *end = memchr(id, 0, BLK_SNAP_ID);
    for (const char *c = id; end && c < end; c++) {
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && *c != '-') {
            return false;
        }
    }
    return end && (may_be_empty || end != id);
}

static bool is_size(uint64_t n)
{
    return n > 0 && n <= CTL_MAX_SIZE && n % BLK_SECTOR == 0;
}

static bool is_of_disk(const struct ctl_head *h)
{
    return h->disk < CTL_MAX_DISKS;
}

static bool check_disk(const union ctl_msg *m, size_t n_fds)
{
    return is_of_disk(&m->h);
}

static bool check_any(const union ctl_msg *m, size_t n_fds)
{
    return true;
}

static bool check_open(const union ctl_msg *m, size_t n_fds)
{
    const struct ctl_open *o = &m->open;
    size_t want = 1; /* data */
    for (unsigned f = CTL_OPEN_MAP; f <= CTL_OPEN_BASE_MAP; f <<= 1) {
        want += (o->flags & f) != 0;
    }
    /* The parts of a map without a map, a base that nobody can tell the extent of, a key of
     * nothing: not a wish that can be met. */
    const uint32_t of_map = CTL_OPEN_RUN | CTL_OPEN_ASIDE | CTL_OPEN_BASE | CTL_OPEN_SOURCE;
    bool has_map = (o->flags & CTL_OPEN_MAP) != 0;
    bool has_base = (o->flags & CTL_OPEN_BASE) != 0;
    return is_of_disk(&o->h) && is_id(o->id, false) && is_size(o->size) &&
           (o->flags & ~(uint32_t)CTL_OPEN_ALL) == 0 && n_fds == want && o->n_queues >= 1 &&
           o->n_queues <= CTL_MAX_QUEUES && (has_map || (o->flags & of_map) == 0) &&
           has_base == ((o->flags & CTL_OPEN_BASE_MAP) != 0) &&
           (has_base || (o->flags & CTL_OPEN_BASE_KEY) == 0);
}

static bool check_close(const union ctl_msg *m, size_t n_fds)
{
    return is_of_disk(&m->h) && m->h.arg <= 1;
}

static bool check_serve(const union ctl_msg *m, size_t n_fds)
{
    const struct ctl_serve *s = &m->serve;
    return is_of_disk(&s->h) && s->h.arg <= 1 && s->n_queues <= CTL_MAX_QUEUES &&
           is_text(s->serial, VU_SERIAL + 1) && s->poll_ns <= CTL_MAX_POLL_NS &&
           (s->h.op != CTL_SERVE_VU || s->n_queues >= 1);
}

static bool check_grow(const union ctl_msg *m, size_t n_fds)
{
    return is_of_disk(&m->h) && is_size(m->h.arg);
}

static bool check_snap(const union ctl_msg *m, size_t n_fds)
{
    const struct ctl_snap *s = &m->snap;
    uint64_t seen = 0; /* a disk twice has no point in time */
    if (s->n < 1 || s->n > CTL_MAX_DISKS || s->h.arg > 1) {
        return false;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t d = s->v[i].disk;
        if (d >= CTL_MAX_DISKS || !is_id(s->v[i].snap, false) ||
            (seen & (UINT64_C(1) << d)) != 0) {
            return false;
        }
        seen |= UINT64_C(1) << d;
    }
    return true;
}

static bool check_named_snap(const union ctl_msg *m, size_t n_fds)
{
    return is_of_disk(&m->h) && is_id(m->h.snap, false);
}

static bool is_block(const struct ctl_head *h)
{
    return is_of_disk(h) && h->slot < CTL_N_SLOTS && h->block < CTL_MAX_SIZE / BLK_BLOCK;
}

static bool check_fetched(const union ctl_msg *m, size_t n_fds)
{
    int32_t rc = m->h.rc;
    return is_block(&m->h) &&
           ((rc >= 0 && rc <= CTL_FETCHED_IN_BASE) || rc == -EIO || rc == -EAGAIN);
}

static bool check_stored(const union ctl_msg *m, size_t n_fds)
{
    return is_block(&m->h) && is_id(m->h.snap, false) && (m->h.rc == 0 || m->h.rc == -EAGAIN);
}

static bool check_fetch(const union ctl_msg *m, size_t n_fds)
{
    return is_block(&m->h) && m->h.arg <= 1;
}

static bool check_upload(const union ctl_msg *m, size_t n_fds)
{
    return is_block(&m->h) && is_id(m->h.snap, false);
}

static bool check_welcome(const union ctl_msg *m, size_t n_fds)
{
    return m->welcome.pid > 0 && m->welcome.pid <= INT32_MAX &&
           m->welcome.n_disks <= CTL_MAX_DISKS;
}

static bool check_result(const union ctl_msg *m, size_t n_fds)
{
    const struct ctl_result *r = &m->result;
    return r->h.rc <= 0 && r->h.rc >= -MAX_PROBLEM && is_text(r->name, sizeof(r->name)) &&
           is_text(r->text, sizeof(r->text)) && (n_fds == 0 || r->h.rc == 0);
}

static bool check_state(const union ctl_msg *m, size_t n_fds)
{
    const struct ctl_state *s = &m->state;
    for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
        const struct blk_frozen *f = &s->frozen[i];
        if (!is_id(f->snap, true) || !is_id(f->parent, true) || f->n_left > f->n_blocks ||
            f->is_full > 1 || f->is_durable > 1) {
            return false;
        }
    }
    return is_of_disk(&s->h) && is_id(s->id, false) && is_size(s->size) && s->is_faulted <= 1 &&
           s->is_vu_connected <= 1;
}

/* One row an operation: what it is made of. More descriptors than a row allows are refused
 * before anybody uses one. */
struct form {
    size_t size;
    unsigned min_fds, max_fds;
    bool (*check)(const union ctl_msg *m, size_t n_fds);
};

static const struct form to_data[] = {
    [CTL_OPEN] = {sizeof(struct ctl_open), 1, 6, check_open},
    [CTL_CLOSE] = {sizeof(struct ctl_head), 0, 0, check_close},
    [CTL_SERVE_VU] = {sizeof(struct ctl_serve), 1, 1, check_serve},
    [CTL_SERVE_NBD] = {sizeof(struct ctl_serve), 1, 1, check_serve},
    [CTL_UNSERVE] = {sizeof(struct ctl_head), 0, 0, check_close},
    [CTL_LIMITS] = {sizeof(struct ctl_limits), 0, 0, check_disk},
    [CTL_GROW] = {sizeof(struct ctl_head), 0, 0, check_grow},
    [CTL_SNAP] = {sizeof(struct ctl_snap), 0, 0, check_snap},
    [CTL_SNAP_READ] = {sizeof(struct ctl_head), 0, 0, check_named_snap},
    [CTL_SNAP_END] = {sizeof(struct ctl_head), 0, 0, check_named_snap},
    [CTL_FETCHED] = {sizeof(struct ctl_head), 0, 0, check_fetched},
    [CTL_STORED] = {sizeof(struct ctl_head), 0, 0, check_stored},
    [CTL_FILL] = {sizeof(struct ctl_head), 0, 0, check_disk},
    [CTL_STATE] = {sizeof(struct ctl_head), 0, 0, check_any},
    [CTL_GIVE] = {sizeof(struct ctl_head), 0, 0, check_disk},
    [CTL_QUIT] = {sizeof(struct ctl_head), 0, 0, check_any},
    [CTL_SNAP_ABORT] = {sizeof(struct ctl_head), 0, 0, check_named_snap},
    [CTL_ABSENT] = {sizeof(struct ctl_head), 0, 0, check_disk},
};

static const struct form from_data[] = {
    [CTL_WELCOME - CTL_WELCOME] = {sizeof(struct ctl_welcome), 1, 1, check_welcome},
    [CTL_RESULT - CTL_WELCOME] = {sizeof(struct ctl_result), 0, 2, check_result},
    [CTL_FETCH - CTL_WELCOME] = {sizeof(struct ctl_head), 0, 0, check_fetch},
    [CTL_UPLOAD - CTL_WELCOME] = {sizeof(struct ctl_head), 0, 0, check_upload},
    [CTL_SNAP_DONE - CTL_WELCOME] = {sizeof(struct ctl_head), 0, 0, check_named_snap},
    [CTL_DISK_STATE - CTL_WELCOME] = {sizeof(struct ctl_state), 0, 0, check_state},
};

static const struct form *form_of(unsigned op, bool is_from_data)
{
    const struct form *f = NULL;
    if (is_from_data) {
        f = op >= CTL_WELCOME && op - CTL_WELCOME < ARRAY_LEN(from_data)
                ? &from_data[op - CTL_WELCOME]
                : NULL;
    } else {
        f = op < ARRAY_LEN(to_data) ? &to_data[op] : NULL;
    }
    return f && f->size > 0 ? f : NULL;
}

int ctl_check(const union ctl_msg *m, size_t n, size_t n_fds, bool is_from_data)
{
    if (n < sizeof(m->h) || m->h.magic != CTL_MAGIC || m->h.version != CTL_VERSION ||
        m->h.size != n) {
        return -EPROTO;
    }
    const struct form *f = form_of(m->h.op, is_from_data);
    if (!f || n != f->size || n_fds < f->min_fds || n_fds > f->max_fds) {
        return -EPROTO;
    }
    return f->check(m, n_fds) ? 0 : -EPROTO;
}

int ctl_send(int sock, union ctl_msg *m, const int *fds, size_t n_fds)
{
    const struct form *f = form_of(m->h.op, m->h.op >= CTL_WELCOME);
    assert(f && n_fds >= f->min_fds && n_fds <= f->max_fds);
    m->h.magic = CTL_MAGIC;
    m->h.version = CTL_VERSION;
    m->h.size = (uint32_t)f->size;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(CTL_MAX_FDS * sizeof(int))];
    } c = {0};
    struct iovec iov = {.iov_base = m, .iov_len = f->size};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        h.msg_control = c.bytes;
        h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(cm), fds, n_fds * sizeof(int));
    }
    ssize_t n = -1;
    do {
        n = sendmsg(sock, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        bool is_full = errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM;
        return is_full ? -EAGAIN : -EPIPE;
    }
    return 0;
}

/* Descriptors of all control messages; those past the limit are closed. False when there were
 * more than the limit, or other control messages. */
static bool take_fds(struct msghdr *h, int fds[CTL_MAX_FDS], size_t *ret_n)
{
    bool is_fine = (h->msg_flags & MSG_CTRUNC) == 0;
    size_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            is_fine = false;
            continue;
        }
        size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < got; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (n < CTL_MAX_FDS) {
                fds[n++] = fd;
            } else {
                close(fd);
                is_fine = false;
            }
        }
    }
    *ret_n = n;
    return is_fine;
}

int ctl_recv(int sock, bool is_from_data, union ctl_msg *ret, int fds[CTL_MAX_FDS],
             size_t *ret_n_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(CTL_MAX_FDS * sizeof(int))];
    } c = {0};
    struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = c.bytes,
                       .msg_controllen = sizeof(c.bytes)};
    *ret_n_fds = 0;
    ssize_t n = -1;
    do {
        n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return errno == EAGAIN ? -EAGAIN : -EPIPE;
    }
    size_t n_fds = 0;
    int rc = take_fds(&h, fds, &n_fds) && (h.msg_flags & MSG_TRUNC) == 0 ? 0 : -EPROTO;
    if (n == 0 && n_fds == 0) {
        return -EPIPE;
    }
    rc = rc != 0 ? rc : ctl_check(ret, (size_t)n, n_fds, is_from_data);
    if (rc != 0) {
        for (size_t i = 0; i < n_fds; i++) {
            close(fds[i]);
        }
        return rc;
    }
    *ret_n_fds = n_fds;
    return 0;
}
